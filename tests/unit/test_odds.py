"""Codeforces, Glicko and Elo in linear time: what the formulas say, summed over every opponent."""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from stream_rater.columns.arrays import Floats
from stream_rater.rating.kernels import codeforces, glicko, pairwise_elo
from stream_rater.rating.kernels.odds import FEW, table_of
from stream_rater.rating.kernels.places import tie_bounds
from stream_rater.rating.model import DID_NOT_FINISH, Places

POINTS = 1e-6
"""Of every performance and rating, at a beta of 200."""

PAIR = 1e-10
"""Of the score that is expected of a pair."""

C = math.pi / math.sqrt(3.0)
BETA, DRIFT, WEIGHT = 200.0, 35.0, 1.3

SPREADS = {"equal": 0.0, "near": 10.0, "usual": 400.0, "far": 3000.0, "no table": 1e5}
"""Of ratings: their standard deviation."""
SIZES = (2, FEW, FEW + 1, 60, 700)
LARGE = 20_000
CASES = [*product(SIZES, SPREADS), (LARGE, "usual")]


def a_round(n: int, spread: float) -> tuple[Places, Floats, Floats]:
    """Places, mu and sigma: some tie, the last tenth did not finish."""
    rng = np.random.default_rng(n)
    mu = 1500.0 + spread * rng.standard_normal(n)
    mu = mu[np.argsort(-mu - rng.normal(0.0, 300.0, n))]
    place = 1 + np.cumsum(rng.random(n) < 0.9).astype(np.int32)
    place[n - n // 10 :] = DID_NOT_FINISH
    return place, mu, rng.uniform(40.0, 350.0, n)


def depths(n: int) -> Iterator[int]:
    """Positions in a round of n: all of a small one, some of a large one."""
    yield from range(n) if n < 100 else sorted({0, 1, n // 100, n // 3, n // 2, n - 2, n - 1})


def logistic(z: Floats) -> Floats:
    return np.exp(-np.logaddexp(0.0, -z))


@pytest.mark.parametrize(("n", "spread"), CASES)
def test_codeforces(n: int, spread: str) -> None:
    """At the performance the expected rank is the mean of the actual and the expected one."""
    place, mu, sigma = a_round(n, SPREADS[spread])
    u = C * math.sqrt(WEIGHT) / BETA

    def rank(x: float) -> float:
        return 0.5 + float(np.sum(logistic((mu - x) * u)))

    found = codeforces.rate(place, mu, sigma, WEIGHT, BETA, 0.3)
    for i in depths(n):
        tied = np.flatnonzero(place == place[i])
        between = math.sqrt(rank(mu[i]) * (tied[0] + tied[-1] + 2.0) / 2.0)
        performance = float(found[i, 0])
        assert rank(performance - POINTS) > between > rank(performance + POINTS), i
        part = 0.3 * WEIGHT / (1.0 + 0.3 * WEIGHT)
        assert found[i, 1] == pytest.approx(mu[i] + part * (performance - mu[i]), rel=0, abs=POINTS)
    assert sigma.tolist() == found[:, 2].tolist()


@pytest.mark.parametrize(("n", "spread"), CASES)
def test_glicko(n: int, spread: str) -> None:
    """A rating moves by the mean of g (outcome - probability) over all, times the new variance."""
    place, mu, sigma = a_round(n, SPREADS[spread])
    b2, variance = BETA**2 / WEIGHT, sigma**2 + DRIFT**2
    g, u = 1.0 / np.sqrt(1.0 + variance / b2), C / np.sqrt(variance + b2)
    after = 1.0 / (1.0 / variance + 0.25 * C * C / b2)
    found = glicko.rate(place, mu, sigma, WEIGHT, BETA, DRIFT)
    for i in depths(n):
        tied = np.flatnonzero(place == place[i])
        outcome = np.where(np.arange(n) > tied[-1], 1.0, 0.0)
        outcome[tied] = 0.5
        surprise = np.mean(g * (outcome - logistic((mu[i] - mu) * u)))
        moved = mu[i] + C / math.sqrt(b2) * after[i] * surprise
        assert found[i, 1] == pytest.approx(moved, rel=0, abs=POINTS), i
        assert found[i, 2] == pytest.approx(math.sqrt(after[i]), rel=1e-14), i


@pytest.mark.parametrize(("n", "spread"), CASES)
@pytest.mark.parametrize("unfinished", [False, True])
def test_pairwise_elo(n: int, spread: str, *, unfinished: bool) -> None:
    """What an entry scores against all it is compared with, less what was expected; zero-sum."""
    place, mu, _ = a_round(n, SPREADS[spread])
    x, (lo, hi) = mu * C / BETA, tie_bounds(place)
    ranked = int(np.count_nonzero(place)) if unfinished else n
    found = pairwise_elo.gradient(x, hi, ranked, False, False)
    for i in depths(n):
        compared = np.arange(n if i < ranked else ranked) != i
        others = np.flatnonzero(compared)
        score = np.where(others > i, 1.0, 0.0)
        score[(others >= lo[i]) & (others <= hi[i])] = 0.5
        surprise = float(np.sum(score - logistic(x[i] - x[others])))
        assert found[i] == pytest.approx(surprise, rel=0, abs=n * PAIR), i
    assert float(np.sum(found)) == pytest.approx(0.0, abs=n * n * 0.1 * PAIR)


def test_a_table_is_made_where_it_pays() -> None:
    """Beyond FEW entries, unless it would be a million nodes wide."""
    u = np.full(FEW + 1, 0.01)
    made = [
        len(table_of(mu, u[: len(mu)], 0.0, width)[0]) > 0
        for mu, width in ((u, 3e3), (u[1:], 3e3), (u, 1e9))
    ]
    assert made == [True, False, False]
