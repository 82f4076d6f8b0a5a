"""Thurstone's model: normal performances with variance 1 (Kerby, sections 3.2.3 and 4).

Let F_k(t) be the probability that all entries worse than k performed in their order and below t. It
follows from that of the next worse entry by one integration,

    F_better(t) = integral up to t of phi(s - x_k) F_k(s) ds.

For the last entries it is the product of their Phi(t - x_j), because their order is not observed.
As in the note, functions are stored as logarithms on a grid. Between nodes they are the quintics
that match value, slope and curvature, which the recursion gives exactly.

The note differentiates automatically. Here a second integration runs from the best entry down:
B_k(t) is the probability that all better entries performed in order and above t. Then phi(t - x_k)
F_k(t) B_k(t) is the density of k's performance given the order, and the gradient for k is the mean
of this density minus x_k. The last entries have the gradient -E[phi / Phi(t - x_j)] at the
performance of the worst of the others.

Far apart, ratings leave nothing to integrate: the performances are then those that are the most
likely, the rising ratings among them pooled (`_most_likely`). The mean differs from them by less
than 1, however many thousands the ratings lie apart. They stand in where the grid gives no number.

Given the order, a performance is known to 1/sqrt(n) at best. So nodes are closer in large rounds,
and the cost is n^1.5. To save memory, F_k is computed once for checkpoints and once more from each
checkpoint.
"""

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.kernels.plackett_luce import log_add
from stream_rater.rating.normal import INVERSE_SQRT_2_PI, density, hazard, mills

REACH = 8.0  # The grid extends this far beyond the lowest and the highest rating.
NODE, WIDTHS = 0.2, 4.0
"""The distance between nodes is the smaller of NODE and WIDTHS / sqrt(n). Gradients are then right
to 1e-7."""
MAX_CELLS = 8192
"""The most cells. If ratings are thousands apart, this limit makes the nodes farther apart
instead."""
STEEP = 40.0  # Contributions below e^-40 of the largest are left out.
PANEL = 8.0  # The integrand changes by at most e^PANEL in a panel of ten Gaussian nodes.
MAX_PANELS = 16

GAUSS = np.array(
    [
        0.013046735741414128, 0.06746831665550773, 0.16029521585048778, 0.2833023029353764,
        0.4255628305091844, 0.5744371694908156, 0.7166976970646236, 0.8397047841495122,
        0.9325316833444923, 0.9869532642585859,
    ]
)  # fmt: skip
GAUSS_WEIGHT = np.array(
    [
        0.03333567215434407, 0.0747256745752902, 0.109543181257991, 0.13463335965499826,
        0.1477621123573764, 0.1477621123573764, 0.13463335965499826, 0.109543181257991,
        0.0747256745752902, 0.03333567215434407,
    ]
)  # fmt: skip
"""Gauss-Legendre nodes and weights on [0, 1]."""
LAGUERRE = np.array(
    [
        0.17027963230510093, 0.90370177679938, 2.251086629866131, 4.266700170287659,
        7.0459054023934655, 10.758516010180996, 15.740678641278004, 22.863131736889265,
    ]
)  # fmt: skip
LAGUERRE_WEIGHT = np.array(
    [
        0.36918858934163495, 0.4187867808143447, 0.17579498663717255, 0.033343492261215794,
        0.0027945362352256834, 9.076508773358139e-05, 8.48574671627257e-07,
        1.0480011748715153e-09,
    ]
)  # fmt: skip
"""Gauss-Laguerre nodes and weights for the integral of e^-t f(t) over t > 0."""


@kernel
def _quintic(left: Floats, right: Floats, h: float, c: Floats) -> None:
    """Write into c the coefficients, in units of the cell, of the quintic that matches (value,
    slope, curvature) at both ends. The value is relative to the higher end."""
    d0, d1 = left[1] * h, right[1] * h
    e0, e1 = left[2] * h * h, right[2] * h * h
    value = right[0] - left[0] - d0 - 0.5 * e0
    slope = d1 - d0 - e0
    curve = 0.5 * (e1 - e0)
    c[0] = left[0] - max(left[0], right[0])
    c[1], c[2] = d0, 0.5 * e0
    c[3] = 10.0 * value - 4.0 * slope + curve
    c[4] = -15.0 * value + 7.0 * slope - 2.0 * curve
    c[5] = 6.0 * value - 3.0 * slope + curve


