"""The theorems of the paper on pseudodiffusion (4.1), one round (5.7) and incentives (5.2-5.6).

Those on incentives fix the ratings of others. So a player meets opponents that nobody met before.
They get their ratings in a round of their own, where those of the player who deviates (twins, who
tie) come out with the very same beliefs.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.rating import stages
from stream_rater.rating.elo_mmr.small_rounds import SMALL
from stream_rater.rating.model import PERFORMANCE, Beliefs, newcomers
from stream_rater.rating.parameters import DEFAULT_KEPT, EloMMR, EloMMX
from stream_rater.replay.pool import Pool
from tests.builders.cases import cases
from tests.rounds import day, logistic_weight, ranked, read, update_all, wave_among
from tests.strategies import configs, days, gaussian_configs, weights

WEIGHTLESS = 1e30  # A variance beta^2 whose weight 1/beta^2 is lost beside that of any belief here.

SCALES = (1.0, 1e-2, 1e-4)

inner_rhos = st.floats(0.01, 5.0)
any_rho = st.just(0.0) | inner_rhos | st.just(math.inf)
gammas2 = st.floats(1.0, 1e5)
evidence = st.tuples(st.floats(-1500.0, 4500.0), st.floats(6e3, 3e5), st.floats(10.0, 2e4))
histories = st.lists(evidence, min_size=1, max_size=10)
Played = tuple[float, float, float]  # Performance, beta^2 and gamma^2 of a round.
History = list[Played]


def rate(beliefs: Beliefs, p: float, beta2: float, gamma2: float, rho: float) -> None:
    """Rate one round of the only player, in place, with all factors kept."""
    update_all(beliefs, np.array([[p, beta2, gamma2]]), rho)


def rated(season: History, rho: float, scale: float = 1.0) -> Beliefs:
    """A player after a season whose performances are drawn in towards 1500 by `scale`."""
    beliefs = newcomers(1, len(season) + 4, 1500.0, 350.0 * scale)
    for p, beta2, gamma2 in season:
        rate(beliefs, 1500.0 + (p - 1500.0) * scale, beta2 * scale**2, gamma2 * scale**2, rho)
    return beliefs


def diffused(beliefs: Beliefs, gamma2: float, rho: float) -> Beliefs:
    """The same player after a round without information: only gamma^2 has an effect."""
    after = copy.deepcopy(beliefs)
    rate(after, float(after.header["mu"][0]), WEIGHTLESS, gamma2, rho)
    terms = after.factors[0, : after.header["count"][0]]
    heavy = terms[terms[:, 2] * after.header["scale"] > 2.0 / math.sqrt(WEIGHTLESS)]
    after.factors[0, : len(heavy)] = heavy
    after.header["count"] = len(heavy)
    return after


def factors(beliefs: Beliefs) -> Floats:
    """(count, 3): the stored logistic factors."""
    return beliefs.factors[0, : beliefs.header["count"][0]]


def weights_of(beliefs: Beliefs) -> tuple[float, Floats]:
    """w_0 of the Gaussian factor, and w_k of each logistic one."""
    return float(beliefs.header["precision"][0]), logistic_weight(beliefs)


def value(beliefs: Beliefs, name: str) -> float:
    return float(beliefs.header[name][0])


@given(histories, histories, gammas2, any_rho)
def test_incentive_compatibility(season: History, peer: History, gamma2: float, rho: float) -> None:
    """Weights change alike whatever the performances. The Gaussian moves to mu, not past it."""
    twin = [(p[0], *spread[1:]) for p, spread in zip(peer, season, strict=False)]
    pair = [rated(each, rho) for each in (season[: len(twin)], twin)]
    after = [diffused(each, gamma2, rho) for each in pair]
    counts = [[len(factors(each)) for each in some] for some in (pair, after)]
    assume(rho == math.inf or counts[0] == counts[1])  # a factor may be as light as the last one
    for before, found in zip(pair, after, strict=True):
        if rho < math.inf:
            assert factors(before)[:, :2].tobytes() == factors(found)[:, :2].tobytes()
        low, high = sorted((value(before, "center"), value(before, "mu")))
        assert low - 1e-9 <= value(found, "center") <= high + 1e-9  # a few roundings of 1e4
    (gaussian, logistic), (twins_gaussian, twins_logistic) = map(weights_of, after)
    # The same multiplications; but factors are in order of performance, so these are sorted.
    assert gaussian == pytest.approx(twins_gaussian, rel=1e-14)
    assert np.sort(logistic) == pytest.approx(np.sort(twins_logistic), rel=1e-14)


@given(histories, gammas2, any_rho)
def test_rating_preservation_and_magnitude(season: History, gamma2: float, rho: float) -> None:
    """The argmax stays, sigma^2 grows by gamma^2, and the weights sum to its inverse (Eq. 8)."""
    before = rated(season, rho)
    after = diffused(before, gamma2, rho)
    # Both are roots, found to 1e-9 of sigma with an error that the last step squares.
    assert value(before, "mu") == pytest.approx(value(after, "mu"), rel=0, abs=1e-8)
    expected = value(before, "sigma") ** 2 + gamma2
    assert expected == pytest.approx(value(after, "sigma") ** 2, rel=1e-14)  # a few roundings
    gaussian, logistic = weights_of(after)
    assert 1.0 / expected == pytest.approx(gaussian + logistic.sum(), rel=1e-12)  # of 10 rounds


@given(histories, gammas2, gammas2, any_rho)
def test_composability(season: History, first: float, second: float, rho: float) -> None:
    """Diffusing by two sizes, one after the other, is diffusing by their sum in every factor."""
    before = rated(season, rho)
    twice = diffused(diffused(before, first, rho), second, rho)
    once = diffused(before, first + second, rho)
    assert len(factors(once)) == len(factors(twice))
    (gaussian, logistic), (expected, expected_logistic) = weights_of(twice), weights_of(once)
    # kappa^rho is a product of two powers here and one there, each good to some 1e-15 * rho.
    assert expected_logistic == pytest.approx(logistic, rel=1e-12)
    assert expected == pytest.approx(gaussian, rel=1e-12)
    # Twice it blends towards mu, which is a root: the error of rating preservation.
    assert value(once, "center") == pytest.approx(value(twice, "center"), rel=0, abs=1e-8)


@given(histories, st.just(0.0) | inner_rhos)
def test_zero_diffusion(season: History, rho: float) -> None:
    """As gamma goes to 0, so does what diffusion does: in proportion to gamma^2 / sigma^2."""
    before = rated(season, rho)
    for gamma2 in (1e-2, 1e-5, 0.0):
        after = diffused(before, gamma2, rho)
        # 1 - kappa^(1 + rho) <= (1 + rho) gamma^2 / sigma^2, and the rounding of a few products.
        change = (1.0 + rho) * gamma2 / value(before, "sigma") ** 2 + 1e-14
        (gaussian, logistic), (expected, expected_logistic) = weights_of(after), weights_of(before)
        total = expected + float(expected_logistic.sum())
        assert (np.abs(logistic - expected_logistic) <= change * expected_logistic).all()
        assert abs(gaussian - expected) <= change * total


@given(histories, inner_rhos, st.sampled_from(SCALES))
def test_zero_uncertainty(season: History, rho: float, scale: float) -> None:
    """As sigma goes to 0, a Gaussian at mu of variance gamma^2 is left; the rest is kappa^rho."""
    gamma2, before = 1e4, rated(season, rho, scale)
    mu, variance = value(before, "mu"), value(before, "sigma") ** 2
    after = diffused(before, gamma2, rho)
    stays = (variance / (variance + gamma2)) ** rho
    gaussian, logistic = weights_of(after)
    # Each weight is a handful of products; kappa^rho is good to 1e-15 rho ln(1/kappa).
    assert float(logistic.sum()) <= stays / gamma2 * (1.0 + 1e-12)
    assert gaussian >= (1.0 - stays) / (variance + gamma2) * (1.0 - 1e-12)
    assert gaussian <= 1.0 / gamma2
    # 2e-12: some ulps of numbers near 1500
    assert abs(value(after, "center") - mu) <= stays * abs(value(before, "center") - mu) + 2e-12


def test_the_ends_of_the_range_lack_a_property() -> None:
    """Elo-MMR(inf) has no zero diffusion; Elo-MMR(0) keeps the history's part of the weight."""
    before = rated([(1800.0, 32e3, 1600.0), (1000.0, 32e3, 1600.0)], math.inf)
    assert len(factors(before)) == 1
    assert len(factors(diffused(before, 0.0, math.inf))) == 0
    parts = []
    for scale in SCALES:
        before = rated([(1800.0, 32e3, 1600.0), (1000.0, 32e3, 1600.0)], 0.0, scale)
        gaussian, logistic = weights_of(diffused(before, 1e4, 0.0))
        parts.append(float(logistic.sum() / (gaussian + logistic.sum())))
    # the same numbers but for the scale; a few roundings
    assert [parts[0]] * len(parts) == pytest.approx(parts, rel=1e-10)
    assert parts[0] > 0.5


