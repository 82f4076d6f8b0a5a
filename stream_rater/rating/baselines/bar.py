"""BAR, the Bayesian approximation for rankings (Weng and Lin): a mean over pairs."""

import math

import numpy as np

from stream_rater.rating.baselines.places import tie_bounds
from stream_rater.rating.compiled import kernel
from stream_rater.rating.elementary import exp
from stream_rater.rating.model import Floats, Places

C = math.pi / math.sqrt(3.0)


@kernel
def rate(
    place: Places, mu: Floats, sigma: Floats, weight: float, beta: float, drift: float, kappa: float
) -> Floats:
    """One round; `kappa` bounds how much a round may shrink the variance."""
    n = len(mu)
    b2 = beta * beta / weight
    variance = sigma * sigma + drift * drift
    lo, hi = tie_bounds(place)
    out = np.empty((n, 3))
    for i in range(n):
        push = shrink = 0.0
        for j in range(n):
            c = np.sqrt(variance[i] + variance[j] + 2.0 * b2)
            p = 1.0 / (1.0 + exp((mu[j] - mu[i]) * C / c))
            outcome = 0.5 if lo[i] <= j <= hi[i] else (1.0 if j > hi[i] else 0.0)
            push += (outcome - p) / c
        shrink = 0.25 * variance[i] / (variance[i] + 2.0 * b2)
        out[i, 1] = mu[i] + variance[i] * push / n
        out[i, 0] = out[i, 1]
        out[i, 2] = np.sqrt(variance[i] * max(kappa, 1.0 - shrink))
    return out
