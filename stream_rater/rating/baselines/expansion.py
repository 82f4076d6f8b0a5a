"""Elo-MMx with all opponents at a cost per player that does not grow with the round.

Let F(x) be -Q of `gaussian` with everyone before a boundary in the standings better and everyone
after it worse: a sum of y_j = g_j H((x - mu_j) g_j), with g_j = 1/delta_j for the better and
-1/delta_j for the worse. From rank to rank one tie group crosses over, so F changes by that group's
terms alone, while its root falls. We know F on a *cell* [x, x + h] by its Taylor series about both
ends, six coefficients each, which make a polynomial of degree 11 (`_solve`). All ranks whose root
lies in the cell are served by it: each costs its own group's terms at the two ends. Then the cell
moves down; its upper end is the old lower one, already known, so that O(n) goes into one end.

A tie group's own part is a line (full), or it is the mean of before and after (split).

The last coefficients tell how well a polynomial fits. Where it does not (`TOLERANCE`), the cell is
made again, narrower; where it fits very well, the next one is wider. Round sizes, widths and crowds
of equals then find cells of their own: 12 to 35 in all, for standings as they are.
"""

import math
from typing import NamedTuple

import numpy as np

from stream_rater.rating.baselines.hazards import tails, taylor
from stream_rater.rating.compiled import kernel
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.model import Floats, Ints, Places
from stream_rater.rating.roots import safeguard

LANES = 32
"""Players in a row of the arrays: what is done to them is done side by side."""

ORDER = 6
"""Taylor coefficients about either end of a cell; lane i of the m-th is at m * LANES + i."""

TOLERANCE, LARGE_TOLERANCE = 2e-8, 5e-7
"""The error of a performance that is let pass, in units of the cell's width h: up to LARGE entries
and above. (A width of 200 points makes that some 4e-6 points and 1e-4; what comes out is a tenth.)
"""

LARGE = 500

AIM = 0.06
"""New cells are as wide as should give this part of the tolerance."""

NARROWER, WIDER = 0.5, 1.25
"""How much the width may change from cell to cell."""

STEPS = 2
"""Newton steps from a cubic guess."""

TRIES = 100
"""So many cells are tried for one group; the last is taken as it is. (Few need more than two.)"""

PLACED = 0.8
"""Where in a new cell the root should lie: high, as those to come are lower."""

GUESS = 2.0
"""Up to so many widths a root is guessed from a cubic, beyond from a line."""


class Work(NamedTuple):
    """The state of the sweep and the arrays it works in.

    Of two series side by side, about x and about x + h, the second is at m = ORDER ... 2 ORDER - 1.
    """

    scratch: Floats
    worse: Floats
    """(2 ORDER * LANES) the series of a row's players as worse than the boundary,"""
    better: Floats
    """as better than it."""
    series: Floats
    """(2 ORDER * LANES) -Q of each group in the row, to be solved."""
    start: Floats
    """(2 ORDER * LANES) F at each group's first boundary."""
    at: Floats
    """(2 ORDER) F at the first boundary of the group under way,"""
    gone: Floats
    """the series of its players met so far, as worse,"""
    come: Floats
    """and as better."""
    tie: Floats
    """(2,) value at x and slope of the line that their ties make."""
    root: Floats
    """(LANES,) each group's root in units of h above x, and its error."""
    doubt: Floats
    ends: Ints
    """(LANES,) where each group ends."""


@kernel
def new_work() -> Work:
    """Arrays for one round, cut from one piece: each piece costs as much as ten players."""
    both, few = 2 * ORDER * LANES, 2 * ORDER
    room = np.zeros(4 * both + 6 * LANES)
    state = room[4 * both :]
    return Work(
        state[: 3 * LANES], room[:both], room[both : 2 * both], room[2 * both : 3 * both],
        room[3 * both : 4 * both], np.empty(few), np.empty(few), np.empty(few), np.empty(2),
        state[3 * LANES : 4 * LANES], state[4 * LANES : 5 * LANES], np.empty(LANES, np.int64),
    )  # fmt: skip


@kernel
def _tails(x: float, mu: Floats, g: Floats, scratch: Floats) -> None:
    """z and its tails for each player of a row. A loop apart: short ones overlap their rounds."""
    for i in range(len(g)):
        z = (x - mu[i]) * g[i]
        scratch[i] = z
        scratch[LANES + i], scratch[2 * LANES + i] = tails(z)


