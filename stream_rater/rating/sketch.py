"""The sketch: a posterior's logistic factors, in order of performance and bounded in number.

The paper folds the oldest factor into the Gaussian, which throws away where it stood. We keep the
factors sorted by performance and, when there is one too many, merge the two neighbours that lose
least: old and new, near or far in time, two performances a few points apart say almost the same.
Decay multiplies all factors alike, so it commutes with merging.

A factor (p, a, r) contributes r * tanh((x - p) a), times the belief's scale, to the posterior's
log-derivative. Merging keeps the sum of r (the pull from afar), the r-weighted mean of p, and the
variance of the mixture.

Beliefs stand in lanes, as in `mode`; no step here depends on how many factors a neighbour has.
`codes` (K, n) has those of belief i at codes[:COUNT, i], as its record has them (see `factor`), and
what is behind them means nothing.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import inlined
from stream_rater.rating.factor import (
    LOGISTIC_DEVIATION,
    LOGISTIC_VARIANCE,
    code_of,
    excess_width,
    lighter,
    performance_of,
    slope_of,
    steepest,
    steps_of,
    weight_of,
)
from stream_rater.rating.mode import COUNT, FILL, FREE, GRID, NARROWEST, SCALE, A, P, R
from stream_rater.rating.model import Codes
from stream_rater.rating.rounding import growth, single

NEW_P, NEW_A, NEW_R = range(FREE, FREE + 3)
"""Rows of `lanes`: the factor that is on its way in."""
P2, A2, R2 = range(FREE + 3, FREE + 6)
"""The second of the pair that is merged into it."""
PLACE = FREE + 6
"""Where it is to stand, or the first of the pair does; NONE where nothing is to be merged."""
KEPT = FREE + 7
"""How many factors are kept."""
LEAST, OVER = FREE + 8, FREE + 9
"""What merging that pair costs: a quotient."""
PART = FREE + 10
"""What is left of the factors' relative weights, as the scale grows."""
ROWS = FREE + 11

NONE = 1e9
"""Behind all factors."""

WEIGHTLESS = 1e-300
"""Keeps the cost of merging two factors decayed to nothing from being 0 / 0."""

NARROWER = 1.0 - 1e-6
"""A performance narrower by more than rounding is a new narrowest."""


@inlined
def _rebase(codes: Codes, i: int, count: int, narrowest: float, narrower: float) -> None:
    """Let the widths of lane i be relative to a narrower one."""
    for k in range(count):
        a, r = slope_of(codes[k, i], steepest(narrowest)), weight_of(codes[k, i])
        p = performance_of(codes[k, i], 1.0)
        codes[k, i] = code_of(p, r, excess_width(a, narrower), 1.0)


@inlined
def make_room(codes: Codes, lanes: Floats, n: int, most: int, u: int, beta: int) -> None:
    """Let the factors be such that one of the weights in row `u`, which has the standard
    deviations in row `beta`, fits: none has more than `most`."""
    for i in range(n):
        if lanes[SCALE, i] == 0.0:  # without momentum no factor outlives a round
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
    """The codes of the factors on their way in."""
    for i in range(n):
        excess = excess_width(lanes[NEW_A, i], lanes[NARROWEST, i])
        new[i] = code_of(lanes[NEW_P, i], lanes[NEW_R, i], excess, 1.0 / lanes[GRID, i])


@inlined
def insert(codes: Codes, new: Codes, lanes: Floats, n: int, most: int) -> None:
    """Put the new factors among up to `most` others in order of p; room for one more each."""
    for i in range(n):
        lanes[PLACE, i] = 0.0
    for k in range(most):
        at = float(k)  # a loop over lanes that turns k itself into a float stays scalar
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
    """How many beliefs have more factors than are kept."""
    surplus = 0
    for i in range(n):
        surplus += 1 if lanes[KEPT, i] < lanes[COUNT, i] else 0
    return surplus


