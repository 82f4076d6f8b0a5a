"""Rounds a belief's numbers to values that a record stores exactly, and encodes logistic factors.

In the service, a belief *is* its record: it is rounded after each round, and the next round starts
from the rounded numbers. So results do not depend on whether a belief was stored in between.

- mu, sigma, the Gaussian factor and the scale of the weights are float32.
- A performance lies on a fixed grid around zero with GRID_BITS bits: 1/16 point for a ladder that
  starts at 1500 with a sigma of 350.
- A factor's weight is relative to the belief's scale. Its excess width is what merging added to the
  standard deviation of the narrowest factor, relative to that (see `excess_width`). Both are small
  floats: they have a few bits of mantissa and exponent, with gradual underflow as in IEEE 754.

A weight is rounded when it is set. Decay changes only the scale, so it never rounds a weight again.

A factor's code has 48 bits. From the lowest bit up, it consists of the performance (20 bits, two's
complement, in steps of the grid), the relative weight (15) and the excess width (13). The slope
follows from the excess width and the narrowest width. If the narrowest width is 0 (Elo-R), the
slope is the weight.
"""

import math
from typing import Any

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating.model import Beliefs, Codes, Table

GRID_BITS = 20  # The number of bits of a performance, which lies within 2^19 steps of zero.

WEIGHT_BITS, WEIGHT_LOW, WEIGHT_TOP = 13, -2, 2**15 - 1
"""The format of a weight: the number of mantissa bits, the exponent of the least normal number, and
the greatest code. Weights range from 2^-15 to below 2. Only the ratio of a weight to the greatest
weight matters, so a nearly absolute error is fine."""

WIDTH_BITS, WIDTH_LOW, WIDTH_TOP = 9, -5, 2**13 - 1
"""The format of an excess width: the number of mantissa bits, the exponent of the least normal
number, and the greatest code. Excess widths range from 2^-14 to below 1,024 times the narrowest
width. Weights and teams need such bits: their performances have many widths, which are rounded
again when a narrower one joins."""

OLD_WIDTH_BITS = 1  # The mantissa bits of an excess width in records of version 3.

BIAS, MANTISSA = 1023, 52  # The exponent bias and the mantissa bits of a float64.


@kernel
def single(x: float) -> float:
    """x rounded to the nearest float32."""
    rounded: float = np.float64(np.float32(x))
    return rounded


@kernel
def power_of_two(exponent: Any) -> float:
    """2**exponent, for exponents of normal numbers."""
    x: float = np.int64(np.int64(exponent + BIAS) << MANTISSA).view(np.float64)
    return x


@kernel
def growth(weight: float) -> float:
    """The power of two by which a scale must be multiplied, so that a weight of `weight` times the
    old scale is less than 2 times the new one."""
    exponent = (np.float64(weight).view(np.int64) >> MANTISSA) - BIAS
    return power_of_two(exponent) if weight >= 2.0 else 1.0


@kernel
def small_code(x: float, bits: int, low: int, top: int) -> int:
    """The code of the small float nearest to x >= 0, at most `top`."""
    pattern = np.float64(x).view(np.int64) + (1 << (MANTISSA - bits - 1))
    normal = int(pattern >> (MANTISSA - bits)) - ((BIAS + low - 1) << bits)
    below = int(x * power_of_two(bits - low) + 0.5)
    return min(below if x < power_of_two(low) else normal, top)


@kernel
def small_float(code: int, bits: int, low: int) -> float:
    """The small float with this code. It is the lesser of two values: the normal number with this
    code, and the value on the straight line of the subnormal numbers."""
    pattern = np.int64(code + ((BIAS + low - 1) << bits))
    normal: float = np.int64(pattern << (MANTISSA - bits)).view(np.float64)
    return min(normal, 2.0 * normal - power_of_two(low))


def small_floats(bits: int, low: int, top: int) -> list[float]:
    """All small floats in order of their codes, computed without a kernel."""
    steps = range(1 << bits)
    below = [math.ldexp(step, low - bits) for step in steps]
    count = (top + 1) // len(steps) - 1
    normal = [
        math.ldexp(len(steps) + step, low - bits + exponent)
        for exponent in range(count)
        for step in steps
    ]
    return below + normal


@kernel
def weight(x: float) -> float:
    """x rounded to a relative weight, 0 <= x < 2."""
    return small_float(small_code(x, WEIGHT_BITS, WEIGHT_LOW, WEIGHT_TOP), WEIGHT_BITS, WEIGHT_LOW)


@kernel
def grid_code(p: float, per_point: float) -> int:
    """The grid point nearest to p, clipped to the grid, which has `per_point` steps a point."""
    most = float(2 ** (GRID_BITS - 1) - 1)
    return int(min(max(np.floor(p * per_point + 0.5), -most), most))


# --- a logistic factor as a code ------------------------------------------------------------------

PERFORMANCE_BITS = (1 << GRID_BITS) - 1
WEIGHT_SHIFT = GRID_BITS
WIDTH_SHIFT = WEIGHT_SHIFT + 15
ABOVE_GRID = 64 - GRID_BITS  # The number of bits of an int64 that are above the performance.

SLOPES = 1.0 / np.sqrt(1.0 + np.square(small_floats(WIDTH_BITS, WIDTH_LOW, WIDTH_TOP)))
"""The slope for each code of the excess width, for a narrowest slope of 1."""

LOGISTIC_VARIANCE = math.pi**2 / 12.0
"""A logistic factor of slope a has variance LOGISTIC_VARIANCE / a^2."""

LOGISTIC_DEVIATION = math.sqrt(LOGISTIC_VARIANCE)
"""This, divided by the narrowest width, is the slope of the narrowest factor."""

