"""Implements the sketch, which bounds the number of a posterior's logistic factors by merging
neighbours.

The paper moves the oldest factor into the Gaussian, which loses its position. The sketch keeps the
factors sorted by performance. If there is one too many, it merges the two neighbours with the least
cost of merging. Two performances a few points apart carry almost the same information, however far
apart in time they are, if they are about equally wide. Decay multiplies all factors alike, so it
commutes with merging.

A factor (p, a, r) contributes r * tanh((x - p) a), times the belief's scale, to the posterior's
log-derivative. Merging keeps the sum of r (the pull on a distant x), the r-weighted mean of p, and
there the slope of the sum of both terms.

Each belief has a lane, as in `roots`, and its result does not depend on the other lanes. `codes`
(K, n) holds the factors of belief i at codes[:COUNT, i], as in its record (see `factor`); the codes
after them are meaningless.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import inlined
from stream_rater.rating.elementary import tanh
from stream_rater.rating.factor import (
    LOGISTIC_DEVIATION,
    LOGISTIC_VARIANCE,
    code_of,
    excess_variance_of,
    excess_width,
    growth,
    lighter,
    performance_of,
    single,
    slope_of,
    steps_of,
    weight_of,
)
from stream_rater.rating.model import Codes
from stream_rater.rating.roots import COUNT, FILL, FREE, GRID, NARROWEST, SCALE, A, P, R

NEW_P, NEW_A, NEW_R = range(FREE, FREE + 3)  # Rows of `lanes`: the new factor.
P2, A2, R2 = range(FREE + 3, FREE + 6)  # Rows for the second factor of a pair that is merged.
PLACE = FREE + 6
"""The row for the place of the new factor, or of the first factor of a pair that is merged; NONE if
nothing is merged."""
KEPT = FREE + 7  # The row for the number of factors that are kept.
LEAST, OVER = FREE + 8, FREE + 9
"""Rows for the cost of merging that pair, as a quotient LEAST / OVER."""
PART = FREE + 10
"""The row for the number by which relative weights are multiplied when the scale grows."""
V2, FINE = FREE + 11, FREE + 12
"""Rows for the second factor's excess variance, and for the square of the grid's step as a part of
the narrowest width."""
ROWS = FREE + 13

NONE = 1e9  # Stands for a place after all factors.

WEIGHTLESS = 1e-300  # Prevents 0 / 0 in the cost of merging two factors that decayed to nothing.

FLATTEST = 0.9
"""The least slope of a merged factor, as a part of the one that keeps the variance of the mixture.
Between two far steps the slope of their sum is nearly 0, and says nothing about them."""

NARROWER = 1.0 - 1e-6
"""A new factor becomes the narrowest if its ratio to the narrowest width is below this, so that
rounding alone does not make it so."""


@inlined
def _rebase(codes: Codes, i: int, count: int, narrowest: float, narrower: float) -> None:
    """Encode the widths of lane i relative to a new narrowest width."""
    for k in range(count):
        a, r = slope_of(codes[k, i], LOGISTIC_DEVIATION / narrowest), weight_of(codes[k, i])
        p = performance_of(codes[k, i], 1.0)
        codes[k, i] = code_of(p, r, excess_width(a, narrower), 1.0)


@inlined
def make_room(codes: Codes, lanes: Floats, n: int, most: int, u: int, beta: int) -> None:
    """Rescale the factors so that a new one with the weight in row `u` and the standard deviation
    in row `beta` fits. No belief has more than `most` factors."""
    for i in range(n):
        if lanes[SCALE, i] == 0.0:  # without momentum, no factor survives a round
            lanes[COUNT, i] = 0.0
        if lanes[COUNT, i] == 0.0:
            lanes[SCALE, i] = single(lanes[u, i])
            lanes[NARROWEST, i] = single(lanes[beta, i])
        elif lanes[beta, i] < lanes[NARROWEST, i] * NARROWER:
            narrower = single(lanes[beta, i])
            _rebase(codes, i, int(lanes[COUNT, i]), lanes[NARROWEST, i], narrower)
            lanes[NARROWEST, i] = narrower
    for i in range(n):
        times = growth(lanes[u, i] / lanes[SCALE, i])
        lanes[SCALE, i] *= times
        lanes[PART, i] = 1.0 / times
    for k in range(most):
        for i in range(n):
            codes[k, i] = lighter(codes[k, i], lanes[PART, i])


@inlined
def settle(new: Codes, lanes: Floats, n: int) -> None:
    """Encode the new factors."""
    for i in range(n):
        excess = excess_width(lanes[NEW_A, i], lanes[NARROWEST, i])
        new[i] = code_of(lanes[NEW_P, i], lanes[NEW_R, i], excess, 1.0 / lanes[GRID, i])


@inlined
def insert(codes: Codes, new: Codes, lanes: Floats, n: int, most: int) -> None:
    """Insert the new factor of each belief among up to `most` others, in order of p. Each belief
    must have room for one more."""
    for i in range(n):
        lanes[PLACE, i] = 0.0
    for k in range(most):
        at = float(k)  # a loop over lanes that converts k is not vectorised
        for i in range(n):
            before = (steps_of(codes[k, i]) <= steps_of(new[i])) & (at < lanes[COUNT, i])
            lanes[PLACE, i] += 1.0 if before else 0.0
    for k in range(most, 0, -1):
        at = float(k)
        for i in range(n):
            place, code, here, before = lanes[PLACE, i], new[i], codes[k, i], codes[k - 1, i]
            here = here if at < place else before
            codes[k, i] = code if at == place else here
    for i in range(n):
        code, here = new[i], codes[0, i]
        codes[0, i] = code if lanes[PLACE, i] == 0.0 else here
        lanes[COUNT, i] += 1.0


@inlined
def _surplus(lanes: Floats, n: int) -> int:
    """The number of beliefs that have more factors than are kept."""
    surplus = 0
    for i in range(n):
        surplus += 1 if lanes[KEPT, i] < lanes[COUNT, i] else 0
    return surplus


@inlined
def _find_cheapest(codes: Codes, lanes: Floats, n: int, most: int) -> None:
    """Set PLACE to the first of the two neighbours with the least cost of merging, which is

        r1 r2 / (r1 + r2) * (d^2 + |v1 - v2|)^2 / (v1 v2)

    for a distance of d and logistic variances v1 and v2. PLACE is NONE if nothing is to be merged.
    """
    for i in range(n):
        lanes[LEAST, i], lanes[OVER, i], lanes[PLACE, i] = math.inf, 1.0, NONE
        lanes[P2, i], lanes[R2, i] = performance_of(codes[0, i], 1.0), weight_of(codes[0, i])
        step = lanes[GRID, i] / lanes[NARROWEST, i]
        lanes[V2, i], lanes[FINE, i] = excess_variance_of(codes[0, i]), step * step
    for k in range(1, most):
        at = float(k)
        for i in range(n):
            p1, r1 = lanes[P2, i], lanes[R2, i]
            p2, r2 = performance_of(codes[k, i], 1.0), weight_of(codes[k, i])
            lanes[P2, i], lanes[R2, i] = p2, r2
            v1, v2 = lanes[V2, i], excess_variance_of(codes[k, i])
            lanes[V2, i] = v2
            unlike = (p2 - p1) * (p2 - p1) * lanes[FINE, i] + abs(v2 - v1)
            cost, over = r1 * r2 * unlike * unlike, (r1 + r2 + WEIGHTLESS) * (1.0 + v1) * (1.0 + v2)
            least, least_over, place = lanes[LEAST, i], lanes[OVER, i], lanes[PLACE, i]
            less = (cost * least_over < least * over) & (at < lanes[COUNT, i])
            lanes[LEAST, i] = cost if less else least
            lanes[OVER, i] = over if less else least_over
            lanes[PLACE, i] = at - 1.0 if less else place
    for i in range(n):
        lanes[PLACE, i] = lanes[PLACE, i] if lanes[KEPT, i] < lanes[COUNT, i] else NONE


@inlined
def _take(codes: Codes, lanes: Floats, n: int) -> None:
    """Load the pair of each belief into its lane. A lane that has nothing to merge loads any
    pair."""
    for i in range(n):
        k = int(lanes[PLACE, i]) if lanes[PLACE, i] < NONE else 0
        slope = LOGISTIC_DEVIATION / lanes[NARROWEST, i]
        one, other = codes[k, i], codes[k + 1, i]
        lanes[NEW_P, i] = performance_of(one, lanes[GRID, i])
        lanes[P2, i] = performance_of(other, lanes[GRID, i])
        lanes[NEW_A, i], lanes[A2, i] = slope_of(one, slope), slope_of(other, slope)
        lanes[NEW_R, i], lanes[R2, i] = weight_of(one), weight_of(other)


@inlined
def _mix(lanes: Floats, n: int) -> None:
    """Merge each pair into a new factor."""
    for i in range(n):
        a1, a2, r = lanes[NEW_A, i], lanes[A2, i], lanes[NEW_R, i] + lanes[R2, i]
        part = lanes[R2, i] / r if r > 0.0 else 0.5
        d = lanes[P2, i] - lanes[NEW_P, i]
        within = LOGISTIC_VARIANCE * ((1.0 - part) / (a1 * a1) + part / (a2 * a2))
        lanes[NEW_P, i] += part * d
        as_wide = LOGISTIC_DEVIATION / np.sqrt(within + part * (1.0 - part) * (d * d))
        t1, t2 = tanh(part * d * a1), tanh((1.0 - part) * d * a2)
        slope = (1.0 - part) * a1 * (1.0 - t1 * t1) + part * a2 * (1.0 - t2 * t2)
        lanes[NEW_A, i] = max(slope, FLATTEST * as_wide)
        lanes[NEW_R, i] = r


@inlined
def _relieve(codes: Codes, lanes: Floats, n: int) -> None:
    """Rescale beliefs whose merged factor weighs 2 or more, which is rare."""
    for i in range(n):
        times = growth(lanes[NEW_R, i])
        if times > 1.0 and lanes[PLACE, i] < NONE:
            lanes[NEW_R, i] /= times
            lanes[SCALE, i] *= times
            for k in range(int(lanes[COUNT, i])):
                codes[k, i] = lighter(codes[k, i], 1.0 / times)


@inlined
def _close_up(codes: Codes, new: Codes, lanes: Floats, n: int, most: int) -> None:
    """Put each merged factor in the place of its pair, and move the factors after it up. The loops
    have no branch, because the places of pairs are unpredictable."""
    for k in range(most - 1):
        at = float(k)
        for i in range(n):
            place, code, here, behind = lanes[PLACE, i], new[i], codes[k, i], codes[k + 1, i]
            here = here if at < place else behind
            codes[k, i] = code if at == place else here
    for i in range(n):
        lanes[COUNT, i] -= 1.0 if lanes[PLACE, i] < NONE else 0.0


@inlined
def merge(codes: Codes, new: Codes, lanes: Floats, n: int, most: int) -> None:
    """Merge the cheapest neighbours in every belief until it has no more factors than are kept. No
    belief has more than `most` factors."""
    while _surplus(lanes, n) > 0:
        _find_cheapest(codes, lanes, n, most)
        _take(codes, lanes, n)
        _mix(lanes, n)
        _relieve(codes, lanes, n)
        settle(new, lanes, n)
        _close_up(codes, new, lanes, n, most)


@inlined
def read(codes: Codes, terms: Floats, lanes: Floats, n: int, most: int) -> None:
    """Decode up to `most` factors of each belief. FILL follows them, as `find_modes` needs it."""
    for i in range(n):
        lanes[A2, i] = LOGISTIC_DEVIATION / lanes[NARROWEST, i]
    for k in range(most):
        at = float(k)
        for i in range(n):
            here, code = at < lanes[COUNT, i], codes[k, i]
            terms[P, k, i] = performance_of(code, lanes[GRID, i]) if here else FILL
            terms[A, k, i] = slope_of(code, lanes[A2, i]) if here else 0.0
            terms[R, k, i] = weight_of(code) if here else 0.0
