"""The sketch: a posterior's logistic factors, in order of performance and bounded in number.

The paper folds the oldest factor into the Gaussian, which throws away where it stood. We keep the
factors sorted by performance and, when there is one too many, merge the two neighbours that lose
least: old and new, near or far in time, two performances a few points apart say almost the same.
Decay multiplies all factors alike, so it commutes with merging.

A factor (p, a, r) contributes r * tanh((x - p) a), times the belief's scale, to the posterior's
log-derivative. Merging keeps the sum of r (the pull from afar), the r-weighted mean of p, and the
variance of the mixture.

Beliefs stand in lanes, as in `mode`; no step here depends on how many factors a neighbour has.
"""

import math

import numpy as np

from stream_rater.rating import rounding
from stream_rater.rating.compiled import inlined
from stream_rater.rating.mode import COUNT, FILL, FREE, GRID, NARROWEST, SCALE, A, P, R
from stream_rater.rating.model import Floats

E = 3
"""Row of `held`, behind mode's: the excess width, where it is rounded."""
NEW_P, NEW_A, NEW_R, NEW_E = range(FREE, FREE + 4)
"""Rows of `lanes`: the factor that is on its way in."""
P2, A2, R2 = range(FREE + 4, FREE + 7)
"""The second of the pair that is merged into it."""
PAIR = FREE + 7
"""Where the first of that pair stands, or NONE."""
KEPT = FREE + 8
"""How many factors are kept, 0 for all of them, unrounded."""
LEAST, OVER = FREE + 9, FREE + 10
"""What merging that pair costs: a quotient."""
BEHIND = FREE + 11
"""A number of the factor behind the one at hand."""
ROWS = FREE + 12

NONE = 1e9
"""Behind all factors."""

WEIGHTLESS = 1e-300
"""Keeps the cost of merging two factors decayed to nothing from being 0 / 0."""

LOGISTIC_VARIANCE = math.pi**2 / 12.0
"""A logistic factor of slope a has variance LOGISTIC_VARIANCE / a^2."""

LOGISTIC_DEVIATION = math.sqrt(LOGISTIC_VARIANCE)


@inlined
def excess_width(slope: float, narrowest: float) -> float:
    """How much wider than the narrowest: sqrt(sd^2 / narrowest^2 - 1), 0 where it is not."""
    ratio = LOGISTIC_DEVIATION / (slope * narrowest)
    return float(np.sqrt(max(ratio * ratio - 1.0, 0.0)))


@inlined
def steepest(narrowest: float) -> float:
    """The slope of the narrowest factor."""
    return LOGISTIC_DEVIATION / narrowest


@inlined
def relative_slope(excess: float) -> float:
    """The slope of a factor of this excess width, where that of the narrowest is 1."""
    return float(1.0 / np.sqrt(1.0 + excess * excess))


@inlined
def settle(lanes: Floats, n: int) -> None:
    """Round the factors on their way in to what a record holds."""
    for i in range(n):
        p, a, r = lanes[NEW_P, i], lanes[NEW_A, i], lanes[NEW_R, i]
        narrowest, rounded = lanes[NARROWEST, i], lanes[KEPT, i] > 0.0
        lanes[NEW_E, i] = excess = rounding.width(excess_width(a, narrowest))
        slope = relative_slope(excess) * steepest(narrowest)
        lanes[NEW_P, i] = rounding.on_grid(p, lanes[GRID, i]) if rounded else p
        lanes[NEW_A, i] = slope if rounded else a
        lanes[NEW_R, i] = rounding.weight(r) if rounded else r


@inlined
def rebase(held: Floats, i: int, count: int, narrower: float) -> None:
    """Let the widths of lane i be relative to a narrower one."""
    for k in range(count):
        held[E, k, i] = excess = rounding.width(excess_width(held[A, k, i], narrower))
        held[A, k, i] = relative_slope(excess) * steepest(narrower)


@inlined
def normalise(held: Floats, lanes: Floats, i: int, weight: float) -> float:
    """Rescale lane i by a power of two so that `weight` (relative) is under 2; what it is then.

    Only the lightest weights lose bits by it.
    """
    if weight < 2.0:
        return weight
    larger = rounding.power_of_two((np.float64(weight).view(np.int64) >> 52) - rounding.BIAS)
    for k in range(int(lanes[COUNT, i])):
        held[R, k, i] /= larger
        if lanes[KEPT, i] > 0.0:
            held[R, k, i] = rounding.weight(held[R, k, i])
    lanes[SCALE, i] *= larger
    return float(weight / larger)


