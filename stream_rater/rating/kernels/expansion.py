"""Elo-MMx for large rounds: the sums cover all opponents, but the cost for each player does not
grow with the round.

Let F(x) be -Q of `elo_mmx`, where every entry before a boundary in the standings counts as better
and every entry after it as worse. It is a sum of y_j = g_j H((x - mu_j) g_j), with g_j = 1/delta_j
for better and -1/delta_j for worse entries. From one rank to the next, one tie group crosses the
boundary. So F changes by that group's terms alone, and its root falls. On a *cell* [x, x + h], F is
known by its Taylor series about both ends, six coefficients each, which make a polynomial of degree
11 (`series.solve`). A cell serves all ranks whose roots lie in it: each rank costs only the terms
of its own group at the two ends. Then the cell moves down. Its upper end is the old lower end,
whose series is known, so only one end costs O(n).

A tie group's own part is a line (full ties), or the mean of before and after (split ties).

The last coefficients show how well a polynomial fits. If it does not fit (`TOLERANCE`), the cell is
made again, narrower. If it fits very well, the next cell is wider. Usual standings need 10 to 35
cells, whatever the size and the width of the round and its groups of equal players. Only ratings
that are thousands of deltas apart need more, up to a cell for each group.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import inlined
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.kernels.series import LANES, ORDER, Scratch, cross, expand, solve
from stream_rater.rating.model import Places
from stream_rater.rating.roots import safeguard

TOLERANCE, LARGE_TOLERANCE = 2e-8, 1.5e-7
"""The largest accepted estimate of a performance's error, in units of the cell's width h. The first
is for rounds of up to LARGE entries, the second for larger ones. The measured errors are below 1e-6
and 4e-5 points at usual widths."""

LARGE = 500

AIM = 0.06  # The width of a new cell aims at this fraction of the tolerance.

NARROWER, WIDER = 0.5, 1.25  # The least and the largest change of the width from cell to cell.

TRIES = 100
"""The most cells that are tried for one group. The last one is accepted. More than three are
rare."""

PLACED = 0.8
"""The position in a new cell at which the root should lie. It is near the upper end, because the
next roots are lower."""

GUESS = 2.0
"""A root up to this many widths away is guessed from a cubic, and one farther away from a line."""


@inlined
def _groups(
    x: float, h: float, here: int, end: int, split: bool, place: Places, mu: Floats, v: Floats,
    w: Scratch,
) -> int:  # fmt: skip
    """Move the boundary from `here` to `end`, and make a series for each group that ends on the
    way. Returns the number of these groups. It stops at the first group whose root is below the
    cell."""
    at, gone, come, series = w.at, w.gone, w.come, w.series
    groups = 0
    value, slope = w.tie[0], w.tie[1]
    for i in range(end - here):
        p = here + i
        gh = v[p] * h
        value += gh * v[p] * (x - mu[p])
        slope += gh * gh
        for k in range(2 * ORDER):
            gone[k] += w.worse[k * LANES + i]
            come[k] += w.better[k * LANES + i]
        if p + 1 < len(place) and place[p + 1] == place[p]:
            continue
        for k in range(2 * ORDER):
            w.start[k * LANES + groups] = at[k]
            before = at[k] - gone[k]
            after = before + come[k]
            series[k * LANES + groups] = 0.5 * (at[k] + after) if split else before
            at[k] = after
            gone[k] = come[k] = 0.0
        if not split:
            _add_tie(groups, value, slope, series)
        value = slope = 0.0
        w.ends[groups] = p + 1
        groups += 1
        if series[groups - 1] > 0.0:
            break
    w.tie[0], w.tie[1] = value, slope
    return groups


@inlined
def _add_tie(group: int, value: float, slope: float, series: Floats) -> None:
    """Add a full tie's line to a series."""
    series[group] += value
    series[LANES + group] += slope
    series[ORDER * LANES + group] += value + slope
    series[(ORDER + 1) * LANES + group] += slope


@inlined
def _is_found(k: int, tries: int, tolerance: float, series: Floats, doubt: Floats) -> bool:
    """Whether the k-th root is in the cell and known well enough."""
    inside = series[k] <= 0.0 <= series[ORDER * LANES + k]
    return (inside and doubt[k] <= tolerance) or tries > TRIES


@inlined
def _guess(series: Floats) -> float:
    """An estimate of the zero of this lane's series outside the cell."""
    t0, t1, t2, t3 = series[0], series[LANES], series[2 * LANES], series[3 * LANES]
    line: float = -t0 / t1
    cubic: float = -t0 / (t1 + line * (t2 + line * t3))
    return cubic if abs(line) <= GUESS else line


@inlined
def _next_cell(
    x: float, h: float, k: int, tolerance: float, w: Scratch, low: float, high: float, last: float
) -> tuple[float, float, float, float, float]:
    """A new cell (x, h) for the k-th group, whose root is outside this cell or not known well
    enough. Returns also the bracket of the root (low, high) and the last step, for `safeguard`."""
    below, above = w.series[k], w.series[ORDER * LANES + k]
    known = k if below <= 0.0 <= above else max(k - 1, 0)
    width = h
    if w.series[known] <= 0.0 <= w.series[ORDER * LANES + known]:
        change = exp(log(AIM * tolerance / max(w.doubt[known], 1e-30)) / 11.0)
        width = h * min(max(change, NARROWER), WIDER)
    if below > 0.0:
        step = h * _guess(w.series[k:])
        root, low, high, last = safeguard(x, below, step, low, high, last)
    elif above < 0.0:
        step = h * _guess(w.series[ORDER * LANES + k :])
        root, low, high, last = safeguard(x + h, above, step, low, high, last)
    else:
        root = x + h * w.root[k]
        width = min(width, 0.8 * h)
    return root - PLACED * width, width, low, high, last