@kernel
def _add(h: float, g: Floats, scratch: Floats, terms: Floats) -> None:
    """Add the series, in units of h, of each player of a row to `terms`."""
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


@kernel
def _put(sign: float, h: float, v: Floats, scratch: Floats, terms: Floats) -> None:
    """The same for players on one side of the boundary, instead of adding them to others."""
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


@kernel
def _expand(x: float, h: float, mu: Floats, g: Floats, w: Work, sums: Floats) -> None:
    """F's series about x into `sums`: that of all players together."""
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


@kernel
def _cross(x: float, h: float, mu: Floats, v: Floats, w: Work) -> None:
    """The series of a row's players on either side of the boundary, about both ends."""
    half = ORDER * LANES
    _tails(x, mu, v, w.scratch)
    _put(-1.0, h, v, w.scratch, w.worse[:half])
    _put(1.0, h, v, w.scratch, w.better[:half])
    _tails(x + h, mu, v, w.scratch)
    _put(-1.0, h, v, w.scratch, w.worse[half:])
    _put(1.0, h, v, w.scratch, w.better[half:])


@kernel
def _solve(series: Floats, root: Floats, doubt: Floats) -> None:
    """For each lane the zero in (0, 1) of the polynomial of degree 11 with these two series.

    It is A(r) + r^6 E(r - 1): A the series about 0, E what the one about 1 needs besides.
    """
    below, above = series[: ORDER * LANES], series[ORDER * LANES :]
    for i in range(len(root)):
        a0, a1, a2 = below[i], below[LANES + i], below[2 * LANES + i]
        a3, a4, a5 = below[3 * LANES + i], below[4 * LANES + i], below[5 * LANES + i]
        b0, b1 = above[i], above[LANES + i]
        d0 = b0 - (((a0 + a1) + (a2 + a3)) + (a4 + a5))
        d1 = b1 - ((a1 + 2.0 * a2) + (3.0 * a3 + 4.0 * a4) + 5.0 * a5)
        d2 = above[2 * LANES + i] - ((a2 + 3.0 * a3) + (6.0 * a4 + 10.0 * a5))
        d3 = above[3 * LANES + i] - (a3 + 4.0 * a4 + 10.0 * a5)
        d4 = above[4 * LANES + i] - (a4 + 5.0 * a5)
        d5 = above[5 * LANES + i] - a5
        e1 = d1 - 6.0 * d0
        e2 = d2 - 6.0 * d1 + 21.0 * d0
        e3 = (d3 - 6.0 * d2) + (21.0 * d1 - 56.0 * d0)
        e4 = (d4 - 6.0 * d3) + (21.0 * d2 - 56.0 * d1) + 126.0 * d0
        e5 = (d5 - 6.0 * d4) + (21.0 * d3 - 56.0 * d2) + (126.0 * d1 - 252.0 * d0)
        rise = b0 - a0
        t = -a0 / rise
        o = 1.0 - t
        r = t * (t * (3.0 - 2.0 * t) + rise * o * (o / a1 - t / b1))
        step, slope = 0.0, a1
        for _ in range(STEPS):
            u, r2 = r - 1.0, r * r
            r5 = r2 * r2 * r
            a = a0 + r * (a1 + r * (a2 + r * (a3 + r * (a4 + r * a5))))
            da = a1 + r * (2.0 * a2 + r * (3.0 * a3 + r * (4.0 * a4 + r * (5.0 * a5))))
            e = d0 + u * (e1 + u * (e2 + u * (e3 + u * (e4 + u * e5))))
            de = e1 + u * (2.0 * e2 + u * (3.0 * e3 + u * (4.0 * e4 + u * (5.0 * e5))))
            slope = da + r5 * (6.0 * e + r * de)
            step = (a + r5 * r * e) / slope
            r -= step
        root[i] = r
        # the next term would be e6 r^6 (r - 1)^6, and |r (r - 1)|^6 <= 2^-12
        doubt[i] = (abs(e5) + 0.25 * abs(e4)) * (2.0**-12 / slope) + step * step


@kernel
def _groups(
    x: float, h: float, here: int, end: int, split: bool, place: Places, mu: Floats, v: Floats,
    w: Work,
) -> int:  # fmt: skip
    """Lead the boundary from `here` to `end`; a series for each group that ends. How many?

    The first whose root is below the cell is the last one looked at.
    """
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


