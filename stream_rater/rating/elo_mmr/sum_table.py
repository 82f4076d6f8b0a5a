"""Tabulates P(x), Q(x) and L = ln(P/Q) of a whole round once (see `sums`).

Nodes are at most NODE times the narrowest scale 1/u apart. From one node to the next, exp(-(x - mu)
u) of each entry changes by a constant factor, so the loop needs no exponential. Between nodes, L is
nearly straight and is approximated by the polynomial of degree 7 that matches its value and three
derivatives at both ends. P and Q follow from L without cancellation in either tail. L has
singularities only where P or Q is zero, about pi/u from the real axis, so the error falls with the
eighth power of the distance h of nodes: it is about (h u / 2 pi)^8 / 8 of 1/u.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating.elementary import VECTOR, aligned, exp, log, quick_exp, whole
from stream_rater.rating.elo_mmr.sums import bend_of_slope, excess
from stream_rater.rating.roots import SIXTH

NODE = 0.8
"""The largest distance of nodes, in units of the narrowest 1/u. Performances then err by at most
2e-6 points in the benchmark's rounds, and by less than 2e-5 if ratings are two groups far apart
(the tests)."""

SPARE = 0.5
"""The most by which a table is widened at either end, in units of the narrowest 1/u, when its
number of nodes is rounded up to whole vectors. Any further surplus brings the nodes closer
together."""

WIDEST = 300.0
"""The widest table, in units of the narrowest 1/u, for which a product of two exponentials at the
first node does not overflow."""

SATURATED = 40.0
"""Beyond this |(x - mu) u|, a term is 0 or u to the last bit that matters: e^-40 is 4e-18."""

COARSE = 8  # The number of nodes of the first, coarse sums, which show where performances lie.

BATCH = 16
"""The number of entries whose exponentials are written before they are added, so that the stores
have completed before they are read."""

ROWS = 5 + BATCH
"""The rows of scratch space for each node: 5 sums, and the exponentials of a batch. Later, 4
coefficients of L and 4 of its inverse overwrite the exponentials."""

LEVELS, INVERSE = 5, 9
"""The first row of L's coefficients, and the first row of its inverse's, after `tabulate`."""


@inlined
def _begin(e: Floats, distance: float, step: float) -> None:
    """Set e[k] to exp(distance - k step) for the first VECTOR nodes."""
    for k in range(len(e)):
        e[k] = quick_exp(distance - k * step)


@inlined
def _extend(e: Floats, factor: float) -> None:
    """Fill e beyond the first VECTOR nodes. Each value is `factor` times the value VECTOR nodes
    before."""
    for k in range(len(e) - VECTOR):
        e[k + VECTOR] = e[k] * factor


@inlined
def _with_terms(
    won: float, lost: float, u2: float, p0: float, q0: float, p1: float, p2: float, p3: float
) -> tuple[float, float, float, float, float]:
    """Add one entry's terms to P, Q and P's three derivatives; u2 is its u squared."""
    slope = won * lost
    bend, twist = fma(slope, lost - won, p2), fma(slope, fma(-6.0, slope, u2), p3)
    return p0 + won, q0 + lost, p1 + slope, bend, twist


@inlined
def won_by_two(e: float, f: float, u: float, v: float) -> tuple[float, float]:
    """u / (1 + e) and v / (1 + f), by a single division."""
    one, other = 1.0 + e, 1.0 + f
    both = 1.0 / (one * other)
    return u * (other * both), v * (one * both)


@inlined
def _add(e: Floats, u: float, p0: Floats, q0: Floats, p1: Floats, p2: Floats, p3: Floats) -> None:
    """Add one entry's terms at consecutive nodes."""
    for k in range(len(e)):
        won = u / (1.0 + e[k])
        p0[k], q0[k], p1[k], p2[k], p3[k] = _with_terms(
            won, e[k] * won, u * u, p0[k], q0[k], p1[k], p2[k], p3[k]
        )


