"""The sketch: a posterior's logistic factors, in order of performance and bounded in number.

The paper folds the oldest factor into the Gaussian, which throws away where it stood. We keep the
factors sorted by performance and, when there is one too many, merge the two neighbours that lose
least: old and new, near or far in time, two performances a few points apart say almost the same.
Decay multiplies all factors alike, so it commutes with merging.

A factor (p, a, o) contributes o * tanh((x - p) a) to the posterior's log-derivative. Merging keeps
the sum of o (the pull from afar), the o-weighted mean of p, and the variance of the mixture.
"""

import math

import numpy as np

from stream_rater.rating.compiled import kernel
from stream_rater.rating.model import Floats

LOGISTIC_VARIANCE = math.pi**2 / 12.0
"""A logistic factor of slope a has variance LOGISTIC_VARIANCE / a^2."""


@kernel
def insert(factors: Floats, count: int, p: float, a: float, o: float) -> None:
    """Put (p, a, o) among the first `count` factors, which are in order of p. Room for one more."""
    i = count
    while i > 0 and factors[i - 1, 0] > p:
        factors[i] = factors[i - 1]
        i -= 1
    factors[i, 0] = p
    factors[i, 1] = a
    factors[i, 2] = o


@kernel
def _cheapest(factors: Floats, count: int) -> int:
    """Index i of the neighbours (i, i+1) whose merging costs least: o1 o2 / (o1 + o2) * d^4."""
    best, found = math.inf, 0
    for i in range(count - 1):
        o1, o2 = factors[i, 2], factors[i + 1, 2]
        d2 = (factors[i + 1, 0] - factors[i, 0]) ** 2
        cost = o1 * o2 / (o1 + o2) * d2 * d2 if o1 + o2 > 0.0 else 0.0
        if cost < best:
            best, found = cost, i
    return found


@kernel
def merge_cheapest(factors: Floats, count: int) -> int:
    """Merge the cheapest pair of neighbours among `count` >= 2 factors; return the new count."""
    i = _cheapest(factors, count)
    p1, a1, o1 = factors[i]
    p2, a2, o2 = factors[i + 1]
    o = o1 + o2
    part = o2 / o if o > 0.0 else 0.5
    p = p1 + part * (p2 - p1)
    variance = (
        (1.0 - part) * LOGISTIC_VARIANCE / (a1 * a1)
        + part * LOGISTIC_VARIANCE / (a2 * a2)
        + part * (1.0 - part) * (p2 - p1) * (p2 - p1)
    )
    factors[i, 0] = p
    factors[i, 1] = np.sqrt(LOGISTIC_VARIANCE / variance)
    factors[i, 2] = o
    for k in range(i + 1, count - 1):
        factors[k] = factors[k + 1]
    return count - 1