@given(st.floats(0.05, 5.0), st.floats(1e3, 1e4))
@settings(max_examples=10)
def test_the_gaussian_part_in_the_long_run(rho: float, gamma2: float) -> None:
    """w_0 / W settles at (kappa - kappa^(1 + rho)) / (1 - kappa^(1 + rho)) (section 5.2)."""
    beliefs = newcomers(1, 304, 1500.0, 350.0)
    for number in range(300):
        rate(beliefs, 1500.0 + 100.0 * math.sin(number), 40_000.0, gamma2, rho)
    variance = value(beliefs, "sigma") ** 2
    kappa = variance / (variance + gamma2)
    expected = (kappa - kappa ** (1.0 + rho)) / (1.0 - kappa ** (1.0 + rho))
    gaussian, logistic = weights_of(beliefs)
    # What is left of the start shrinks by kappa < 0.87 a round; 300 roundings of some 1e-16 each.
    assert expected == pytest.approx(gaussian / (gaussian + float(logistic.sum())), rel=1e-12)


# --- one round moves a rating by no more, and in the limit no less, than Theorem 5.7 says ---------

C = math.pi / math.sqrt(3.0)

ABSURD = 1e9
"""A performance so far away that its tanh is 1 to the last bit: the limit of the theorem."""

ROUNDING = 1e-9
"""Of sigma at most: the mode's tolerance, whose square is the error of the last step."""


