"""The two-moment filter: it equals its oracle, and has the properties that the documents claim."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.rating import stages
from stream_rater.rating.kernels import few_sides, many_sides
from stream_rater.rating.model import BEGAN, Wave
from stream_rater.rating.parameters import TwoMoment, fingerprint
from stream_rater.rating.systems.two_moment import SCORE_NOISE, Score
from stream_rater.rating.wins import MODEL, Believed
from stream_rater.replay.pool import Pool
from tests import two_moment_oracle as oracle
from tests.builders.cases import cases
from tests.rounds import day, read
from tests.strategies import days, weights

EXACT = 1e-7  # What the trapezoid rule leaves open, in standard deviations.
BETWEEN = 5e-6  # The same where columns are interpolated.

NAMES = [f"p{i}" for i in range(9)]


@st.composite
def rounds(draw: st.DrawFn) -> dict[str, Any]:
    """Sides of one to three players, with ties, dnf and shares."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=9, unique=True))
    sides = []
    while names:
        size = draw(st.integers(1, min(3, len(names))))
        side, names = names[:size], names[size:]
        shares = draw(st.none() | st.lists(st.floats(0.1, 1.0), min_size=size, max_size=size))
        sides.append((side, shares, draw(st.integers(0, 4))))
    assume(len(sides) > 1 and any(place for _, _, place in sides))
    return {"sides": sides, "weight": draw(weights()), "day": draw(days()),
            "ceiling": draw(st.none() | st.floats(500.0, 2500.0))}  # fmt: skip


configs = st.builds(
    TwoMoment, initial_mu=st.floats(-2000.0, 3000.0), initial_sigma=st.floats(100.0, 500.0),
    beta=st.floats(100.0, 900.0), sigma_drift=st.floats(0.0, 100.0),
    drift_per_day=st.floats(0.0, 400.0), newcomer_offset=st.floats(-300.0, 200.0),
    newcomer_field=st.floats(0.0, 1.0), team_noise=st.just(0.0) | st.floats(0.1, 0.5),
    history=st.just("full"),
)  # fmt: skip


def standings(sides: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"team": names} | ({"shares": shares} if shares else {})
        | ({"rank": place} if place else {"dnf": True})
        for names, shares, place in sides
    ]  # fmt: skip


@given(configs, st.lists(rounds(), min_size=1, max_size=4))
@settings(max_examples=30)
def test_beliefs_equal_the_oracles(config: TwoMoment, season: list[dict[str, Any]]) -> None:
    """Performances, mu and sigma are equal, in seasons with everything that a round can have."""
    pool = Pool(config)
    slow = {name: oracle.Player(config.initial_mu, config.initial_sigma) for name in NAMES}
    for offset, each in enumerate(season):
        given_round = read(
            config, *standings(each["sides"]), weight=each["weight"],
            performance_ceiling=each["ceiling"], completed_at=day(each["day"]),
        )  # fmt: skip
        rated = pool.rate(given_round, offset)
        assert rated is not None
        sides = [
            oracle.Side(place or 99, [slow[name] for name in names], shares or [1.0] * len(names))
            for names, shares, place in each["sides"]
        ]
        performances = oracle.rate_round(
            config, sides, each["weight"],
            math.inf if each["ceiling"] is None else each["ceiling"], given_round.time,
        )  # fmt: skip
        widest = max(math.sqrt(side.variance + side.noise) for side in sides)
        names = [name for side, _, _ in each["sides"] for name in side]
        expected = dict(zip(names, chain(*performances), strict=True))
        for name, found in zip(given_round.players, rated[1][:, 0].tolist(), strict=True):
            assert found == pytest.approx(expected[name], abs=BETWEEN * widest)
    for name, head in pool:
        unit = BETWEEN * config.initial_sigma
        assert float(head["mu"]) == pytest.approx(slow[name].mu, abs=unit)
        assert float(head["sigma"]) == pytest.approx(slow[name].sigma, abs=unit)


