"""P(x), Q(x) and ln(P/Q) of a whole round, tabulated once (see `balance`).

Nodes lie a part of the narrowest scale 1/u apart (NODE). From one to the next each entry's
exp(-(x - mu) u) falls by the same factor, so there is no exponential inside. Between nodes
L = ln(P/Q), which is nearly straight, is the polynomial of degree 7 that matches its value and
three derivatives at both ends; P and Q follow from it without cancellation in either tail. L has
singularities only where P or Q is zero, a distance of about pi/u from the real axis, so the error
falls with the eighth power of the nodes' distance h: it is about (h u / 2 pi)^8 / 8 of 1/u.
"""

import numpy as np

from stream_rater.rating.compiled import inlined
from stream_rater.rating.elementary import log, quick_exp
from stream_rater.rating.model import Floats
from stream_rater.rating.vectors import VECTOR, aligned, whole

NODE = 0.78
"""Most distance of nodes in units of the narrowest 1/u: performances err by 2e-6 points at most in
the benchmark's rounds, and by less than 2e-5 where ratings are two crowds far apart (the tests)."""

SPARE = 0.5
"""What fills up the last vector of nodes widens a table by so many of the narrowest 1/u at either
end at most; the rest of it brings the nodes closer together."""

WIDEST = 300.0
"""Where nodes span more than so many of the narrowest 1/u, two e's at the first would overflow."""

SATURATED = 40.0
"""Beyond this |(x - mu) u| a term is 0 or u to the last bit that matters: e^-40 is 4e-18."""

SIXTH = 1.0 / 6.0

COARSE = 8
"""Nodes of the first look at where performances lie."""

BATCH = 16
"""Entries whose ladders are filled before they are added: what is stored should have settled."""

ROWS = 5 + BATCH
"""Scratch for each node: 5 sums, and ladders that make room for 4 derivatives, 8 coefficients of L
and 4 of its inverse."""

SCRATCH = ROWS * 128 + BATCH
"""Scratch that suffices for most tables."""


@inlined
def _begin(e: Floats, distance: float, step: float) -> None:
    """e[k] = exp(distance - k step) for the first VECTOR nodes."""
    for k in range(len(e)):
        e[k] = quick_exp(distance - k * step)


@inlined
def _extend(e: Floats, factor: float) -> None:
    """The same for the others: VECTOR nodes on, e is `factor` times as large."""
    for k in range(len(e) - VECTOR):
        e[k + VECTOR] = e[k] * factor


@inlined
def _add(e: Floats, u: float, p0: Floats, q0: Floats, p1: Floats, p2: Floats, p3: Floats) -> None:
    """Add one entry's terms of P, Q and P's three derivatives at consecutive nodes."""
    u2 = u * u
    for k in range(len(e)):
        won = u / (1.0 + e[k])
        lost = e[k] * won
        slope = won * lost
        p0[k] += won
        q0[k] += lost
        p1[k] += slope
        p2[k] += slope * (lost - won)
        p3[k] += slope * (u2 - 6.0 * slope)


@inlined
def _add_two(
    e: Floats, f: Floats, u: float, v: float, p0: Floats, q0: Floats, p1: Floats, p2: Floats,
    p3: Floats,
) -> None:  # fmt: skip
    """The same for two entries, whose quotients share a division."""
    u2, v2 = u * u, v * v
    for k in range(len(e)):
        one, other = 1.0 + e[k], 1.0 + f[k]
        both = 1.0 / (one * other)
        won, won_too = u * (other * both), v * (one * both)
        lost, lost_too = e[k] * won, f[k] * won_too
        slope, slope_too = won * lost, won_too * lost_too
        p0[k] += won + won_too
        q0[k] += lost + lost_too
        p1[k] += slope + slope_too
        p2[k] += slope * (lost - won) + slope_too * (lost_too - won_too)
        p3[k] += slope * (u2 - 6.0 * slope) + slope_too * (v2 - 6.0 * slope_too)


@inlined
def _add_values(e: Floats, f: Floats, u: float, v: float, p: Floats, q: Floats) -> None:
    """Add two entries' terms of P and Q alone."""
    for k in range(len(e)):
        one, other = 1.0 + e[k], 1.0 + f[k]
        both = 1.0 / (one * other)
        won, won_too = u * (other * both), v * (one * both)
        p[k] += won + won_too
        q[k] += e[k] * won + f[k] * won_too


