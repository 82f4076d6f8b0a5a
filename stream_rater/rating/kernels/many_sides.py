"""The two-moment filter for any number of sides: sums of logarithms on a grid.

The sums are computed for all sides at once, on a grid of columns that the round's sides share. Side
after side, in order of place, moves from the sum over worse to the sum over better. So a round of n
sides takes n times the columns, whose number does not grow with n. In large rounds L is narrower
than a column. Then the sums, which are smooth, are interpolated between the columns.
"""

import math
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import giving, inlined
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.kernels.duel import ODDS, PART, PI_0, PI_1, REACH, SHIFT_0, SHIFT_1
from stream_rater.rating.model import Places
from stream_rater.rating.normal import density, mills

FINENESS = 3.0
"""The number of columns for each standard deviation of the narrowest performance. There are fewer
if columns would be closer than points, or if MOST_COLUMNS does not suffice."""
MOST_COLUMNS, MOST_POINTS = 4096, 1024
"""The most columns of a round, and the most points from one column to the next. If ratings are
further apart than these allow for, results are less exact."""
BEYOND = 3  # The number of additional columns beyond either end, which interpolation needs.
NEGLIGIBLE = 40.0
"""A density is neglected where its logarithm is this much less than at its summit."""
UNIFORM = 512
"""Each time this many points have been taken on one side of the summit, the distance between points
doubles, because a density that reaches so far is smooth."""
HIGHER = 600.0
"""Where interpolation fails, a point may be higher than the summit. It counts as at most this much
higher, so that no sum overflows."""
EDGE = 30.0
"""Up to this many standard deviations from the mean, ln F is computed as it is. Further out, a
parabola continues it."""
KEPT = 1 << 16
"""The most values of ln F, and of ln (1 - F), that are kept for a round. If there are more, they
are computed again when they are needed."""


class Grid(NamedTuple):
    """The grid on which performances are searched. Positions are distances from the initial
    rating."""

    low: float  # The position of the first column.
    column: float  # The distance between two columns.
    columns: int  # The number of columns.
    points: int  # The number of points from one column to the next.


@inlined
def _grid(m: Floats, v: Floats, b2: Floats) -> Grid:
    """The grid of a round of sides with these means and variances. The trapezoid rule is exact to
    1e-8 if the distance between points is the standard deviation of the narrowest possible
    posterior."""
    low, high, narrowest, information = math.inf, -math.inf, math.inf, 0.0
    for j in range(len(m)):
        b, variance = np.sqrt(b2[j]), v[j] + PART * b2[j]
        reach = REACH * np.sqrt(variance)
        low = min(low, m[j] + SHIFT_1 * b - reach)
        high = max(high, m[j] + SHIFT_0 * b + reach)
        narrowest = min(narrowest, variance)
        information += 1.0 / variance
    point = 1.0 / np.sqrt(1.0 / narrowest + information)
    column = np.sqrt(narrowest) / FINENESS
    least = (high - low) / (MOST_COLUMNS - 2 * BEYOND - 2)
    column = max(column, point, least)
    points = min(int(np.ceil(column / point)), MOST_POINTS)
    columns = int(np.ceil((high - low) / column)) + 1 + 2 * BEYOND
    return Grid(low - BEYOND * column, column, columns, points)


@inlined
def _log_parts(grid: Grid, m: float, v: float, b2: float, below: Floats, above: Floats) -> None:
    """Write ln F and ln (1 - F) of a performance at each column."""
    b, u = np.sqrt(b2), 1.0 / np.sqrt(v + PART * b2)
    first, apart = m + SHIFT_0 * b, (SHIFT_0 - SHIFT_1) * b * u
    for g in range(len(below)):
        z = (grid.low + g * grid.column - first) * u
        short, far = max(-EDGE - z - apart, 0.0), max(z - EDGE, 0.0)
        y_0 = z + short - far
        y_1 = y_0 + apart
        t_0, t_1 = density(y_0) * mills(abs(y_0)), density(y_1) * mills(abs(y_1))
        f = PI_0 * (t_0 if y_0 < 0.0 else 1.0 - t_0) + PI_1 * (t_1 if y_1 < 0.0 else 1.0 - t_1)
        s = PI_0 * (1.0 - t_0 if y_0 < 0.0 else t_0) + PI_1 * (1.0 - t_1 if y_1 < 0.0 else t_1)
        below[g] = log(f) - short * fma(0.5, short, EDGE)
        above[g] = log(s) - far * fma(0.5, far, EDGE)