def wave(place: Sequence[int], mu: Floats, sigma: Floats, rounds: int | Sequence[int] = 5) -> Wave:
    """A round of players who all played before."""
    n = len(place)
    return Wave(
        np.array([0, n]), np.ones(1), np.full(n, math.inf), np.zeros(1, np.int64),
        np.array(place, np.int32), np.arange(n + 1), np.ones(n), mu, sigma,
        np.zeros(n, np.int64) + rounds, np.zeros(n, np.int64),
    )  # fmt: skip


@cases("count", [2, 3, 8, 9, 30, 300])
def test_large_rounds_equal_the_oracle(count: int) -> None:
    """The rounds have ties. Columns of the larger ones are interpolated."""
    rng = np.random.default_rng(count)
    config = TwoMoment(sigma_drift=0.0)
    place = np.sort(rng.integers(1, count + 1, count))
    mu, sigma = rng.normal(1500.0, 400.0, count), rng.uniform(30.0, 350.0, count)
    found = stages.estimate(config, wave(place.tolist(), mu, sigma))
    sides = [
        oracle.Side(int(p), (), (), m - 1500.0, s * s, config.beta**2)
        for p, m, s in zip(place, mu, sigma, strict=True)
    ]
    for i in range(count) if count < 10 else rng.permutation(count)[:6].tolist():
        performance, mean, variance = oracle.rate_side(sides, i, math.inf)
        open_ = EXACT if count < 9 else BETWEEN
        assert found[i, 0] - 1500.0 == pytest.approx(performance, abs=open_ * 400.0)
        assert found[i, 1] - 1500.0 == pytest.approx(mean, abs=open_ * sigma[i])
        assert found[i, 2] == pytest.approx(math.sqrt(variance), abs=open_ * sigma[i])


@given(st.integers(2, 40), st.integers(0, 2**32 - 1), st.floats(10.0, 3000.0))
@settings(max_examples=50)
def test_a_better_place_gives_a_better_rating(count: int, seed: int, spread: float) -> None:
    """So is the performance better. A tie with the next one lies between the two orders."""
    rng = np.random.default_rng(seed)
    mu, sigma = rng.normal(1500.0, spread, count), rng.uniform(20.0, 350.0, count)
    at = int(rng.integers(0, count - 1))
    place, order = np.arange(1, count + 1), np.arange(count)
    order[[at, at + 1]] = at + 1, at
    better = stages.estimate(TwoMoment(), wave(place.tolist(), mu, sigma))[at]
    worse = stages.estimate(TwoMoment(), wave(place.tolist(), mu[order], sigma[order]))[at + 1]
    place[at + 1] = place[at]
    tied = stages.estimate(TwoMoment(), wave(place.tolist(), mu, sigma))[at]
    assert better[0] > worse[0] - 1e-3
    assert worse[1] - 1e-3 < tied[1] < better[1] + 1e-3


@cases("count, sigma", [(40, 40.0), (100, 60.0), (300, 60.0)])
def test_every_better_place_in_a_wide_field_pays(count: int, sigma: float) -> None:
    """It does from the last place to the first, however far away others are."""
    others = np.linspace(620.0, 2380.0, count)[::-1]
    found = []
    for at in range(count + 1):
        mu, spread = np.insert(others, at, 1500.0), np.insert(np.full(count, sigma), at, sigma)
        found.append(stages.estimate(TwoMoment(), wave(range(1, count + 2), mu, spread))[at, 1])
    assert (np.diff(found) < 0.0).all()


@given(st.integers(2, 40), st.integers(0, 2**32 - 1), st.floats(10.0, 3000.0))
@settings(max_examples=50)
def test_no_result_makes_anybody_less_known(count: int, seed: int, spread: float) -> None:
    """Sigma does not rise, however surprising the result is, with ties, too."""
    rng = np.random.default_rng(seed)
    mu, sigma = rng.normal(1500.0, spread, count), rng.uniform(40.0, 350.0, count)
    place = np.sort(rng.integers(1, count + 1, count)).tolist()
    after = stages.estimate(TwoMoment(sigma_drift=0.0), wave(place, mu, sigma))
    assert (after[:, 2] <= sigma).all()
    assert (after[:, 2] > 0.0).all()


