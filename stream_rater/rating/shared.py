"""Stage 1 in linear time: all opponents, at a cost per player that does not grow with the round.

With logistic terms one function serves the whole round. Let P(x) be the sum over all entries of
u_j s_j(x) and Q(x) that of u_j t_j(x), as in `performance`. For a tie group of total weight T, with
W the total of the worse and B that of the better entries, the balance of Theorem 3.2 reads

    P(x) + (2c - 1) S(x) = W + c T,   or just as well   Q(x) + (2c - 1) R(x) = B + c T,

where S and R are the group's own parts of P and Q, and c is 1 for full ties, 1/2 for split ones. So
P and Q are tabulated once, and each group is left with two or three steps of Newton's method on

    ln(P + (2c - 1) S) - ln(W + c T)      (or the other one, whichever's right side is smaller).

Nodes lie NODE of the narrowest scale 1/u apart. Between them L = ln(P/Q), which is nearly straight,
is the polynomial of degree 7 that matches its value and three derivatives at both ends; P and Q
follow from it without cancellation in either tail.
"""

import math

import numpy as np

from stream_rater.rating.compiled import kernel
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.model import Floats, Ints, Places
from stream_rater.rating.roots import MAX_STEPS, safeguard

NODE = 0.6
"""Distance of nodes in units of the narrowest 1/u."""

WIDEST = 600.0
"""Where nodes span more than so many of the narrowest 1/u, e at the first would overflow."""

SATURATED = 40.0
"""Beyond this |(x - mu) u| a term is 0 or u to the last bit that matters: e^-40 is 4e-18."""

TOLERANCE = 1e-4
"""A Newton step smaller than this part of the narrowest 1/u ends the search; it squares the error,
to under 1e-8 of 1/u."""

PASSES = 2
"""Newton steps that every group takes; few need more."""

COARSE = 16
"""Nodes of the first look at where performances lie."""

FLAT, NOISE = 1e-6, 1e-9
"""Where |f| < NOISE and its slope is below FLAT of the widest u, f is too flat to show its zero."""

LANES = 8
"""Nodes that e is filled for side by side."""


@kernel
def _fill(e: Floats, start: float, g: float) -> None:
    """e[k] = start * g**k."""
    g2 = g * g
    g4 = g2 * g2
    g8 = g4 * g4
    e[0], e[1], e[2], e[3] = start, start * g, start * g2, start * (g2 * g)
    for k in range(4):
        e[k + 4] = e[k] * g4
    for k in range(len(e) - LANES):
        e[k + LANES] = e[k] * g8


@kernel
def _add(e: Floats, u: float, p0: Floats, q0: Floats, p1: Floats, p2: Floats, p3: Floats) -> None:
    """Add one entry's terms of P, Q and P's three derivatives at consecutive nodes."""
    u2 = u * u
    for k in range(len(e)):
        s = 1.0 / (1.0 + e[k])
        t = e[k] * s
        d = u2 * (s * t)
        b = u * (t - s)
        p0[k] += u * s
        q0[k] += u * t
        p1[k] += d
        p2[k] += d * b
        p3[k] += d * (u2 - 6.0 * d)


@kernel
def _sums(mu: Floats, u: Floats, low: float, h: float, nodes: int) -> Floats:
    """(5, nodes): P, Q and P's first three derivatives at x_k = low + k h.

    e_k = exp(-(x_k - mu) u) falls by the same factor from node to node: no exponential inside.
    """
    sums = np.zeros((5, nodes))
    p0, q0, p1, p2, p3 = sums[0], sums[1], sums[2], sums[3], sums[4]
    e = np.empty(nodes)
    for j in range(len(mu)):
        _fill(e, exp((mu[j] - low) * u[j]), exp(-h * u[j]))
        _add(e, u[j], p0, q0, p1, p2, p3)
    return sums