@inlined
def _add_two(
    e: Floats, f: Floats, u: float, v: float, p0: Floats, q0: Floats, p1: Floats, p2: Floats,
    p3: Floats,
) -> None:  # fmt: skip
    """Add two entries' terms at consecutive nodes."""
    for k in range(len(e)):
        won, won_too = won_by_two(e[k], f[k], u, v)
        sums = _with_terms(won, e[k] * won, u * u, p0[k], q0[k], p1[k], p2[k], p3[k])
        p0[k], q0[k], p1[k], p2[k], p3[k] = _with_terms(won_too, f[k] * won_too, v * v, *sums)


@inlined
def _add_values(e: Floats, f: Floats, u: float, v: float, p: Floats, q: Floats) -> None:
    """Add two entries' terms of P and Q alone."""
    for k in range(len(e)):
        won, won_too = won_by_two(e[k], f[k], u, v)
        p[k] += won + won_too
        q[k] = fma(f[k], won_too, fma(e[k], won, q[k]))


@inlined
def _ladders(
    mu: Floats, u: Floats, low: float, h: float, first: int, end: int, e: Floats, g: Floats
) -> None:
    """Compute exp(-(x - mu) u) of entries [first, end) at x_k = low + k h, one row of e for each
    entry."""
    n = end - first
    for j in range(n):
        g[j] = quick_exp(-VECTOR * h * u[first + j])
    for j in range(n):
        _begin(e[j, :VECTOR], (mu[first + j] - low) * u[first + j], h * u[first + j])
    for j in range(n):
        _extend(e[j], g[j])
    if n % 2 == 1:
        e[n] = 1.0  # the other half of the last pair has no weight


@inlined
def coarse_sums(mu: Floats, u: Floats, low: float, h: float, nodes: int, scratch: Floats) -> None:
    """Compute P and Q at x_k = low + k h, into the first two rows of `nodes` in `scratch`."""
    e, g = scratch[2 * nodes :][: BATCH * nodes].reshape((BATCH, nodes)), scratch[-BATCH:]
    p, q = scratch[:nodes], scratch[nodes : 2 * nodes]
    p[:], q[:] = 0.0, 0.0
    for first in range(0, len(mu), BATCH):
        end = min(first + BATCH, len(mu))
        _ladders(mu, u, low, h, first, end, e, g)
        for j in range(0, end - first, 2):
            v = u[first + j + 1] if first + j + 1 < end else 0.0
            _add_values(e[j], e[j + 1], u[first + j], v, p, q)


@inlined
def _sum(mu: Floats, u: Floats, low: float, h: float, nodes: int, scratch: Floats) -> None:
    """Compute P, Q and P's first three derivatives at x_k = low + k h, in rows of `scratch`."""
    sums = scratch[: 5 * nodes].reshape((5, nodes))
    e, g = scratch[5 * nodes :][: BATCH * nodes].reshape((BATCH, nodes)), scratch[-BATCH:]
    sums[:] = 0.0
    p0, q0, p1, p2, p3 = sums[0], sums[1], sums[2], sums[3], sums[4]
    for first in range(0, len(mu), BATCH):
        end = min(first + BATCH, len(mu))
        _ladders(mu, u, low, h, first, end, e, g)
        for j in range(0, end - first, 2):
            v = u[first + j + 1] if first + j + 1 < end else 0.0
            _add_two(e[j], e[j + 1], u[first + j], v, p0, q0, p1, p2, p3)


@inlined
def _sum_widely(
    mu: Floats, u: Floats, low: float, h: float, nodes: int, scratch: Floats
) -> None:  # fmt: skip
    """Compute the sums of `_sum` over so wide a range that most terms are saturated."""
    sums = scratch[: 5 * nodes].reshape((5, nodes))
    won, lost = scratch[5 * nodes : 6 * nodes + 1], scratch[6 * nodes + 1 : 7 * nodes + 2]
    e = scratch[7 * nodes + 2 : 8 * nodes + 2 + VECTOR]
    sums[:] = 0.0
    won[:], lost[:] = 0.0, 0.0
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


@inlined
def _differentiate(sums: Floats, h: float, f: Floats) -> None:
    """Compute L's Taylor coefficients, up to the third, in units of h at each node, into f (4,
    nodes)."""
    for k in range(sums.shape[1]):
        p, q = sums[0, k], sums[1, k]
        p1, p2, p3 = h * sums[2, k], h * h * sums[3, k], h * h * h * sums[4, k]
        value, rise, bend = excess(p, q, p1, p2, 1.0)
        f[0, k], f[1, k], f[2, k] = value, rise, 0.5 * bend
        f[3, k] = SIXTH * bend_of_slope(p, q, p1, p2, p3)


