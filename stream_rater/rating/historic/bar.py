"""BAR, the Bayesian approximation for rankings (Weng and Lin): a mean over pairs."""

import math

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elementary import exp
from stream_rater.rating.kernels.places import tie_bounds
from stream_rater.rating.model import Places

C = math.pi / math.sqrt(3.0)


@kernel
def _pushes(
    own_mu: float, own_variance: float, lo: int, hi: int, mu: Floats, variance: Floats,
    pushes: Floats,
) -> None:  # fmt: skip
    """Compute each opponent's contribution. The loop is simple, so that a processor can run it for
    several opponents at once."""
    for j in range(len(mu)):
        c = np.sqrt(own_variance + variance[j])
        p = 1.0 / (1.0 + exp((mu[j] - own_mu) * C / c))
        outcome = 0.5 if lo <= j <= hi else (1.0 if j > hi else 0.0)
        pushes[j] = (outcome - p) / c


@kernel
def rate(
    place: Places, mu: Floats, sigma: Floats, weight: float, beta: float, drift: float, kappa: float
) -> Floats:
    """(n, 3) evidence of one round. `kappa` bounds how much a round may shrink the variance."""
    n = len(mu)
    b2 = beta * beta / weight
    variance = sigma * sigma + drift * drift
    lo, hi = tie_bounds(place)
    out = np.empty((n, 3))
    pushes = np.empty(n)
    for i in range(n):
        _pushes(mu[i], variance[i] + 2.0 * b2, lo[i], hi[i], mu, variance, pushes)
        push = 0.0
        for j in range(n):
            push += pushes[j]
        shrink = 0.25 * variance[i] / (variance[i] + 2.0 * b2)
        out[i, 1] = mu[i] + variance[i] * push / n
        out[i, 0] = out[i, 1]
        out[i, 2] = np.sqrt(variance[i] * max(kappa, 1.0 - shrink))
    return out
