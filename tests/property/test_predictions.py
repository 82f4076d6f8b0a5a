"""Facts about predictions that hold for all sides."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import accuracy
from stream_rater.rating import parameters, wins
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.builders.cases import cases

CONFIGS: list[parameters.RatingConfig] = [
    *SYSTEMS, parameters.TrueSkill(beta=200.0, sigma_drift=35.0, draw_margin=60.0),
    parameters.TwoMoment(draw_width=80.0), parameters.TwoMoment(draw_width=30.0, upset=0.1),
    parameters.EloMMR(weight_limit=0.2, sigma_limit=80.0, upset=0.2),
]  # fmt: skip
"""All systems as they are, with draws, with upsets, and with both."""
ROUNDING = 1e-9


class Lineup(NamedTuple):
    """Sides of any size, and the system that predicts their round."""

    config: parameters.RatingConfig
    sizes: list[int]
    share: Floats
    mu: Floats
    sigma: Floats

    @property
    def performances(self) -> wins.Performances:
        starts = np.append(0, np.cumsum(self.sizes))
        return wins.performances_of(self.config, starts, self.share, self.mu, self.sigma)


@st.composite
def lineups(draw: st.DrawFn) -> Lineup:
    """Two to six sides of one to five players each, near to each other or far apart."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=2, max_size=6))
    players = sum(sizes)

    def column(values: st.SearchStrategy[float]) -> Floats:
        return np.array(draw(st.lists(values, min_size=players, max_size=players)))

    return Lineup(
        draw(st.sampled_from(CONFIGS)), sizes,
        column(st.sampled_from([1.0, 1.0, 0.5, 0.01])),
        column(st.floats(1000.0, 2000.0) | st.floats(-1e4, 1e4)),
        column(st.floats(40.0, 350.0) | st.floats(1e-3, 1e4)),
    )  # fmt: skip


@given(lineups(), st.randoms(use_true_random=False))
def test_probabilities_are_probabilities(some: Lineup, random: Any) -> None:
    """Chances add up to 1, ranks to their sum. Two sides are a pair. Their order is irrelevant."""
    found, sides = wins.forecast(some.performances), len(some.sizes)
    assert found.win.min() >= 0.0 and found.win.max() <= 1.0 and 0.0 <= found.draw <= 1.0
    assert found.win.sum() + found.draw == pytest.approx(1.0, abs=ROUNDING)
    assert found.draw == 0.0 or some.config.drawn_within > 0.0
    both = found.pairwise + found.pairwise.T
    others = ~np.eye(sides, dtype=bool)
    assert found.pairwise.min() >= 0.0 and both.max() <= 1.0 + 1e-12
    if some.config.drawn_within == 0.0:
        assert both[others] == pytest.approx(1.0, abs=1e-12)
    assert 0.0 <= found.quality <= 1.0
    assert found.expected_rank.sum() == pytest.approx(sides * (sides + 1) / 2.0)
    assert found.expected_rank.min() >= 1.0 - ROUNDING
    assert found.expected_rank.max() <= sides + ROUNDING
    certain = found.win > 1.0 - 1e-12  # no side is certain to win with upsets
    assert found.expected_rank[certain] == pytest.approx(1.0, abs=1e-6)
    mu, sigma, margin, upset = some.performances
    of_two = wins.forecast(wins.Performances(mu[:2], sigma[:2], margin, upset))
    pair = [of_two.pairwise[0, 1], of_two.pairwise[1, 0]]
    assert of_two.win == pytest.approx(pair, abs=ROUNDING)
    order = np.arange(sides)
    random.shuffle(order)
    wanted = wins.Forecast(
        found.win[order], found.draw, found.expected_rank[order],
        found.pairwise[np.ix_(order, order)], found.quality,
    )  # fmt: skip
    turned = wins.forecast(wins.Performances(mu[order], sigma[order], margin, upset))
    for one, other in zip(turned, wanted, strict=True):
        assert one == pytest.approx(other, abs=ROUNDING)


@settings(max_examples=60)
@given(lineups(), st.floats(1.0, 500.0), st.randoms(use_true_random=False))
def test_who_is_better_wins_more(some: Lineup, more: float, random: Any) -> None:
    """No other side wins more, except by upsets in rounds that are no longer drawn."""
    player = random.randrange(len(some.mu))
    side = int(np.repeat(np.arange(len(some.sizes)), some.sizes)[player])
    mu = some.mu.copy()
    mu[player] += more
    before, after = (
        wins.forecast(some.performances),
        wins.forecast(some._replace(mu=mu).performances),
    )
    gain = after.win - before.win
    assert gain[side] >= -2.0 * ROUNDING
    fewer_draws = before.draw - after.draw if some.config.upset else 0.0
    assert np.delete(gain, side).max() <= max(fewer_draws, 0.0) + 2.0 * ROUNDING
    assert after.expected_rank[side] <= before.expected_rank[side] + ROUNDING
    if some.config.upset == 0.0 and 0.01 < before.win[side] < 0.99:
        assert gain[side] > 0.0


@settings(max_examples=60)
@given(lineups(), st.floats(1.5, 100.0))
def test_a_greater_variance_is_less_sure(some: Lineup, factor: float) -> None:
    """The factor multiplies each side's variance, and brings each pair's chances nearer to even."""
    columns = some.config, np.append(0, np.cumsum(some.sizes)), some.share, some.mu, some.sigma
    wide = wins.performances_of(*columns, factor)
    assert wide.mu == pytest.approx(some.performances.mu)
    if some.performances.sigma.min() > 1.0:
        assert wide.sigma**2 == pytest.approx(factor * some.performances.sigma**2)
    one, other = (wins.forecast(each._replace(margin=0.0)) for each in (some.performances, wide))
    off = ~np.eye(len(some.sizes), dtype=bool)
    sure = [np.abs(each.pairwise[off] - 0.5) for each in (one, other)]
    assert (sure[1] <= sure[0] + 1e-12).all()