@inlined
def _nodes(span: float, narrow: float) -> int:
    """The number of nodes for a table of this width."""
    return whole(int(span / (NODE * narrow)) + 2)


@inlined
def room(span: float, narrow: float) -> int:
    """The most scratch space that a table of this width needs."""
    return ROWS * (_nodes(span, narrow) + VECTOR) + BATCH


@inlined
def tabulate(
    mu: Floats, u: Floats, low: float, high: float, narrow: float, scratch: Floats
) -> tuple[int, int, float, float]:
    """Tabulate L = ln(P/Q) on at least [low, high]. Returns the number of nodes, the length of a
    row, the first node, and the distance h of nodes.

    `scratch` (see `room`) then has (4, nodes) Taylor coefficients of L from row LEVELS on, and the
    coefficients for `guess` from row INVERSE on. In interval k, x = low + (k + r) h with r in [0,
    1]; the last node begins no interval.
    """
    nodes = _nodes(high - low, narrow)
    spare = min(0.5 * ((nodes - 1) * NODE * narrow - (high - low)), SPARE * narrow)
    low, high = low - spare, high + spare
    h = (high - low) / (nodes - 1)
    wide = nodes + VECTOR  # room for reads beyond the last node
    assert len(scratch) >= ROWS * wide + BATCH, "a table has the room that it takes"
    if high - low > WIDEST * narrow:
        _sum_widely(mu, u, low, h, nodes, scratch)
    else:
        _sum(mu, u, low, h, nodes, scratch)
    f = scratch[LEVELS * wide : INVERSE * wide].reshape((4, wide))
    _differentiate(scratch[: 5 * nodes].reshape((5, nodes)), h, f)
    f[0, nodes] = f[1, nodes] = 0.0
    _invert(f, nodes, scratch[INVERSE * wide : (INVERSE + 4) * wide].reshape((4, wide)))
    return nodes, wide, low, h


@inlined
def _invert(f: Floats, nodes: int, back: Floats) -> None:
    """For each interval, compute four numbers into `back`: L at its lower end, 1 / the rise of L,
    and the relative excess over the latter of the inverse function's slopes at both ends."""
    for k in range(nodes):
        rise = f[0, k + 1] - f[0, k]
        back[0, k], back[1, k] = f[0, k], 1.0 / rise
        back[2, k], back[3, k] = rise / f[1, k] - 1.0, rise / f[1, k + 1] - 1.0
    for k in range(nodes, back.shape[1]):
        back[0, k] = math.inf  # no value is beyond the last node


@inlined
def guess(value: float, least: float, inverse: float, first: float, last: float) -> float:
    """An estimate of the position in an interval, in [0, 1], where L is `value`, by a cubic through
    both ends."""
    r: float = min(max((value - least) * inverse, 0.0), 1.0)
    left = 1.0 - r
    r = fma(r * left, fma(first, left, -last * r), r)
    return min(max(r, 0.0), 1.0)


@inlined
def interval(low: float, scale: float, last: int, x: float) -> tuple[int, float]:
    """The index of the interval that contains x, at most `last`, and the position of x in it, in
    units of h; `scale` is 1/h."""
    at = (x - low) * scale
    k = min(max(int(at), 0), last)
    return k, at - k