@inlined
def _add_tied(grid: Grid, side: "SideOnGrid", sign: float, sums: Floats) -> None:
    """Add the logarithm of a side's density to the sum at each column, times the sign."""
    for g in range(len(sums)):
        h_0, h_1 = _heights(grid.low + g * grid.column, 0.0, side)
        sums[g] += sign * (max(h_0, h_1) + log(1.0 + exp(-abs(h_0 - h_1))))


@giving
def _between(points: int) -> Floats:
    """(points, 6) the weights of six columns by Lagrange, at each point from the third column
    on."""
    weights = np.empty((points, 6))
    for k in range(points):
        t = k / points
        for a in range(6):
            weight = 1.0
            for c in range(6):
                if c != a:
                    weight *= (t + 2.0 - c) / (a - c)
            weights[k, a] = weight
    return weights


class SideOnGrid(NamedTuple):
    """A side whose performance is sought. Positions are those of `_grid`."""

    usual: float  # The mean of its performance on a usual day.
    bad: float  # The mean of its performance on a bad day.
    precision: float  # The precision of its performance on a day of either kind, in points^-2.


@inlined
def _side(m: float, v: float, b2: float) -> SideOnGrid:
    b = np.sqrt(b2)
    return SideOnGrid(m + SHIFT_0 * b, m + SHIFT_1 * b, 1.0 / (v + PART * b2))


@inlined
def _heights(x: float, said: float, side: SideOnGrid) -> tuple[float, float]:
    """The logarithm of the density of P at x times L, on a usual day and on a bad day. Both leave
    out the same constant. `said` is the sum of the other sides' ln F and ln (1 - F) at x."""
    z_0, z_1 = x - side.usual, x - side.bad
    half = -0.5 * side.precision
    return fma(half * z_0, z_0, said), fma(half * z_1, z_1, said + ODDS)


@inlined
def _height(grid: Grid, p: int, sums: Floats, weights: Floats, side: SideOnGrid) -> float:
    """The greater of the two `_heights` at point p."""
    x = grid.low + p * (grid.column / grid.points)
    height: float = max(*_heights(x, _said(grid, p, sums, weights), side))
    return height


@inlined
def _said(grid: Grid, p: int, sums: Floats, weights: Floats) -> float:
    """The sum of the other sides' ln F and ln (1 - F) at point p. It is interpolated from `sums`,
    the values at the columns."""
    c, k = p // grid.points, p % grid.points
    if k == 0:
        return float(sums[c])
    total = 0.0
    for a in range(6):
        total = fma(weights[k, a], sums[c + a - 2], total)
    return total


@inlined
def _summit(grid: Grid, sums: Floats, weights: Floats, side: SideOnGrid) -> int:
    """The point of the greatest height. The search climbs from the highest column."""
    best, most = BEYOND, -math.inf
    for c in range(BEYOND, grid.columns - BEYOND):
        height = max(*_heights(grid.low + c * grid.column, sums[c], side))
        if height > most:
            best, most = c, height
    p = best * grid.points
    first = max(BEYOND * grid.points, p - grid.points)
    last = min((grid.columns - BEYOND - 1) * grid.points, p + grid.points)
    for way in (1, -1):
        while first <= p + way <= last:
            height = _height(grid, p + way, sums, weights, side)
            if height <= most:
                break
            p, most = p + way, height
    return p


