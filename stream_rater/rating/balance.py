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

`lanes` has a row for each quantity and a column for each entry: loops along a row are what a
compiler turns into vector instructions.
"""

import math

import numpy as np

from stream_rater.rating.compiled import inlined
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.model import Floats, Places

X, P, Q, P1, P2 = range(5)
"""Rows: a performance, the sums P and Q there, and P's two derivatives."""
S, R, S1, S2 = range(5, 9)
"""The own group's parts of these."""
ODDS, STEP, GROUP = 9, 10, 11
"""(B + c T) / (W + c T), the last step of X, and the place."""
ROWS = 12

FLAT = 1e-6
"""Where f rises by less than this in 1/u of the narrowest entry, no step is to be trusted."""


@inlined
def terms(mu: float, u: float, x: float) -> tuple[float, float, float, float]:
    """u s and u t of one entry at x, and the first two derivatives of u s."""
    e = exp((mu - x) * u)
    won = u / (1.0 + e)
    lost = e * won
    slope = won * lost
    return won, lost, slope, slope * (lost - won)


@inlined
def find_odds(place: Places, u: Floats, ranked: int, tie: float, odds: Floats) -> float:
    """(B + c T) / (W + c T) of each of the first `ranked` entries; returns the weight of all."""
    total = 0.0
    for j in range(len(u)):
        total += u[j]
    better, first = 0.0, 0
    while first < ranked:
        tied, until, end = 0.0, better, first
        while end < ranked and place[end] == place[first]:
            tied += u[end]
            until += u[end]  # the very sums that made up `total`: nobody is worse than the last
            end += 1
        value = (better + tie * tied) / (total - until + tie * tied)
        for j in range(first, end):
            odds[j] = value
        better, first = until, end
    return total


@inlined
def likeness(mu: Floats, u: Floats, first: int, end: int) -> tuple[float, float]:
    """Middle and scale of the logistic distribution with the mean and variance of these entries.

    Of the ratings, and of how entries perform around them: a round's odds o lie about where
    middle - scale * ln o is.
    """
    n = end - first
    total = mean = square = 0.0
    for j in range(first, end):
        d = mu[j] - mu[first]
        total, mean, square = total + u[j], mean + u[j] * d, square + u[j] * d * d
    mean /= total
    spread = max(square / total - mean * mean, 0.0)
    return mu[first] + mean, np.sqrt(n * n / (total * total) + spread * 3.0 / math.pi**2)


@inlined
def find_own(place: Places, mu: Floats, u: Floats, lanes: Floats) -> None:
    """The own groups' parts, at X, of entries in whole groups; `place` has the ranked ones."""
    for i in range(len(mu)):
        lanes[S, i], lanes[R, i], lanes[S1, i], lanes[S2, i] = terms(mu[i], u[i], lanes[X, i])
    first = 0
    while first < len(place) - 1:
        end = first + 1
        while end < len(place) and place[end] == place[first]:
            end += 1
        if end > first + 1:
            for row in range(S, S2 + 1):
                whole = 0.0
                for j in range(first, end):
                    whole += lanes[row, j]
                for j in range(first, end):
                    lanes[row, j] = whole
        first = end


@inlined
def excess(p: float, q: float, p1: float, p2: float, odds: float) -> tuple[float, float, float]:
    """f = ln(p/q odds) and its first two derivatives, where q' = -p'."""
    above, below = 1.0 / p, 1.0 / q
    both = above + below
    return log(p * below * odds), both * p1, both * (p2 - p1 * p1 * (above - below))


@inlined
def bend_of_slope(p: float, q: float, p1: float, p2: float, p3: float) -> float:
    """The third derivative of f = ln(p/q), where q' = -p'."""
    above, below = 1.0 / p, 1.0 / q
    cubes = above * above - above * below + below * below
    return (above + below) * (p3 + p1 * (2.0 * p1 * p1 * cubes - 3.0 * p2 * (above - below)))


@inlined
def halley(f: float, f1: float, f2: float) -> float:
    """Halley's step towards f = 0, held to twice Newton's."""
    return -2.0 * f * f1 / max(2.0 * f1 * f1 - f * f2, f1 * f1)


@inlined
def step_ranked(own: float, lanes: Floats, n: int, narrow: float) -> None:
    """A step for entries [0, n), `own` times their groups' parts added; `narrow` is min 1/u."""
    for i in range(n):
        p, q = lanes[P, i] + own * lanes[S, i], lanes[Q, i] + own * lanes[R, i]
        p1, p2 = lanes[P1, i] + own * lanes[S1, i], lanes[P2, i] + own * lanes[S2, i]
        f, f1, f2 = excess(p, q, p1, p2, lanes[ODDS, i])
        lanes[STEP, i] = halley(f, f1, f2) if f1 * narrow > FLAT else math.inf


@inlined
def move(lanes: Floats, n: int, low: float, high: float, enough: float) -> int:
    """Take the steps, within (low, high); returns how many were longer than `enough`."""
    long = 0
    for i in range(n):
        lanes[X, i] = min(max(lanes[X, i] + lanes[STEP, i], low), high)
    for i in range(n):
        long += 0 if abs(lanes[STEP, i]) <= enough else 1
    return long
