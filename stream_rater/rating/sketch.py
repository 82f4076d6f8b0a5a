"""The sketch: a posterior's logistic factors, in order of performance and bounded in number.

The paper folds the oldest factor into the Gaussian, which throws away where it stood. We keep the
factors sorted by performance and, when there is one too many, merge the two neighbours that lose
least: old and new, near or far in time, two performances a few points apart say almost the same.
Decay multiplies all factors alike, so it commutes with merging.

A factor (p, a, r) contributes r * tanh((x - p) a), times the belief's scale, to the posterior's
log-derivative. Merging keeps the sum of r (the pull from afar), the r-weighted mean of p, and the
variance of the mixture.
"""

import math

import numpy as np

from stream_rater.rating import rounding
from stream_rater.rating.compiled import kernel
from stream_rater.rating.model import Floats

LOGISTIC_VARIANCE = math.pi**2 / 12.0
"""A logistic factor of slope a has variance LOGISTIC_VARIANCE / a^2."""

LOGISTIC_DEVIATION = math.sqrt(LOGISTIC_VARIANCE)


@kernel
def copy(factors: Floats, i: int, to: int) -> None:
    """Put factor i in the place `to`."""
    for c in range(3):
        factors[to, c] = factors[i, c]


@kernel
def insert(factors: Floats, count: int, p: float, a: float, r: float) -> int:
    """Put (p, a, r) among `count` factors in order of p; where it is now. Room for one more."""
    i = count
    while i > 0 and factors[i - 1, 0] > p:
        copy(factors, i - 1, i)
        i -= 1
    factors[i, 0], factors[i, 1], factors[i, 2] = p, a, r
    return i


@kernel
def _cheapest(factors: Floats, count: int) -> int:
    """Index i of the neighbours (i, i+1) whose merging costs least: r1 r2 / (r1 + r2) * d^4."""
    best, found = math.inf, 0
    for i in range(count - 1):
        r1, r2 = factors[i, 2], factors[i + 1, 2]
        d2 = (factors[i + 1, 0] - factors[i, 0]) ** 2
        cost = r1 * r2 / (r1 + r2) * d2 * d2 if r1 + r2 > 0.0 else 0.0
        if cost < best:
            best, found = cost, i
    return found


@kernel
def merge_cheapest(factors: Floats, count: int) -> int:
    """Merge the cheapest pair of neighbours among `count` >= 2 factors; return where it is now."""
    i = _cheapest(factors, count)
    p1, a1, r1 = factors[i, 0], factors[i, 1], factors[i, 2]
    p2, a2, r2 = factors[i + 1, 0], factors[i + 1, 1], factors[i + 1, 2]
    r = r1 + r2
    part = r2 / r if r > 0.0 else 0.5
    p = p1 + part * (p2 - p1)
    variance = (
        (1.0 - part) * LOGISTIC_VARIANCE / (a1 * a1)
        + part * LOGISTIC_VARIANCE / (a2 * a2)
        + part * (1.0 - part) * (p2 - p1) * (p2 - p1)
    )
    factors[i, 0] = p
    factors[i, 1] = np.sqrt(LOGISTIC_VARIANCE / variance)
    factors[i, 2] = r
    for k in range(i + 1, count - 1):
        copy(factors, k + 1, k)
    return i


@kernel
def excess_width(slope: float, narrowest: float) -> float:
    """How much wider than the narrowest: sqrt(sd^2 / narrowest^2 - 1), 0 where it is not."""
    ratio = LOGISTIC_DEVIATION / (slope * narrowest)
    return float(np.sqrt(max(ratio * ratio - 1.0, 0.0)))


@kernel
def slope_of(excess: float, narrowest: float) -> float:
    """The slope of a factor of this excess width."""
    return float(LOGISTIC_DEVIATION / (narrowest * np.sqrt(1.0 + excess * excess)))


@kernel
def settle(factors: Floats, i: int, grid: int, narrowest: float) -> None:
    """Round factor i to what a record holds."""
    factors[i, 0] = rounding.grid_point(rounding.grid_code(factors[i, 0], grid), grid)
    factors[i, 1] = slope_of(rounding.width(excess_width(factors[i, 1], narrowest)), narrowest)
    factors[i, 2] = rounding.weight(factors[i, 2])


@kernel
def rebase(factors: Floats, count: int, narrowest: float, narrower: float) -> float:
    """Let the widths be relative to another narrowest one, which is returned."""
    for k in range(count):
        excess = excess_width(factors[k, 1], narrower)
        factors[k, 1] = slope_of(rounding.width(excess), narrower)
    return narrower


@kernel
def normalise(factors: Floats, count: int, scale: float, weight: float, rounded: bool) -> float:
    """Rescale by a power of two so that `weight` (relative) is under 2; the new scale.

    Only the lightest weights lose bits by it.
    """
    if weight < 2.0:
        return scale
    larger = rounding.power_of_two((np.float64(weight).view(np.int64) >> 52) - rounding.BIAS)
    for k in range(count):
        factors[k, 2] /= larger
        if rounded:
            factors[k, 2] = rounding.weight(factors[k, 2])
    return scale * larger