@inlined
def insert(held: Floats, lanes: Floats, n: int, most: int) -> None:
    """Put the new factors among up to `most` others in order of p; room for one more each."""
    for i in range(n):
        lanes[PAIR, i] = 0.0
    for k in range(most + 1):
        for i in range(n):
            p, a, r, e = held[P, k, i], held[A, k, i], held[R, k, i], held[E, k, i]
            new_p, new_a = lanes[NEW_P, i], lanes[NEW_A, i]
            new_r, new_e = lanes[NEW_R, i], lanes[NEW_E, i]
            first = (p > new_p) | (lanes[PAIR, i] > 0.0)  # once it is in, all behind move up
            lanes[PAIR, i] = 1.0 if first else 0.0
            held[P, k, i], lanes[NEW_P, i] = (new_p, p) if first else (p, new_p)
            held[A, k, i], lanes[NEW_A, i] = (new_a, a) if first else (a, new_a)
            held[R, k, i], lanes[NEW_R, i] = (new_r, r) if first else (r, new_r)
            held[E, k, i], lanes[NEW_E, i] = (new_e, e) if first else (e, new_e)
    for i in range(n):
        lanes[COUNT, i] += 1.0


@inlined
def _surplus(lanes: Floats, n: int) -> int:
    """How many beliefs have more factors than are kept."""
    surplus = 0
    for i in range(n):
        surplus += 1 if 0.0 < lanes[KEPT, i] < lanes[COUNT, i] else 0
    return surplus


@inlined
def _find_cheapest(held: Floats, lanes: Floats, n: int, most: int) -> None:
    """PAIR: the first of the neighbours whose merging costs least, r1 r2 / (r1 + r2) * d^4.

    NONE where nothing is to be merged.
    """
    for i in range(n):
        lanes[LEAST, i], lanes[OVER, i], lanes[PAIR, i] = math.inf, 1.0, NONE
    for k in range(most - 1):
        at = float(k)  # a loop over lanes that turns k itself into a float stays scalar
        for i in range(n):
            r1, r2 = held[R, k, i], held[R, k + 1, i]
            d = held[P, k + 1, i] - held[P, k, i]
            cost, over = r1 * r2 * (d * d) * (d * d), r1 + r2 + WEIGHTLESS
            least, least_over, pair = lanes[LEAST, i], lanes[OVER, i], lanes[PAIR, i]
            less = (cost * least_over < least * over) & (at + 1.0 < lanes[COUNT, i])
            lanes[LEAST, i] = cost if less else least
            lanes[OVER, i] = over if less else least_over
            lanes[PAIR, i] = at if less else pair
    for i in range(n):
        merging = 0.0 < lanes[KEPT, i] < lanes[COUNT, i]
        lanes[PAIR, i] = lanes[PAIR, i] if merging else NONE


@inlined
def _take(held: Floats, lanes: Floats, n: int) -> None:
    """The pairs to be merged, into the lanes; where there is none, any."""
    for i in range(n):
        k = int(lanes[PAIR, i]) if lanes[PAIR, i] < NONE else 0
        lanes[NEW_P, i], lanes[P2, i] = held[P, k, i], held[P, k + 1, i]
        lanes[NEW_A, i], lanes[A2, i] = held[A, k, i], held[A, k + 1, i]
        lanes[NEW_R, i], lanes[R2, i] = held[R, k, i], held[R, k + 1, i]


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
def _close_up(held: Floats, lanes: Floats, n: int, most: int) -> None:
    """Let each new factor take the place of its pair, and all behind move up.

    Without a branch: where a pair stands is anybody's guess.
    """
    for c in range(4):
        for i in range(n):
            lanes[BEHIND, i] = FILL if c == P else 0.0
        for k in range(most - 1, -1, -1):
            at = float(k)
            for i in range(n):
                pair, new, behind = lanes[PAIR, i], lanes[NEW_P + c, i], lanes[BEHIND, i]
                lanes[BEHIND, i] = here = held[c, k, i]
                here = behind if pair < at else here
                held[c, k, i] = new if pair == at else here
    for i in range(n):
        lanes[COUNT, i] -= 1.0 if lanes[PAIR, i] < NONE else 0.0


@inlined
def merge(held: Floats, lanes: Floats, n: int, most: int) -> None:
    """Merge the cheapest neighbours wherever there are more factors than are kept.

    No belief has more than `most`.
    """
    while _surplus(lanes, n) > 0:
        _find_cheapest(held, lanes, n, most)
        _take(held, lanes, n)
        _mix(lanes, n)
        for i in range(n):
            if lanes[PAIR, i] < NONE:
                lanes[NEW_R, i] = normalise(held, lanes, i, lanes[NEW_R, i])
        settle(lanes, n)
        _close_up(held, lanes, n, most)
