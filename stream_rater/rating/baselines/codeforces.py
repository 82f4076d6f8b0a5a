"""Codeforces, as the Elo-MMR paper evaluates it: a rank between the expected and the actual one."""

import math

import numpy as np

from stream_rater.rating.baselines.places import tie_bounds
from stream_rater.rating.compiled import kernel
from stream_rater.rating.elementary import exp
from stream_rater.rating.model import Floats, Places
from stream_rater.rating.roots import MAX_STEPS, safeguard

C = math.pi / math.sqrt(3.0)


@kernel
def _expected_rank(x: float, mu: Floats, u: float) -> tuple[float, float]:
    """1/2 + the expected number of entries better than a player at x, and its slope."""
    rank, slope = 0.5, 0.0
    for j in range(len(mu)):
        better = 1.0 / (1.0 + exp((x - mu[j]) * u))
        rank += better
        slope -= u * better * (1.0 - better)
    return rank, slope


@kernel
def _performance(rank: float, x: float, mu: Floats, u: float) -> float:
    """The rating whose expected rank this is."""
    reach = 40.0 / u
    low: float = np.min(mu) - reach
    high: float = np.max(mu) + reach
    last = math.inf
    for _ in range(MAX_STEPS):
        found, slope = _expected_rank(x, mu, u)
        step = (rank - found) / slope
        if abs(step) * u <= 1e-9:
            return x + step
        x, low, high, last = safeguard(x, rank - found, step, low, high, last)
    return x


@kernel
def rate(place: Places, mu: Floats, sigma: Floats, weight: float, beta: float, w: float) -> Floats:
    """One round; `beta` the spread of performances, `w` the weight of a round's performance."""
    u = C * np.sqrt(weight) / beta
    lo, hi = tie_bounds(place)
    out = np.empty((len(mu), 3))
    for i in range(len(mu)):
        expected, _ = _expected_rank(mu[i], mu, u)
        actual = 0.5 * (lo[i] + hi[i] + 2)
        performance = _performance(np.sqrt(actual * expected), mu[i], mu, u)
        out[i, 0] = performance
        out[i, 1] = (mu[i] + w * weight * performance) / (1.0 + w * weight)
        out[i, 2] = sigma[i]
    return out
