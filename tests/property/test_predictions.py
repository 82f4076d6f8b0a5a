"""Facts about predictions that hold for all sides."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.rating.parameters import EloMMR, RatingConfig, TrueSkill, TwoMoment
from stream_rater.rating.prediction.forecast import Forecast, forecast
from stream_rater.rating.prediction.wins import Performances, performances_of, win_probabilities
from stream_rater.runtime.selfcheck import SYSTEMS

CONFIGS: list[RatingConfig] = [
    *SYSTEMS,
    TrueSkill(beta=200.0, sigma_drift=35.0, draw_margin=60.0),
    TwoMoment(draw_width=80.0),
    TwoMoment(draw_width=30.0, upset=0.1),
    EloMMR(weight_limit=0.2, sigma_limit=80.0, upset=0.2),
]
"""The systems as they are, and with draws, with upsets, and with both."""
ROUNDING = 1e-9


class Lineup(NamedTuple):
    """Sides of any size, by one system."""

    config: RatingConfig
    sizes: list[int]
    share: Floats
    mu: Floats
    sigma: Floats

    @property
    def performances(self) -> Performances:
        starts = np.append(0, np.cumsum(self.sizes))
        return performances_of(self.config, starts, self.share, self.mu, self.sigma)


@st.composite
def lineups(draw: st.DrawFn) -> Lineup:
    """Two to six sides of one to five players each, near and far apart."""
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


def close(found: Forecast, wanted: Forecast) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one == pytest.approx(other, abs=ROUNDING)


@settings(max_examples=300)
@given(lineups())
def test_probabilities_are_probabilities(some: Lineup) -> None:
    """Of each side, of a draw and of each pair: from 0 to 1. All sides' add up to 1, with a draw's.
    Only a system with a width of draws has any."""
    found = forecast(some.performances)
    assert found.win.min() >= 0.0 and found.win.max() <= 1.0 and 0.0 <= found.draw <= 1.0
    assert found.win.sum() + found.draw == pytest.approx(1.0, abs=ROUNDING)
    assert found.draw == 0.0 or some.config.drawn_within > 0.0
    both = found.pairwise + found.pairwise.T
    others = ~np.eye(len(some.sizes), dtype=bool)
    assert found.pairwise.min() >= 0.0 and both.max() <= 1.0 + 1e-12
    if some.config.drawn_within == 0.0:
        assert both[others] == pytest.approx(1.0, abs=1e-12)
    assert 0.0 <= found.quality <= 1.0


@settings(max_examples=300)
@given(lineups())
def test_ranks_add_up(some: Lineup) -> None:
    """To those of a round without ties; who wins for certain has the first."""
    found, sides = forecast(some.performances), len(some.sizes)
    assert found.expected_rank.sum() == pytest.approx(sides * (sides + 1) / 2.0)
    assert found.expected_rank.min() >= 1.0 - ROUNDING
    assert found.expected_rank.max() <= sides + ROUNDING
    certain = found.win > 1.0 - 1e-12  # never with upsets
    assert found.expected_rank[certain] == pytest.approx(1.0, abs=1e-6)


@settings(max_examples=200)
@given(lineups(), st.randoms(use_true_random=False))
def test_the_order_of_sides_means_nothing(some: Lineup, random: object) -> None:
    """The same sides in another order have the same prediction in that order."""
    order = np.arange(len(some.sizes))
    random.shuffle(order)  # type: ignore[attr-defined]
    mu, sigma, margin, upset = some.performances
    one = forecast(some.performances)
    other = forecast(Performances(mu[order], sigma[order], margin, upset))
    close(
        other,
        Forecast(
            one.win[order], one.draw, one.expected_rank[order],
            one.pairwise[np.ix_(order, order)], one.quality,
        ),
    )  # fmt: skip


@settings(max_examples=200)
@given(lineups(), st.floats(1.0, 500.0), st.randoms(use_true_random=False))
def test_who_is_better_wins_more(some: Lineup, more: float, random: object) -> None:
    """A greater mu of one member makes the side's chances no worse, and no other's better. Where
    there are draws and upsets, the others may share in the upsets of rounds that are no longer
    drawn."""
    player = random.randrange(len(some.mu))  # type: ignore[attr-defined]
    side = int(np.repeat(np.arange(len(some.sizes)), some.sizes)[player])
    mu = some.mu.copy()
    mu[player] += more
    before, after = forecast(some.performances), forecast(some._replace(mu=mu).performances)
    gain = after.win - before.win
    assert gain[side] >= -2.0 * ROUNDING
    fewer_draws = before.draw - after.draw if some.config.upset else 0.0
    assert np.delete(gain, side).max() <= max(fewer_draws, 0.0) + 2.0 * ROUNDING
    assert after.expected_rank[side] <= before.expected_rank[side] + ROUNDING
    if some.config.upset == 0.0 and 0.01 < before.win[side] < 0.99:
        assert gain[side] > 0.0


@settings(max_examples=200)
@given(lineups(), st.floats(40.0, 350.0))
def test_each_player_counts(some: Lineup, sigma: float) -> None:
    """Somebody who joins a side of an open round changes its chances, by mean or by variance."""
    joined = some._replace(
        sizes=[some.sizes[0] + 1, *some.sizes[1:]],
        share=np.insert(some.share, 0, 1.0), sigma=np.insert(some.sigma, 0, sigma),
        mu=np.insert(some.mu, 0, some.config.initial_mu + 300.0),
    )  # fmt: skip
    before, after = (
        win_probabilities(each.performances._replace(upset=0.0)) for each in (some, joined)
    )
    if 0.01 < before[0] < 0.99:
        assert abs(after[0] - before[0]) > 1e-6


@settings(max_examples=200)
@given(lineups())
def test_of_two_sides_the_pair_is_all(some: Lineup) -> None:
    """The integral and the distribution of the difference agree."""
    mu, sigma, margin, upset = some.performances
    found = forecast(Performances(mu[:2], sigma[:2], margin, upset))
    pair = [found.pairwise[0, 1], found.pairwise[1, 0]]
    assert found.win == pytest.approx(pair, abs=ROUNDING)


@settings(max_examples=200)
@given(lineups(), st.floats(1.5, 100.0))
def test_a_greater_variance_is_less_sure(some: Lineup, factor: float) -> None:
    """The factor multiplies the variance of each side, and brings each pair nearer to a coin."""
    starts = np.append(0, np.cumsum(some.sizes))
    columns = some.config, starts, some.share, some.mu, some.sigma
    wide = performances_of(*columns, factor)
    assert wide.mu == pytest.approx(some.performances.mu)
    if some.performances.sigma.min() > 1.0:
        assert wide.sigma**2 == pytest.approx(factor * some.performances.sigma**2)
    one, other = (forecast(each._replace(margin=0.0)) for each in (some.performances, wide))
    off = ~np.eye(len(some.sizes), dtype=bool)
    sure = [np.abs(each.pairwise[off] - 0.5) for each in (one, other)]
    assert (sure[1] <= sure[0] + 1e-12).all()
