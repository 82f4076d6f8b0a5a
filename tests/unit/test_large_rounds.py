"""Stage 1 by the shared table gives the same performances as stage 1 with separate sums."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.rating.elo_mmr import large_rounds
from stream_rater.rating.elo_mmr.direct import fill_open
from stream_rater.rating.elo_mmr.performance import C, performances
from stream_rater.rating.elo_mmr.sums import HIGH, KNOWN, LOW, round_bounds
from stream_rater.rating.model import DID_NOT_FINISH, Places

CLOSE = 4e-6
"""Points at scales 1/u of about 70: the interpolation's error (NODE) and one Halley step's."""
WIDE = 2e-5
"""Points where a few entries are far narrower than the others, or ratings are thousands apart."""


def both(place: Places, mu: Floats, u: Floats, tie: float) -> tuple[Floats, Floats]:
    """Performances by the table, and each on its own by the sums."""
    starts = np.array([0, len(mu)])
    known = np.empty((1, KNOWN))
    round_bounds(mu, u, 0, len(mu), tie, known[0])
    low, high = known[0, LOW], known[0, HIGH]
    fast, slow = np.empty(len(mu)), np.full(len(mu), math.nan)
    large_rounds.solve_large(starts, np.array([0]), known, place, mu, u, tie, fast)
    fill_open(place, mu, u, tie, low, high, slow)
    return fast, slow


def a_round(
    rng: np.random.Generator, n: int, *, ties: float = 0.1, unfinished: float = 0.0,
    sigma: tuple[float, float] = (54.0, 350.0), spread: float = 300.0,
) -> tuple[Places, Floats, Floats]:  # fmt: skip
    """Places, ratings and u of n players whose results fit their ratings, more or less."""
    mu = rng.normal(1500.0, spread, n)
    mu = mu[np.argsort(-(mu + rng.normal(0.0, 200.0, n)))]
    place = 1 + np.cumsum(rng.random(n) >= ties).astype(np.int32)
    place[n - int(unfinished * n) :] = DID_NOT_FINISH
    return place, mu, C / np.sqrt(rng.uniform(*sigma, n) ** 2 + 125.0**2)


@pytest.mark.parametrize("tie", [1.0, 0.5])
@pytest.mark.parametrize("n", [2, 7, 41, 100, 700, 2500])
def test_the_table_gives_what_the_sums_give(n: int, tie: float) -> None:
    """With few ties and with many, and with players who did not finish."""
    rng = np.random.default_rng(n)
    shapes: tuple[dict[str, Any], ...] = ({}, {"ties": 0.9}, {"unfinished": 0.3}, {"ties": 1.0})
    for shape in shapes:
        fast, slow = both(*a_round(rng, n, **shape), tie)
        assert np.abs(fast - slow).max() < CLOSE, shape


@pytest.mark.parametrize("n", [50, 400])
def test_wide_fields_are_within_their_bound(n: int) -> None:
    """Ratings thousands of points apart, and a few players of great certainty."""
    rng = np.random.default_rng(n)
    shape: dict[str, Any]
    for shape in ({"spread": 3000.0}, {"sigma": (1.0, 20.0), "spread": 2000.0}):
        fast, slow = both(*a_round(rng, n, **shape), 1.0)
        assert np.abs(fast - slow).max() < WIDE, shape


@pytest.mark.parametrize("gap", [1.0, 4.0, 8.0, 20.0])
@pytest.mark.parametrize("n", [60, 3000])
def test_two_ratings_only_are_within_their_bound(n: int, gap: float) -> None:
    """No random sample, so errors of n terms do not cancel: two clusters, `gap` of 1/u apart."""
    u = np.full(n, C / 200.0)
    mu = 1500.0 + gap / u[0] * (np.arange(n) < n // 2)
    fast, slow = both(np.arange(1, n + 1, dtype=np.int32), mu, u, 1.0)
    assert np.abs(fast - slow).max() < WIDE


@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.5]), st.integers(2, 80))
def test_any_round_agrees(seed: int, tie: float, n: int) -> None:
    """Random shapes: ties, unfinished entries, spreads and certainties all at once."""
    rng = np.random.default_rng(seed)
    shape = a_round(
        rng, n, ties=rng.random(), unfinished=0.5 * rng.random(),
        sigma=(20.0, 20.0 + 400.0 * rng.random()), spread=1000.0 * rng.random(),
    )  # fmt: skip
    fast, slow = both(*shape, tie)
    assert np.abs(fast - slow).max() < WIDE


@pytest.mark.parametrize("n", [100, 100_000])
def test_edges_are_finite_and_in_order(n: int) -> None:
    """All tied; newcomers all alike; a gap of 10^4 points, kept and upset; tiny deltas."""
    every = np.ones(n, np.int32)
    order = np.arange(1, n + 1, dtype=np.int32)
    level, u = np.full(n, 1500.0), np.full(n, C / 350.0)
    apart = np.where(np.arange(n) < n // 2, 11_500.0, 1500.0)
    assert np.ptp(performances(every, level, u, 1.0)) == 0.0
    for mu in (level, apart, apart[::-1].copy()):
        for widths in (u, np.full(n, C / 2.0), np.where(np.arange(n) % 2, C / 2.0, C / 400.0)):
            found = performances(order, mu, widths, 1.0)
            assert np.isfinite(found).all()
            assert (np.diff(found) <= 0.0).all()