@kernel
def _add_tie(group: int, value: float, slope: float, series: Floats) -> None:
    """Add a full tie's line to a series."""
    series[group] += value
    series[LANES + group] += slope
    series[ORDER * LANES + group] += value + slope
    series[(ORDER + 1) * LANES + group] += slope


@kernel
def _is_found(k: int, tries: int, tolerance: float, series: Floats, doubt: Floats) -> bool:
    """Whether the k-th root is in the cell, and known well enough."""
    inside = series[k] <= 0.0 <= series[ORDER * LANES + k]
    return inside and (doubt[k] <= tolerance or tries > TRIES)


@kernel
def _guess(series: Floats) -> float:
    """About where the series of this lane is zero, beyond where it tells exactly."""
    line = -series[0] / series[LANES]
    if abs(line) > GUESS:
        return line
    return -series[0] / (series[LANES] + line * (series[2 * LANES] + line * series[3 * LANES]))


@kernel
def _next_cell(
    x: float, h: float, k: int, tolerance: float, w: Work, low: float, high: float, last: float
) -> tuple[float, float, float, float, float]:
    """A cell (x, h) for the k-th group, whose root is not well known in this one or not in it.

    With the bracket of the root (low, high) and the last step, for `safeguard`.
    """
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


@kernel
def ranked_performances(
    place: Places, mu: Floats, v: Floats, block: int, split: bool, x: float, h: float,
    lowest: float, highest: float, found: Floats,
) -> None:  # fmt: skip
    """The performances of the entries in `place`, all of which are ranked, into `found`.

    `mu` and `v` = 1/delta go on with those who did not finish, and then with v = 0 for `block`
    more. The first cell is [x, x + h]; all roots lie in (lowest, highest).
    """
    w = new_work()
    g = -v[: len(v) - LANES]
    ranked, first, tries = len(place), 0, 0
    tolerance = TOLERANCE if len(found) <= LARGE else LARGE_TOLERANCE
    low, high, last = lowest, highest, math.inf
    half_known = False
    while first < ranked:
        _expand(x, h, mu, g, w, w.at[:ORDER])
        if not half_known:
            _expand(x + h, h, mu, g, w, w.at[ORDER:])
        for k in range(2 * ORDER):
            w.gone[k] = w.come[k] = 0.0
        w.tie[0] = w.tie[1] = 0.0
        settled, here = True, first
        while settled and here < ranked:
            end = min(here + block, ranked)
            _cross(x, h, mu[here : here + block], v[here : here + block], w)
            groups = _groups(x, h, here, end, split, place, mu, v, w)
            _solve(w.series, w.root[:block], w.doubt)
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
            # Which old end can be the new upper one? The lower, if the root is close below it, or
            # the upper, if the root is not further from it than the narrower cell is wide.
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


@kernel
def unfinished_performances(
    mu: Floats, v: Floats, ranked: int, split: bool, x: float, h: float,
    lowest: float, highest: float, found: Floats,
) -> None:  # fmt: skip
    """The performances of the entries from `ranked` on, each worse than all ranked ones and tied
    with itself, into `found`, which holds NaN for them. `mu` and `v` go on for LANES more.

    Every cell serves all whose root is in it, and there is one for the first of those left over.
    """
    w = new_work()
    g = np.zeros(len(v) - LANES)
    g[:ranked] = v[:ranked]
    n, first, tries = len(found), ranked, 0
    tolerance = TOLERANCE if n <= LARGE else LARGE_TOLERANCE
    low, high, last = lowest, highest, math.inf
    while first < n:
        _expand(x, h, mu, g, w, w.at[:ORDER])
        _expand(x + h, h, mu, g, w, w.at[ORDER:])
        was, first = first, n
        next_x, next_h = x, h
        for here in range(was, n, LANES):
            _own_series(x, h, mu[here : here + LANES], v[here : here + LANES], split, w)
            _solve(w.series, w.root, w.doubt)
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


@kernel
def _own_series(x: float, h: float, mu: Floats, v: Floats, split: bool, w: Work) -> None:
    """-Q of each player in a row, were all that F counts better and nobody else there."""
    if split:
        _cross(x, h, mu, v, w)
    for i in range(len(mu)):
        for k in range(2 * ORDER):
            own = 0.5 * (w.worse[k * LANES + i] + w.better[k * LANES + i])
            w.series[k * LANES + i] = w.at[k] + (own if split else 0.0)
        if not split:
            gh = v[i] * h
            _add_tie(i, gh * v[i] * (x - mu[i]), gh * gh, w.series)