ROUNDING = 1e-5
"""Variances that differ by less than this part are equal: the narrowest width is a float32."""


@inlined
def excess_width(slope: float, narrowest: float) -> float:
    """The excess width of a slope: sqrt(sd^2 / narrowest^2 - 1), and 0 up to ROUNDING."""
    ratio = LOGISTIC_DEVIATION / (slope * narrowest)
    excess = ratio * ratio - 1.0
    return float(np.sqrt(excess if excess > ROUNDING else 0.0))


@inlined
def code_of(p: float, r: float, excess: float, per_point: float) -> int:
    """The code nearest to a factor. The grid has `per_point` steps a point."""
    performance = grid_code(p, per_point) & PERFORMANCE_BITS
    weight = small_code(r, WEIGHT_BITS, WEIGHT_LOW, WEIGHT_TOP)
    width = small_code(excess, WIDTH_BITS, WIDTH_LOW, WIDTH_TOP)
    return int(performance | (weight << WEIGHT_SHIFT) | (width << WIDTH_SHIFT))


@kernel
def wider(code: int, bits: int) -> int:
    """The code of a factor whose excess width has so many mantissa bits, by this release's bits.
    Small floats with more mantissa bits have all values of those with less."""
    width = code >> WIDTH_SHIFT
    return int((code & ((1 << WIDTH_SHIFT) - 1)) | (width << (WIDTH_SHIFT + WIDTH_BITS - bits)))


@inlined
def lighter(code: int, part: float) -> int:
    """The code of a factor whose weight is multiplied by `part`, at most 1."""
    weight = small_code(weight_of(code) * part, WEIGHT_BITS, WEIGHT_LOW, WEIGHT_TOP)
    return int((code & ~(WEIGHT_TOP << WEIGHT_SHIFT)) | (weight << WEIGHT_SHIFT))


@inlined
def steps_of(code: int) -> int:
    """The performance in steps of the grid, shifted to the top bits. Two of these integers compare
    as the performances do."""
    return code << ABOVE_GRID


@inlined
def performance_of(code: int, step: float) -> float:
    """The performance of a factor, on a grid of this step."""
    return float(steps_of(code) >> ABOVE_GRID) * step


@inlined
def moved(code: int, steps: float) -> int:
    """The code of a factor after its performance moves by whole steps, at most to the grid's
    end."""
    performance = grid_code(performance_of(code, 1.0) + steps, 1.0)
    return int((code & ~PERFORMANCE_BITS) | (performance & PERFORMANCE_BITS))


@inlined
def weight_of(code: int) -> float:
    """The weight of a factor, relative to the belief's scale."""
    return small_float((code >> WEIGHT_SHIFT) & WEIGHT_TOP, WEIGHT_BITS, WEIGHT_LOW)


@inlined
def excess_variance_of(code: int) -> float:
    """The square of the excess width of a factor."""
    excess = small_float((code >> WIDTH_SHIFT) & WIDTH_TOP, WIDTH_BITS, WIDTH_LOW)
    return float(excess * excess)


@inlined
def slope_of(code: int, steepest_slope: float) -> float:
    """The slope of a factor, where the narrowest factor has the slope `steepest_slope`."""
    return float(SLOPES[(code >> WIDTH_SHIFT) & WIDTH_TOP] * steepest_slope)


@kernel
def read(belief: Any, codes: Codes, factors: Floats) -> None:
    """Decode the factors of one belief, from codes (capacity,) to rows (p, a, r)."""
    step = power_of_two(belief.grid)
    for k in range(belief.count):
        r = weight_of(codes[k])
        factors[k, 0], factors[k, 2] = performance_of(codes[k], step), r
        if belief.width > 0.0:
            factors[k, 1] = slope_of(codes[k], LOGISTIC_DEVIATION / belief.width)
        else:
            factors[k, 1] = belief.scale * r


@kernel
def write(belief: Any, factors: Floats, codes: Codes) -> None:
    """Encode the factors of one belief that has no widths (Elo-R)."""
    per_point = power_of_two(-np.int64(belief.grid))
    for k in range(belief.count):
        codes[k] = code_of(factors[k, 0], factors[k, 2], 0.0, per_point)


@kernel
def _read_all(header: Table, codes: Codes, factors: Floats) -> None:
    for i in range(len(header)):
        read(header[i], codes[i], factors[i])


def weights_of(header: Any, terms: Floats) -> Floats:
    """(K,) the weights of the (K, 3) rows (p, a, r) of one belief, in points^-2. A weight is 2 a o
    / C^2 (see `model.HEADER`), where C^2 is four times LOGISTIC_VARIANCE."""
    weights: Floats = terms[:, 1] * header["scale"] * terms[:, 2] / (2.0 * LOGISTIC_VARIANCE)
    return weights


def factors_of(beliefs: Beliefs) -> Floats:
    """(n, capacity, 3) the factors of n beliefs as rows (p, a, r). Codes are decoded."""
    if beliefs.in_full:
        return beliefs.factors
    factors = np.zeros((*beliefs.factors.shape, 3))
    _read_all(beliefs.header, beliefs.factors, factors)
    return factors


# --- full histories: all factors of one belief as rows (p, a, r), in order of performance ---------


@kernel
def copy(terms: Floats, i: int, to: int) -> None:
    """Copy factor i to the place `to`."""
    for c in range(3):
        terms[to, c] = terms[i, c]


@kernel
def insert(terms: Floats, count: int, p: float, a: float, r: float) -> None:
    """Insert (p, a, r) among `count` factors in order of p. There must be room for one more."""
    i = count
    while i > 0 and terms[i - 1, 0] > p:
        copy(terms, i - 1, i)
        i -= 1
    terms[i, 0], terms[i, 1], terms[i, 2] = p, a, r