NEUTRAL = 1e-6  # Points by which a tie of equals may move a mean.


@given(sigma=st.floats(5.0, 350.0), beta=st.floats(30.0, 900.0), played=st.sampled_from([5, 0]))
@settings(max_examples=30)
@example(sigma=TwoMoment().initial_sigma, beta=TwoMoment().beta, played=0)  # once both fell to 1347
@cases("count", [2, 3, 8, 24, few_sides.FEW + 1, 60])
def test_a_tie_of_equals_is_neutral(count: int, sigma: float, beta: float, played: int) -> None:
    """Means stay, and all sigmas fall by the same amount; by the same bits if there are two."""
    equals = wave([1] * count, np.full(count, 1500.0), np.full(count, sigma), played)
    found = stages.estimate(TwoMoment(beta=beta, sigma_drift=0.0, newcomer_offset=0.0), equals)
    near = NEUTRAL if count <= few_sides.FEW else BETWEEN * math.hypot(sigma, beta)
    assert found[:, 1] == pytest.approx(1500.0, abs=near)
    assert (found[:, 2] < sigma).all()
    assert np.ptp(found[:, 2]) < NEUTRAL
    assert count > 2 or found[0].tobytes() == found[1].tobytes()


def test_rounds_do_not_depend_on_each_other() -> None:
    """A wave gives each round the bits that it gets alone, whatever the sizes of others."""
    rng = np.random.default_rng(3)
    sizes = [2, 900, 3, 40, 2]
    ends = np.cumsum(sizes)
    starts = np.concatenate([[0], ends])
    whole = Wave(
        starts, np.ones(5), np.full(ends[-1], math.inf), np.zeros(5, np.int64),
        np.concatenate([np.arange(1, n + 1) for n in sizes]).astype(np.int32),
        np.arange(ends[-1] + 1), np.ones(ends[-1]), rng.normal(1500.0, 300.0, ends[-1]),
        rng.uniform(40.0, 350.0, ends[-1]), rng.integers(0, 3, ends[-1]),
        np.zeros(ends[-1], np.int64),
    )  # fmt: skip
    together = stages.estimate(TwoMoment(), whole)
    for r, (a, b) in enumerate(zip(starts[:-1], ends, strict=True)):
        alone = stages.estimate(TwoMoment(), whole.part(r, r + 1))
        assert alone.tobytes() == together[a:b].tobytes()


