"""Taylor series for the cells of `expansion`, computed for a row of players at once.

A series has ORDER coefficients, in units of a cell's width h, about x or about x + h. The players
or groups of a row are columns: coefficient m of lane i is at m * LANES + i. In an array with both
series, the one about x + h is at m = ORDER ... 2 ORDER - 1.
"""

from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating.elementary import aligned
from stream_rater.rating.normal import tails, taylor

LANES = 32  # The number of players in a row. They are processed together.

ORDER = 6  # The number of coefficients of a series.

STEPS = 2  # The number of Newton steps from a cubic guess.


class Scratch(NamedTuple):
    """The state of a sweep, and its scratch space."""

    scratch: Floats
    worse: Floats  # (2 ORDER * LANES) the series of a row's players as worse than the boundary.
    better: Floats  # (2 ORDER * LANES) the series of a row's players as better than the boundary.
    series: Floats  # (2 ORDER * LANES) the series of -Q of each group in the row, to be solved.
    start: Floats  # (2 ORDER * LANES) the series of F at each group's first boundary.
    at: Floats  # (2 ORDER) the series of F at the first boundary of the current group.
    gone: Floats  # (2 ORDER) the sum of the series of the current group's players so far, as worse.
    come: Floats
    """(2 ORDER) the sum of the series of the current group's players so far, as better."""
    tie: Floats
    """(2,) the line that the current group's tie contributes: its value at x, and its slope."""
    root: Floats  # (LANES,) each group's root, in units of h above x.
    doubt: Floats  # (LANES,) an estimate of the error of each root.
    ends: Ints  # (LANES,) the end of each group.


@kernel
def new_work() -> Scratch:
    """The arrays for one round. Most are cut from one allocation, because an allocation costs as
    much as ten players."""
    both, few = 2 * ORDER * LANES, 2 * ORDER
    room = aligned(4 * both + 6 * LANES)
    room[:] = 0.0
    state = room[4 * both :]
    return Scratch(
        state[: 3 * LANES], room[:both], room[both : 2 * both], room[2 * both : 3 * both],
        room[3 * both : 4 * both], np.empty(few), np.empty(few), np.empty(few), np.empty(2),
        state[3 * LANES : 4 * LANES], state[4 * LANES : 5 * LANES], np.empty(LANES, np.int64),
    )  # fmt: skip


@inlined
def _tails(x: float, mu: Floats, g: Floats, scratch: Floats) -> None:
    """Compute z and its tails for each player of a row. This is a loop of its own, because short
    loops overlap their iterations."""
    for i in range(len(g)):
        z = (x - mu[i]) * g[i]
        scratch[i] = z
        scratch[LANES + i], scratch[2 * LANES + i] = tails(z)


@inlined
def _add(h: float, g: Floats, scratch: Floats, terms: Floats) -> None:
    """Add the series of each player of a row, in units of h, to `terms`."""
    for i in range(len(g)):
        t0, t1, t2, t3, t4, t5 = taylor(
            g[i] * h, scratch[i], scratch[LANES + i], scratch[2 * LANES + i]
        )
        terms[i] += t0
        terms[LANES + i] += t1
        terms[2 * LANES + i] += t2
        terms[3 * LANES + i] += t3
        terms[4 * LANES + i] += t4
        terms[5 * LANES + i] += t5


@inlined
def _put(sign: float, h: float, v: Floats, scratch: Floats, terms: Floats) -> None:
    """Write the series of each player of a row, on one side of the boundary, to `terms`."""
    for i in range(len(v)):
        t0, t1, t2, t3, t4, t5 = taylor(
            sign * (v[i] * h), sign * scratch[i], scratch[LANES + i], scratch[2 * LANES + i]
        )
        terms[i] = t0
        terms[LANES + i] = t1
        terms[2 * LANES + i] = t2
        terms[3 * LANES + i] = t3
        terms[4 * LANES + i] = t4
        terms[5 * LANES + i] = t5


