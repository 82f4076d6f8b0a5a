"""Stage 1 of large rounds, which takes linear time, gives what sums over all opponents give."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfcx

from stream_rater.columns.arrays import Floats
from stream_rater.rating.elo_mmr import bounds, large_rounds, sums
from stream_rater.rating.elo_mmr.direct import fill_open
from stream_rater.rating.elo_mmr.performance import C, performances, solve_rounds
from stream_rater.rating.elo_mmr.sum_table import FEW
from stream_rater.rating.elo_mmr.sums import HIGH, KNOWN, LOW, TOTAL, WIDEST, round_bounds
from stream_rater.rating.kernels import climb
from stream_rater.rating.kernels.elo_mmx import MOST as SMALL
from stream_rater.rating.kernels.elo_mmx import performances as gaussian_performances
from stream_rater.rating.kernels.historic import SoloRound, codeforces, glicko
from stream_rater.rating.model import DID_NOT_FINISH, Places, Wave, tie_bounds
from stream_rater.rating.parameters import EloMMX
from tests import elo_mmr_oracle as oracle

# --- Elo-MMR --------------------------------------------------------------------------------------

CLOSE = 4e-6
"""Points at scales 1/u of about 70: the interpolation's error (NODE) and one Halley step's."""
WIDE = 2e-5
"""Points where a few entries are far narrower than the others, or ratings are thousands apart."""


def both(place: Places, mu: Floats, delta: Floats, tie: float) -> tuple[Floats, Floats]:
    """Performances by the table, and each on its own by the sums."""
    starts, u = np.array([0, len(mu)]), C / delta
    known = np.empty((1, KNOWN))
    round_bounds(mu, u, 0, len(mu), tie, known[0])
    low, high = known[0, LOW], known[0, HIGH]
    fast, slow = np.empty(len(mu)), np.full(len(mu), math.nan)
    large_rounds.solve_large(starts, np.array([0]), known, place, mu, u, tie, fast)
    fill_open(place, mu, u, tie, low, high, slow)
    return fast, slow


def a_random_round(
    rng: np.random.Generator, n: int, *, ties: float = 0.1, unfinished: float = 0.0,
    sigma: tuple[float, float] = (50.0, 350.0), spread: float = 300.0, luck: float = 250.0,
) -> tuple[Places, Floats, Floats]:  # fmt: skip
    """Places, mu and delta of n players whose results fit their ratings, more or less."""
    mu = rng.normal(1500.0, spread, n)
    mu = mu[np.argsort(-(mu + rng.normal(0.0, luck, n)))]
    place = 1 + np.cumsum(rng.random(n) >= ties).astype(np.int32)
    place[max(n - int(unfinished * n), 1) :] = DID_NOT_FINISH
    return place, mu, np.sqrt(rng.uniform(*sigma, n) ** 2 + 125.0**2)


def test_the_table_gives_what_the_sums_give() -> None:
    """With ties and unfinished players, and in wide fields with a few very certain players."""
    shapes: tuple[dict[str, Any], ...] = ({}, {"ties": 0.9}, {"unfinished": 0.3}, {"ties": 1.0})
    wide: tuple[dict[str, Any], ...]
    wide = ({"spread": 3000.0}, {"sigma": (1.0, 20.0), "spread": 2000.0})
    cases = [*product((2, 7, 41, 100, 700, 2500), (1.0, 0.5), shapes)]
    for n, tie, shape in [*cases, *product((50, 400), (1.0,), wide)]:
        fast, slow = both(*a_random_round(np.random.default_rng(n), n, **shape), tie)
        most = WIDE if shape in wide else CLOSE
        assert np.abs(fast - slow).max() < most, (n, tie, shape)


def test_two_ratings_only_are_within_their_bound() -> None:
    """No random sample, so errors of n terms do not cancel: two clusters, `gap` of 1/u apart."""
    for n, gap in product((60, 3000), (1.0, 4.0, 8.0, 20.0)):
        mu = np.where(np.arange(n) < n // 2, 1500.0 + gap * 200.0 / C, 1500.0)
        fast, slow = both(np.arange(1, n + 1, dtype=np.int32), mu, np.full(n, 200.0), 1.0)
        assert np.abs(fast - slow).max() < WIDE, (n, gap)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.5]), st.integers(2, 80))
def test_any_round_agrees(seed: int, tie: float, n: int) -> None:
    """Random shapes: ties, unfinished entries, spreads and certainties all at once."""
    rng = np.random.default_rng(seed)
    shape = a_random_round(
        rng, n, ties=rng.random(), unfinished=0.5 * rng.random(),
        sigma=(20.0, 20.0 + 400.0 * rng.random()), spread=1000.0 * rng.random(),
    )  # fmt: skip
    fast, slow = both(*shape, tie)
    assert np.abs(fast - slow).max() < WIDE


def test_edges_are_finite_and_in_order() -> None:
    """All tied; newcomers all alike; a gap of 10^4 points, kept and upset; tiny deltas."""
    for n in (100, 20_000):
        order, level, u = np.arange(1, n + 1, dtype=np.int32), np.full(n, 1500.0), C / 350.0
        apart = np.where(np.arange(n) < n // 2, 11_500.0, 1500.0)
        assert np.ptp(performances(np.ones(n, np.int32), level, np.full(n, u), 1.0)) == 0.0
        mixed = np.where(np.arange(n) % 2, C / 2.0, C / 400.0)
        for mu in (level, apart, apart[::-1].copy()):
            for widths in (np.full(n, u), np.full(n, C / 2.0), mixed):
                found = performances(order, mu, widths, 1.0)
                assert np.isfinite(found).all() and (np.diff(found) <= 0.0).all(), n


def test_likely_ends_are_within_their_margin() -> None:
    """In 99 of 100 rounds they are known before the round's table is made."""
    shapes: tuple[dict[str, Any], ...] = ({}, {"ties": 0.9}, {"unfinished": 0.3})
    for n, tie in product((33, 64, 300), (1.0, 0.5)):
        rng = np.random.default_rng(n)
        rounds = [a_random_round(rng, n, **shapes[i % 3]) for i in range(100)]
        place, mu, delta = (np.concatenate(parts) for parts in zip(*rounds, strict=True))
        u = C / delta
        starts, which = np.arange(0, n * 100 + 1, n), np.arange(100)
        ranked = (place.reshape(100, n) != DID_NOT_FINISH).sum(axis=1)
        known, odds = np.empty((100, KNOWN)), np.empty(len(mu))
        for r in which:
            part = slice(starts[r], starts[r + 1])
            round_bounds(mu, u, starts[r], starts[r + 1], tie, known[r])
            sums.find_odds(place[part], u[part], ranked[r], tie, known[r, TOTAL], odds[part])
        lanes, ends = np.empty(sums.LANES), np.empty((bounds.ENDS, 100))
        bounds.likely_ends(starts, which, ranked, known, place, mu, u, tie, odds, lanes, ends)
        found = solve_rounds(starts, place, mu, u, tie).reshape(100, n)
        exact = np.stack([found[which, ranked - 1], found[:, 0]])
        off = np.abs(ends[[bounds.LEAST, bounds.MOST]] - exact) * known[:, WIDEST]
        assert (np.count_nonzero(off < bounds.MARGIN, axis=1) >= 99).all(), (n, tie)