def bounds(beliefs: Beliefs, beta2: float) -> tuple[float, float]:
    """The theorem's bounds, from the belief after an absurd performance, without that factor."""
    terms = beliefs.factors[0, : beliefs.header["count"][0]]
    history = logistic_weight(beliefs)[np.abs(terms[:, 0]) < ABSURD].sum()
    gaussian, pull = float(beliefs.header["precision"][0]), C / math.sqrt(beta2)
    return pull / (gaussian + math.pi**2 / 6.0 * float(history)), pull / gaussian


@given(st.lists(evidence, max_size=12), evidence, any_rho)
def test_the_response_to_an_absurd_performance(season: History, last: Played, rho: float) -> None:
    """mu moves by C / beta / (w_0 + pi^2/6 sum w_k) to C / beta / w_0, and never by more."""
    found = []
    for p in (-ABSURD, last[0], ABSURD):
        beliefs = newcomers(1, len(season) + 2, 1500.0, 350.0)
        for each in season:
            rate(beliefs, *each, rho)
        before = value(beliefs, "mu")
        rate(beliefs, p, *last[1:], rho)
        found.append(value(beliefs, "mu"))
        if abs(p) == ABSURD:
            least, most = bounds(beliefs, last[1])
            slack = ROUNDING * 350.0 + 1e-12 * most  # 1e-12: mu itself is rounded, w_0 a product
            assert least - slack <= math.copysign(1.0, p) * (found[-1] - before) <= most + slack
    assert found[0] - ROUNDING * 350.0 <= found[1] <= found[2] + ROUNDING * 350.0


# --- incentives -----------------------------------------------------------------------------------

POINTS = 1e-6
"""What a search leaves open in a performance. mu is an average of performances and of the first
rating, with weights that are not negative, so its error is no larger."""

SKETCH_POINTS = 0.05
"""What a player could gain at most by finishing worse where K factors are kept: merging them
depends on performances, which the theorem's proof forbids."""
WEIGHTED_POINTS = 0.3  # The same where rounds have weights.

Config = EloMMR | EloMMX
LAST = 10**6  # A place worse than all others.


@dataclass(frozen=True)
class Round:
    """A round of one player against opponents that nobody met before."""

    before: tuple[int, ...]
    """The opponents' places in an earlier round among themselves, which gives them ratings."""
    places: tuple[int, ...]  # Their places when they meet the player; 0 did not finish.
    weight: float = 1.0
    ceiling: float | None = None
    day: int = 0


