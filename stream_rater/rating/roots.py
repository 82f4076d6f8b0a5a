"""Safeguarded steps towards the root of an increasing function.

Every root in this package is unique (the functions are strictly monotone: Lemma 3.1 of the paper)
and bracketed beforehand. Newton's or Halley's step is taken where it makes progress; otherwise the
bracket is halved. "Progress" means less than half the step before. A plain bracketed Newton method
needs hundreds of steps on real data (a newcomer at 1500 with one performance of 2303), because each
step lands just inside the bracket, on alternating sides.

A loop around `safeguard` compares the proposed step with its tolerance before it uses the bracket:
near the root, rounding may put a good last step outside the bracket.
"""

import math

from stream_rater.columns.arrays import Floats
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating.model import DID_NOT_FINISH, Places

SIXTH = 1.0 / 6.0

MAX_STEPS = 200
"""The most steps of a search. Bisection alone needs far fewer to shrink any bracket of floats to
nothing."""


@kernel
def householder(f: float, f1: float, f2: float, f3: float) -> float:
    """Householder's third-order step towards f = 0, clipped to between half of Newton's step and
    twice that.

    The error after a step is of the order of the fourth power of the error before.
    """
    inverse = 1.0 / f1
    newton = -f * inverse
    bend, twist = newton * f2 * inverse, newton * newton * f3 * inverse
    ahead = max(fma(0.5, bend, 1.0), 0.25)
    return newton * min(max(ahead / max(fma(SIXTH, twist, 1.0 + bend), 0.125), 0.5), 2.0)


@kernel
def safeguard(
    x: float, value: float, step: float, low: float, high: float, last: float
) -> tuple[float, float, float, float]:
    """Shrink the bracket by the sign of `value` at x, then step or bisect.

    Returns the next x, the bracket (low, high) and the step that was taken.
    """
    if value < 0.0:
        low = x
    else:
        high = x
    target = x + step
    if not (abs(step) < 0.5 * abs(last) and low < target < high):
        target = 0.5 * (low + high)
        step = target - x
    return target, low, high, step


@inlined
def count_ranked(place: Places) -> int:
    """The number of entries that finished, which come first."""
    ranked = len(place)
    while ranked > 0 and place[ranked - 1] == DID_NOT_FINISH:
        ranked -= 1
    return ranked


@kernel
def has_open(found: Floats, first: int, end: int) -> bool:
    """Whether any of found[first:end] is NaN, because a search left it open."""
    left = 0
    for i in range(first, end):
        left += found[i] != found[i]
    return left > 0


@kernel
def _just_below(x: float) -> float:
    return x - abs(x) * 2.0**-52 - 1e-300


@inlined
def falls(place: Places, found: Floats, first: int, end: int) -> bool:
    """Whether the entries [first, end) of a round are as `let_fall` leaves them, and none is
    NaN."""
    wrong = 0 if found[first] == found[first] else 1
    for i in range(first + 1, end):
        limit = found[i - 1] if place[i] == place[i - 1] else _just_below(found[i - 1])
        wrong += 0 if found[i] <= limit else 1
    return wrong == 0


@kernel
def let_fall(place: Places, found: Floats, first: int, end: int) -> None:
    """Enforce Theorem 5.2 to the last bit: a worse place means a worse performance.

    Two roots that are closer than a search's tolerance may come out in the wrong order. The worse
    one is then set just below the better one. (An entry that did not finish is only below all
    ranked ones.) The entries [first, end) are those of one round.
    """
    limit = math.inf
    for i in range(first, end):
        if i > first and place[i] != place[i - 1]:
            limit = _just_below(found[i - 1])
        found[i] = min(found[i], limit)
