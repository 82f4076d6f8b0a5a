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

from stream_rater.rating.baselines.hazards import hazard, taylor
from stream_rater.rating.compiled import kernel
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.model import Floats, Ints, Places
from stream_rater.rating.roots import safeguard

LANES = 16
"""Players in a row of the arrays: what is done to them is done side by side."""

ORDER = 6
"""Taylor coefficients about either end of a cell; lane i of the m-th is at m * LANES + i."""

TOLERANCE = 2e-8
"""The error of a performance that is let pass, in units of the cell's width h."""

AIM = 0.1
"""New cells are as wide as should give this part of the tolerance."""

NARROWER, WIDER = 0.5, 1.25
"""How much the width may change from cell to cell."""

STEPS = 2
"""Newton steps from a cubic guess."""

TRIES = 100
"""So many cells are tried for one group; the last is taken as it is. (Few need more than two.)"""


class Work(NamedTuple):
    """The state of the sweep and the arrays it works in. Index s: 0 about x, 1 about x + h."""

    scratch: Floats
    worse: Floats
    """(2, ORDER * LANES) the terms of a row's players as worse than the boundary,"""
    better: Floats
    """as better than it."""
    series: Floats
    """(2, ORDER * LANES) -Q of each group in the row, to be solved."""
    start: Floats
    """(ORDER * LANES) F at each group's first boundary, about x."""
    at: Floats
    """(2, ORDER) F at the first boundary of the group under way,"""
    run: Floats
    """at the boundary reached,"""
    gone: Floats
    """and the terms of the group's players as worse."""
    tie: Floats
    """(2,) value at x and slope of the line that the group's ties make."""
    root: Floats
    """(LANES,) each group's root in units of h above x, and its error."""
    doubt: Floats
    ends: Ints
    """(LANES,) where each group ends."""


@kernel
def new_work() -> Work:
    """Arrays for one round."""
    both = (2, ORDER * LANES)
    return Work(
        np.empty(3 * LANES), np.empty(both), np.empty(both), np.zeros(both),
        np.empty(ORDER * LANES), np.empty((2, ORDER)), np.empty((2, ORDER)), np.empty((2, ORDER)),
        np.empty(2), np.empty(LANES), np.empty(LANES), np.empty(LANES, np.int64),
    )  # fmt: skip


@kernel
def _add(x: float, h: float, mu: Floats, g: Floats, scratch: Floats, terms: Floats) -> None:
    """Add the series about x, in units of h, of each player of a row to `terms`.

    Two loops: either alone is short enough for a processor to overlap its rounds.
    """
    for i in range(len(mu)):
        z = (x - mu[i]) * g[i]
        value, excess = hazard(z)
        scratch[i] = z
        scratch[LANES + i] = value
        scratch[2 * LANES + i] = excess
    for i in range(len(mu)):
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
def _expand(x: float, h: float, mu: Floats, g: Floats, w: Work, sums: Floats) -> None:
    """F's series about x into `sums`: that of all players together."""
    terms = w.worse[0]
    for k in range(ORDER * LANES):
        terms[k] = 0.0
    for c in range(len(mu)):
        _add(x, h, mu[c], g[c], w.scratch, terms)
    for m in range(ORDER):
        total = 0.0
        for i in range(LANES):
            total += terms[m * LANES + i]
        sums[m] = total


@kernel
def _cross(x: float, h: float, mu: Floats, v: Floats, w: Work) -> None:
    """The terms of a row's players on either side of the boundary, about both ends of the cell."""
    g = -v
    for s in range(2):
        for k in range(ORDER * LANES):
            w.worse[s, k] = w.better[s, k] = 0.0
        _add(x + s * h, h, mu, g, w.scratch, w.worse[s])
        _add(x + s * h, h, mu, v, w.scratch, w.better[s])


@kernel
def _solve(below: Floats, above: Floats, root: Floats, doubt: Floats) -> None:
    """For each lane the zero in (0, 1) of the polynomial of degree 11 with these two series.

    It is A(r) + r^6 E(r - 1): A the series about 0, E what the one about 1 needs besides.
    """
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
    x: float, h: float, c: int, first: int, ranked: int, split: bool, place: Places, mu: Floats,
    v: Floats, w: Work,
) -> int:  # fmt: skip
    """Lead the boundary through row c; a series for each group that ends there. How many?"""
    groups = 0
    for i in range(max(first - c * LANES, 0), min(LANES, ranked - c * LANES)):
        for s in range(2):
            for m in range(ORDER):
                w.gone[s, m] += w.worse[s, m * LANES + i]
                w.run[s, m] += w.better[s, m * LANES + i] - w.worse[s, m * LANES + i]
        gh = v[c, i] * h
        w.tie[0] += gh * v[c, i] * (x - mu[c, i])
        w.tie[1] += gh * gh
        p = c * LANES + i
        if p + 1 == ranked or place[p + 1] != place[p]:
            w.ends[groups] = p + 1
            _end_group(groups, split, w)
            groups += 1
    return groups


@kernel
def _end_group(k: int, split: bool, w: Work) -> None:
    """The boundary has passed the k-th group of a row."""
    for m in range(ORDER):
        w.start[m * LANES + k] = w.at[0, m]
    for s in range(2):
        for m in range(ORDER):
            if split:
                w.series[s, m * LANES + k] = 0.5 * (w.at[s, m] + w.run[s, m])
            else:
                w.series[s, m * LANES + k] = w.at[s, m] - w.gone[s, m]
            w.at[s, m] = w.run[s, m]
            w.gone[s, m] = 0.0
        if not split:
            w.series[s, k] += w.tie[0] + s * w.tie[1]
            w.series[s, LANES + k] += w.tie[1]
    w.tie[0] = w.tie[1] = 0.0