@inlined
def between(
    a0: float, a1: float, a2: float, a3: float, b0: float, b1: float, b2: float, b3: float,
    r: float,
) -> tuple[float, float, float]:  # fmt: skip
    """The polynomial of degree 7 with Taylor coefficients a at 0 and b at 1: its value at r and its
    first two derivatives.

    With s = r - 1, it has Newton's form: a0 + a1 r + a2 r^2 + a3 r^3 + r^4 (c0 + c1 s + c2 s^2 +
    c3 s^3). Here c is the part of b that the terms with a do not give, divided by r^4 = (1 + s)^4.
    """
    c0, e1 = b0 - (a0 + a1 + (a2 + a3)), b1 - fma(3.0, a3, fma(2.0, a2, a1))
    e2, e3 = b2 - fma(3.0, a3, a2), b3 - a3
    c1, c2 = fma(-4.0, c0, e1), fma(10.0, c0, fma(-4.0, e1, e2))
    c3 = fma(-20.0, c0, fma(10.0, e1, fma(-4.0, e2, e3)))
    s = r - 1.0
    bend, slope, value = c3, fma(c3, s, fma(c3, s, c2)), fma(fma(c3, s, c2), s, c1)
    bend, slope, value = fma(bend, s, slope), fma(slope, s, value), fma(value, s, c0)
    bend, slope, value = fma(bend, r, slope), fma(slope, r, value), fma(value, r, a3)
    bend, slope, value = fma(bend, r, slope), fma(slope, r, value), fma(value, r, a2)
    bend, slope, value = fma(bend, r, slope), fma(slope, r, value), fma(value, r, a1)
    return fma(value, r, a0), fma(slope, r, value), 2.0 * fma(bend, r, slope)


@inlined
def look_up(f: Floats, low: float, h: float, x: float) -> tuple[float, float, float]:
    """L and its first two derivatives at x."""
    scale = 1.0 / h
    k, r = interval(low, scale, f.shape[1] - 2, x)
    value, slope, bend = between(
        f[0, k], f[1, k], f[2, k], f[3, k], f[0, k + 1], f[1, k + 1], f[2, k + 1], f[3, k + 1], r
    )
    return value, slope * scale, bend * (scale * scale)


# --- log odds against all opponents, for other systems --------------------------------------------
#
# The opponents' terms are logistic, with s_j(x) = 1 / (1 + e^(-(x - mu_j) u_j)). P(x) is the sum of
# u_j s_j(x), and Q(x) is the sum of u_j (1 - s_j(x)). Their log odds L = ln(P/Q) are tabulated once
# for a round. P / (P + Q) = 1 / (1 + e^-L) follows without loss of precision in either tail.

FEW = 32  # In rounds of up to this many entries, the sums are computed again for each entry.

CLOSER = 0.6
"""The distance between nodes is this fraction of that of Elo-MMR, which makes L 60 times as exact.
Between ratings that are far apart L is flat, so an error in L becomes a larger one in x."""


@kernel
def table_of(mu: Floats, u: Floats, low: float, high: float) -> tuple[Floats, float, float]:
    """A table of L on [low, high], its first node, and the distance between nodes. The table is
    empty where it would not pay: in small rounds, and where [low, high] is too many scales 1/u
    wide."""
    narrow = CLOSER / np.max(u)
    if len(mu) <= FEW or high - low > WIDEST * narrow:
        return np.empty((0, 0)), low, 1.0
    scratch = aligned(room(high - low, narrow))
    nodes, wide, low, h = tabulate(mu, u, low, high, narrow, scratch)
    return scratch[LEVELS * wide : INVERSE * wide].reshape((4, wide))[:, :nodes], low, h


@kernel
def log_odds(
    x: float, mu: Floats, u: Floats, c: Floats, low: float, h: float
) -> tuple[float, float]:
    """L and its slope at x, from the table c, or from every opponent if c is empty."""
    if len(c) > 0:
        value, rise, _ = look_up(c, low, h, x)
        return value, rise
    p = q = slope = 0.0
    for j in range(len(mu)):
        e = exp((mu[j] - x) * u[j])
        won = u[j] / (1.0 + e)
        p, q, slope = p + won, q + e * won, slope + e * won * won
    return log(p / q), slope * (1.0 / p + 1.0 / q)


@kernel
def chance(value: float) -> float:
    """P / (P + Q) for log odds L."""
    return 1.0 / (1.0 + exp(-value))


@kernel
def scores(lo: Ints, hi: Ints, weight: Floats) -> tuple[Floats, float]:
    """(n,) the weight of all entries that each entry beat, plus half that of its tie group; and the
    total weight."""
    n = len(weight)
    found, worse = np.empty(n), 0.0
    end = n
    while end > 0:
        first, tied = lo[end - 1], 0.0
        for j in range(first, end):
            tied += weight[j]
        found[first:end] = worse + 0.5 * tied
        worse += tied
        end = first
    return found, worse
