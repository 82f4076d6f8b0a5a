"""Rounds a belief's numbers to what its record holds exactly.

In the service, a belief *is* its record: it is rounded after each round, and the next round starts
from the rounded numbers. So nothing depends on whether a belief was stored in between.

- mu, sigma, the Gaussian factor and the scale of the weights are float32.
- A performance lies on a fixed grid around zero with GRID_BITS bits: 1/16 point for a ladder that
  starts at 1500 with a sigma of 350.
- A factor's weight (relative to the belief's scale) and its excess width (what merging added to the
  standard deviation of the narrowest factor, relative to that) are small floats: a few bits of
  mantissa and exponent, with gradual underflow as in IEEE 754.

Decay changes only the scale, so a weight is rounded when it is set and never again.
"""

import math
from typing import Any

import numpy as np

from stream_rater.columns.kernels import kernel

GRID_BITS = 20
"""The bits of a performance, which lies within 2^19 steps of zero."""

WEIGHT_BITS, WEIGHT_LOW, WEIGHT_TOP = 13, -2, 2**15 - 1
"""A weight's mantissa bits, exponent of the least normal number, and greatest code: from 2^-15 to
below 2.

What matters is how a weight compares with the greatest weight, so a nearly absolute error is fine.
"""

WIDTH_BITS, WIDTH_LOW, WIDTH_TOP = 1, -5, 2**5 - 1
"""The excess width's mantissa bits, exponent of the least normal number, and greatest code: from
1/64 of the narrowest width to 768 times it."""

BIAS, MANTISSA = 1023, 52
"""The exponent bias and the mantissa bits of a float64."""


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
    """The power of two by which a scale must grow so that this weight, relative to it, is below
    2."""
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
    """The small float with this code: the lesser of its value as a normal number and the straight
    line of the subnormal numbers."""
    pattern = np.int64(code + ((BIAS + low - 1) << bits))
    normal: float = np.int64(pattern << (MANTISSA - bits)).view(np.float64)
    return min(normal, 2.0 * normal - power_of_two(low))


def small_floats(bits: int, low: int, top: int) -> list[float]:
    """All small floats by code, computed without a kernel."""
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


def grid_of(initial_mu: float, initial_sigma: float) -> int:
    """The exponent of the grid's step: fine relative to sigma, and wide enough for any performance.

    The grid reaches beyond 4 |mu| and beyond 60 sigma.
    """
    part, exponent = math.frexp(max(initial_sigma / 2.0**13, abs(initial_mu) / 2.0**17))
    return exponent - 1 if part == 0.5 else exponent


@kernel
def grid_code(p: float, per_point: float) -> int:
    """The grid point nearest to p, clipped to the grid, which has `per_point` steps a point."""
    most = float(2 ** (GRID_BITS - 1) - 1)
    return int(min(max(np.floor(p * per_point + 0.5), -most), most))