@inlined
def expand(x: float, h: float, mu: Floats, g: Floats, w: Scratch, sums: Floats) -> None:
    """Compute the series of F about x, the sum over all players, into `sums`."""
    lanes = min(LANES, len(g))
    for m in range(ORDER):
        for i in range(lanes):
            w.worse[m * LANES + i] = 0.0
    for p in range(0, len(g), LANES):
        row = g[p : p + LANES]
        _tails(x, mu[p : p + len(row)], row, w.scratch)
        _add(h, row, w.scratch, w.worse)
    s0 = s1 = s2 = s3 = s4 = s5 = 0.0
    for i in range(lanes):
        s0 += w.worse[i]
        s1 += w.worse[LANES + i]
        s2 += w.worse[2 * LANES + i]
        s3 += w.worse[3 * LANES + i]
        s4 += w.worse[4 * LANES + i]
        s5 += w.worse[5 * LANES + i]
    sums[0], sums[1], sums[2], sums[3], sums[4], sums[5] = s0, s1, s2, s3, s4, s5


@inlined
def cross(x: float, h: float, mu: Floats, v: Floats, w: Scratch) -> None:
    """Compute the series of a row's players on either side of the boundary, about both ends."""
    half = ORDER * LANES
    _tails(x, mu, v, w.scratch)
    _put(-1.0, h, v, w.scratch, w.worse[:half])
    _put(1.0, h, v, w.scratch, w.better[:half])
    _tails(x + h, mu, v, w.scratch)
    _put(-1.0, h, v, w.scratch, w.worse[half:])
    _put(1.0, h, v, w.scratch, w.better[half:])


@inlined
def _with_slope(
    c0: float, c1: float, c2: float, c3: float, c4: float, c5: float, r: float
) -> tuple[float, float]:
    """The value and the derivative at r of the polynomial with these coefficients."""
    value, slope = fma(c5, r, c4), c5
    value, slope = fma(value, r, c3), fma(slope, r, value)
    value, slope = fma(value, r, c2), fma(slope, r, value)
    value, slope = fma(value, r, c1), fma(slope, r, value)
    return fma(value, r, c0), fma(slope, r, value)


@inlined
def solve(series: Floats, root: Floats, doubt: Floats) -> None:
    """Find for each lane the zero in (0, 1) of the polynomial of degree 11 that has these two
    series. The polynomial is A(r) + r^6 E(r - 1). A is the series about 0, and E is what the series
    about 1 needs in addition."""
    below, above = series[: ORDER * LANES], series[ORDER * LANES :]
    for i in range(len(root)):
        a0, a1, a2 = below[i], below[LANES + i], below[2 * LANES + i]
        a3, a4, a5 = below[3 * LANES + i], below[4 * LANES + i], below[5 * LANES + i]
        b0, b1 = above[i], above[LANES + i]
        d0 = b0 - (((a0 + a1) + (a2 + a3)) + (a4 + a5))
        d1 = b1 - (fma(2.0, a2, a1) + fma(4.0, a4, 3.0 * a3) + 5.0 * a5)
        d2 = above[2 * LANES + i] - (fma(3.0, a3, a2) + fma(10.0, a5, 6.0 * a4))
        d3 = above[3 * LANES + i] - fma(10.0, a5, fma(4.0, a4, a3))
        d4 = above[4 * LANES + i] - fma(5.0, a5, a4)
        d5 = above[5 * LANES + i] - a5
        e1 = fma(-6.0, d0, d1)
        e2 = fma(21.0, d0, fma(-6.0, d1, d2))
        e3 = fma(-6.0, d2, d3) + fma(21.0, d1, -56.0 * d0)
        e4 = fma(-6.0, d3, d4) + fma(21.0, d2, fma(-56.0, d1, 126.0 * d0))
        e5 = fma(-6.0, d4, d5) + fma(21.0, d3, -56.0 * d2) + fma(126.0, d1, -252.0 * d0)
        rise = b0 - a0
        t = -a0 / rise
        o = 1.0 - t
        r = t * fma(t, fma(-2.0, t, 3.0), rise * o * (o / a1 - t / b1))
        step, slope = 0.0, a1
        for _ in range(STEPS):
            u, r2 = r - 1.0, r * r
            r5 = r2 * r2 * r
            a, da = _with_slope(a0, a1, a2, a3, a4, a5, r)
            e, de = _with_slope(d0, e1, e2, e3, e4, e5, u)
            slope = fma(r5, fma(r, de, 6.0 * e), da)
            step = fma(r5 * r, e, a) / slope
            r -= step
        root[i] = r
        # the next term would be e6 r^6 (r - 1)^6, and |r (r - 1)|^6 <= 2^-12
        doubt[i] = fma(fma(0.25, abs(e4), abs(e5)), 2.0**-12 / slope, step * step)
