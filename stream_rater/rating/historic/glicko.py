"""Glicko for n players: a round counts as one fully informative match.

An opponent's g and u are proportional, so the expected score, the sum of g_j s_j(x), is the
fraction P / (P + Q) of the sum of all g (`odds`).
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel
from stream_rater.rating.kernels.odds import chance, log_odds, table_of
from stream_rater.rating.kernels.places import scores, tie_bounds
from stream_rater.rating.model import Places

C = math.pi / math.sqrt(3.0)


@kernel
def rate(
    place: Places, mu: Floats, sigma: Floats, weight: float, beta: float, drift: float
) -> Floats:
    """(n, 3) evidence of one round. `drift` is the growth of sigma between rounds."""
    n = len(mu)
    b2 = beta * beta / weight
    variance = sigma * sigma + drift * drift
    g = 1.0 / np.sqrt(1.0 + variance / b2)
    u = C / np.sqrt(variance + b2)
    c, low, h = table_of(mu, u, np.min(mu), np.max(mu))
    lo, hi = tie_bounds(place)
    actual, total = scores(lo, hi, g)
    out = np.empty((n, 3))
    for i in range(n):
        value, _ = log_odds(mu[i], mu, u, c, low, h)
        surprise = actual[i] - total * chance(value)
        after = 1.0 / (1.0 / variance[i] + 0.25 * C * C / b2)
        out[i, 1] = mu[i] + C / np.sqrt(b2) * after * surprise / n
        out[i, 0] = mu[i] + (out[i, 1] - mu[i]) * (1.0 + b2 / variance[i])
        out[i, 2] = np.sqrt(after)
    return out