def test_rows_that_are_not_kept_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large rounds compute them twice. This runs in Python, since a kernel has its own limit."""
    rng = np.random.default_rng(5)
    place = np.sort(rng.integers(1, 9, 12)).astype(np.int32)
    m, v, b2 = rng.normal(0.0, 300.0, 12), rng.uniform(1e3, 1e5, 12), np.full(12, 6e4)
    kept, rebuilt = np.empty((12, 3)), np.empty((12, 3))
    rate_many: Any = many_sides.rate_many
    most = np.full(12, math.inf)
    rate_many.py_func(place, m, v, b2, most, kept)
    monkeypatch.setattr(many_sides, "KEPT", 0)
    rate_many.py_func(place, m, v, b2, most, rebuilt)
    assert kept.tobytes() == rebuilt.tobytes()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=80)
def test_whatever_ratings_are_the_new_ones_are_numbers(seed: int) -> None:
    """However far apart they are, with any noise and tiny shares. The work is bounded."""
    rng = np.random.default_rng(seed)
    sides = int(rng.choice([2, 3, 9, 60]))
    members = rng.integers(1, 4, sides)
    starts = np.concatenate([[0], np.cumsum(members)])
    players = int(starts[-1])
    mu = rng.normal(1500.0, 10.0 ** rng.uniform(-3.0, 7.0), players)
    mu[rng.integers(players)] += 10.0 ** rng.uniform(3.0, 9.0)
    sigma = np.exp(rng.uniform(math.log(1e-3), math.log(350.0), players))
    beta, drift = 10.0 ** rng.uniform(-6.0, 9.0), rng.choice([0.0, 20.0, 1e6])
    config = TwoMoment(beta=float(beta), sigma_drift=float(drift))
    given_wave = Wave(
        np.array([0, sides]), 10.0 ** rng.uniform(-6.0, 3.0, 1),
        rng.choice([math.inf, 1600.0, -1e9], 1).repeat(sides), np.full(1, 10**9),
        np.sort(rng.integers(1, sides + 1, sides)).astype(np.int32), starts,
        10.0 ** rng.uniform(-6.0, 0.0, players), mu, sigma, rng.integers(0, 3, players),
        np.zeros(players, np.int64),
    )  # fmt: skip
    found = stages.estimate(config, given_wave)
    assert np.isfinite(found[:, :BEGAN]).all()
    assert (np.isnan(found[:, BEGAN]) == (given_wave.rounds > 0)).all()
    assert (found[:, 2] > 0.0).all()
    make_grid: Any = many_sides._grid
    grid = make_grid.py_func(mu, sigma * sigma, np.full(players, config.beta**2))
    assert grid.columns <= many_sides.MOST_COLUMNS and grid.points <= many_sides.MOST_POINTS


@cases(
    "sigma, days, after",
    [(60.0, 0, 60.0), (60.0, -90, 60.0), (60.0, 90, math.hypot(60.0, 300.0)), (300.0, 90, 350.0),
     (350.0, 90, 350.0), (500.0, 90, 500.0), (500.0, 0, 500.0)],
)  # fmt: skip
def test_days_raise_sigma_up_to_the_initial_one(sigma: float, days: int, after: float) -> None:
    """A greater sigma, as a season may set, stays. A clock that goes back changes nothing."""
    config = TwoMoment(beta=1e6, sigma_drift=0.0, drift_per_day=1000.0, initial_sigma=350.0)
    given_wave = wave((1, 2), np.full(2, 1500.0), np.full(2, sigma))
    given_wave.time[:] = 100 * 86400
    given_wave.last_time[:] = (100 - days) * 86400
    assert stages.estimate(config, given_wave)[:, 2] == pytest.approx(after, rel=1e-4)


# --- experience: of two with one rating, who has played more performs better ----------------------

PLAYED = st.integers(1, 400)


def duel(mu: list[float], played: list[int]) -> Wave:
    """A duel that the first player wins."""
    return wave((1, 2), np.array(mu), np.full(2, 120.0), played)


def wins(config: TwoMoment, played: list[int]) -> float:
    """The probability that the first of two players wins, who have the same mu and sigma."""
    players = Believed(np.full(2, 1600.0), np.full(2, 120.0), np.array(played))
    return float(MODEL.forecast(config, np.arange(3), np.ones(2), players).win[0])


FADING_POINTS = st.builds(
    lambda points, rounds: TwoMoment(inexperience=points, inexperience_rounds=rounds),
    st.floats(1.0, 600.0), st.floats(2.0, 100.0),
)  # fmt: skip


@given(PLAYED, PLAYED, FADING_POINTS)
@settings(max_examples=40)
def test_the_experienced_player_is_the_favourite(one: int, other: int, config: TwoMoment) -> None:
    """By the difference of the points that each lacks. Equal experience has even chances."""
    points, rounds = config.inexperience, config.inexperience_rounds
    lead = points * (math.exp(-other / rounds) - math.exp(-one / rounds))
    spread = math.sqrt(2.0 * (120.0**2 + config.chances.noise))
    expected = 0.5 * math.erfc(-lead / spread / math.sqrt(2.0))
    assert wins(config, [one, other]) == pytest.approx(expected, abs=1e-9)
    assert wins(config, [one, one]) == pytest.approx(0.5, abs=1e-12)


@given(PLAYED, PLAYED, FADING_POINTS)
@settings(max_examples=40)
def test_points_are_taken_off_for_the_round_only(one: int, other: int, config: TwoMoment) -> None:
    """The round is that of players whose mu is lower by the points, which are then given back."""
    plain = msgspec.structs.replace(config, inexperience=0.0)
    less = config.inexperience * np.exp(-np.array([one, other]) / config.inexperience_rounds)
    found = stages.estimate(config, duel([1500.0, 1640.0], [one, other]))
    moved = stages.estimate(plain, duel([1500.0 - less[0], 1640.0 - less[1]], [one, other]))
    np.testing.assert_allclose(found[:, 1], moved[:, 1] + less, atol=1e-8)
    np.testing.assert_allclose(found[:, 2], moved[:, 2], atol=1e-8)


@given(PLAYED, FADING_POINTS)
@settings(max_examples=40)
def test_a_surprise_moves_more(played: int, config: TwoMoment) -> None:
    """A winner with fewer rounds than the opponent gains more. No win costs points."""
    even = stages.estimate(config, duel([1500.0, 1500.0], [played + 20, played + 20]))
    surprise = stages.estimate(config, duel([1500.0, 1500.0], [played, played + 20]))
    assert surprise[0, 1] >= even[0, 1] - 1e-9
    assert surprise[0, 1] > 1500.0 > surprise[1, 1]


# --- scores: the margin of a victory counts, within bounds ----------------------------------------

PLAIN = TwoMoment(sigma_drift=0.0, inexperience=0.0)
BY_DIFFERENCE = msgspec.structs.replace(PLAIN, score=Score(scale=150.0, cap=3.0))
BY_RATIO = msgspec.structs.replace(PLAIN, score=Score(scale=300.0, cap=1.0, by="ratio"))
BOTH = cases("config", [BY_DIFFERENCE, BY_RATIO])

ROUNDING = 1e-6  # points

ratings = st.floats(500.0, 2500.0)
sigmas = st.floats(20.0, 350.0)
scores = st.floats(0.0, 1e6)


Pair = tuple[float, float]


def rated(
    config: TwoMoment, mu: Pair, sigma: Pair, score: Pair | None, place: tuple[int, int] = (1, 2)
) -> Floats:
    """The evidence of two players, the winner first."""
    one = wave(place, np.array(mu), np.array(sigma))
    if score is not None:
        one = one._replace(score=np.array(score))
    return stages.estimate(config, one)


@given(mu=st.tuples(ratings, ratings), sigma=st.tuples(sigmas, sigmas), more=scores, less=scores)
@settings(max_examples=80)
@BOTH
def test_a_larger_margin_never_gives_less(
    config: TwoMoment, mu: Pair, sigma: Pair, more: float, less: float
) -> None:
    """No victory costs points, no defeat gains any, and no score raises a sigma."""
    low, high = sorted((more + 1.0, less + 1.0))
    narrow, wide = rated(config, mu, sigma, (low, 0.0)), rated(config, mu, sigma, (high, 0.0))
    assert narrow[0, 1] >= mu[0] - ROUNDING and narrow[1, 1] <= mu[1] + ROUNDING
    assert wide[0, 1] >= narrow[0, 1] - ROUNDING and wide[1, 1] <= narrow[1, 1] + ROUNDING
    for after in (narrow[:, 2], wide[:, 2], rated(config, mu, sigma, (more, 0.0))[:, 2]):
        assert (after <= np.array(sigma) * (1.0 + 1e-12)).all() and (after > 0.0).all()


@BOTH
def test_running_up_a_score_gains_nothing_beyond_the_cap(config: TwoMoment) -> None:
    """A billion goals are worth as much as a million."""
    equals, known = (1500.0, 1500.0), (100.0, 100.0)
    gains = [rated(config, equals, known, (each, 0.0))[0, 1] - 1500.0 for each in (1e6, 1e9)]
    assert config.score is not None
    assert gains[0] == pytest.approx(gains[1], abs=ROUNDING)
    assert 0.0 < gains[1] < config.score.scale * config.score.cap


ABSENT, CONTRADICTING, EVEN = ((math.nan, 1.0), (2.0, math.nan)), (1.0, 4.0), (2.0, 2.0)


@BOTH
def test_a_score_that_does_not_agree_with_the_places_is_not_used(config: TwoMoment) -> None:
    """The places decide, and a tie is a tie whatever the scores."""
    players = (1600.0, 1400.0), (90.0, 200.0)
    won, tied = rated(PLAIN, *players, None), rated(PLAIN, *players, None, (1, 1))
    for score in (*ABSENT, CONTRADICTING, EVEN):
        assert rated(config, *players, score).tobytes() == won.tobytes(), score
    assert rated(config, *players, (3.0, 1.0), (1, 1)).tobytes() == tied.tobytes()


def by_integrals(mu: Pair, sigma: Pair, beta: float, seen: float) -> Pair:
    """The winner's gain in mu, and the new sigma, by integrals over the difference D of the
    performances on each pair of days."""
    d = np.linspace(0.0, 6000.0, 600_001)
    parts = []
    for pi_0, shift_0, part_0 in oracle.KINDS:
        for pi_1, shift_1, part_1 in oracle.KINDS:
            whole = sigma[0] ** 2 + sigma[1] ** 2 + (part_0 + part_1) * beta**2
            mean = mu[0] - mu[1] + (shift_0 - shift_1) * beta
            noise = SCORE_NOISE * 2.0 * beta**2
            likely = np.exp(-0.5 * (d - mean) ** 2 / whole - 0.5 * (seen - d) ** 2 / noise)
            likely[0] *= 0.5  # the trapezoid rule
            mass = likely.sum()
            lift = float((likely * d).sum() / mass) - mean
            spread = float((likely * (d - mean - lift) ** 2).sum() / mass)
            k = sigma[0] ** 2 / whole
            left = sigma[0] ** 2 - sigma[0] ** 4 / whole + k * k * spread
            parts.append((pi_0 * pi_1 * float(mass), k * lift, left))
    weight, gain, left = np.array(parts).T
    weight = weight / weight.sum()
    mean = float(weight @ gain)
    return mean, math.sqrt(float(weight @ (left + (gain - mean) ** 2)))


@cases("apart", [-800.0, -200.0, 0.0, 150.0])
@cases("score", [1.0, 4.0])
def test_gains_equal_those_of_integrals(apart: float, score: float) -> None:
    """To a ten-thousandth of a point, where no gain is negative."""
    mu, sigma = (1500.0 + apart, 1500.0), (120.0, 60.0)
    seen = 150.0 * 3.0 * math.tanh(score / 3.0)
    gain, left = by_integrals(mu, sigma, BY_DIFFERENCE.beta, seen)
    found = rated(BY_DIFFERENCE, mu, sigma, (score, 0.0))
    assert found[0, 1] - mu[0] == pytest.approx(max(gain, 0.0), abs=1e-4)
    assert found[0, 2] == pytest.approx(left, abs=1e-4)


def test_surprising_scores_give_numbers() -> None:
    for apart in (-1e9, -1e5, -5e3, 5e3, 1e5, 1e9):
        for beta in (1e-3, 250.0, 1e7):
            config = TwoMoment(beta=beta, score=Score(scale=1e3, cap=1e3))
            found = rated(config, (1500.0 + apart, 1500.0), (100.0, 1e-3), (1e6, 0.0))
            assert np.isfinite(found[:, :3]).all() and (found[:, 2] > 0.0).all()


def test_a_score_is_in_the_fingerprint() -> None:
    assert fingerprint(BY_DIFFERENCE) != fingerprint(PLAIN)
