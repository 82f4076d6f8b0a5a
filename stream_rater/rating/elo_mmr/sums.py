"""Solves the balance of Theorem 3.2 for all entries of a round at once.

With logistic terms, one function serves the whole round. Let P(x) be the sum of u_j s_j(x) over all
entries, and Q(x) that of u_j t_j(x), as in `performance`. For a tie group of total weight T, where
the better entries have the total weight B and the worse ones W, the balance is

    P + (2c - 1) S = W + c T,   or equivalently   Q + (2c - 1) R = B + c T,

where S and R are the group's own terms of P and Q, and c is 1 for full ties, 1/2 for split ones.
The two right sides add up to a constant, and so do the two left sides. So their quotients are
equal, too:

    f(x) = ln(P + (2c - 1) S) - ln(Q + (2c - 1) R) - ln((W + c T) / (B + c T)) = 0.

f is nearly straight in x and loses no digits in either tail. Halley's step towards its zero cubes
the error. An entry that did not finish, with all ranked entries better and none worse, solves ln(P
+ c S) - ln(c R) = 0 instead, where P is the sum over the ranked entries.

`lanes` has a row of BLOCK numbers for each quantity, with a lane for each entry. The compiler turns
loops along a row into vector instructions, because it sees that rows do not overlap.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import inlined
from stream_rater.rating.elementary import exp, log, quick_exp, quick_log, whole
from stream_rater.rating.model import Places

BLOCK = 128
"""The number of entries that are solved together: enough for any vector. Most blocks need one
step."""

X, P, Q, P1, P2, S, R, S1, S2, ODDS, STEP, MU, U, E, TABLE = range(0, 15 * BLOCK, BLOCK)
"""The offset of each row. The rows are: a performance; the sums P and Q there, and P's two
derivatives; the terms of the entry's own group in these; (B + c T) / (W + c T); the last step of X;
the entry's own mu, u and exponential; and eight rows of table values."""
LANES = 22 * BLOCK  # The number of elements of all rows.

VARIANCE_TO_SCALE = 3.0 / math.pi**2
"""The squared scale of a logistic distribution, divided by its variance."""

FLAT = 1e-3
"""Where f rises by less than this within 1/u of the narrowest entry, no step is trusted, because
the sums are right to 11 digits, and 3 of these would be lost."""


@inlined
def terms(mu: float, u: float, x: float) -> tuple[float, float, float, float]:
    """u s and u t of one entry at x, and the first two derivatives of u s."""
    return terms_of(exp((mu - x) * u), u)


@inlined
def terms_of(e: float, u: float) -> tuple[float, float, float, float]:
    """u s and u t of one entry, and the first two derivatives of u s, given e = exp((mu - x) u)."""
    won = u / (1.0 + e)
    lost = e * won
    slope = won * lost
    return won, lost, slope, slope * (lost - won)


@inlined
def are_tied(place: Places) -> bool:
    """Whether any two of these entries are tied."""
    same = 0
    for i in range(len(place) - 1):
        same += 1 if place[i] == place[i + 1] else 0
    return same > 0


@inlined
def find_odds(
    place: Places, u: Floats, ranked: int, tie: float, total: float, odds: Floats
) -> None:
    """Compute (B + c T) / (W + c T) of each of the first `ranked` entries into `odds`. `total` is
    the sum of all weights."""
    better = 0.0
    for i in range(ranked):
        until = better + u[i]  # in the order of `total`: exact for the last
        odds[i] = (better + tie * u[i]) / (total - until + tie * u[i])
        better = until
    if are_tied(place[:ranked]):  # rare; tested last because that is faster
        _find_odds_of_ties(place, u, ranked, tie, total, odds)


@inlined
def _find_odds_of_ties(
    place: Places, u: Floats, ranked: int, tie: float, total: float, odds: Floats
) -> None:
    """Do the same as `find_odds`, for tie groups of any size."""
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
    """An estimate of the x, relative to mu[0], where ln P/Q is -level, for `size` entries with
    these moments. All ratings are treated as one logistic distribution with the entries' mean and
    variance."""
    spread = max(total * square - mean * mean, 0.0) * VARIANCE_TO_SCALE
    x: float = (mean - np.sqrt(size * size + spread) * level) / total
    return x


@inlined
def enter(first: int, end: int, mu: Floats, u: Floats, odds: Floats, lanes: Floats) -> int:
    """Load entries [first, end) into lanes, with copies of the last entry up to a whole vector.
    Returns the number of lanes used."""
    n, filled = end - first, whole(end - first)
    for i in range(n):
        lanes[MU + i], lanes[U + i], lanes[ODDS + i] = mu[first + i], u[first + i], odds[first + i]
    for i in range(n, filled):
        lanes[MU + i], lanes[U + i], lanes[ODDS + i] = mu[end - 1], u[end - 1], odds[end - 1]
    return filled


@inlined
def find_own(place: Places, lanes: Floats, n: int) -> None:
    """Compute the terms of each entry's own tie group at X, for n entries. `place` has the places
    of the entries if some may be tied; otherwise it is empty."""
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
    """Halley's step towards f = 0, at most twice Newton's."""
    square = f1 * f1
    return -2.0 * f * f1 / max(fma(-f, f2, 2.0 * square), square)


@inlined
def step_ranked(own: float, lanes: Floats, n: int, narrow: float) -> None:
    """Compute the steps of entries [0, n). `own` times the terms of each entry's own group are
    added to the sums; `narrow` is min 1/u."""
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
    """The number of last steps that were longer than `enough`."""
    long = 0
    for i in range(n):
        long += 0 if abs(lanes[STEP + i]) <= enough else 1
    return long


# --- bounds and moments of a round, computed before its performances are searched -----------------

LOW, HIGH, TOTAL, WIDEST, MEAN, SQUARE = range(6)
"""The columns of `known`: the bounds of the round's performances; the sum and the maximum of u; the
sums of u d and u d^2, where d is the rating relative to the first entry."""
KNOWN = 6


@inlined
def round_bounds(mu: Floats, u: Floats, first: int, end: int, tie: float, known: Floats) -> None:
    """Compute the columns of `known` (KNOWN,) for the round with the entries [first, end). Beyond
    the bounds, a single term of one side outweighs the whole other side."""
    least, widest, total = u[first], u[first], 0.0
    low, high, mean, square = mu[first], mu[first], 0.0, 0.0
    for j in range(first, end):
        least, widest, total = min(least, u[j]), max(widest, u[j]), total + u[j]
        low, high = min(low, mu[j]), max(high, mu[j])
        d = mu[j] - mu[first]
        mean, square = mean + u[j] * d, square + u[j] * d * d
    reach = log(2.0 * total / (tie * least)) / least
    known[LOW], known[HIGH] = low - reach, high + reach
    known[TOTAL], known[WIDEST] = total, widest
    known[MEAN], known[SQUARE] = mean, square
