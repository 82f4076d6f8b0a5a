"""Elo-MMx with all opponents at a cost per player that does not grow with the round.

Let F(x) be -Q of `gaussian` with everyone before a boundary in the standings better and everyone
after it worse: a sum of y_j = g_j H((x - mu_j) g_j), with g_j = 1/delta_j for the better and
-1/delta_j for the worse. From rank to rank one tie group crosses over, so F changes by that group's
terms alone, while its root falls. We know F on a *cell* [x, x + h] by its Taylor series about both
ends, six coefficients each, which make a polynomial of degree 11 (`series.solve`). It serves all
ranks whose root lies in the cell: each costs its own group's terms at the two ends. Then the cell
moves down; its upper end is the old lower one, already known, so that O(n) goes into one end.

A tie group's own part is a line (full), or it is the mean of before and after (split).

The last coefficients tell how well a polynomial fits. Where it does not (`TOLERANCE`), the cell is
made again, narrower; where it fits very well, the next one is wider. Round sizes, widths and crowds
of equals then find cells of their own: 10 to 35 in all, for standings as they are. Only ratings
thousands of times wider apart than delta need more, up to a cell for each group.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import inlined
from stream_rater.rating.baselines.series import (
    LANES,
    ORDER,
    Work,
    cross,
    expand,
    solve,
)
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.model import Places
from stream_rater.rating.roots import safeguard

TOLERANCE, LARGE_TOLERANCE = 2e-8, 1.5e-7
"""The estimated error of a performance that is let pass, in units of the cell's width h: up to
LARGE entries and above. Measured at usual widths, below 1e-6 and 4e-5 points."""

LARGE = 500

AIM = 0.06
"""New cells are as wide as should give this part of the tolerance."""

NARROWER, WIDER = 0.5, 1.25
"""How much the width may change from cell to cell."""

TRIES = 100
"""So many cells are tried for one group; the last is taken as it is. (More than three are rare.)"""

PLACED = 0.8
"""Where in a new cell the root should lie: high, as those to come are lower."""

GUESS = 2.0
"""Up to so many widths a root is guessed from a cubic, beyond from a line."""


@inlined
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


@inlined
def _add_tie(group: int, value: float, slope: float, series: Floats) -> None:
    """Add a full tie's line to a series."""
    series[group] += value
    series[LANES + group] += slope
    series[ORDER * LANES + group] += value + slope
    series[(ORDER + 1) * LANES + group] += slope


@inlined
def _is_found(k: int, tries: int, tolerance: float, series: Floats, doubt: Floats) -> bool:
    """Whether the k-th root is in the cell, and known well enough."""
    inside = series[k] <= 0.0 <= series[ORDER * LANES + k]
    return (inside and doubt[k] <= tolerance) or tries > TRIES


@inlined
def _guess(series: Floats) -> float:
    """About where the series of this lane is zero, beyond where it tells exactly."""
    t0, t1, t2, t3 = series[0], series[LANES], series[2 * LANES], series[3 * LANES]
    line: float = -t0 / t1
    cubic: float = -t0 / (t1 + line * (t2 + line * t3))
    return cubic if abs(line) <= GUESS else line


@inlined
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


@inlined
def ranked_performances(
    place: Places, mu: Floats, v: Floats, block: int, split: bool, x: float, h: float,
    lowest: float, highest: float, w: Work, g: Floats, found: Floats,
) -> None:  # fmt: skip
    """The performances of the entries in `place`, all of which are ranked, into `found`.

    `mu` and `v` = 1/delta go on with those who did not finish, and then with v = 0 for `block`
    more; `g`, LANES fewer, is worked in. The first cell is [x, x + h]; all roots lie in (lowest,
    highest).
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


@inlined
def unfinished_performances(
    mu: Floats, v: Floats, ranked: int, split: bool, x: float, h: float,
    lowest: float, highest: float, w: Work, g: Floats, found: Floats,
) -> None:  # fmt: skip
    """The performances of the entries from `ranked` on, each worse than all ranked ones and tied
    with itself, into `found`, which holds NaN for them. `mu` and `v` go on for LANES more than `g`.

    Every cell serves all whose root is in it, and there is one for the first of those left over.
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
def _own_series(x: float, h: float, mu: Floats, v: Floats, split: bool, w: Work) -> None:
    """-Q of each player in a row, were all that F counts better and nobody else there."""
    if split:
        cross(x, h, mu, v, w)
    for i in range(len(mu)):
        for k in range(2 * ORDER):
            own = 0.5 * (w.worse[k * LANES + i] + w.better[k * LANES + i])
            w.series[k * LANES + i] = w.at[k] + (own if split else 0.0)
        if not split:
            gh = v[i] * h
            _add_tie(i, gh * v[i] * (x - mu[i]), gh * gh, w.series)