@inlined
def _ladders(
    mu: Floats, u: Floats, low: float, h: float, first: int, end: int, e: Floats, g: Floats
) -> None:
    """exp(-(x - mu) u) of entries [first, end) at x_k = low + k h, a row of e each."""
    n = end - first
    for j in range(n):
        g[j] = quick_exp(-VECTOR * h * u[first + j])
    for j in range(n):
        _begin(e[j, :VECTOR], (mu[first + j] - low) * u[first + j], h * u[first + j])
    for j in range(n):
        _extend(e[j], g[j])
    if n % 2 == 1:
        e[n] = 1.0  # who makes up the pair weighs nothing


@inlined
def _rows(scratch: Floats, first: int, count: int, nodes: int) -> Floats:
    """(count, nodes): a part of `scratch`, from its row `first` on."""
    return scratch[first * nodes : (first + count) * nodes].reshape((count, nodes))


@inlined
def coarse_sums(mu: Floats, u: Floats, low: float, h: float, nodes: int, scratch: Floats) -> Floats:
    """(2, nodes): P and Q at x_k = low + k h."""
    sums, e, g = _rows(scratch, 0, 2, nodes), _rows(scratch, 2, BATCH, nodes), scratch[-BATCH:]
    sums[:] = 0.0
    p, q = sums[0], sums[1]
    for first in range(0, len(mu), BATCH):
        end = min(first + BATCH, len(mu))
        _ladders(mu, u, low, h, first, end, e, g)
        for j in range(0, end - first, 2):
            v = u[first + j + 1] if first + j + 1 < end else 0.0
            _add_values(e[j], e[j + 1], u[first + j], v, p, q)
    return sums


@inlined
def _sums(mu: Floats, u: Floats, low: float, h: float, nodes: int, scratch: Floats) -> Floats:
    """(5, nodes): P, Q and P's first three derivatives at x_k = low + k h."""
    sums, e, g = _rows(scratch, 0, 5, nodes), _rows(scratch, 5, BATCH, nodes), scratch[-BATCH:]
    sums[:] = 0.0
    p0, q0, p1, p2, p3 = sums[0], sums[1], sums[2], sums[3], sums[4]
    for first in range(0, len(mu), BATCH):
        end = min(first + BATCH, len(mu))
        _ladders(mu, u, low, h, first, end, e, g)
        for j in range(0, end - first, 2):
            v = u[first + j + 1] if first + j + 1 < end else 0.0
            _add_two(e[j], e[j + 1], u[first + j], v, p0, q0, p1, p2, p3)
    return sums


@inlined
def _wide_sums(mu: Floats, u: Floats, low: float, h: float, nodes: int) -> Floats:
    """The same where the nodes span so much that most are saturated for any one entry."""
    sums = np.zeros((5, nodes))
    e = np.empty(nodes + VECTOR)
    won, lost = np.zeros(nodes + 1), np.zeros(nodes + 1)
    for j in range(len(mu)):
        half = SATURATED / u[j]
        first = min(max(int((mu[j] - half - low) / h), 0), nodes)
        end = min(max(int((mu[j] + half - low) / h) + 1, 0), nodes)
        _begin(e[:VECTOR], (mu[j] - low - first * h) * u[j], h * u[j])
        _extend(e[: end - first + VECTOR], quick_exp(-VECTOR * h * u[j]))
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


@inlined
def _differentiate(sums: Floats, h: float, f: Floats) -> None:
    """L and its first three derivatives with respect to x/h into f (4, nodes)."""
    for k in range(sums.shape[1]):
        p, q = sums[0, k], sums[1, k]
        one = 1.0 / (p * q)
        above, below = q * one, p * one
        p1, p2, p3 = h * sums[2, k], h * h * sums[3, k], h * h * h * sums[4, k]
        both, apart = above + below, above - below
        rise = p1 * p1
        f[0, k] = log(p * below)
        f[1, k] = both * p1
        f[2, k] = both * (p2 - rise * apart)
        cubes = above * above - above * below + below * below
        f[3, k] = both * (p3 - 3.0 * p1 * p2 * apart + 2.0 * p1 * rise * cubes)


