"""Codeforces, as the Elo-MMR paper evaluates it.

A player's performance is the rating whose expected rank is the geometric mean of the player's
expected rank and actual rank. All opponents have the same scale, so the expected rank at x is n +
1/2 - n P / (P + Q). So a given rank is expected at the rating where the log odds L have a given
value (`odds`).
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elementary import log
from stream_rater.rating.kernels.odds import chance, log_odds, table_of
from stream_rater.rating.kernels.places import tie_bounds
from stream_rater.rating.model import Places
from stream_rater.rating.roots import MAX_STEPS, safeguard

C = math.pi / math.sqrt(3.0)


@kernel
def _performance(
    rank: float, x: float, mu: Floats, u: Floats, c: Floats, begin: float, h: float, low: float,
    high: float,
) -> float:  # fmt: skip
    """The rating in [low, high] whose expected rank is `rank`, searched from x."""
    level = log((len(mu) + 0.5 - rank) / (rank - 0.5))
    below, above, last = low, high, math.inf
    for _ in range(MAX_STEPS):
        value, slope = log_odds(x, mu, u, c, begin, h)
        step = (level - value) / slope
        if abs(step) * u[0] <= 1e-9:
            return x + step
        x, below, above, last = safeguard(x, value - level, step, below, above, last)
    return x


@kernel
def rate(place: Places, mu: Floats, sigma: Floats, weight: float, beta: float, w: float) -> Floats:
    """(n, 3) evidence of one round. `beta` is the spread of performances, and `w` is the weight of
    a round's performance."""
    n = len(mu)
    u = np.full(n, C * np.sqrt(weight) / beta)
    reach = (log(2.0 * n) + 1.0) / u[0]  # the best rank is 1, with odds of n to 1/2
    low, high = np.min(mu) - reach, np.max(mu) + reach
    c, begin, h = table_of(mu, u, low, high)
    lo, hi = tie_bounds(place)
    out = np.empty((n, 3))
    for i in range(n):
        value, _ = log_odds(mu[i], mu, u, c, begin, h)
        expected = 0.5 + n * chance(-value)
        actual = 0.5 * (lo[i] + hi[i] + 2)
        rank = np.sqrt(actual * expected)
        performance = _performance(rank, mu[i], mu, u, c, begin, h, low, high)
        out[i, 0] = performance
        out[i, 1] = (mu[i] + w * weight * performance) / (1.0 + w * weight)
        out[i, 2] = sigma[i]
    return out