class Lives:
    """The same player in several lives, which differ in where the player came in."""

    def __init__(self, config: Config, lives: int) -> None:
        self._config, self._lives = config, range(lives)
        self._pool, self._rounds = Pool(config), 0

    def play(self, each: Round, places: list[int]) -> list[float]:
        """Play a round, with a place of the player in each life. Returns mu after it in each."""
        self._rounds += 1
        opponents = [
            [f"{self._rounds}:{life}:{i}" for i in range(len(each.places))] for life in self._lives
        ]
        twins = [name for life in opponents for name in life]
        self._rate(ranked(each.before * len(self._lives), twins), each, weight=5.0)
        for life in self._lives:
            names, came_in = [f"life {life}", *opponents[life]], [places[life], *each.places]
            # Somebody has to finish, or it is no round.
            host = {"player": f"{self._rounds}:{life}:host", "rank": LAST}
            standings = [*ranked(came_in, names), host]
            self._rate(standings, each, weight=each.weight, performance_ceiling=each.ceiling)
        found = dict(self._pool)
        return [float(found[f"life {life}"]["mu"]) for life in self._lives]

    def _rate(self, standings: list[dict[str, Any]], each: Round, **fields: Any) -> None:
        whole = read(self._config, *standings, completed_at=day(each.day), **fields)
        self._pool.rate(whole, self._rounds)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Round, int]:
    """A round, and the place of the player in it."""
    size = draw(st.integers(1, 5))
    some = st.lists(st.integers(0, 9), min_size=size, max_size=size).map(tuple)
    before = draw(st.lists(st.integers(1, 9), min_size=size, max_size=size).map(tuple))
    ceiling = draw(st.none() | st.floats(0.0, 3000.0))
    return Round(before, draw(some), draw(weights()), ceiling, draw(days())), draw(places)


places = st.integers(0, 10)
seasons = st.lists(rounds(), min_size=1, max_size=8)


@given(st.one_of(configs(), gaussian_configs()), seasons, st.data())
@settings(max_examples=60)
def test_nobody_is_better_off_by_finishing_worse(
    config: Config, season: list[tuple[Round, int]], data: st.DataObject
) -> None:
    """With the full history, in any season: neither in that round nor ever after (Theorem 5.5)."""
    at = data.draw(st.integers(0, len(season) - 1))
    worse = data.draw(st.just(0) | st.integers(season[at][1], 12)) if season[at][1] else 0
    lives = Lives(config, 2)
    for number, (each, place) in enumerate(season):
        honest, thrown = lives.play(each, [place, worse if number == at else place])
        assert thrown <= honest + POINTS


def typical_season(
    random: np.random.Generator, length: int, weights: Sequence[float]
) -> list[tuple[Round, int]]:
    """Rounds against 10 to 39 opponents; form wanders, one in ten is awful, and places are free."""
    season, form = [], random.uniform(0.2, 0.8)
    for number in range(length):
        size = int(random.integers(10, 40))
        form = float(np.clip(form + random.normal(0.0, 0.08), 0.0, 1.0))
        luck = 0.0 if random.random() < 0.1 else form
        place = 1 + 2 * int(random.binomial(size, 1.0 - luck))
        before, places = (tuple((random.permutation(size) + 1).tolist()) for _ in range(2))
        weight = float(random.choice(weights)) if len(weights) > 1 else 1.0
        season.append((Round(before, tuple(2 * p for p in places), weight, day=7 * number), place))
    return season


def gains(
    config: EloMMR, seed: int, seasons: int, weights: Sequence[float] = (1.0,), length: int = 60,
    lives: int = 8,
) -> Floats:  # fmt: skip
    """What finishing worse in one round gained, by season, round and life except the honest one.

    Mostly it is a little worse, by half a place or one (a large loss is never made good), in
    another round in each life.
    """
    random, found = np.random.default_rng(seed), np.empty((seasons, length, lives - 1))
    for s in range(seasons):
        played, thrown_at = Lives(config, lives), random.integers(0, length, lives)
        for number, (each, place) in enumerate(typical_season(random, length, weights)):
            lost = np.where(thrown_at == number, random.choice((1, 1, 2, 3, 20), lives), 0)
            lost[0] = 0
            mu = played.play(each, (place + lost).tolist())
            found[s, number] = np.array(mu[1:]) - mu[0]
    return found


WORST = EloMMR(weight_limit=0.23, sigma_limit=54.0, rho=0.04)
OTHER = EloMMR(weight_limit=0.34, sigma_limit=103.0, rho=0.0)


