"""How well did each entry play, if performances are normal? (Section 3, "Gaussian performance".)

Entry j performs normally around mu_j with variance delta_j^2; z_j = (x - mu_j) / delta_j. With the
hazard H(z) = phi(z) / Phi(-z), the performance of an entry is the zero of

    -Q(x) = sum over better H(z_j) / delta_j - sum over worse H(-z_j) / delta_j + ties,

which increases with x. A full tie draws x to mu_j by z_j / delta_j; a split one is half a loss and
half a win. All tied entries share one performance. Entries that did not finish are worse than all
ranked ones and not compared with each other, so each has a performance of its own.
"""

import numpy as np

from stream_rater.rating.baselines.expansion import (
    LANES,
    ranked_performances,
    unfinished_performances,
)
from stream_rater.rating.compiled import kernel
from stream_rater.rating.elementary import log
from stream_rater.rating.model import DID_NOT_FINISH, Floats, Places
from stream_rater.rating.normal import quantile

WIDE = 300
"""Smaller rounds go by shorter rows, of which fewer are looked at in vain at the end of a cell."""


@kernel
def _spread(mu: Floats, delta: Floats) -> tuple[float, float]:
    """Mean and standard deviation of a random entry's performance."""
    mean = variance = 0.0
    for j in range(len(mu)):
        mean += mu[j]
    mean /= len(mu)
    for j in range(len(mu)):
        variance += (mu[j] - mean) * (mu[j] - mean) + delta[j] * delta[j]
    return mean, np.sqrt(variance / len(mu))


@kernel
def performances(place: Places, mu: Floats, delta: Floats, split: bool) -> Floats:
    """(n,) the performance of each entry; entries in order of place, unfinished last."""
    n = len(mu)
    ranked = n
    while ranked > 0 and place[ranked - 1] == DID_NOT_FINISH:
        ranked -= 1
    narrowest, widest = np.min(delta), np.max(delta)
    # At t widest beyond all mu an own tie pulls by at least t/2 / widest, and all others together
    # by less than 2 n phi(t) / narrowest, which is less from this t on.
    reach = widest * (1.0 + np.sqrt(2.0 * log(4.0 * n * widest / narrowest)))
    lowest, highest = np.min(mu) - reach, np.max(mu) + reach
    width = LANES if n > WIDE else LANES // 4
    rows = (n + width - 1) // width
    padded_mu, inverse = np.zeros(rows * width), np.zeros(rows * width)
    for j in range(n):
        padded_mu[j] = mu[j]
        inverse[j] = 1.0 / delta[j]
    row_mu, v = padded_mu.reshape((rows, width)), inverse.reshape((rows, width))
    mean, deviation = _spread(mu, delta)
    best = mean - deviation * quantile(0.5 / n)
    found = np.full(n, np.nan)
    ranked_performances(
        place, row_mu, v, ranked, split, best - narrowest, narrowest, lowest, highest, found
    )
    if ranked < n:
        unfinished_performances(
            row_mu, v, ranked, split, 2.0 * mean - best, narrowest, lowest, highest, found
        )
    return found