# --- Elo-MMX --------------------------------------------------------------------------------------

POINTS = 1e-4
"""What the issue asks of every performance; up to a few hundred entries it is far less:"""
CELLS = 5e-6

SHAPES: dict[str, dict[str, Any]] = {
    "few ties": {}, "many ties": {"ties": 0.9}, "all tied": {"ties": 1.0},
    "unfinished": {"unfinished": 0.3}, "one finished": {"unfinished": 0.999},
    "certain": {"sigma": (0.0, 1.0)}, "spread": {"spread": 3000.0}, "no order": {"luck": 3000.0},
}  # fmt: skip


def minus_q(place: Places, mu: Floats, delta: Floats, i: int, x: float, split: bool) -> float:
    """-Q_i(x), which rises through zero at the performance: brute force, by SciPy's functions."""
    z = (x - mu) / delta
    lost = math.sqrt(2.0 / math.pi) / erfcx(np.maximum(z, -35.0) / math.sqrt(2.0))
    won = -math.sqrt(2.0 / math.pi) / erfcx(np.maximum(-z, -35.0) / math.sqrt(2.0))
    order = np.where(place == DID_NOT_FINISH, np.iinfo(np.int32).max, place)
    term = np.where(order < order[i], lost, won)
    tied = order == order[i]
    if place[i] == DID_NOT_FINISH:
        term[tied] = 0.0
        tied = np.arange(len(mu)) == i
    term[tied] = (0.5 * (won + lost) if split else z)[tied]
    return float(np.sum(term / delta))