@inlined
def ranked_performances(
    place: Places, mu: Floats, v: Floats, block: int, split: bool, x: float, h: float,
    lowest: float, highest: float, w: Scratch, g: Floats, found: Floats,
) -> None:  # fmt: skip
    """Write the performances of the entries in `place`, all of which are ranked, into `found`.

    `mu` and `v` = 1/delta continue with the entries that did not finish, and then with v = 0 for
    `block` more. `g`, which has LANES fewer elements, is scratch space. The first cell is [x, x +
    h]; all roots lie in (lowest, highest).
    """
    for p in range(len(g)):
        g[p] = -v[p]
    ranked, first, tries = len(place), 0, 0
    tolerance = TOLERANCE if len(found) <= LARGE else LARGE_TOLERANCE
    low, high, last = lowest, highest, math.inf
    half_known = False
    while first < ranked:
        expand(x, h, mu, g, w, w.at[:ORDER])
        if not half_known:
            expand(x + h, h, mu, g, w, w.at[ORDER:])
        for k in range(2 * ORDER):
            w.gone[k] = w.come[k] = 0.0
        w.tie[0] = w.tie[1] = 0.0
        settled, here = True, first
        while settled and here < ranked:
            end = min(here + block, ranked)
            cross(x, h, mu[here : here + block], v[here : here + block], w)
            groups = _groups(x, h, here, end, split, place, mu, v, w)
            solve(w.series, w.root[:block], w.doubt)
            here = end
            k = 0
            while k < groups and _is_found(k, tries, tolerance, w.series, w.doubt):
                for p in range(first, w.ends[k]):
                    found[p] = x + h * w.root[k]
                    g[p] = v[p]
                first = w.ends[k]
                k += 1
                tries = 0
                low, high, last = lowest, highest, math.inf
            settled = k == groups
        if not settled:
            old_x, old_h, below, above = x, h, w.series[k], w.series[ORDER * LANES + k]
            x, h, low, high, last = _next_cell(x, h, k, tolerance, w, low, high, last)
            # An old end can be the new upper one: the lower end, if the root is close below it,
            # or the upper end, if the root is within the narrower cell's width of it.
            lower = tries == 0 and below > 0.0 and x + h > old_x - 0.25 * h
            upper = below <= 0.0 <= above and (1.0 - w.root[k]) * old_h < h
            half_known = lower or upper
            if half_known:
                x = (old_x if lower else old_x + old_h) - h
                scale = h / old_h
                for m in range(ORDER):
                    w.at[ORDER + m] = scale * w.start[((0 if lower else ORDER) + m) * LANES + k]
                    scale *= h / old_h
            tries += 1


@inlined
def unfinished_performances(
    mu: Floats, v: Floats, ranked: int, split: bool, x: float, h: float,
    lowest: float, highest: float, w: Scratch, g: Floats, found: Floats,
) -> None:  # fmt: skip
    """Write the performances of the entries from `ranked` on into `found`, which contains NaN for
    them. Each of these entries is worse than all ranked ones and tied with itself. `mu` and `v`
    have LANES more elements than `g`.

    Each cell serves all entries whose root is in it. The next cell is made for the first entry left
    over.
    """
    for p in range(len(g)):
        g[p] = v[p] if p < ranked else 0.0
    n, first, tries = len(found), ranked, 0
    tolerance = TOLERANCE if n <= LARGE else LARGE_TOLERANCE
    low, high, last = lowest, highest, math.inf
    while first < n:
        expand(x, h, mu, g, w, w.at[:ORDER])
        expand(x + h, h, mu, g, w, w.at[ORDER:])
        was, first = first, n
        next_x, next_h = x, h
        for here in range(was, n, LANES):
            _own_series(x, h, mu[here : here + LANES], v[here : here + LANES], split, w)
            solve(w.series, w.root, w.doubt)
            for p in range(here, min(here + LANES, n)):
                k = p - here
                if not np.isnan(found[p]):
                    continue
                if _is_found(k, tries if p == was else 0, tolerance, w.series, w.doubt):
                    found[p] = x + h * w.root[k]
                elif first == n:
                    first = p
                    if p != was:
                        tries = 0
                        low, high, last = lowest, highest, math.inf
                    next_x, next_h, low, high, last = _next_cell(
                        x, h, k, tolerance, w, low, high, last
                    )
        x, h = next_x, next_h
        tries += 1


@inlined
def _own_series(x: float, h: float, mu: Floats, v: Floats, split: bool, w: Scratch) -> None:
    """Compute the series of -Q of each player in a row, as if all entries in F were better and
    there were no other entries."""
    if split:
        cross(x, h, mu, v, w)
    for i in range(len(mu)):
        for k in range(2 * ORDER):
            own = 0.5 * (w.worse[k * LANES + i] + w.better[k * LANES + i])
            w.series[k * LANES + i] = w.at[k] + (own if split else 0.0)
        if not split:
            gh = v[i] * h
            _add_tie(i, gh * v[i] * (x - mu[i]), gh * gh, w.series)