@inlined
def tabulate(
    mu: Floats, u: Floats, low: float, high: float, narrow: float, scratch: Floats
) -> tuple[Floats, Floats, float, float]:
    """(8, nodes) coefficients of L = ln(P/Q) on [low, high] at least, where they begin, and the
    distance h of nodes.

    On interval k, at x = low + (k + r) h with r in [0, 1], L is the sum of c[i, k] r^i. Before
    `low`, (4, nodes) coefficients for `guess`. The last node begins no interval.
    """
    nodes = whole(int((high - low) / (NODE * narrow)) + 2)
    spare = min(0.5 * ((nodes - 1) * NODE * narrow - (high - low)), SPARE * narrow)
    low, high = low - spare, high + spare
    h = (high - low) / (nodes - 1)
    wide = nodes + VECTOR  # room for a look at the node after the last
    if len(scratch) < ROWS * wide + BATCH:
        scratch = aligned(ROWS * wide + BATCH)
    f, back = _rows(scratch, 5, 4, wide), _rows(scratch, 17, 4, wide)
    c = scratch[9 * wide : 9 * wide + 8 * nodes].reshape((8, nodes))
    if high - low > WIDEST * narrow:
        _differentiate(_wide_sums(mu, u, low, h, nodes), h, f)
    else:
        _differentiate(_sums(mu, u, low, h, nodes, scratch), h, f)
    f[:, nodes] = 0.0
    _join(f, c)
    _invert(f, nodes, back)
    return c, back, low, h


@inlined
def _join(f: Floats, c: Floats) -> None:
    """The polynomials that have L and three derivatives in common with f at both ends."""
    for k in range(c.shape[1]):
        c0, c1, c2, c3 = f[0, k], f[1, k], 0.5 * f[2, k], f[3, k] * SIXTH
        d0 = f[0, k + 1] - (c0 + c1 + c2 + c3)
        d1 = f[1, k + 1] - (c1 + 2.0 * c2 + 3.0 * c3)
        d2 = f[2, k + 1] - (2.0 * c2 + 6.0 * c3)
        d3 = f[3, k + 1] - 6.0 * c3
        c[0, k], c[1, k], c[2, k], c[3, k] = c0, c1, c2, c3
        c[4, k] = 35.0 * d0 - 15.0 * d1 + 2.5 * d2 - d3 * SIXTH
        c[5, k] = -84.0 * d0 + 39.0 * d1 - 7.0 * d2 + 0.5 * d3
        c[6, k] = 70.0 * d0 - 34.0 * d1 + 6.5 * d2 - 0.5 * d3
        c[7, k] = -20.0 * d0 + 10.0 * d1 - 2.0 * d2 + d3 * SIXTH


@inlined
def _invert(f: Floats, nodes: int, back: Floats) -> None:
    """For each interval L at its lower end, 1 / its rise, and how much the inverse function's
    slopes at both ends exceed that, as parts of it."""
    for k in range(nodes):
        rise = f[0, k + 1] - f[0, k]
        back[0, k], back[1, k] = f[0, k], 1.0 / rise
        back[2, k], back[3, k] = rise / f[1, k] - 1.0, rise / f[1, k + 1] - 1.0


@inlined
def guess(value: float, least: float, inverse: float, first: float, last: float) -> float:
    """About where on an interval, in [0, 1], L is `value`: a cubic through both of its ends."""
    r: float = min(max((value - least) * inverse, 0.0), 1.0)
    r += r * (1.0 - r) * (first * (1.0 - r) - last * r)
    return min(max(r, 0.0), 1.0)


@inlined
def interval(low: float, scale: float, last: int, x: float) -> tuple[int, float]:
    """On which interval x is, of those up to `last`, and where on it; scale is 1/h."""
    at = (x - low) * scale
    k = min(max(int(at), 0), last)
    return k, at - k


@inlined
def polynomial(
    c0: float, c1: float, c2: float, c3: float, c4: float, c5: float, c6: float, c7: float,
    r: float,
) -> tuple[float, float, float]:  # fmt: skip
    """The sum of c_i r^i and its first two derivatives."""
    r2 = r * r
    r4 = r2 * r2
    value = (c0 + c1 * r) + (c2 + c3 * r) * r2 + ((c4 + c5 * r) + (c6 + c7 * r) * r2) * r4
    slope = (c1 + 2.0 * c2 * r) + (3.0 * c3 + 4.0 * c4 * r) * r2
    slope += ((5.0 * c5 + 6.0 * c6 * r) + 7.0 * c7 * r2) * r4
    bend = (2.0 * c2 + 6.0 * c3 * r) + (12.0 * c4 + 20.0 * c5 * r) * r2
    bend += (30.0 * c6 + 42.0 * c7 * r) * r4
    return value, slope, bend


@inlined
def look_up(c: Floats, low: float, h: float, x: float) -> tuple[float, float, float]:
    """L and its first two derivatives at x."""
    scale = 1.0 / h
    k, r = interval(low, scale, c.shape[1] - 2, x)
    value, slope, bend = polynomial(
        c[0, k], c[1, k], c[2, k], c[3, k], c[4, k], c[5, k], c[6, k], c[7, k], r
    )
    return value, slope * scale, bend * (scale * scale)