@kernel
def _wide_sums(mu: Floats, u: Floats, low: float, h: float, nodes: int) -> Floats:
    """The same where the nodes span so much that most are saturated for any one entry."""
    sums = np.zeros((5, nodes))
    e = np.empty(nodes + LANES)
    won, lost = np.zeros(nodes + 1), np.zeros(nodes + 1)
    for j in range(len(mu)):
        half = SATURATED / u[j]
        first = min(max(int((mu[j] - half - low) / h), 0), nodes)
        end = min(max(int((mu[j] + half - low) / h) + 1, 0), nodes)
        _fill(e[: end - first + LANES], exp((mu[j] - low - first * h) * u[j]), exp(-h * u[j]))
        part = sums[:, first:end]
        _add(e[: end - first], u[j], part[0], part[1], part[2], part[3], part[4])
        won[end] += u[j]
        lost[first] += u[j]
    below, above = 0.0, 0.0
    for k in range(nodes):
        below += won[k]
        sums[0, k] += below
        above += lost[nodes - k]
        sums[1, nodes - 1 - k] += above
    return sums


@kernel
def tabulate(mu: Floats, u: Floats, low: float, high: float) -> tuple[Floats, float]:
    """(intervals, 8) coefficients of L = ln(P/Q) on [low, high], and the distance h of nodes.

    On interval k, at x = low + (k + r) h with r in [0, 1], L is the sum of c[k, i] r^i.
    """
    h = NODE / np.max(u)
    nodes = max(int((high - low) / h) + 2, LANES)
    if (high - low) * np.max(u) > WIDEST:
        sums = _wide_sums(mu, u, low, h, nodes)
    else:
        sums = _sums(mu, u, low, h, nodes)
    f = np.empty((4, nodes))
    for k in range(nodes):
        p, q = sums[0, k], sums[1, k]
        p1, p2, p3 = h * sums[2, k], h * h * sums[3, k], h * h * h * sums[4, k]
        a, b = p1 / p, p1 / q
        f[0, k] = log(p) - log(q)
        f[1, k] = a + b
        f[2, k] = p2 / p + p2 / q - a * a + b * b
        f[3, k] = p3 / p + p3 / q + 3.0 * p2 * (b / q - a / p) + 2.0 * (a * a * a + b * b * b)
    c = np.empty((nodes - 1, 8))
    for k in range(nodes - 1):
        c0, c1, c2, c3 = f[0, k], f[1, k], 0.5 * f[2, k], f[3, k] / 6.0
        d0 = f[0, k + 1] - (c0 + c1 + c2 + c3)
        d1 = f[1, k + 1] - (c1 + 2.0 * c2 + 3.0 * c3)
        d2 = f[2, k + 1] - (2.0 * c2 + 6.0 * c3)
        d3 = f[3, k + 1] - 6.0 * c3
        c[k, 0], c[k, 1], c[k, 2], c[k, 3] = c0, c1, c2, c3
        c[k, 4] = 35.0 * d0 - 15.0 * d1 + 2.5 * d2 - d3 / 6.0
        c[k, 5] = -84.0 * d0 + 39.0 * d1 - 7.0 * d2 + 0.5 * d3
        c[k, 6] = 70.0 * d0 - 34.0 * d1 + 6.5 * d2 - 0.5 * d3
        c[k, 7] = -20.0 * d0 + 10.0 * d1 - 2.0 * d2 + d3 / 6.0
    return c, h


@kernel
def look_up(c: Floats, low: float, h: float, x: float) -> tuple[float, float]:
    """L and dL/dx at x."""
    at = (x - low) / h
    k = min(max(int(at), 0), len(c) - 1)
    r = at - k
    value, slope = c[k, 7], 0.0
    for i in range(6, -1, -1):
        slope = slope * r + value
        value = value * r + c[k, i]
    return value, slope / h