@pytest.mark.parametrize("seasons", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_the_worst_incentive_through_the_sketch(seasons: int) -> None:
    """At the default K = 20, finishing worse gains no more than 0.05 points, at any time after.

    Of seeds 5 to 8 the worst is 0.013 points, and 0.26 with weights from 1/2 to 2 (2.06 before
    widths counted in merging), where K = 24 has 0.03.
    """
    for config in (WORST, OTHER):
        assert config.kept == DEFAULT_KEPT
        assert gains(config, seed=7, seasons=seasons).max() <= SKETCH_POINTS
        weighted = gains(config, seed=5, seasons=seasons, weights=(0.5, 1.0, 2.0))
        assert weighted.max() <= WEIGHTED_POINTS


@pytest.mark.slow
def test_fewer_factors_are_an_incentive() -> None:
    """The measure finds an incentive where there is one: K = 8 breaks the bound of K = 20."""
    fewer = msgspec.structs.replace(WORST, history=8)
    assert gains(fewer, seed=7, seasons=30).max() > SKETCH_POINTS


@st.composite
def full_rounds(draw: st.DrawFn, players: int = 4) -> dict[str, Any]:
    places = draw(st.lists(st.integers(0, 5), min_size=players, max_size=players))
    names = [f"p{i}" for i in range(players)]
    return {
        "standings": ranked([places[0] or 1, *places[1:]], names),
        "weight": draw(weights()),
        "completed_at": day(draw(days())),
    }


@given(
    st.one_of(configs(st.just("inf")), gaussian_configs()),
    st.lists(full_rounds(), min_size=1, max_size=6),
)
def test_memoryless_monotonicity(config: Config, season: list[dict[str, Any]]) -> None:
    """Of two equally certain players who win, the higher stays ahead and gains less (Thm. 5.6)."""
    pool = Pool(config)
    before = {f"p{i}": (config.initial_mu, config.initial_sigma) for i in range(4)}
    for offset, each in enumerate(season):
        rest = {name: each[name] for name in ("weight", "completed_at")}
        pool.rate(read(config, *each["standings"], **rest), offset)
        after = {name: (float(b["mu"]), float(b["sigma"])) for name, b in pool}
        place = {entry["player"]: entry.get("rank", LAST) for entry in each["standings"]}
        assert len({sigma for _, sigma in after.values()}) == 1
        for i, j in permutations(after, 2):
            if before[i][0] >= before[j][0] and place[i] < place[j]:
                assert after[i][0] > after[j][0]
            elif before[i][0] >= before[j][0] and place[i] > place[j]:
                assert after[j][0] - before[j][0] > after[i][0] - before[i][0]
        before = after


@given(histories, st.just(0.0) | inner_rhos, st.data(), st.floats(0.0, 2000.0))
def test_a_better_performance_never_lowers_a_rating(
    season: History, rho: float, data: st.DataObject, more: float
) -> None:
    """With the full history, mu rises with a past performance, by no more than it (Lemma 5.4)."""
    at = data.draw(st.integers(0, len(season) - 1))
    beliefs = newcomers(2, len(season) + 1, 1500.0, 350.0)
    for number, (p, beta2, gamma2) in enumerate(season):
        better = p + more * (number == at)
        update_all(beliefs, np.array([[p, beta2, gamma2], [better, beta2, gamma2]]), rho)
        mu, raised = beliefs.header["mu"].tolist()
        assert mu - POINTS <= raised <= mu + more + POINTS
        # sigma knows nothing of performances.
        assert len(set(beliefs.header["sigma"].tolist())) == 1


# --- performances are fair: Theorem 5.2 and Lemma 5.3, in rounds small and large ------------------

TABLE_POINTS = 1e-5
"""How far two performances that are equal may come out apart: a table's error is about 1e-5 in
rounds this wide, and after an upset the balance is nearly flat about its zero, so that the sums'
last bits blur where it is."""

any_config = st.one_of(configs(), gaussian_configs())


@dataclass(frozen=True)
class Field:
    """A round of players with these ratings; place 0 did not finish."""

    places: list[int]
    mu: Floats
    sigma: Floats

    def performances(self, config: Config) -> Floats:
        """Each player's performance, in the order of `places`."""
        names = [f"{i:04}" for i in range(len(self.places))]
        standings = read(config, *ranked(self.places, names))
        order = np.array(standings.players, np.int64)
        wave = wave_among([standings], self.mu[order], self.sigma[order])
        found = np.empty(len(order))
        found[order] = stages.estimate(config, wave)[:, PERFORMANCE]
        return found

    def with_place(self, i: int, place: int) -> "Field":
        """The same field, but i came in at this place. The order of the others is unchanged."""
        return Field([*self.places[:i], place, *self.places[i + 1 :]], self.mu, self.sigma)


@st.composite
def fields(draw: st.DrawFn, most: int = 8) -> Field:
    """Small rounds drawn number by number, large ones (`most` over 40: another code) by seed."""
    size = draw(st.integers(2, most) if most <= SMALL else st.integers(SMALL + 1, most))
    if most <= SMALL:
        places = draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
        mu = draw(st.lists(st.floats(-1000.0, 4000.0), min_size=size, max_size=size))
        sigma = draw(st.lists(st.floats(30.0, 400.0), min_size=size, max_size=size))
    else:
        random = np.random.default_rng(draw(st.integers(0, 2**32)))
        places = random.integers(0, draw(st.sampled_from((3, size, 10 * size))), size).tolist()
        mu = random.normal(1500.0, draw(st.sampled_from((1.0, 300.0, 2000.0))), size).tolist()
        sigma = random.uniform(30.0, 400.0, size).tolist()
    return Field([places[0] or 1, *places[1:]], np.array(mu), np.array(sigma))


any_field = st.one_of(fields(), fields(SMALL + 60))


@given(any_config, any_field, st.randoms(use_true_random=False))
def test_performance_falls_strictly_with_rank(config: Config, field: Field, random: Any) -> None:
    """Ties perform alike, and the unfinished below all (Theorem 5.2), in any order of entries."""
    performances, by_place = field.performances(config), dict[int, list[float]]()
    for place, p in zip(field.places, performances.tolist(), strict=True):
        by_place.setdefault(place, []).append(p)
    unfinished = by_place.pop(0, [])
    groups = [by_place[place] for place in sorted(by_place)]
    # Elo-MMx credits each player as a team of one, with roundings of its own.
    assert max(np.ptp(group) for group in groups) <= 1e-11
    falling = [group[0] for group in groups] + ([max(unfinished)] if unfinished else [])
    assert (np.diff(falling) < 0.0).all()
    order = list(range(len(field.places)))
    random.shuffle(order)
    shuffled = Field([field.places[i] for i in order], field.mu[order], field.sigma[order])
    actual = shuffled.performances(config)
    assert performances[order] == pytest.approx(actual, rel=0, abs=TABLE_POINTS)


@given(any_config, any_field, st.data())
def test_finishing_better_is_performing_better(
    config: Config, field: Field, data: st.DataObject
) -> None:
    """The order of others is fixed: p_i rises with i's rank (Lemma 5.3), where dnf is the last."""
    i = data.draw(st.integers(0, len(field.places) - 1))
    place = st.integers(0, max(field.places) + 1)
    order = sorted(data.draw(st.tuples(place, place)), key=lambda p: p or 2**30, reverse=True)
    if not any(field.with_place(i, 0).places):
        order = [max(1, p) for p in order]  # someone has to finish
    worse, better = (field.with_place(i, p).performances(config)[i] for p in order)
    assert worse <= better + TABLE_POINTS


@given(configs(), any_field, st.data(), st.floats(0.0, 3000.0))
def test_a_better_rating_before_is_a_better_performance(
    config: EloMMR, field: Field, data: st.DataObject, more: float
) -> None:
    """p_i rises with i's prior rating, by no more, through the tie with oneself (Lemma 5.3)."""
    i = data.draw(st.integers(0, len(field.places) - 1))
    mu = field.mu.copy()
    mu[i] += more
    # A whole tie with all others of a group is drawn to their mean; alone, by less than `more`.
    p, raised = (
        Field(field.places, each, field.sigma).performances(config)[i] for each in (field.mu, mu)
    )
    assert p <= raised + TABLE_POINTS
    assert raised <= p + more + TABLE_POINTS


@cases("config", [
    EloMMR(weight_limit=0.2, sigma_limit=80.0), EloMMX(weight_limit=0.2, sigma_limit=80.0),
])  # fmt: skip
@cases("size", [5, SMALL + 10])
def test_a_place_gained_counts(config: Config, size: int) -> None:
    """Passing one more opponent, or drawing level with one, is worth more than a point here."""
    level = np.full(size, 1500.0)
    field = Field([2 * i + 1 for i in range(size)], level, level / 15.0)
    found = [field.with_place(0, p).performances(config)[0] for p in range(2 * size, 1, -1)]
    assert (np.diff(found) > 1.0).all()