def check(place: Places, mu: Floats, delta: Floats, split: bool, ranks: Any, points: float) -> None:
    """Each of these gaussian_performances has its zero within so many points."""
    found = gaussian_performances(place, mu, delta, split)
    assert np.isfinite(found).all()
    for i in ranks:
        x = float(found[i])
        assert minus_q(place, mu, delta, i, x - points, split) < 0.0, i
        assert minus_q(place, mu, delta, i, x + points, split) > 0.0, i


@st.composite
def small_rounds(draw: st.DrawFn) -> tuple[Places, Floats, Floats]:
    n = draw(st.integers(2, 12))
    places = sorted(draw(st.lists(st.integers(1, 6), min_size=n, max_size=n)))
    unfinished = draw(st.integers(0, n - 1))
    place = np.array(places[: n - unfinished] + [DID_NOT_FINISH] * unfinished, np.int32)
    mu = draw(st.lists(st.floats(-3000.0, 6000.0), min_size=n, max_size=n))
    delta = draw(st.lists(st.floats(60.0, 500.0), min_size=n, max_size=n))
    return place, np.array(mu), np.array(delta)


@given(small_rounds(), st.booleans())
@settings(max_examples=60)
def test_performances_equal_the_oracles(
    entries: tuple[Places, Floats, Floats], split: bool
) -> None:
    """Whatever the ratings, places and widths."""
    place, mu, delta = entries
    expected = [
        oracle.gaussian_performance(place.tolist(), mu.tolist(), delta.tolist(), i, split)
        for i in range(len(mu))
    ]
    assert expected == pytest.approx(
        gaussian_performances(place, mu, delta, split), rel=0, abs=CELLS
    )