@kernel
def _at(c: Floats, t: float) -> float:
    """The value of the quintic at t in [0, 1]."""
    p: float = c[5]
    for i in range(4, -1, -1):
        p = p * t + c[i]
    return p


@kernel
def _cell(c: Floats, s0: float, s1: float) -> float:
    """The integral of e^quintic over the cell, where the slopes at its ends are s0 and s1."""
    total: float = 0.0
    if s1 > STEEP and s0 > STEEP:  # only near the right end; it is nearly e^(-s1 t) there
        for i in range(len(LAGUERRE)):
            t = LAGUERRE[i] / s1
            total += LAGUERRE_WEIGHT[i] / s1 * exp(_at(c, 1.0 - t) + LAGUERRE[i])
        return total
    gentle = min(abs(s0), abs(s1)) if s0 * s1 > 0.0 else 0.0
    length = 1.0 if gentle < STEEP else STEEP / gentle
    start = 1.0 - length if s1 > 0.0 else 0.0
    panels = 1 + int(min(length * max(abs(s0), abs(s1)) / PANEL, MAX_PANELS - 1.0))
    width = length / panels
    for panel in range(panels):
        for i in range(len(GAUSS)):
            total += GAUSS_WEIGHT[i] * exp(_at(c, start + (panel + GAUSS[i]) * width))
    return total * width


@kernel
def _step(a: float, h: float, x: float, below: Floats, into: Floats) -> None:
    """Compute F of the next better entry: logarithm, slope and curvature (nodes, 3) from those of
    `below`. Nodes lie at a + i h; x is the rating of the entry that is added. `below` and `into`
    may be the same array."""
    c = np.empty(6)
    left, right = np.empty(3), np.empty(3)
    value = 0.0
    for i in range(len(below)):
        z = a + i * h - x
        right[0] = below[i, 0] - 0.5 * z * z
        right[1] = below[i, 1] - z
        right[2] = below[i, 2] - 1.0
        if i == 0:
            value = right[0] - log(max(right[1], 1.0))
        else:
            top = max(left[0], right[0])
            decline = abs(left[1])
            # A cell beyond the bulk that adds less than rounding is not integrated.
            if left[1] > 0.0 or top - log(max(decline, 1.0)) > value - STEEP:
                _quintic(left, right, h, c)
                value = log_add(value, top + log(h * _cell(c, left[1] * h, right[1] * h)))
        left[:] = right
        into[i, 0] = value
        into[i, 1] = exp(right[0] - value)
        into[i, 2] = into[i, 1] * (right[1] - into[i, 1])


@kernel
def _last(a: float, h: float, x: Floats, into: Floats) -> None:
    """Compute F above the last entries at the nodes: ln prod Phi(t - x_j), its slope and its
    curvature."""
    into[:] = 0.0
    for i in range(len(into)):
        for j in range(len(x)):
            z = a + i * h - x[j]
            pull = hazard(-z)
            if z < 0.0:
                into[i, 0] += log(INVERSE_SQRT_2_PI * mills(-z)) - 0.5 * z * z
            else:
                into[i, 0] += log(1.0 - density(z) * mills(z))
            into[i, 1] += pull
            into[i, 2] -= pull * (pull + z)


@kernel
def _mean(
    a: float, h: float, x: float, below: Floats, above: Floats, last: Floats, g: Floats
) -> tuple[float, float]:
    """(mean performance minus x, ln P) of an entry, given the order; writes -E[phi / Phi] of the
    `last` entries into g."""
    nodes = len(below)
    d = np.empty((nodes, 3))
    for i in range(nodes):
        z, mirror = a + i * h - x, nodes - 1 - i
        d[i, 0] = below[i, 0] + above[mirror, 0] - 0.5 * z * z
        d[i, 1] = below[i, 1] - above[mirror, 1] - z
        d[i, 2] = below[i, 2] + above[mirror, 2] - 1.0
    peak = np.max(d[:, 0])
    c = np.empty(6)
    mass = moment = 0.0
    g[:] = 0.0
    for i in range(nodes - 1):
        top = max(d[i, 0], d[i + 1, 0])
        if top < peak - STEEP:
            continue
        _quintic(d[i], d[i + 1], h, c)
        for k in range(len(GAUSS)):
            t = a + (i + GAUSS[k]) * h
            weight = GAUSS_WEIGHT[k] * exp(_at(c, GAUSS[k]) + (top - peak))
            mass += weight
            moment += weight * (t - x)
            for j in range(len(last)):
                g[j] -= weight * hazard(last[j] - t)
    for j in range(len(last)):
        g[j] /= mass
    return moment / mass, peak + log(mass * h)