@kernel
def _group(
    x: float, mu: Floats, u: Floats, first: int, end: int, sign: float
) -> tuple[float, float]:
    """The part of entries [first, end) in P (sign 1) or in Q (sign -1) at x, and its slope."""
    part = slope = 0.0
    for j in range(first, end):
        s = 1.0 / (1.0 + exp(sign * (mu[j] - x) * u[j]))
        part += u[j] * s
        slope += u[j] * u[j] * s * (1.0 - s)
    return part, slope


@kernel
def _newton(
    x: float, c: Floats, low: float, h: float, total: float, mu: Floats, u: Floats,
    first: int, end: int, sign: float, aim: float, tie: float,
) -> tuple[float, float, float]:  # fmt: skip
    """f = ln(P + (2 tie - 1) S) - ln(aim) at x for the group [first, end), its slope, and a step.

    With sign -1 the same of Q and R, negated, so that it rises with x all the same. The step is
    Newton's.
    """
    value, rise = look_up(c, low, h, x)
    e = exp(-sign * value)
    whole = total / (1.0 + e)
    slope = whole * (e / (1.0 + e)) * rise
    own, own_slope = _group(x, mu, u, first, end, sign)
    whole += (2.0 * tie - 1.0) * own
    slope += (2.0 * tie - 1.0) * own_slope
    f = sign * log(whole / aim)
    slope /= whole
    return f, slope, -f / slope


@kernel
def _solve(
    x: float, c: Floats, low: float, h: float, total: float, mu: Floats, u: Floats,
    first: int, end: int, sign: float, aim: float, tie: float, tolerance: float,
) -> float:  # fmt: skip
    """The performance of the tie group [first, end), searched from x with all safeguards.

    NaN where f is too flat to show its zero: after an upset over a wide gap.
    """
    below, above = low, low + h * len(c)
    last = math.inf
    for _ in range(MAX_STEPS):
        f, slope, step = _newton(x, c, low, h, total, mu, u, first, end, sign, aim, tie)
        if abs(f) < NOISE and slope * tolerance < FLAT * TOLERANCE:
            return math.nan
        if abs(step) <= tolerance:
            return x + step
        x, below, above, last = safeguard(x, f, step, below, above, last)
        if abs(last) <= tolerance * 1e-6:
            break
    return x


@kernel
def _narrowed(
    place: Places, mu: Floats, u: Floats, tie: float, low: float, high: float
) -> tuple[float, float]:
    """Bounds of the last and the first performance, from P and Q at a few nodes in (low, high)."""
    n = len(mu)
    h = (high - low) / (COARSE - 1)
    if (high - low) * np.max(u) > WIDEST:
        return low, high
    sums = _sums(mu, u, low, h, COARSE)
    best, last = 1, n - 1
    while best < n and place[best] == place[0]:
        best += 1
    while last > 0 and place[last - 1] == place[n - 1]:
        last -= 1
    above, below = COARSE - 1, 0
    while above > 1:
        own, _ = _group(low + (above - 1) * h, mu, u, 0, best, -1.0)
        if sums[1, above - 1] + (2.0 * tie - 1.0) * own > tie * np.sum(u[:best]):
            break
        above -= 1
    while below < above - 1:
        own, _ = _group(low + (below + 1) * h, mu, u, last, n, 1.0)
        if sums[0, below + 1] + (2.0 * tie - 1.0) * own > tie * np.sum(u[last:]):
            break
        below += 1
    return low + below * h, low + above * h