@inlined
def _find_cheapest(codes: Codes, lanes: Floats, n: int, most: int) -> None:
    """PLACE: the first of the neighbours whose merging costs least, r1 r2 / (r1 + r2) * d^4.

    NONE where nothing is to be merged.
    """
    for i in range(n):
        lanes[LEAST, i], lanes[OVER, i], lanes[PLACE, i] = math.inf, 1.0, NONE
        lanes[P2, i], lanes[R2, i] = performance_of(codes[0, i], 1.0), weight_of(codes[0, i])
    for k in range(1, most):
        at = float(k)
        for i in range(n):
            p1, r1 = lanes[P2, i], lanes[R2, i]
            p2, r2 = performance_of(codes[k, i], 1.0), weight_of(codes[k, i])
            lanes[P2, i], lanes[R2, i] = p2, r2
            d = p2 - p1
            cost, over = r1 * r2 * (d * d) * (d * d), r1 + r2 + WEIGHTLESS
            least, least_over, place = lanes[LEAST, i], lanes[OVER, i], lanes[PLACE, i]
            less = (cost * least_over < least * over) & (at < lanes[COUNT, i])
            lanes[LEAST, i] = cost if less else least
            lanes[OVER, i] = over if less else least_over
            lanes[PLACE, i] = at - 1.0 if less else place
    for i in range(n):
        lanes[PLACE, i] = lanes[PLACE, i] if lanes[KEPT, i] < lanes[COUNT, i] else NONE


@inlined
def _take(codes: Codes, lanes: Floats, n: int) -> None:
    """The pairs to be merged, into the lanes; where there is none, any."""
    for i in range(n):
        k = int(lanes[PLACE, i]) if lanes[PLACE, i] < NONE else 0
        slope = steepest(lanes[NARROWEST, i])
        one, other = codes[k, i], codes[k + 1, i]
        lanes[NEW_P, i] = performance_of(one, lanes[GRID, i])
        lanes[P2, i] = performance_of(other, lanes[GRID, i])
        lanes[NEW_A, i], lanes[A2, i] = slope_of(one, slope), slope_of(other, slope)
        lanes[NEW_R, i], lanes[R2, i] = weight_of(one), weight_of(other)


@inlined
def _mix(lanes: Floats, n: int) -> None:
    """What each pair becomes, as the factor on its way in."""
    for i in range(n):
        a1, a2, r = lanes[NEW_A, i], lanes[A2, i], lanes[NEW_R, i] + lanes[R2, i]
        part = lanes[R2, i] / r if r > 0.0 else 0.5
        d = lanes[P2, i] - lanes[NEW_P, i]
        within = LOGISTIC_VARIANCE * ((1.0 - part) / (a1 * a1) + part / (a2 * a2))
        lanes[NEW_P, i] += part * d
        lanes[NEW_A, i] = LOGISTIC_DEVIATION / np.sqrt(within + part * (1.0 - part) * (d * d))
        lanes[NEW_R, i] = r


@inlined
def _relieve(codes: Codes, lanes: Floats, n: int) -> None:
    """Let merged factors be under 2: rarely more than that."""
    for i in range(n):
        times = growth(lanes[NEW_R, i])
        if times > 1.0 and lanes[PLACE, i] < NONE:
            lanes[NEW_R, i] /= times
            lanes[SCALE, i] *= times
            for k in range(int(lanes[COUNT, i])):
                codes[k, i] = lighter(codes[k, i], 1.0 / times)


@inlined
def _close_up(codes: Codes, new: Codes, lanes: Floats, n: int, most: int) -> None:
    """Let each new factor take the place of its pair, and all behind move up.

    Without a branch: where a pair stands is anybody's guess.
    """
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
    """Merge the cheapest neighbours wherever there are more factors than are kept.

    No belief has more than `most`.
    """
    while _surplus(lanes, n) > 0:
        _find_cheapest(codes, lanes, n, most)
        _take(codes, lanes, n)
        _mix(lanes, n)
        _relieve(codes, lanes, n)
        settle(new, lanes, n)
        _close_up(codes, new, lanes, n, most)


@inlined
def read(codes: Codes, held: Floats, lanes: Floats, n: int, most: int) -> None:
    """Up to `most` factors of each belief as numbers, FILL behind them: what `mode` takes."""
    for i in range(n):
        lanes[A2, i] = steepest(lanes[NARROWEST, i])
    for k in range(most):
        at = float(k)
        for i in range(n):
            here, code = at < lanes[COUNT, i], codes[k, i]
            held[P, k, i] = performance_of(code, lanes[GRID, i]) if here else FILL
            held[A, k, i] = slope_of(code, lanes[A2, i]) if here else 0.0
            held[R, k, i] = weight_of(code) if here else 0.0
