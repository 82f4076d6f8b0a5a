"""Sides of any size, and seats: facts at any level of the pool, for all systems.

With A and B the sums of shares of two sides, T = 2 / (1 / A + 1 / B) and a and b the weighted means
of their players, the means differ by T (a - b).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.rating import levels, parameters, stages
from stream_rater.rating.model import Evidence, Wave
from stream_rater.rating.wins import MODEL, Believed
from stream_rater.replay.pool import Pool
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.builders.cases import cases, tag
from tests.rounds import read

PLACING: tuple[parameters.RatingConfig, ...] = (
    parameters.TwoMoment(),
    parameters.Glicko(beta=200.0, sigma_drift=35.0, newcomer_offset=-150.0, newcomer_field=0.8),
    parameters.Bar(beta=200.0, sigma_drift=35.0, newcomer_offset=90.0),
    parameters.TrueSkill(beta=200.0, sigma_drift=35.0, draw_margin=1.0, newcomer_offset=-150.0),
)
"""Systems that place newcomers: some always, some by their parameters."""
ALL = (*SYSTEMS, *PLACING[1:], parameters.TwoMoment(inexperience=0.0))
EVEN = 1e-6
"""The tolerance of probabilities: where newcomers begin is rounded to float32, by 1.2e-4 points."""
POINTS = 1e-6  # Points: rounded sums of some thousands, in another order.
SEARCH = 1e-3  # Points: where the columns of the two-moment filter lie differs.


def by_mu_alone(config: parameters.RatingConfig) -> parameters.RatingConfig:
    """The system without points for experience, so that a player performs by mu."""
    if isinstance(config, parameters.TwoMoment):
        return msgspec.structs.replace(config, inexperience=0.0)
    return config


Sizes = tuple[int, ...]  # The number of players on each side.


class Lineup(NamedTuple):
    """A round whose first side is the best."""

    sizes: Sizes
    share: Floats
    mu: Floats
    sigma: Floats
    rounds: Ints
    shift: Floats

    @property
    def starts(self) -> Ints:
        return np.append(0, np.cumsum(self.sizes))

    @property
    def totals(self) -> Floats:
        return np.add.reduceat(self.share, self.starts[:-1])

    @property
    def side(self) -> Ints:
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def means(self, config: parameters.RatingConfig) -> Floats:
        """(S,) the mean performance of each side, above the initial rating. Nobody is placed."""
        mu, share = levels.of_one_round(
            config, self.starts, self.share, self.mu, self.rounds, self.shift
        )
        return np.add.reduceat(share * (mu - config.initial_mu), self.starts[:-1])

    def unit(self) -> float:
        """The total share T that all sides have for the round."""
        return len(self.sizes) / float(np.sum(1.0 / self.totals))

    def chances(self, config: parameters.RatingConfig) -> Floats:
        """(S,) how likely each side is to win."""
        players = Believed(self.mu, self.sigma, self.rounds)
        return MODEL.forecast(config, self.starts, self.share, players, shift=self.shift).win

    def wave(self) -> Wave:
        sides, players = len(self.sizes), len(self.mu)
        return Wave(
            np.array([0, sides]), np.ones(1), np.full(sides, math.inf), np.zeros(1, np.int64),
            np.arange(1, sides + 1, dtype=np.int32), self.starts, self.share, self.mu.copy(),
            self.sigma, self.rounds, np.zeros(players, np.int64), shift=self.shift,
        )  # fmt: skip

    def rated(self, config: parameters.RatingConfig) -> tuple[Floats, Evidence]:
        """The mu with which the players began, and the evidence of the round."""
        wave = self.wave()
        return wave.mu, stages.estimate(config, wave)

    def turned(self) -> "Lineup":
        """Two sides in the other order, each with its seat."""
        n = self.sizes[0]
        order = np.r_[n : len(self.mu), 0:n]
        return Lineup(
            self.sizes[::-1], self.share[order], self.mu[order], self.sigma[order],
            self.rounds[order], self.shift[::-1],
        )  # fmt: skip


def lineup(sizes: Sizes, seed: int, *, veterans: bool = True, seats: bool = False) -> Lineup:
    """A random round of sides of these sizes, with shares and with members who hardly played."""
    rng, players = np.random.default_rng(seed), sum(sizes)
    level = rng.uniform(-500.0, 3500.0)
    share = np.where(rng.random(players) < 0.5, 1.0, rng.uniform(0.01, 1.0, players))
    rounds = rng.integers(1, 30, players)
    mu, sigma = rng.normal(level, 200.0, players), rng.uniform(40.0, 300.0, players)
    if not veterans:
        new = rng.random(players) < 0.3
        rounds, mu, sigma = (
            np.where(new, of_newcomer, of_veteran)
            for of_newcomer, of_veteran in ((0, rounds), (1500.0, mu), (350.0, sigma))
        )
    shift = rng.uniform(-150.0, 150.0, len(sizes)) if seats else np.zeros(len(sizes))
    return Lineup(sizes, share, mu, sigma, rounds, shift)


def in_all_systems(**drawn: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Check a fact in a few examples, each with every system."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        return given(**drawn)(settings(max_examples=10)(cases("config", ALL, tag)(test)))

    return decorate


some = st.lists(st.integers(1, 6), min_size=2, max_size=4).map(tuple)
two = st.tuples(st.integers(1, 6), st.integers(1, 6))
seeds = st.integers(0, 2**32 - 1)


def lineups(sizes: st.SearchStrategy[Sizes], **given_: bool) -> st.SearchStrategy[Lineup]:
    return st.builds(lambda sizes, seed: lineup(sizes, seed, **given_), sizes, seeds)


@example(found=lineup((1, 5), 0), level=1330.0, played=20)  # the two-moment filter once had .81
@in_all_systems(found=lineups(some), level=st.floats(-500.0, 3500.0), played=st.integers(1, 30))
def test_equals_are_even_at_any_level(
    config: parameters.RatingConfig, found: Lineup, level: float, played: int
) -> None:
    """A player of the level adds nothing to a side, so of two sides each wins as often."""
    n = len(found.mu)
    equal = found._replace(mu=np.full(n, level), rounds=np.full(n, played))
    means = equal.means(config)
    assert means == pytest.approx(np.full(len(means), means[0]), abs=POINTS)
    if len(means) == 2:
        won = equal.chances(config)
        assert won[0] == pytest.approx(won[1], abs=1e-7)


@in_all_systems(found=lineups(some), more=st.floats(1.0, 500.0), random=st.randoms())
def test_a_better_member_raises_the_side(
    config: parameters.RatingConfig, found: Lineup, more: float, random: Any
) -> None:
    """By s d T / A on all others, where its share is s and it is better by d."""
    player = random.randrange(len(found.mu))
    better = found._replace(mu=found.mu + more * (np.arange(len(found.mu)) == player))
    own, s = found.side[player], found.share[player]
    scale = found.unit() / found.totals[own]
    before, after = found.means(config), better.means(config)
    for other in range(len(before)):
        if other != own:
            gain = (after[own] - after[other]) - (before[own] - before[other])
            assert gain == pytest.approx(s * more * scale, abs=POINTS)
            assert gain > 0.0


@in_all_systems(found=lineups(two), mu=st.floats(-500.0, 3500.0), share=st.floats(1e-6, 0.05))
def test_an_away_member_costs_no_more_than_none(
    config: parameters.RatingConfig, found: Lineup, mu: float, share: float
) -> None:
    """Somebody with mu m joins side A for a share s. With N the sum of all shares and L the mean of
    all players, the side gains s (m - L) 2 B / (N + s) on the other: less than 2 s |m - L| either
    way, and nothing for somebody of the level."""
    config, (a, b) = by_mu_alone(config), found.sizes
    joined = Lineup(
        (a + 1, b), np.insert(found.share, a, share), np.insert(found.mu, a, mu),
        np.insert(found.sigma, a, 80.0), np.insert(found.rounds, a, 9), found.shift,
    )  # fmt: skip
    n = float(found.totals.sum())
    level = float((found.share * found.mu).sum()) / n
    before, after = found.means(config), joined.means(config)
    gain = (after[0] - after[1]) - (before[0] - before[1])
    due = share * (mu - level) * 2.0 * found.totals[1] / (n + share)
    assert gain == pytest.approx(due, abs=POINTS)
    assert abs(gain) <= 2.0 * share * abs(mu - level) + POINTS


@in_all_systems(found=lineups(two, veterans=False, seats=True))
def test_sides_with_their_seats_mirror(config: parameters.RatingConfig, found: Lineup) -> None:
    """The same sides in the other order, each with its seat, have mirrored chances."""
    one, other = found.chances(config), found.turned().chances(config)
    assert one.tolist() == pytest.approx(other[::-1].tolist(), abs=1e-7)


@in_all_systems(sides=lineups(two, seats=True))
def test_equal_sides_change_chances_with_seats(
    config: parameters.RatingConfig, sides: Lineup
) -> None:
    """With the seats, equal sides swap their chances. The seat with more points wins more often."""
    found = sides._replace(mu=np.full(len(sides.mu), 1700.0), rounds=np.full(len(sides.mu), 9))
    swapped = found._replace(shift=found.shift[::-1].copy())
    one, other = found.chances(config), swapped.chances(config)
    assert one.tolist() == pytest.approx(other[::-1].tolist(), abs=1e-7)
    assert (one[0] > one[1]) == (found.shift[0] > found.shift[1])
    means = found.means(config)
    assert means[0] - means[1] == pytest.approx(found.shift[0] - found.shift[1], abs=POINTS)


@in_all_systems(found=lineups(two, veterans=False, seats=True))
def test_a_win_never_costs(config: parameters.RatingConfig, found: Lineup) -> None:
    """No winner's mu falls, no loser's rises. (Elo-MMR and Elo-R: no performance crosses mu.)"""
    began, evidence = found.rated(config)
    if isinstance(config, parameters.PlacingNewcomers) and config.places_newcomers:
        assert np.isnan(evidence[found.rounds > 0, 3]).all()
    gain = evidence[:, 1 if config.memoryless else 0] - began
    slack = np.full(len(gain), POINTS) if config.memoryless else POINTS / found.share
    assert (gain >= -slack)[found.side == 0].all() and (gain <= slack)[found.side == 1].all()


@example(found=lineup((1, 5), 0), by=570.0)
@in_all_systems(found=lineups(some, seats=True), by=st.floats(-2000.0, 2000.0))
def test_moving_the_pool_moves_the_results(
    config: parameters.RatingConfig, found: Lineup, by: float
) -> None:
    """Results move by as much, a side's by the sum of its shares times as much. Chances stay."""
    if isinstance(config, parameters.Topcoder):
        return  # its weights are others from 2000 points on
    moved = found._replace(mu=found.mu + by)
    (_, one), (_, other) = found.rated(config), moved.rated(config)
    due = one[:, :3].copy()
    due[:, 0] += by * (found.totals[found.side] if config.performs_as_side else 1.0)
    if config.memoryless:
        due[:, 1] += by
    room = SEARCH / found.share[:, None]  # a small share magnifies the search's tolerance
    if isinstance(config, parameters.TrueSkill):
        room = room * 1000.0  # its performance is a thin slice of the messages
    assert (np.abs(other[:, :3] - due) <= room + 1e-9 * np.abs(due)).all()
    assert found.chances(config) == pytest.approx(moved.chances(config), abs=1e-7)


