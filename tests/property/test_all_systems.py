"""All systems in seasons that chance decides: level, spread and movement. Unfinished entries."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.rating import parameters, stages
from stream_rater.rating.elo_mmr.small_rounds import SMALL
from stream_rater.rating.systems.historic import RISE
from stream_rater.replay.pool import Pool
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.builders.cases import cases, tag
from tests.fair_rounds import ENDS, PLAYERS, SIZES, Season, Size, rise
from tests.rounds import day, ranked, read, wave_among

SOME = {"duel": 10_000, "five": 4_000, "5v5": 4_000, "hundred": 300}
"""Rounds of a usual run: 200, 200, 400 and 300 of each player."""

LONG = 60_000  # Rounds of the long run: 1,200 of each player in duels.

CONSERVED = ("glicko", "bar", "elo", "pairwise-elo", "plackett-luce", "thurstone")
"""Whatever the result, the gains of a round add up to 0: a gradient of ln P(result | ratings) does,
as P depends on differences only; so do Glicko's and BAR's, where all have one sigma, as here."""
ROUNDED = 0.01
"""Points: float32 at 1500 is 1.2e-4 apart, and PLAYERS * rounds of such errors are averaged."""


def step(config: parameters.RatingConfig, size: Size) -> tuple[float, float]:
    """(a, v): what a round takes of somebody's distance from the field, and the variance that
    chance adds, for systems without sigma.

    Between equals d(gain)/d(rating) is rate/scale times the curvature of the log-likelihood, and
    the variance of a likelihood's gradient equals its mean curvature (Fisher): v = a rate scale.
    Elo's curvature is 1/4 a pair. Plackett-Luce's and Thurstone's of a whole order is less than the
    pairs' together, and no less than that of one pair.
    """
    n = size.sides
    if isinstance(config, parameters.Codeforces):
        # the performance has a variance of beta^2 at most: that of the logistic quantiles that
        # ranks are compared with. The geometric mean with the expected rank only lessens it
        gain = config.weight / (1.0 + config.weight)
        return gain, gain**2 * config.beta**2
    assert isinstance(config, parameters.Climbing)
    rate, scale = config.rates[0][1], config.scale
    if isinstance(config, parameters.Elo | parameters.PairwiseElo):
        curvature = (n - 1) / 4.0
        noise = (n * n - 1) / 12.0  # the variance of a place, which is the number of pairs won
    else:
        curvature, noise = 1.0 / math.pi, (n - 1) / 2.0  # Thurstone's is 1/pi for two
        if isinstance(config, parameters.PlackettLuce):
            curvature, noise = 0.25, 1.0 if n > 2 else 0.25
        elif n > 2:
            noise = 1.0  # the mean of a normal order statistic has a variance below 1
    return rate * curvature / scale, rate**2 * noise


def most_spread(config: parameters.RatingConfig, size: Size, sigma: float) -> float:
    """A bound of the standard deviation of ratings, where all are equal in truth.

    A filter with gain k whose model is right has after a round the variance sigma^2 = k R, with the
    noise R. If skills do not move, its estimate does with variance V = (1-k)^2 V + k^2 R, so V = k
    R / (2 - k) < sigma^2: the spread is less than the uncertainty that the system claims. Ranks
    carry less information than the performances that systems derive from them. So R is less, too.

    Without sigma, V = (1-a)^2 V + v + (a^2 V / (n - 1) for the opponents), with a and v of `step`.
    """
    if not isinstance(config, parameters.Codeforces | parameters.Climbing):
        return sigma
    a, v = step(config, size)
    return math.sqrt(v / (2.0 * a - a * a * size.sides / (size.sides - 1)))


SAMPLE = 1.0 + 4.0 / math.sqrt(2.0 * PLAYERS)
"""A spread of PLAYERS is known to 1/sqrt(2 PLAYERS) of it: four of these deviations."""


def codeforces_rise(config: parameters.Codeforces, n: int) -> float:
    """How much an even round of n lifts the mean. The performance of rank A is the x where 1/2 + n
    logistic(-x/s) = G = sqrt(A E), with E = (n+1)/2: less than the mean rank by mean, so x is above
    0 by mean."""
    a = np.arange(1, n + 1)
    below = np.sqrt(a * (n + 1) / 2.0) - 0.5
    performance = np.log(n / below - 1.0) * config.beta * math.sqrt(3.0) / math.pi
    return float(performance.mean()) * config.weight / (1.0 + config.weight)


def check(config: parameters.RatingConfig, name: str, season: Season) -> None:
    """Check all bounds at the end of a season."""
    size = SIZES[name]
    assert np.isfinite(season.mu).all() and np.isfinite(season.sigma).all()
    assert (season.sigma > 0.0).all()
    level, spread = float(season.mu.mean()), float(season.mu.std())
    sigma = float(np.sqrt((season.sigma**2).mean()))
    each = season.played * size.players / PLAYERS
    if isinstance(config, parameters.Topcoder):
        assert spread <= config.initial_sigma  # what it was is all that there is
    elif name == "hundred" and isinstance(config, parameters.Elo | parameters.PairwiseElo):
        # a round moves by up to rate (n - 1), far beyond where the pull is linear: see ladders.md
        assert spread < config.rates[0][1] * (size.sides - 1)
    else:
        assert 0.2 * most_spread(config, size, sigma) < spread
        assert spread < most_spread(config, size, sigma) * SAMPLE
    rise = level - config.initial_mu
    if isinstance(config, parameters.TwoMoment):
        rise -= config.newcomer_offset
        if size.sides > 2:  # not conserved; mathematics.md has the measured values
            assert -0.02 * each < rise < 0.3 * each + sigma
            return
    if isinstance(config, parameters.Codeforces):
        # At least the rise among equals, divided by the members of a team. The spread of the
        # ratings adds up to as much again.
        due = codeforces_rise(config, size.sides) * each / size.members
        assert 0.9 * due < rise < 2.0 * due + spread
    elif tag(config) in CONSERVED:
        assert abs(rise) < ROUNDED
    else:
        # No drift (`test_no_level_is_favoured`), so a walk. Gains of those in a round are not
        # correlated above 0, so its variance grows by at most Var(gain) n / PLAYERS^2 a round, and
        # a gain's variance is below the noise that a filter lets in: k^2 R = k sigma^2 < sigma^2/2
        walk = math.sqrt(0.5 * season.played * size.players) / PLAYERS * max(sigma, 1.0)
        first = config.initial_sigma / math.sqrt(PLAYERS)  # of the first, large steps
        assert abs(rise) < 4.0 * math.hypot(walk, first)


def played(config: parameters.RatingConfig, name: str, rounds: int) -> Season:
    season = Season(config)
    season.play(SIZES[name], rounds, np.random.default_rng(7))
    check(config, name, season)
    return season


@cases("config", SYSTEMS, tag)
def test_level_and_spread(config: parameters.RatingConfig) -> None:
    """For rounds of every size. Who wins 100 duels in a row rises, or a caution says not."""
    for name, rounds in SOME.items():
        season = played(config, name, rounds)
        if name == "duel":
            assert_still_moving(config, season)


@pytest.mark.slow
@cases("config", SYSTEMS, tag)
def test_level_and_spread_in_the_long_run(config: parameters.RatingConfig) -> None:
    """After LONG rounds, which are a thousand and more for each player."""
    for name in ("duel", "five", "5v5"):
        played(config, name, LONG)


def assert_still_moving(config: parameters.RatingConfig, season: Season) -> None:
    before, spread = float(season.mu[0]), float(season.mu.std())
    for number in range(100):
        season.rate(SIZES["duel"], np.array([0, 1 + number % (PLAYERS - 1)]), np.array([0, 1]))
    rise = float(season.mu[0]) - before
    if isinstance(config, parameters.Topcoder):
        assert rise < 1.0 and "no longer move" in config.cautions()[0]
    else:
        assert rise > max(2.0 * spread, 50.0)


def mirrored(config: parameters.RatingConfig, name: str, rounds: int) -> tuple[Floats, Floats]:
    """Ratings less the initial one after a season, and after the same with all results reversed."""
    found = []
    for turned in (False, True):
        season = Season(config)
        season.play(SIZES[name], rounds, np.random.default_rng(3), mirrored=turned)
        found.append(season.mu - config.initial_mu)
    return found[0], found[1]


@cases("name", SIZES)
@cases("config", SYSTEMS, tag)
def test_no_level_is_favoured(config: parameters.RatingConfig, name: str) -> None:
    """Who turns all results around finds all ratings mirrored. Fair results are as likely as those
    turned around, so the mean of the level over all seasons is the initial rating.

    It is not so for systems whose noise or whose ranks are not symmetric: Codeforces (its geometric
    mean), Plackett-Luce (its exponential performances; but it conserves the level), and the
    two-moment filter (its bad days), except in duels, where a difference of two is symmetric.
    """
    if isinstance(config, parameters.TwoMoment):
        config = parameters.TwoMoment(newcomer_offset=0.0)
    if isinstance(config, parameters.Topcoder):
        config = parameters.Topcoder(initial_mu=0.0)  # its weights are others from 2000 points on
    one, other = mirrored(config, name, 20 * PLAYERS // SIZES[name].players)
    skewed = isinstance(config, parameters.Codeforces) or (
        isinstance(config, parameters.TwoMoment | parameters.PlackettLuce) and SIZES[name].sides > 2
    )
    apart = float(np.abs(one + other).max())
    if skewed:
        assert apart > 1.0
        return
    # rounding is not mirrored: float32, codes of a 16th of a point, TrueSkill's tolerance
    assert apart < 1e-3 * float(np.abs(one).max()) + 0.5


@cases("config", SYSTEMS, tag)
def test_ties_at_one_end_move_the_level(config: parameters.RatingConfig) -> None:
    """Systems that warn of it rise where many tie for last, and fall where many tie for first."""
    last, unfinished, first = (
        rise(config, ENDS[name], 20)
        for name in ("two tie for last", "two do not finish", "two tie for first")
    )
    if config.follows_ties:
        assert last == unfinished > 1.0 and first < -1.0
    elif not isinstance(config, parameters.Codeforces):
        assert max(abs(last), abs(unfinished), abs(first)) < 0.8


def test_what_is_reported_at_the_start() -> None:
    """Of the defaults, Topcoder and Codeforces are warned of; so is any system without drift."""
    config = parameters.Codeforces(beta=200.0, weight=0.2)
    assert codeforces_rise(config, 2) == pytest.approx(RISE * 200.0 * 0.2 / 1.2, rel=0.01)
    assert codeforces_rise(config, 2) < codeforces_rise(config, 5)
    cautioned = {str(each.__struct_config__.tag) for each in SYSTEMS if each.cautions()}
    assert cautioned == {"topcoder", "codeforces"}
    for table in (
        {"system": "glicko", "beta": 200, "sigma_drift": 0},
        {"system": "bar", "beta": 200, "sigma_drift": 0},
        {"system": "trueskill", "beta": 200, "sigma_drift": 0, "draw_margin": 1},
        {"system": "two-moment", "sigma_drift": 0, "drift_per_day": 0},
    ):
        (text,) = parameters.from_builtins(table).cautions()
        assert "ratings come to rest" in text and "\n" not in text
    assert not parameters.TwoMoment(sigma_drift=0.0).cautions()
    season = Season(parameters.Glicko(beta=200.0, sigma_drift=0.0))
    season.play(SIZES["duel"], 20_000, np.random.default_rng(1))
    assert season.sigma.max() < 20.0


# --- did not finish ---

BEYOND = 10  # A rank that is worse than all others.

SPLIT: tuple[parameters.RatingConfig, ...] = (
    parameters.EloMMR(weight_limit=0.2, sigma_limit=80.0, ties="split", history="full"),
    parameters.EloMMX(weight_limit=0.2, sigma_limit=80.0, ties="split"),
    parameters.EloR(ties="split"),
)
ANCHORED = tuple(
    msgspec.structs.replace(each, anchor=1450.0)
    for each in SYSTEMS
    if isinstance(each, parameters.Climbing)
)
TIED = [
    msgspec.structs.replace(each, dnf=parameters.TIED_LAST)
    for each in (*SYSTEMS, *SPLIT, *ANCHORED)
]
APART = [
    msgspec.structs.replace(each, dnf=parameters.NOT_COMPARED)
    for each in (*SYSTEMS, *SPLIT, *ANCHORED)
    if not isinstance(each, parameters.Ordering)
]


def title_of(config: parameters.RatingConfig) -> str:
    """The name of the system, with the other parameters that distinguish the configuration."""
    more = [getattr(config, "ties", ""), "anchor" if getattr(config, "anchor", None) else ""]
    return " ".join([tag(config), *filter(None, more)])


Entry = tuple[tuple[str, ...], int]  # A side, and its place; 0: it did not finish.


def standings(entries: Sequence[Entry], last: int) -> list[dict[str, Any]]:
    """Lines of these entries. An unfinished one has the rank `last`, or `dnf` if that is 0."""
    return [
        ({"team": side} if len(side) > 1 else {"player": side[0]})
        | ({"rank": place or last} if place or last else {"dnf": True})
        for side, place in entries
    ]


@st.composite
def rounds(draw: st.DrawFn) -> list[Entry]:
    """A round of players and teams, with ties. Some may not have finished; one has."""
    names = draw(st.permutations([f"p{i}" for i in range(9)]))
    sizes = draw(st.lists(st.sampled_from([1, 1, 1, 2, 3]), min_size=2, max_size=5))
    ends = np.minimum(np.cumsum(sizes), len(names)).tolist()
    sides = [tuple(names[a:b]) for a, b in zip([0, *ends], ends, strict=False) if a < b]
    places = draw(st.lists(st.integers(0, 3), min_size=len(sides), max_size=len(sides)))
    places[0] = places[0] or 1
    return list(zip(sides, places, strict=True))


def records(
    config: parameters.RatingConfig, season: Sequence[Sequence[Entry]], last: int
) -> dict[str, bytes]:
    """Every player's belief after a season, in all its bits."""
    pool = Pool(config)
    for number, each in enumerate(season):
        rated = read(config, *standings(each, last), completed_at=day(number), weight=1 + number)
        pool.rate(rated, number)
    if config.kept:
        return {player: pool.belief_bytes(player) for player, _ in pool}
    return {player: header.tobytes() for player, header in pool}