def test_every_performance_is_the_zero_of_q() -> None:
    """Of small rounds and cells, and of two camps 10,000 points apart, in order and reversed."""
    for n, shape, split in product((2, SMALL, SMALL + 1, 60, 300), SHAPES, (False, True)):
        place, mu, delta = a_random_round(np.random.default_rng(n), n, **SHAPES[shape])
        check(place, mu, delta, split, range(n), CELLS)
    for n, width, upset, split in product((4, 100), (1.0, 30.0, 300.0), (0, 1), (False, True)):
        mu = np.repeat([0.0, 1e4] if upset else [1e4, 0.0], n // 2)
        place = np.arange(1, n + 1, dtype=np.int32)
        check(place, mu, np.full(n, width), split, range(n), POINTS)


def test_large_rounds_hold_at_every_depth() -> None:
    """From the winners to the last. One beats, or loses to, a crowd that ties."""
    for n, split in product((3000, 100_000), (False, True)):
        place, mu, delta = a_random_round(np.random.default_rng(n), n, unfinished=0.01)
        ranks = {0, 1, 2, 5, n // 100, n // 3, n // 2, n - n // 50, n - n // 100 - 1, n - 1}
        check(place, mu, delta, split, sorted(ranks), POINTS)
    n = 100_001
    for first in (False, True):
        place = np.full(n, 2 if first else 1, np.int32)
        place[0 if first else -1] = 1 if first else 2
        check(place, np.full(n, 1500.0), np.full(n, 375.0), False, (0, n - 1), POINTS)


def test_a_million_equal_newcomers() -> None:
    """All in one place, or each in a place of its own: finite, falling, symmetric about mu."""
    n = 1_000_000
    mu, delta = np.full(n, 1500.0), np.full(n, 375.0)
    for place in (np.ones(n, np.int32), np.arange(1, n + 1, dtype=np.int32)):
        check(place, mu, delta, False, (0, 1, n // 2, n - 1), POINTS)
        found = gaussian_performances(place, mu, delta, False)
        assert (np.diff(found) <= 0.0).all()
        assert found[0] - 1500.0 == pytest.approx(1500.0 - found[-1], rel=0, abs=POINTS)


def test_the_tied_are_equal_and_the_better_better() -> None:
    """Ties share every bit, whether a group fits a block or not."""
    place, mu, delta = a_random_round(np.random.default_rng(5), 4000, ties=0.97)
    found = gaussian_performances(place, mu, delta, False)
    groups = [set(found[place == p].tolist()) for p in np.unique(place)]
    assert [1] * len(groups) == [len(group) for group in groups]
    assert (np.diff([max(group) for group in groups]) < 0.0).all()


def test_a_team_is_credited_with_what_its_members_lack() -> None:
    """Section 3.3: the others' part and noise come off, shares applied; then two Gaussians meet."""
    config = EloMMX(weight_limit=0.2, sigma_limit=80.0, initial_mu=1500.0)
    share, mu, sigma = np.array([1.0, 0.5, 1.0]), np.array([1700.0, 1400.0, 1600.0]), 100.0
    wave = Wave(
        np.array([0, 2]), np.ones(1), np.full(2, math.inf), np.zeros(1, np.int64),
        np.array([1, 2], np.int32), np.array([0, 2, 3]), share, mu, np.full(3, sigma),
        np.zeros(3, np.int64), np.zeros(3, np.int64),
    )  # fmt: skip
    beta2, prior = (1 + 1 / 0.2) * 80.0**2, sigma**2 + 0.2 * 80.0**2
    team, both = 1500.0 + 200.0 - 50.0, 1.25 * (prior + beta2)
    delta = [math.sqrt(both), math.sqrt(prior + beta2)]
    p = oracle.gaussian_performance([1, 2], [team, 1600.0], delta, 0, False)
    evidence = config.estimate(wave)
    for i in range(2):
        found = mu[i] + (p - team) / share[i]
        noise = both / share[i] ** 2 - prior
        after = 1.0 / (1.0 / prior + 1.0 / noise)
        expected = [found, after * (mu[i] / prior + found / noise), math.sqrt(after)]
        assert expected == pytest.approx(evidence[i], rel=1e-9)


# --- Codeforces, Glicko and Elo -------------------------------------------------------------------

ODDS_POINTS = 1e-6  # Of every performance and rating, at a beta of 200.
PAIR = 1e-10  # Of the score that is expected of a pair.
BETA, DRIFT, WEIGHT = 200.0, 35.0, 1.3
SPREADS = {"equal": 0.0, "near": 10.0, "usual": 400.0, "far": 3000.0, "no table": 1e5}
"""Of ratings: their standard deviation."""
SIZES = (2, FEW, FEW + 1, 60, 700)
LARGE = 20_000
ODDS = [*product(SIZES, SPREADS), (LARGE, "usual")]


def a_round_of_odds(n: int, spread: float) -> tuple[Places, Floats, Floats]:
    """Places, mu and sigma: some tie, the last tenth did not finish."""
    rng = np.random.default_rng(n)
    place, mu, _ = a_random_round(rng, n, unfinished=0.1, spread=spread, luck=300.0)
    return place, mu, rng.uniform(40.0, 350.0, n)


def solo(place: Places, mu: Floats, sigma: Floats) -> SoloRound:
    """A round of single players who have played before."""
    most = np.full(len(mu), math.inf)
    return SoloRound(place, mu, sigma, np.ones(len(mu), np.int64), WEIGHT, most, 0.0 * mu)


def depths(n: int) -> Iterator[int]:
    """Positions in a round of n: all of a small one, some of a large one."""
    yield from range(n) if n < 100 else sorted({0, 1, n // 100, n // 3, n // 2, n - 2, n - 1})


def logistic(z: Floats) -> Floats:
    return np.exp(-np.logaddexp(0.0, -z))


def test_codeforces() -> None:
    """At the performance the expected rank is the mean of the actual and the expected one."""
    for n, spread in ODDS:
        place, mu, sigma = a_round_of_odds(n, SPREADS[spread])
        u = C * math.sqrt(WEIGHT) / BETA

        def rank(x: float, mu: Floats = mu, u: float = u) -> float:
            return 0.5 + float(np.sum(logistic((mu - x) * u)))

        found = codeforces(solo(place, mu, sigma), BETA, 0.3)
        part = 0.3 * WEIGHT / (1.0 + 0.3 * WEIGHT)
        for i in depths(n):
            tied = np.flatnonzero(place == place[i])
            between = math.sqrt(rank(mu[i]) * (tied[0] + tied[-1] + 2.0) / 2.0)
            at = float(found[i, 0])
            case = n, spread, i
            assert rank(at - ODDS_POINTS) > between > rank(at + ODDS_POINTS), case
            after = mu[i] + part * (at - mu[i])
            assert found[i, 1] == pytest.approx(after, rel=0, abs=ODDS_POINTS), case
        assert sigma.tolist() == found[:, 2].tolist()


def test_glicko() -> None:
    """A rating moves by the mean of g (outcome - probability) over all, times the new variance."""
    for n, spread in ODDS:
        place, mu, sigma = a_round_of_odds(n, SPREADS[spread])
        b2, variance = BETA**2 / WEIGHT, sigma**2 + DRIFT**2
        g, u = 1.0 / np.sqrt(1.0 + variance / b2), C / np.sqrt(variance + b2)
        after = 1.0 / (1.0 / variance + 0.25 * C * C / b2)
        found = glicko(solo(place, mu, sigma), BETA, DRIFT)
        for i in depths(n):
            tied = np.flatnonzero(place == place[i])
            outcome = np.where(np.arange(n) > tied[-1], 1.0, 0.0)
            outcome[tied] = 0.5
            surprise = np.mean(g * (outcome - logistic((mu[i] - mu) * u)))
            moved = mu[i] + C / math.sqrt(b2) * after[i] * surprise
            assert found[i, 1] == pytest.approx(moved, rel=0, abs=ODDS_POINTS), (n, spread, i)
            assert found[i, 2] == pytest.approx(math.sqrt(after[i]), rel=1e-14), (n, spread, i)


def test_pairwise_elo() -> None:
    """What an entry scores against all it is compared with, less what was expected; zero-sum."""
    for (n, spread), unfinished in product(ODDS, (False, True)):
        place, mu, _ = a_round_of_odds(n, SPREADS[spread])
        x, (lo, hi) = mu * C / BETA, tie_bounds(place)
        ranked = int(np.count_nonzero(place)) if unfinished else n
        found = climb.gradient_of_pairs(x, hi, ranked, False, False)
        for i in depths(n):
            others = np.flatnonzero(np.arange(n if i < ranked else ranked) != i)
            score = np.where(others > i, 1.0, 0.0)
            score[(others >= lo[i]) & (others <= hi[i])] = 0.5
            surprise = float(np.sum(score - logistic(x[i] - x[others])))
            assert found[i] == pytest.approx(surprise, rel=0, abs=n * PAIR), (n, spread, i)
        assert float(np.sum(found)) == pytest.approx(0.0, abs=n * n * 0.1 * PAIR), (n, spread)
