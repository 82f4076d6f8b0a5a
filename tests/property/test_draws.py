"""Facts about the three outcomes of a pair, as they are predicted and as they are scored."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import accuracy
from stream_rater.rating.parameters import (
    Glicko,
    RatingConfig,
    TrueSkill,
    TwoMoment,
    fingerprint,
)
from stream_rater.rating.prediction.forecast import Believed, Forecast, of_round
from stream_rater.rating.prediction.wins import Performances, of_rounds, win_probabilities

gaps = st.floats(-3000.0, 3000.0)
sigmas = st.floats(10.0, 1000.0)
widths = st.floats(0.0, 500.0)
upsets = st.floats(0.0, 0.2)
EXACT = 1e-9


def predicted(gap: float, sigma: float, width: float, upset: float) -> tuple[float, float, float]:
    """P(win), P(draw) and P(loss) of a side whose mean is `gap` above that of the other."""
    first, second = win_probabilities(
        Performances(np.array([gap, 0.0]), np.full(2, sigma), width, upset)
    ).tolist()
    return first, 1.0 - first - second, second


@given(gaps, sigmas, widths, upsets)
def test_the_outcomes_add_up_and_sides_may_be_swapped(
    gap: float, sigma: float, width: float, upset: float
) -> None:
    """Each lies between 0 and 1. Whoever is called the first, a draw is as likely."""
    win, draw, loss = predicted(gap, sigma, width, upset)
    assert min(win, draw, loss) >= -EXACT
    assert win + draw + loss == pytest.approx(1.0, abs=EXACT)
    assert predicted(-gap, sigma, width, upset) == pytest.approx((loss, draw, win), abs=EXACT)
    if width == 0.0:
        assert draw == pytest.approx(0.0, abs=EXACT)


@given(gaps, st.floats(0.0, 3000.0), sigmas, widths, upsets)
def test_a_greater_lead_wins_more(
    gap: float, more: float, sigma: float, width: float, upset: float
) -> None:
    """And loses less of what is decided: an upset can also befall a round that a lesser lead would
    have drawn. A draw is less likely, the further the sides are apart."""
    one, other = (predicted(each, sigma, width, upset) for each in (gap, gap + more))
    assert one[0] <= other[0] + EXACT
    assert one[2] * (1.0 - other[1]) >= other[2] * (1.0 - one[1]) - EXACT
    near, far = sorted((abs(gap), abs(gap + more)))
    draws = [predicted(each, sigma, width, upset)[1] for each in (0.0, near, far)]
    assert draws[0] >= draws[1] - EXACT
    assert draws[1] >= draws[2] - EXACT


@given(gaps, sigmas, widths, upsets)
def test_an_upset_is_chance_alone(gap: float, sigma: float, width: float, upset: float) -> None:
    """It moves both sides nearer to each other, and changes no draw."""
    (win, draw, loss), (w, d, x) = (predicted(gap, sigma, width, each) for each in (upset, 0.0))
    assert draw == pytest.approx(d, abs=EXACT)
    assert win == pytest.approx((1.0 - d) * upset + (1.0 - 2.0 * upset) * w, abs=EXACT)
    assert loss == pytest.approx((1.0 - d) * upset + (1.0 - 2.0 * upset) * x, abs=EXACT)


@given(st.lists(gaps, min_size=3, max_size=8), sigmas, widths, upsets)
def test_upsets_in_a_round_of_many_sides(
    mu: list[float], sigma: float, width: float, upset: float
) -> None:
    """Alone and with other rounds: a part of the winners is dealt evenly."""
    sides = Performances(np.array(mu), np.full(len(mu), sigma), width)
    usual = win_probabilities(sides)
    due = (1.0 - 2.0 * upset) * usual + 2.0 * upset * usual.sum() / len(mu)
    assert win_probabilities(sides._replace(upset=upset)) == pytest.approx(due, abs=EXACT)
    many = Performances(
        np.append(sides.mu, [0.0, 1.0]), np.append(sides.sigma, [0.0, 1.0]), width, upset
    )
    starts = np.array([0, len(mu), len(mu) + 2])
    margins = np.full(2, width)
    for found in (
        of_rounds(starts, many),
        of_rounds(starts, many._replace(margin=9), margins=margins),
    ):
        assert found[: len(mu)] == pytest.approx(due, abs=2e-5)


@given(gaps, sigmas, st.floats(0.01, 500.0), upsets, st.sampled_from(["win", "draw", "loss"]))
def test_what_is_scored_is_what_is_predicted(
    gap: float, sigma: float, width: float, upset: float, outcome: str
) -> None:
    """The log loss and the Brier score of a pair are those of its predicted outcomes."""
    win, draw, loss = predicted(gap, sigma, width, upset)
    place = np.array([1, 1 if outcome == "draw" else 2], np.int32)
    mu = np.array([0.0, gap] if outcome == "loss" else [gap, 0.0])
    surprise, square, pairs = accuracy.pair_scores_with_draws(
        place, mu, np.full(2, sigma**2), width, upset
    )
    p = {"win": win, "draw": draw, "loss": loss}[outcome]
    assert pairs == 1
    if p > 1e-6:
        assert surprise == pytest.approx(-math.log(p), rel=1e-3, abs=1e-9)
    happened = [outcome == each for each in ("win", "draw", "loss")]
    due = 0.5 * sum((a - b) ** 2 for a, b in zip((win, draw, loss), happened, strict=True))
    assert square == pytest.approx(due, abs=1e-8)


@given(gaps, sigmas, upsets)
def test_without_draws_the_loss_of_two_outcomes_is_the_limit(
    gap: float, sigma: float, upset: float
) -> None:
    """A width of 0 has two outcomes."""
    given_ = np.array([1, 2], np.int32), np.array([gap, 0.0]), np.full(2, sigma**2)
    two = accuracy.pair_scores(*given_, upset)
    three = accuracy.pair_scores_with_draws(*given_, 0.0, upset)
    assert three == pytest.approx(two, rel=1e-6, abs=1e-9)


# --- ladders --------------------------------------------------------------------------------------

LADDERS: list[RatingConfig] = [
    TwoMoment(), Glicko(beta=250.0, sigma_drift=30.0),
    TrueSkill(beta=200.0, sigma_drift=35.0, draw_margin=40.0),
]  # fmt: skip


def forecast_of(config: RatingConfig, mu: Floats) -> Forecast:
    """A duel of two who have played."""
    players = Believed(mu, np.array([90.0, 120.0]), np.full(2, 9))
    return of_round(config, np.arange(3), np.ones(2), players)


@pytest.mark.parametrize("config", LADDERS)
def test_a_ladder_predicts_by_its_three_numbers(config: RatingConfig) -> None:
    """They change no fingerprint, because they change no rating."""
    mu = np.array([1600.0, 1500.0])
    changed = structs.replace(config, variance_factor=2.0, draw_width=60.0, upset=0.1)
    found = forecast_of(changed, mu)
    variance = 2.0 * sum(
        config.chances.sigmas * each**2 + config.chances.noise for each in (90, 120)
    )
    win, draw, loss = predicted(100.0, math.sqrt(0.5 * variance), 60.0, 0.1)
    assert found.win.tolist() == pytest.approx([win, loss], abs=EXACT)
    assert found.draw == pytest.approx(draw, abs=EXACT)
    assert found.pairwise[0, 1] == pytest.approx(win, abs=EXACT)
    assert found.expected_rank[0] == pytest.approx(1.0 + loss + 0.5 * draw, abs=EXACT)
    assert fingerprint(changed) == fingerprint(config)
    doubled = of_round(
        structs.replace(changed, variance_factor=1.0), np.arange(3), np.ones(2),
        Believed(mu, np.array([90.0, 120.0]), np.full(2, 9)), 2.0,
    )  # fmt: skip
    assert doubled.win == pytest.approx(found.win), "the caller's factor multiplies the ladder's"


def test_equals_draw_most() -> None:
    """And nobody draws on a ladder without a width."""
    config = TwoMoment(draw_width=100.0)
    draws = [forecast_of(config, np.array([1500.0 + gap, 1500.0])).draw for gap in (0, 50, 400)]
    assert draws == sorted(draws, reverse=True)
    assert draws[0] > draws[2] + 0.05
    assert forecast_of(TwoMoment(), np.array([1500.0, 1500.0])).draw == 0.0