@kernel
def _is_found(k: int, tries: int, w: Work) -> bool:
    """Whether the k-th root is in the cell, and known well enough."""
    inside = w.series[0, k] <= 0.0 <= w.series[1, k]
    return inside and (w.doubt[k] <= TOLERANCE or tries > TRIES)


@kernel
def _next_cell(
    x: float, h: float, k: int, w: Work, low: float, high: float, last: float
) -> tuple[float, float, float, float, float]:
    """A cell (x, h) for the k-th group, whose root is not well known in this one or not in it.

    With the bracket of the root (low, high) and the last step, for `safeguard`.
    """
    below, above = w.series[0, k], w.series[1, k]
    known = k
    while known > 0 and not w.series[0, known] <= 0.0 <= w.series[1, known]:
        known -= 1
    width = h
    if w.series[0, known] <= 0.0 <= w.series[1, known]:
        change = exp(log(AIM * TOLERANCE / max(w.doubt[known], 1e-30)) / 11.0)
        width = h * min(max(change, NARROWER), WIDER)
    if below > 0.0:
        step = -h * below / w.series[0, LANES + k]
        root, low, high, last = safeguard(x, below, step, low, high, last)
    elif above < 0.0:
        step = -h * above / w.series[1, LANES + k]
        root, low, high, last = safeguard(x + h, above, step, low, high, last)
    else:
        root = x + h * w.root[k]
        width = min(width, 0.8 * h)
    return root - 0.9 * width, width, low, high, last


@kernel
def ranked_performances(
    place: Places, mu: Floats, v: Floats, ranked: int, split: bool, x: float, h: float,
    lowest: float, highest: float, found: Floats,
) -> None:  # fmt: skip
    """The performances of the first `ranked` entries into `found`; the others are worse than all.

    `mu` and `v` = 1/delta are (rows, LANES), the last row filled up with v = 0. The first cell
    is [x, x + h]; all roots lie in (lowest, highest).
    """
    w = new_work()
    g = -v
    first = tries = 0
    low, high, last = lowest, highest, math.inf
    moved = False
    while first < ranked:
        _expand(x, h, mu, g, w, w.run[0])
        if not moved:
            _expand(x + h, h, mu, g, w, w.run[1])
        w.at[:] = w.run
        w.gone[:] = 0.0
        w.tie[:] = 0.0
        settled = True
        c = first // LANES
        while settled and first < ranked:
            _cross(x, h, mu[c], v[c], w)
            groups = _groups(x, h, c, first, ranked, split, place, mu, v, w)
            _solve(w.series[0], w.series[1], w.root, w.doubt)
            k = 0
            while k < groups and _is_found(k, tries, w):
                for p in range(first, w.ends[k]):
                    found[p] = x + h * w.root[k]
                    g[p // LANES, p % LANES] = v[p // LANES, p % LANES]
                first = w.ends[k]
                k += 1
                tries = 0
                low, high, last = lowest, highest, math.inf
            settled = k == groups
            c += 1
        if not settled:
            before, width = x, h
            x, h, low, high, last = _next_cell(x, h, k, w, low, high, last)
            # the root is close below: the old lower end becomes the upper one
            moved = tries == 0 and w.series[0, k] > 0.0 and x + h > before - 0.1 * h
            if moved:
                x = before - h
                scale = h / width
                for m in range(ORDER):
                    w.run[1, m] = scale * w.start[m * LANES + k]
                    scale *= h / width
            tries += 1


@kernel
def unfinished_performances(
    mu: Floats, v: Floats, ranked: int, split: bool, x: float, h: float,
    lowest: float, highest: float, found: Floats,
) -> None:  # fmt: skip
    """The performances of the entries from `ranked` on, each worse than all ranked ones and tied
    with itself, into `found`, which holds NaN for them.

    Every cell serves all whose root is in it, and there is one for the first of those left over.
    """
    w = new_work()
    g = np.zeros_like(v)
    n = len(found)
    for p in range(ranked):
        g[p // LANES, p % LANES] = v[p // LANES, p % LANES]
    first = ranked
    tries = 0
    low, high, last = lowest, highest, math.inf
    while first < n:
        _expand(x, h, mu, g, w, w.at[0])
        _expand(x + h, h, mu, g, w, w.at[1])
        was = first
        pending = -1
        for c in range(first // LANES, len(mu)):
            _own_series(x, h, mu[c], v[c], split, w)
            _solve(w.series[0], w.series[1], w.root, w.doubt)
            for k in range(max(first - c * LANES, 0), min(LANES, n - c * LANES)):
                p = c * LANES + k
                if np.isnan(found[p]) and _is_found(k, tries if p == was else 0, w):
                    found[p] = x + h * w.root[k]
                if pending < 0 and np.isnan(found[p]):
                    pending = p
                    if p != was:
                        tries = 0
                        low, high, last = lowest, highest, math.inf
                    next_x, next_h, low, high, last = _next_cell(x, h, k, w, low, high, last)
        if pending < 0:
            break
        first, x, h = pending, next_x, next_h
        tries += 1


@kernel
def _own_series(x: float, h: float, mu: Floats, v: Floats, split: bool, w: Work) -> None:
    """-Q of each player in a row, were all that F counts better and nobody else there."""
    if split:
        _cross(x, h, mu, v, w)
    for s in range(2):
        for i in range(LANES):
            gh = v[i] * h
            for m in range(ORDER):
                own = 0.5 * (w.worse[s, m * LANES + i] + w.better[s, m * LANES + i])
                w.series[s, m * LANES + i] = w.at[s, m] + (own if split else 0.0)
            if not split:
                w.series[s, i] += gh * v[i] * (x - mu[i]) + s * gh * gh
                w.series[s, LANES + i] += gh * gh
