"""Finds roots of increasing functions with safeguarded steps, and the modes of many beliefs at
once.

Every root in this package is unique (the functions are strictly monotone: Lemma 3.1 of the paper)
and bracketed beforehand. Newton's or Halley's step is taken where it makes progress; otherwise the
bracket is halved. A step makes progress if it is less than half the step before. A plain bracketed
Newton method needs hundreds of steps on real data (a newcomer at 1500 with one performance of
2303), because each step lands just inside the bracket, on alternating sides.

A loop around `safeguard` compares the proposed step with its tolerance before it uses the bracket:
near the root, rounding may put a good last step outside the bracket.
"""

import math

from stream_rater.columns.arrays import Floats
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating.elementary import quick_tanh, rough_tanh, tanh

SIXTH = 1.0 / 6.0

MAX_STEPS = 200
"""The most steps of a search. Bisection alone shrinks any bracket of floats to nothing in far
fewer."""


@kernel
def householder(f: float, f1: float, f2: float, f3: float) -> float:
    """Householder's third-order step towards f = 0, clipped to between half and twice Newton's
    step. The error after a step is of the order of the fourth power of the error before."""
    inverse = 1.0 / f1
    newton = -f * inverse
    bend, twist = newton * f2 * inverse, newton * newton * f3 * inverse
    ahead = max(fma(0.5, bend, 1.0), 0.25)
    return newton * min(max(ahead / max(fma(SIXTH, twist, 1.0 + bend), 0.125), 0.5), 2.0)


@kernel
def safeguard(
    x: float, value: float, step: float, low: float, high: float, last: float
) -> tuple[float, float, float, float]:
    """Shrink the bracket by the sign of `value` at x, then step or bisect. Returns the next x, the
    bracket (low, high) and the step that was taken."""
    if value < 0.0:
        low = x
    else:
        high = x
    target = x + step
    if not (abs(step) < 0.5 * abs(last) and low < target < high):
        target = 0.5 * (low + high)
        step = target - x
    return target, low, high, step


# --- the modes of many beliefs: the zero of Algorithm 3's function --------------------------------
#
# The derivative of a log-posterior, w_0 (x - center) + scale * sum over k of r_k tanh((x - p_k)
# a_k), rises strictly, so it has one zero. The zero lies between the center and the outermost
# performances.
#
# Each belief has a *lane*: `terms` (3 or more, K, n) holds p, a and r of factor k of belief i at
# terms[:3, k, i]; `lanes` (ROWS, n) holds a number of belief i at lanes[ROW, i]. The compiler turns
# a loop over i into vector instructions. A belief that has fewer factors than others has FILL for
# the missing ones, which add nothing.

P, A, R = 0, 1, 2  # Rows of `terms`: performance, slope, and weight relative to the belief's scale.

FILL = 1e300  # The p of a missing factor, whose a and r are 0.

MU, SIGMA, CENTER, PRECISION, SCALE, NARROWEST, COUNT, GRID = range(8)
"""Rows of `lanes` with fields of the header. GRID is the step of the grid, not its exponent."""
X, LOW, HIGH, LAST, ENOUGH, PULL, SLOPE, BEND, TWIST, WHO = range(8, 18)
"""Rows of `lanes` for the search: its position, its bracket, its last step, the step that ends it,
the sum over the factors with three derivatives, and the index of the belief."""
FREE = 18  # The first row that other modules may use.

TOLERANCE = 3e-3
"""A step shorter than this fraction of the narrowest width ends the search. The remaining error is
a small fraction of its fourth power, some 1e-10 points."""

ROUNDED_TOLERANCE = 2e-2
"""The tolerance if the mode is rounded to float32, as in a record. The remaining error is some 1e-4
points."""

WIDTH = 8  # The number of lanes is rounded up to a multiple of this.


@inlined
def filled(n: int) -> int:
    """n rounded up to a multiple of WIDTH."""
    return (n + WIDTH - 1) // WIDTH * WIDTH


@inlined
def _begin(terms: Floats, lanes: Floats, n: int, most: int, tolerance: float) -> None:
    """Set up the bracket and the tolerance of each search, and clip X to the bracket."""
    for i in range(n):
        lanes[LAST, i] = 1.0 / lanes[SIGMA, i]
    for k in range(most):
        for i in range(n):
            lanes[LAST, i] = max(lanes[LAST, i], terms[A, k, i])
    for i in range(n):
        first, last = terms[P, 0, i], terms[P, int(lanes[COUNT, i]) - 1, i]
        low, high = min(lanes[CENTER, i], first), max(lanes[CENTER, i], last)
        lanes[LOW, i], lanes[HIGH, i], lanes[X, i] = low, high, min(max(lanes[X, i], low), high)
        lanes[ENOUGH, i], lanes[LAST, i] = tolerance / lanes[LAST, i], math.inf
        lanes[WHO, i] = i


