"""The balance of Theorem 3.2 for all entries of a round, side by side.

With logistic terms one function serves the whole round. Let P(x) be the sum over all entries of
u_j s_j(x) and Q(x) that of u_j t_j(x), as in `performance`. For a tie group of total weight T, with
B the total of the better and W that of the worse entries, the balance reads

    P + (2c - 1) S = W + c T,   or just as well   Q + (2c - 1) R = B + c T,

where S and R are the group's own parts of P and Q, and c is 1 for full ties, 1/2 for split ones.
The two right sides add up to a constant, as the left ones do, so the quotient says the same:

    f(x) = ln(P + (2c - 1) S) - ln(Q + (2c - 1) R) - ln((W + c T) / (B + c T)) = 0,

which is nearly straight in x and loses no digits in either tail. Halley's step towards its zero
cubes the error. An entry that did not finish, with all ranked ones better and none worse, solves
ln(P + c S) - ln(c R) = 0 instead, P being that of the ranked.

`lanes` has a row of BLOCK for each quantity and a lane for each entry: loops along a row are what a
compiler turns into vector instructions, and it sees that rows lie apart.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import inlined
from stream_rater.rating.elementary import exp, quick_exp, quick_log
from stream_rater.rating.fused import fma
from stream_rater.rating.model import Places
from stream_rater.rating.vectors import whole

BLOCK = 128
"""Entries side by side: enough for any vector, and most blocks need one step."""

X, P, Q, P1, P2, S, R, S1, S2, ODDS, STEP, MU, U, E, TABLE = range(0, 15 * BLOCK, BLOCK)
"""Where a row begins: a performance; the sums P and Q there, and P's two derivatives; the own
group's parts of these; (B + c T) / (W + c T); the last step of X; the entry's own mu, u and
exponential; and eight for what a table has for each lane."""
LANES = 22 * BLOCK
"""Room for all rows."""

VARIANCE_TO_SCALE = 3.0 / math.pi**2
"""Squared scale of a logistic distribution, of its variance."""

FLAT = 1e-3
"""Where f rises by less than this in 1/u of the narrowest entry, no step is to be trusted: the sums
are right to 11 digits, and 3 of these would be lost."""


@inlined
def terms(mu: float, u: float, x: float) -> tuple[float, float, float, float]:
    """u s and u t of one entry at x, and the first two derivatives of u s."""
    return terms_of(exp((mu - x) * u), u)


@inlined
def terms_of(e: float, u: float) -> tuple[float, float, float, float]:
    """The same where exp((mu - x) u) is e."""
    won = u / (1.0 + e)
    lost = e * won
    slope = won * lost
    return won, lost, slope, slope * (lost - won)


@inlined
def are_tied(place: Places) -> bool:
    """Whether any two of these entries are."""
    same = 0
    for i in range(len(place) - 1):
        same += 1 if place[i] == place[i + 1] else 0
    return same > 0


@inlined
def find_odds(
    place: Places, u: Floats, ranked: int, tie: float, total: float, odds: Floats
) -> None:
    """(B + c T) / (W + c T) of each of the first `ranked` entries; `total` is the weight of all."""
    better = 0.0
    for i in range(ranked):
        until = better + u[i]  # the very sums that made up `total`: nobody is worse than the last
        odds[i] = (better + tie * u[i]) / (total - until + tie * u[i])
        better = until
    if are_tied(place[:ranked]):  # rarely; small rounds would take longer, were this asked first
        _find_odds_of_ties(place, u, ranked, tie, total, odds)


@inlined
def _find_odds_of_ties(
    place: Places, u: Floats, ranked: int, tie: float, total: float, odds: Floats
) -> None:
    """The same for groups of any size."""
    better, first = 0.0, 0
    while first < ranked:
        tied, until, end = 0.0, better, first
        while end < ranked and place[end] == place[first]:
            tied += u[end]
            until += u[end]
            end += 1
        value = (better + tie * tied) / (total - until + tie * tied)
        for j in range(first, end):
            odds[j] = value
        better, first = until, end


@inlined
def moments(mu: Floats, u: Floats, first: int, end: int) -> tuple[float, float, float]:
    """Sums over entries [first, end) of u, u d and u d^2; d is the distance from mu[0]."""
    total = mean = square = 0.0
    for i in range(first, end):
        d = mu[i] - mu[0]
        total, mean, square = total + u[i], mean + u[i] * d, square + u[i] * d * d
    return total, mean, square


@inlined
def likely(level: float, size: float, total: float, mean: float, square: float) -> float:
    """About where ln P/Q of so many entries with these moments is -level, seen from mu[0].

    All ratings are taken for one logistic distribution of the entries' mean and variance.
    """
    spread = max(total * square - mean * mean, 0.0) * VARIANCE_TO_SCALE
    x: float = (mean - np.sqrt(size * size + spread) * level) / total
    return x


@inlined
def enter(first: int, end: int, mu: Floats, u: Floats, odds: Floats, lanes: Floats) -> int:
    """Let entries [first, end) have a lane each, the last one all that fill up the last vector.

    Returns how many lanes are taken.
    """
    n, filled = end - first, whole(end - first)
    for i in range(n):
        lanes[MU + i], lanes[U + i], lanes[ODDS + i] = mu[first + i], u[first + i], odds[first + i]
    for i in range(n, filled):
        lanes[MU + i], lanes[U + i], lanes[ODDS + i] = mu[end - 1], u[end - 1], odds[end - 1]
    return filled


@inlined
def find_own(place: Places, lanes: Floats, n: int) -> None:
    """The own groups' parts, at X, of n entries; `place` has those that may be tied, or none."""
    for i in range(n):
        lanes[E + i] = quick_exp((lanes[MU + i] - lanes[X + i]) * lanes[U + i])
    for i in range(n):
        lanes[S + i], lanes[R + i], lanes[S1 + i], lanes[S2 + i] = terms_of(
            lanes[E + i], lanes[U + i]
        )
    first = 0
    while first < len(place) - 1:
        end = first + 1
        while end < len(place) and place[end] == place[first]:
            end += 1
        if end > first + 1:
            for row in (S, R, S1, S2):
                whole_group = 0.0
                for j in range(first, end):
                    whole_group += lanes[row + j]
                for j in range(first, end):
                    lanes[row + j] = whole_group
        first = end