# --- the three outcomes of a pair, as they are predicted and as they are scored -------------------

gaps = st.floats(-3000.0, 3000.0)
sigmas = st.floats(10.0, 1000.0)
draw_widths = st.floats(0.0, 500.0)
upsets = st.floats(0.0, 0.2)


def predicted(gap: float, sigma: float, width: float, upset: float) -> tuple[float, float, float]:
    """P(win), P(draw) and P(loss) of a side whose mean is `gap` above that of the other."""
    first, second = wins.win_probabilities(
        wins.Performances(np.array([gap, 0.0]), np.full(2, sigma), width, upset)
    ).tolist()
    return first, 1.0 - first - second, second


@given(gaps, st.floats(0.0, 3000.0), sigmas, draw_widths, upsets)
def test_a_greater_lead_wins_more(
    gap: float, more: float, sigma: float, width: float, upset: float
) -> None:
    """More of what is decided is won, less lost. Draws are rarer the further apart sides are."""
    one, other = (predicted(each, sigma, width, upset) for each in (gap, gap + more))
    assert one[0] * (1.0 - other[1]) <= other[0] * (1.0 - one[1]) + ROUNDING
    assert one[2] * (1.0 - other[1]) >= other[2] * (1.0 - one[1]) - ROUNDING
    if gap >= 0.0 or upset == 0.0:
        assert one[0] <= other[0] + ROUNDING
    near, far = sorted((abs(gap), abs(gap + more)))
    draws = [predicted(each, sigma, width, upset)[1] for each in (0.0, near, far)]
    assert draws[0] >= draws[1] - ROUNDING
    assert draws[1] >= draws[2] - ROUNDING


@settings(max_examples=60)
@given(st.lists(gaps, min_size=2, max_size=8), sigmas, draw_widths, upsets)
def test_upsets_in_a_round_of_many_sides(
    mu: list[float], sigma: float, width: float, upset: float
) -> None:
    """Alone and with other rounds, a part of the wins is dealt evenly, and no draw changes."""
    sides = wins.Performances(np.array(mu), np.full(len(mu), sigma), width)
    usual = wins.win_probabilities(sides)
    due = (1.0 - 2.0 * upset) * usual + 2.0 * upset * usual.sum() / len(mu)
    assert wins.win_probabilities(sides._replace(upset=upset)) == pytest.approx(due, abs=ROUNDING)
    many = wins.Performances(
        np.append(sides.mu, [0.0, 1.0]), np.append(sides.sigma, [0.0, 1.0]), width, upset
    )
    starts = np.array([0, len(mu), len(mu) + 2])
    margins = np.full(2, width)
    for found in (
        wins.of_rounds(starts, many),
        wins.of_rounds(starts, many._replace(margin=9), margins=margins),
    ):
        assert found[: len(mu)] == pytest.approx(due, abs=2e-5)


@settings(max_examples=60)
@given(gaps, sigmas, st.floats(0.01, 500.0), upsets, st.sampled_from(["win", "draw", "loss"]))
def test_what_is_scored_is_what_is_predicted(
    gap: float, sigma: float, width: float, upset: float, outcome: str
) -> None:
    """Log loss and Brier score of a pair are of its predicted outcomes: two if the width is 0."""
    given_ = np.array([1, 2], np.int32), np.array([gap, 0.0]), np.full(2, sigma**2)
    two = accuracy.pair_scores(*given_, upset)
    three = accuracy.pair_scores_with_draws(*given_, 0.0, upset)
    assert three == pytest.approx(two, rel=1e-6, abs=1e-9)
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


# --- ladders --------------------------------------------------------------------------------------

LADDERS: list[parameters.RatingConfig] = [
    parameters.TwoMoment(), parameters.Glicko(beta=250.0, sigma_drift=30.0),
    parameters.TrueSkill(beta=200.0, sigma_drift=35.0, draw_margin=40.0),
]  # fmt: skip


@cases("config", LADDERS)
def test_a_ladder_predicts_by_its_three_numbers(config: parameters.RatingConfig) -> None:
    """The players have played. These numbers change no fingerprint, as they change no rating."""
    players = wins.Believed(np.array([1600.0, 1500.0]), np.array([90.0, 120.0]), np.full(2, 9))
    duel = np.arange(3), np.ones(2), players
    changed = structs.replace(config, variance_factor=2.0, draw_width=60.0, upset=0.1)
    found = wins.MODEL.forecast(changed, *duel)
    sigmas, noise = config.chances.sigmas, config.chances.noise
    variance = 2.0 * sum(sigmas * each**2 + noise for each in (90, 120))
    win, draw, loss = predicted(100.0, math.sqrt(0.5 * variance), 60.0, 0.1)
    assert found.win.tolist() == pytest.approx([win, loss], abs=ROUNDING)
    assert found.draw == pytest.approx(draw, abs=ROUNDING)
    assert found.pairwise[0, 1] == pytest.approx(win, abs=ROUNDING)
    assert found.expected_rank[0] == pytest.approx(1.0 + loss + 0.5 * draw, abs=ROUNDING)
    assert parameters.fingerprint(changed) == parameters.fingerprint(config)
    doubled = wins.VarianceFactor(2.0).forecast(
        structs.replace(changed, variance_factor=1.0), *duel
    )
    assert doubled.win == pytest.approx(found.win), "the caller's factor multiplies the ladder's"