@given(size=st.integers(1, 5), seed=seeds)
@settings(max_examples=10, deadline=None)
@cases("config", SYSTEMS, tag)
def test_sides_of_equal_totals_keep_their_bits(
    config: parameters.RatingConfig, size: int, seed: int
) -> None:
    """The wave is rated as it is, without a level; sums like 0.1 + 0.2 + 0.7 count as 1."""
    config, found = by_mu_alone(config), lineup((size, size), seed)
    even = found._replace(share=np.tile(found.share[:size], 2))
    assert levels.moves_of(config, even.wave()) is None
    assert not levels.is_moved(config, even.wave())
    assert np.array_equal(even.rated(config)[1], config.estimate(even.wave()), equal_nan=True) or (
        isinstance(config, parameters.PlacingNewcomers) and config.places_newcomers
    )
    thirds = Lineup(
        (3, 1), np.array([0.1, 0.2, 0.7, 1.0]), found.mu[0] + np.zeros(4), np.full(4, 80.0),
        np.full(4, 9), np.zeros(2),
    )  # fmt: skip
    assert not levels.is_moved(config, thirds.wave())


@example(sizes=(5, 1), seed=0)  # the lone one was favoured by 0.715
@in_all_systems(sizes=two, seed=seeds)
def test_n_newcomers_and_m_newcomers_are_level(
    config: parameters.RatingConfig, sizes: Sizes, seed: int
) -> None:
    """Whatever part each played, if the shares of a side are those of one player or more."""
    n = sum(sizes)
    share = np.random.default_rng(seed).uniform(0.1, 1.0, n)
    share[0] = share[-1] = 1.0
    won = of_these(
        config, sizes, share, np.full(n, config.initial_mu), np.zeros(n, np.int64)
    ).chances(config)
    assert won[0] == pytest.approx(won[1], abs=EVEN)