@inlined
def _moments(
    grid: Grid, sums: Floats, weights: Floats, side: SideOnGrid, m: float, v: float, b2: float,
    ceiling: float,
) -> tuple[float, float, float]:  # fmt: skip
    """The mean of P, and the mean and the variance of S. On days of either kind, the mean of P is
    limited to the ceiling."""
    top = _summit(grid, sums, weights, side)
    x_top, point = grid.low + top * (grid.column / grid.points), grid.column / grid.points
    most = _height(grid, top, sums, weights, side)
    first, last = BEYOND * grid.points, (grid.columns - BEYOND - 1) * grid.points
    mass_0 = mass_1 = mean_0 = mean_1 = square_0 = square_1 = 0.0
    for way in (1, -1):
        p, stride, seen = (top if way > 0 else top - 1), 1, 0
        while first <= p <= last:
            x = grid.low + p * point
            h_0, h_1 = _heights(x, _said(grid, p, sums, weights), side)
            if max(h_0, h_1) < most - NEGLIGIBLE:
                break
            d = x - x_top
            seen += 1
            wider = seen % UNIFORM == 0
            size = 1.5 * stride if wider else 1.0 * stride
            w_0, w_1 = size * exp(min(h_0 - most, HIGHER)), size * exp(min(h_1 - most, HIGHER))
            mass_0, mass_1 = mass_0 + w_0, mass_1 + w_1
            mean_0, mean_1 = fma(w_0, d, mean_0), fma(w_1, d, mean_1)
            square_0, square_1 = fma(w_0 * d, d, square_0), fma(w_1 * d, d, square_1)
            stride = 2 * stride if wider else stride
            p += way * stride
    mass = mass_0 + mass_1
    d_0, d_1 = mean_0 / mass_0, mean_1 / mass_1
    k, unseen = v * side.precision, PART * b2 * v * side.precision
    p_0, p_1 = min(x_top + d_0, ceiling), min(x_top + d_1, ceiling)
    s_0, s_1 = k * (p_0 - side.usual), k * (p_1 - side.bad)
    var_0 = unseen + k * k * max(square_0 / mass_0 - d_0 * d_0, 0.0)
    var_1 = unseen + k * k * max(square_1 / mass_1 - d_1 * d_1, 0.0)
    q_0, q_1 = mass_0 / mass, mass_1 / mass
    apart = s_0 - s_1
    return (
        q_0 * p_0 + q_1 * p_1,
        m + q_0 * s_0 + q_1 * s_1,
        q_0 * var_0 + q_1 * var_1 + q_0 * q_1 * apart * apart,
    )


@giving
def rate_many(
    place: Places, m: Floats, v: Floats, b2: Floats, ceiling: Floats, out: Floats
) -> None:  # fmt: skip
    """Write into `out` (n, 3) what `two_moment.rate_sides` does."""
    n = len(m)
    grid = _grid(m, v, b2)
    weights = _between(grid.points)
    kept = n if n * grid.columns <= KEPT else 1
    below, above = np.empty((kept, grid.columns)), np.empty((kept, grid.columns))
    sums, tied, others = np.zeros(grid.columns), np.empty(grid.columns), np.empty(grid.columns)
    for j in range(n):
        own = j if kept == n else 0
        _log_parts(grid, m[j], v[j], b2[j], below[own], above[own])
        for g in range(grid.columns):
            sums[g] += below[own, g]
    first = 0
    while first < n:
        end = first
        while end < n and place[end] == place[first]:
            own = end if kept == n else 0
            if kept != n:
                _log_parts(grid, m[end], v[end], b2[end], below[0], above[0])
            for g in range(grid.columns):
                sums[g] -= below[own, g]
            end += 1
        alone = end == first + 1
        tied[:] = sums
        for i in range(first, end if not alone else first):
            _add_tied(grid, _side(m[i], v[i], b2[i]), 1.0, tied)
        for i in range(first, end):
            side = _side(m[i], v[i], b2[i])
            others[:] = tied
            if not alone:
                _add_tied(grid, side, -1.0, others)
            out[i] = _moments(grid, others, weights, side, m[i], v[i], b2[i], ceiling[i])
        for j in range(first, end):
            own = j if kept == n else 0
            if kept != n:
                _log_parts(grid, m[j], v[j], b2[j], below[0], above[0])
            for g in range(grid.columns):
                sums[g] += above[own, g]
        first = end