@kernel
def _most_likely(x: Floats, end: int, g: Floats) -> float:
    """ln P of the most likely performances given the order, up to a constant; writes them, minus x,
    into g (n,). The order of entries from `end` on is not observed.

    The performances t minimise the sum of (t - x)^2 where none is above the one before it. Adjacent
    entries that would be are pooled, and share their mean. The last entries only have to be below
    all others. So the order in which they are pooled is that of their ratings.
    """
    n = len(x)
    order = np.arange(n)
    order[end:] = end + np.argsort(-x[end:], kind="mergesort")
    mean, size = np.empty(n), np.empty(n, np.int64)
    pools = 0
    for k in order:
        mean[pools], size[pools] = x[k], 1
        while pools > 0 and mean[pools] > mean[pools - 1]:
            pools -= 1
            both = size[pools] + size[pools + 1]
            mean[pools] += (mean[pools + 1] - mean[pools]) * size[pools + 1] / both
            size[pools] = both
        pools += 1
    logarithm, at = 0.0, 0
    for pool in range(pools):
        for _ in range(size[pool]):
            shift = mean[pool] - x[order[at]]
            g[order[at]] = shift
            logarithm -= 0.5 * shift * shift
            at += 1
    return logarithm


@kernel
def _is_finite(g: Floats) -> bool:
    wrong = 0
    for k in range(len(g)):
        wrong += 0 if abs(g[k]) < np.inf else 1
    return wrong == 0


@kernel
def gradient(x: Floats, ranked: int, g: Floats) -> float:
    """ln P(order); writes its gradient, which sums to zero to the precision of the grid, into g
    (n,). x (n,) is in order of place, without ties. The order of entries from `ranked` >= 1 on is
    not observed. Where ratings lie too far apart for the grid, ln P lacks a constant."""
    n = len(x)
    end = min(ranked, n - 1)  # where `_last` begins: a single entry is a group, too
    logarithm = _by_grid(x, end, g)
    if not _is_finite(g):
        logarithm = _most_likely(x, end, g)
    return logarithm


@kernel
def _by_grid(x: Floats, end: int, g: Floats) -> float:
    """ln P(order) and its gradient, by integration on the grid. The order of entries from `end` on
    is not observed."""
    n = len(x)
    a, b = np.min(x) - REACH, np.max(x) + REACH
    h = min(NODE, WIDTHS / np.sqrt(float(n)))
    cells = int(min(np.ceil((b - a) / h), float(MAX_CELLS)))
    h = (b - a) / cells

    stride = int(np.sqrt(float(end))) + 1
    checkpoints = np.empty(((end - 1) // stride + 1, cells + 1, 3))
    below = np.empty((cells + 1, 3))
    _last(a, h, x[end:], below)
    for k in range(end - 1, -1, -1):
        if k == end - 1 or k % stride == stride - 1:
            checkpoints[k // stride] = below
        _step(a, h, x[k], below, below)

    segment = np.empty((stride, cells + 1, 3))
    above = np.zeros((cells + 1, 3))
    logarithm = 0.0
    for s in range(len(checkpoints)):
        first, stop = s * stride, min((s + 1) * stride, end)
        segment[stop - 1 - first] = checkpoints[s]
        for k in range(stop - 1, first, -1):
            _step(a, h, x[k], segment[k - first], segment[k - 1 - first])
        for k in range(first, stop):
            worst = k == end - 1
            last = x[end:] if worst else x[:0]
            into = g[end:] if worst else g[:0]
            g[k], logarithm = _mean(a, h, x[k], segment[k - first], above, last, into)
            _step(-b, h, -x[k], above, above)
    return logarithm + end * log(INVERSE_SQRT_2_PI)
