"""Glicko for n players: a round counts as one fully informative match."""

import math

import numpy as np

from stream_rater.rating.baselines.places import tie_bounds
from stream_rater.rating.compiled import kernel
from stream_rater.rating.elementary import exp
from stream_rater.rating.model import Floats, Places

C = math.pi / math.sqrt(3.0)


@kernel
def rate(
    place: Places, mu: Floats, sigma: Floats, weight: float, beta: float, drift: float
) -> Floats:
    """One round; `drift` the growth of sigma between rounds."""
    n = len(mu)
    b2 = beta * beta / weight
    variance = sigma * sigma + drift * drift
    g = 1.0 / np.sqrt(1.0 + variance / b2)
    u = C / np.sqrt(variance + b2)
    lo, hi = tie_bounds(place)
    out = np.empty((n, 3))
    for i in range(n):
        surprise = 0.0
        for j in range(n):
            p = 1.0 / (1.0 + exp((mu[j] - mu[i]) * u[j]))
            outcome = 0.5 if lo[i] <= j <= hi[i] else (1.0 if j > hi[i] else 0.0)
            surprise += g[j] * (outcome - p)
        after = 1.0 / (1.0 / variance[i] + 0.25 * C * C / b2)
        out[i, 1] = mu[i] + C / np.sqrt(b2) * after * surprise / n
        out[i, 0] = mu[i] + (out[i, 1] - mu[i]) * (1.0 + b2 / variance[i])
        out[i, 2] = np.sqrt(after)
    return out
