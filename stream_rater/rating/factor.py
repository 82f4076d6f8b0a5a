"""Encodes a logistic factor as a 40-bit integer, as records and rounded beliefs hold it.

From the lowest bit on: the performance (20 bits, two's complement, in steps of the grid), the
relative weight (15) and the excess width (5). The last two are small floats (see `rounding`). The
slope follows from the excess width and the narrowest width. If the narrowest width is 0 (Elo-R),
the slope is the weight.
"""

import math
from typing import Any

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating import rounding
from stream_rater.rating.model import Beliefs, Codes, Table
from stream_rater.rating.rounding import (
    GRID_BITS,
    WEIGHT_BITS,
    WEIGHT_LOW,
    WEIGHT_TOP,
    WIDTH_BITS,
    WIDTH_LOW,
    WIDTH_TOP,
    power_of_two,
)

PERFORMANCE_BITS = (1 << GRID_BITS) - 1
WEIGHT_SHIFT = GRID_BITS
WIDTH_SHIFT = WEIGHT_SHIFT + 15
ABOVE_GRID = 64 - GRID_BITS
"""The bits of an int64 above the performance."""

SLOPES = 1.0 / np.sqrt(1.0 + np.square(rounding.small_floats(WIDTH_BITS, WIDTH_LOW, WIDTH_TOP)))
"""The slope for each code of the excess width, for a narrowest slope of 1."""

LOGISTIC_VARIANCE = math.pi**2 / 12.0
"""A logistic factor of slope a has variance LOGISTIC_VARIANCE / a^2."""

LOGISTIC_DEVIATION = math.sqrt(LOGISTIC_VARIANCE)


@inlined
def excess_width(slope: float, narrowest: float) -> float:
    """The excess width of a slope: sqrt(sd^2 / narrowest^2 - 1), at least 0."""
    ratio = LOGISTIC_DEVIATION / (slope * narrowest)
    return float(np.sqrt(max(ratio * ratio - 1.0, 0.0)))


@inlined
def steepest(narrowest: float) -> float:
    """The slope of the narrowest factor."""
    return LOGISTIC_DEVIATION / narrowest


@inlined
def code_of(p: float, r: float, excess: float, per_point: float) -> int:
    """The code nearest to a factor. The grid has `per_point` steps a point."""
    performance = rounding.grid_code(p, per_point) & PERFORMANCE_BITS
    weight = rounding.small_code(r, WEIGHT_BITS, WEIGHT_LOW, WEIGHT_TOP)
    width = rounding.small_code(excess, WIDTH_BITS, WIDTH_LOW, WIDTH_TOP)
    return int(performance | (weight << WEIGHT_SHIFT) | (width << WIDTH_SHIFT))


@inlined
def lighter(code: int, part: float) -> int:
    """The code of a factor whose weight is multiplied by `part`, at most 1."""
    weight = rounding.small_code(weight_of(code) * part, WEIGHT_BITS, WEIGHT_LOW, WEIGHT_TOP)
    return int((code & ~(WEIGHT_TOP << WEIGHT_SHIFT)) | (weight << WEIGHT_SHIFT))


@inlined
def steps_of(code: int) -> int:
    """The performance in steps of the grid, shifted to the top bits; used to compare."""
    return code << ABOVE_GRID


@inlined
def performance_of(code: int, step: float) -> float:
    """The performance of a factor, on a grid of this step."""
    return float(steps_of(code) >> ABOVE_GRID) * step


@inlined
def moved(code: int, steps: float) -> int:
    """The code of a factor whose performance is moved by whole steps of the grid, up to its end."""
    performance = rounding.grid_code(performance_of(code, 1.0) + steps, 1.0)
    return int((code & ~PERFORMANCE_BITS) | (performance & PERFORMANCE_BITS))


@inlined
def weight_of(code: int) -> float:
    """The weight of a factor, relative to the belief's scale."""
    return rounding.small_float((code >> WEIGHT_SHIFT) & WEIGHT_TOP, WEIGHT_BITS, WEIGHT_LOW)


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
            factors[k, 1] = slope_of(codes[k], steepest(belief.width))
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


def weights_of(header: Any, held: Floats) -> Floats:
    """(K,) the weights of the (K, 3) rows (p, a, r) of one belief, in points^-2: 2 a o / C^2 of
    `model.HEADER`, where C^2 is four times LOGISTIC_VARIANCE."""
    weights: Floats = held[:, 1] * header["scale"] * held[:, 2] / (2.0 * LOGISTIC_VARIANCE)
    return weights


def factors_of(beliefs: Beliefs) -> Floats:
    """(n, capacity, 3) the rows (p, a, r) of beliefs, decoded if they are codes."""
    if beliefs.in_full:
        return beliefs.factors
    factors = np.zeros((*beliefs.factors.shape, 3))
    _read_all(beliefs.header, beliefs.factors, factors)
    return factors


# --- full histories: all factors of one belief as rows (p, a, r), in order of performance --------


@kernel
def copy(held: Floats, i: int, to: int) -> None:
    """Copy factor i to the place `to`."""
    for c in range(3):
        held[to, c] = held[i, c]


@kernel
def insert(held: Floats, count: int, p: float, a: float, r: float) -> None:
    """Insert (p, a, r) among `count` factors in order of p. There must be room for one more."""
    i = count
    while i > 0 and held[i - 1, 0] > p:
        copy(held, i - 1, i)
        i -= 1
    held[i, 0], held[i, 1], held[i, 2] = p, a, r