@given(season=st.lists(rounds(), min_size=1, max_size=4))
@settings(max_examples=12)
@cases("config", TIED, title_of)
def test_tied_last_is_one_shared_last_rank(
    config: parameters.RatingConfig, season: list[list[Entry]]
) -> None:
    """Beliefs are the same bit for bit, by each system."""
    assert records(config, season, 0) == records(config, season, BEYOND)


def evidence(config: parameters.RatingConfig, places: list[int], last: int, mu: Floats) -> Floats:
    """The evidence of a round of players, who are given in order of place."""
    entries = [((f"p{i}",), place) for i, place in enumerate(places)]
    wave = wave_among([read(config, *standings(entries, last))], mu, 60.0 + 0.1 * mu)
    found: Floats = stages.estimate(config, wave)
    return found


@cases("config", TIED, title_of)
@cases("size", [SMALL + 1, 2000])
def test_in_large_rounds_too(config: parameters.RatingConfig, size: int) -> None:
    """Large rounds have kernels of their own."""
    if isinstance(config, parameters.Thurstone):
        size = min(size, 200)  # it takes n^1.5
    random = np.random.default_rng(size)
    places = np.sort(random.integers(1, size // 2, size - size // 5)).tolist()
    places += [0] * (size - len(places))
    mu = random.normal(1500.0, 200.0, size)
    mine, shared = (evidence(config, places, last, mu) for last in (0, size))
    assert mine.tobytes() == shared.tobytes()


@given(
    places=st.lists(st.integers(1, 4), min_size=1, max_size=5).map(sorted),
    gone=st.integers(2, 4), seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=20)
@cases(
    "config",
    [e for e in APART if not isinstance(e, parameters.PlackettLuce | parameters.Thurstone)],
    title_of,
)
def test_not_compared_is_as_if_the_others_were_not_there(
    config: parameters.RatingConfig, places: list[int], gone: int, seed: int
) -> None:
    """An unfinished entry is rated as if alone. (Not where a whole order is rated at once.)"""
    mu = np.random.default_rng(seed).normal(1500.0, 200.0, len(places) + gone)
    together = evidence(config, [*places, *[0] * gone], 0, mu)
    for i in range(len(places), len(mu)):
        alone = evidence(config, [*places, 0], 0, np.append(mu[: len(places)], mu[i]))
        assert alone[-1] == pytest.approx(together[i], rel=0, abs=1e-5)


NUMBERS = {
    "plackett-luce": [1718.5055, 1516.7118, 1479.6598, 1576.9119, 1388.4207, 1869.7903],
    "thurstone": [1726.248, 1530.0902, 1488.6732, 1576.5209, 1392.8469, 1835.6208],
    "plackett-luce anchor": [1719.8029, 1520.807, 1485.1183, 1577.8009, 1389.8909, 1869.9872],
    "thurstone anchor": [1727.3235, 1532.1201, 1490.7447, 1577.9265, 1393.5728, 1837.5899],
}
"""Ratings by kernel version 10 of players who came 1, 2, 2, and of three who did not finish."""


@cases("config", [each for each in APART if title_of(each) in NUMBERS], title_of)
def test_not_compared_is_the_former_rule(config: parameters.RatingConfig) -> None:
    """Systems that rate a whole order at once give the numbers of the former rule."""
    mu = np.array([1700.0, 1500.0, 1450.0, 1600.0, 1400.0, 1900.0])
    read_in = read(config, *ranked([1, 2, 2, 0, 0, 0]))
    found = stages.estimate(config, wave_among([read_in], mu, np.full(6, 120.0)))
    assert NUMBERS[title_of(config)] == pytest.approx(found[:, 1], rel=0, abs=1e-4)  # its digits