@kernel
def ranked_performances(
    place: Places, mu: Floats, u: Floats, ranked: int, tie: float, low: float, high: float,
    found: Floats,
) -> None:  # fmt: skip
    """The performances of the first `ranked` entries (the others did not finish) into `found`.

    NaN for a group whose balance is too flat (see `_solve`): at most one for each gap in ratings.
    """
    if ranked == len(mu):
        low, high = _narrowed(place, mu, u, tie, low, high)
    c, h = tabulate(mu, u, low, high)
    total = np.sum(u)
    tolerance = TOLERANCE / np.max(u)
    ends, sign, aim, x = _groups(place, u, ranked, tie, total, c, low, h)
    step = np.empty(len(x))
    # Groups do not depend on each other: a processor works on several at once, pass by pass.
    for _ in range(PASSES):
        first = 0
        for g in range(len(x)):
            _, slope, step[g] = _newton(
                x[g], c, low, h, total, mu, u, first, ends[g], sign[g], aim[g], tie
            )
            if slope * tolerance < FLAT * TOLERANCE:
                step[g] = math.inf  # for _solve to look into
            x[g] += min(max(step[g], -h), h)
            first = ends[g]
    first = 0
    for g in range(len(x)):
        if not abs(step[g]) <= tolerance:
            x[g] = _solve(
                min(max(x[g], low), high), c, low, h, total, mu, u, first, ends[g], sign[g],
                aim[g], tie, tolerance,
            )  # fmt: skip
        found[first : ends[g]] = x[g]
        first = ends[g]


@kernel
def _groups(
    place: Places, u: Floats, ranked: int, tie: float, total: float, c: Floats, low: float, h: float
) -> tuple[Ints, Floats, Floats, Floats]:
    """The tie groups: where each ends, which balance to solve, its right side, and a first guess.

    The guess is where L has the value it would have if half the group were on either side.
    """
    ends = np.empty(ranked, np.int64)
    sign, aim, x = np.empty(ranked), np.empty(ranked), np.empty(ranked)
    better, first, groups, k = 0.0, 0, 0, len(c) - 1
    while first < ranked:
        end, tied = first + 1, u[first]
        while end < ranked and place[end] == place[first]:
            tied += u[end]
            end += 1
        worse = max(total - better - tied, 0.0)
        ends[groups] = end
        sign[groups] = 1.0 if worse <= better else -1.0
        aim[groups] = min(worse, better) + tie * tied
        level = log((worse + 0.5 * tied) / (better + 0.5 * tied))
        while k > 0 and c[k, 0] > level:
            k -= 1
        rise = c[k + 1, 0] - c[k, 0] if k + 1 < len(c) else c[k, 1]
        x[groups] = low + h * (k + min(max((level - c[k, 0]) / rise, 0.0), 1.0))
        better += tied
        first = end
        groups += 1
    return ends[:groups], sign[:groups], aim[:groups], x[:groups]


@kernel
def unfinished_performances(
    mu: Floats, u: Floats, ranked: int, tie: float, low: float, high: float, found: Floats
) -> None:
    """The performances of entries [ranked, n), each worse than all ranked ones and beside no other.

    Its group is itself, tied; the ranked ones are all better: a table of those alone.
    """
    c, h = tabulate(mu[:ranked], u[:ranked], low, high)
    total = np.sum(u[:ranked])
    tolerance = TOLERANCE / np.max(u)
    x = low
    for i in range(ranked, len(mu)):
        x = _solve_unfinished(x, c, low, h, total, mu[i], u[i], tie, tolerance)
        found[i] = x


@kernel
def _solve_unfinished(
    x: float, c: Floats, low: float, h: float, total: float, mu: float, u: float, tie: float,
    tolerance: float,
) -> float:  # fmt: skip
    """The zero of ln(P + tie u s) - ln(tie u t): all better, but for the entry itself, tied."""
    below, above = low, low + h * len(c)
    last = math.inf
    for _ in range(MAX_STEPS):
        value, rise = look_up(c, low, h, x)
        e = exp(-value)
        whole = total / (1.0 + e)
        slope = whole * (e / (1.0 + e)) * rise
        own = exp((mu - x) * u)
        s = 1.0 / (1.0 + own)
        whole += tie * u * s
        slope += tie * u * u * s * (own * s)
        f = log(whole / (tie * u * own * s))
        step = -f / (slope / whole + u * s)
        if abs(step) <= tolerance:
            return x + step
        x, below, above, last = safeguard(x, f, step, below, above, last)
        if abs(last) <= tolerance * 1e-6:
            break
    return x