def of_these(
    config: parameters.RatingConfig, sizes: Sizes, share: Floats, mu: Floats, rounds: Ints
) -> Lineup:
    """A round of these players, where newcomers have the initial sigma and veterans one of 80."""
    sigma = np.where(rounds > 0, 80.0, config.initial_sigma)
    return Lineup(sizes, share, mu, sigma, rounds.astype(np.int64), np.zeros(len(sizes)))


@in_all_systems(sizes=two, new=st.booleans(), seed=seeds)
def test_a_member_who_hardly_played_changes_nothing(
    config: parameters.RatingConfig, sizes: Sizes, new: bool, seed: int
) -> None:
    """Neither predictions nor performances or ratings of others change."""
    rng, n = np.random.default_rng(seed), sum(sizes)
    # a veteran sets the field level of newcomers, whatever share the veteran has
    rounds = rng.integers(0, 2, n) if new else np.ones(n, np.int64)
    mu = np.where(rounds > 0, rng.normal(1500.0, 200.0, n), config.initial_mu)
    alone = of_these(config, sizes, np.ones(n), mu, rounds)
    absent = (0, config.initial_mu) if new else (7, 2000.0)
    beside = of_these(
        config, (sizes[0], sizes[1] + 1), np.append(np.ones(n), 1e-6), np.append(mu, absent[1]),
        np.append(rounds, absent[0]),
    )  # fmt: skip
    assert alone.chances(config) == pytest.approx(beside.chances(config), abs=2e-3)
    if isinstance(config, parameters.Topcoder):
        return  # its weights are by rounds played, of a side those of its oldest member
    column = 0 if tag(config) in ("elo-mmr", "elo-r", "codeforces", "glicko2") else 1
    before, after = (each.rated(config)[1][:n, column] for each in (alone, beside))
    # in the two-moment filter drift is divided by the square of the side's size
    # and Glicko-2 can move by thousands of points in a round of such players
    most = {parameters.TwoMoment: 2.0, parameters.Glicko2: 0.1}.get(type(config), 0.01)
    assert after == pytest.approx(before, abs=most)


@cases("config", PLACING, tag)
@cases("sizes", [(1, 1), (2, 1), (1, 5), (5, 5), (3, 6)])
def test_newcomers_rise_with_a_victory(config: parameters.RatingConfig, sizes: Sizes) -> None:
    """They rise from where the round began, where the sums of both sides are equal."""
    pool = Pool(config)
    teams = [[f"{side}{i}" for i in range(size)] for side, size in zip("ab", sizes, strict=True)]
    pool.rate(
        read(config, *({"team": team, "rank": rank} for rank, team in enumerate(teams, 1))), 0
    )
    heads = dict(pool)
    began, now = (
        [[float(heads[p][name]) for p in team] for team in teams] for name in ("previous_mu", "mu")
    )
    assert all(b < a for b, a in zip(began[0], now[0], strict=True))
    assert all(b > a for b, a in zip(began[1], now[1], strict=True))
    level = [sum(x - config.initial_mu for x in team) for team in began]
    assert level[0] == pytest.approx(level[1], abs=0.01)
    assert isinstance(config, parameters.PlacingNewcomers)
    assert level[0] == pytest.approx(config.newcomer_offset, abs=0.01)