@inlined
def _clear(lanes: Floats, n: int) -> None:
    for i in range(n):
        lanes[PULL, i] = lanes[SLOPE, i] = lanes[BEND, i] = lanes[TWIST, i] = 0.0


@inlined
def _add(lanes: Floats, i: int, a: float, r: float, t: float) -> None:
    """Add a factor with t = tanh((X - p) a) to PULL = sum r t and its first three derivatives. BEND
    and TWIST are half of these."""
    steepness = r * a * fma(-t, t, 1.0)
    bend = steepness * a
    lanes[PULL, i] = fma(r, t, lanes[PULL, i])
    lanes[SLOPE, i] += steepness
    lanes[BEND, i] = fma(-bend, t, lanes[BEND, i])
    lanes[TWIST, i] = fma(bend * a, fma(3.0 * t, t, -1.0), lanes[TWIST, i])


@inlined
def _sum(terms: Floats, lanes: Floats, n: int, most: int, rounded: bool) -> None:
    """Compute PULL and its derivatives at X."""
    _clear(lanes, n)
    for k in range(most):
        for i in range(n):
            y = (lanes[X, i] - terms[P, k, i]) * terms[A, k, i]
            t = quick_tanh(y) if rounded else tanh(y)
            _add(lanes, i, terms[A, k, i], terms[R, k, i], t)


@inlined
def _sum_roughly(terms: Floats, lanes: Floats, n: int, most: int) -> None:
    """Compute PULL and its derivatives at X to three digits, without an exponential."""
    _clear(lanes, n)
    for k in range(most):
        for i in range(n):
            t = rough_tanh((lanes[X, i] - terms[P, k, i]) * terms[A, k, i])
            _add(lanes, i, terms[A, k, i], terms[R, k, i], t)


@inlined
def _step(lanes: Floats, n: int) -> None:
    """Write the function at X into PULL, and Householder's third-order step towards its zero into
    SLOPE."""
    for i in range(n):
        precision, scale = lanes[PRECISION, i], lanes[SCALE, i]
        f = fma(precision, lanes[X, i] - lanes[CENTER, i], scale * lanes[PULL, i])
        f1 = fma(scale, lanes[SLOPE, i], precision)
        f2, f3 = 2.0 * scale * lanes[BEND, i], 2.0 * scale * lanes[TWIST, i]
        lanes[PULL, i], lanes[SLOPE, i] = f, householder(f, f1, f2, f3)


@inlined
def _close_up(terms: Floats, lanes: Floats, i: int, to: int, most: int) -> None:
    """Move the search in lane i to lane `to`."""
    if i == to:
        return
    for k in range(most):
        for c in range(3):
            terms[c, k, to] = terms[c, k, i]
    for row in range(FREE):
        lanes[row, to] = lanes[row, i]


@inlined
def find_modes(
    terms: Floats, lanes: Floats, n: int, most: int, rounded: bool, found: Floats
) -> None:  # fmt: skip
    """Write the modes of n beliefs with up to `most` factors into `found`. Searches start from X.

    If `rounded`, the modes have the precision of float32. Otherwise they are exact to the last
    digits that matter. Every belief must have a factor. `terms` and `lanes` are overwritten. When a
    search ends, an unfinished one moves into its lane, so that the bits of a belief do not depend
    on the others.
    """
    tolerance = ROUNDED_TOLERANCE if rounded else TOLERANCE
    _begin(terms, lanes, filled(n), most, tolerance)
    _sum_roughly(terms, lanes, filled(n), most)
    _step(lanes, filled(n))
    for i in range(filled(n)):
        lanes[X, i] = min(max(lanes[X, i] + lanes[SLOPE, i], lanes[LOW, i]), lanes[HIGH, i])
    for _ in range(MAX_STEPS):
        _sum(terms, lanes, filled(n), most, rounded)
        _step(lanes, filled(n))
        left = 0
        for i in range(n):
            x, f, step = lanes[X, i], lanes[PULL, i], lanes[SLOPE, i]
            who, last = int(lanes[WHO, i]), lanes[LAST, i]
            if abs(step) <= lanes[ENOUGH, i]:
                found[who] = x + step
                continue
            x, low, high, last = safeguard(x, f, step, lanes[LOW, i], lanes[HIGH, i], last)
            found[who] = x
            if abs(last) > lanes[ENOUGH, i] * 1e-6:
                lanes[X, i], lanes[LOW, i], lanes[HIGH, i], lanes[LAST, i] = x, low, high, last
                _close_up(terms, lanes, i, left, most)
                left += 1
        n = left
        if n == 0:
            break