@inlined
def excess(p: float, q: float, p1: float, p2: float, odds: float) -> tuple[float, float, float]:
    """f = ln(p/q odds) and its first two derivatives, where q' = -p'."""
    one = 1.0 / (p * q)
    above, below = q * one, p * one
    both = above + below
    return quick_log(p * below * odds), both * p1, both * fma(-p1 * p1, above - below, p2)


@inlined
def bend_of_slope(p: float, q: float, p1: float, p2: float, p3: float) -> float:
    """The third derivative of f = ln(p/q), where q' = -p'."""
    one = 1.0 / (p * q)
    above, below = q * one, p * one
    apart = above - below
    cubes = fma(apart, apart, above * below)
    third: float = (above + below) * fma(p1, fma(2.0 * p1 * p1, cubes, -3.0 * p2 * apart), p3)
    return third


@inlined
def halley(f: float, f1: float, f2: float) -> float:
    """Halley's step towards f = 0, held to twice Newton's."""
    square = f1 * f1
    return -2.0 * f * f1 / max(fma(-f, f2, 2.0 * square), square)


@inlined
def step_ranked(own: float, lanes: Floats, n: int, narrow: float) -> None:
    """A step for entries [0, n), `own` times their groups' parts added; `narrow` is min 1/u."""
    for i in range(n):
        p, q = fma(own, lanes[S + i], lanes[P + i]), fma(own, lanes[R + i], lanes[Q + i])
        p1, p2 = fma(own, lanes[S1 + i], lanes[P1 + i]), fma(own, lanes[S2 + i], lanes[P2 + i])
        f, f1, f2 = excess(p, q, p1, p2, lanes[ODDS + i])
        lanes[STEP + i] = halley(f, f1, f2) if f1 * narrow > FLAT else math.inf


@inlined
def move(lanes: Floats, n: int, low: float, high: float) -> None:
    """Take the steps, within (low, high)."""
    for i in range(n):
        lanes[X + i] = min(max(lanes[X + i] + lanes[STEP + i], low), high)


@inlined
def count_long(lanes: Floats, n: int, enough: float) -> int:
    """How many of the last steps were longer than `enough`."""
    long = 0
    for i in range(n):
        long += 0 if abs(lanes[STEP + i]) <= enough else 1
    return long
