"""Computes stage 1 of small rounds by sums over all entries, for many rounds of one size at once.

Each round has a lane: planes[Q, i, k] is quantity Q of entry i of the round in lane k. The compiler
turns loops over lanes into vector instructions. When the search of a round ends, its lane is given
to the next round, or to the last one that is still searching. If there are fewer rounds than lanes,
some lanes are copies. The bits of a round do not depend on other rounds.

The balance and the step are those of `sums`. The first step, from a guess, is computed in single
precision. Then one more step usually suffices. A performance that needs more than PASSES steps is
left to `direct`.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats, Ints, Singles
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import giving, inlined, kernel
from stream_rater.rating.elementary import ONE, aligned, quick_exp, quick_log, single_exp
from stream_rater.rating.elo_mmr import sums
from stream_rater.rating.elo_mmr.sums import (
    FLAT,
    are_tied,
    bend_of_slope,
    excess,
    find_odds,
    likely,
)
from stream_rater.rating.model import Places
from stream_rater.rating.roots import householder

SMALL = 30  # The largest size of these rounds; above it, `large_rounds` is faster.

LANES = 32
"""The number of lanes, a constant for the compiler, which would process fewer than 17 one by one.
Arrays that are written lie in memory before arrays that are read, because the compiler's check for
overlap uses too wide bounds."""

TOLERANCE = 2.5e-2
"""A step shorter than this fraction of the narrowest 1/u ends the search. The remaining error is a
small fraction of its fourth power, because f is nearly straight."""

PASSES = 8

MU, U, PLACE, ODDS, X, STEP = range(6)
"""Planes: the data of an entry, its odds (B + c T) / (W + c T), its performance and the last
step."""
PLANES = 6
COUNT, W, WD, WDD = range(5, 9)
"""Planes that only the first step has, in the place of STEP. They describe an entry and those tied
with it: their number, and their sums of u, u d and u d^2, where d is the rating relative to the
round's first entry."""
SINGLE_PLANES = 9

P, Q, P1, P2, P3, E = range(6)
"""Rows: the sums at X of the current entry (see `sums`), and the exponential of their terms."""
SINGLE_ROWS = 6
LOW, HIGH, NARROW, LONGEST, PASS, FIRST = range(6, 12)
"""Rows of a round: its bounds, its narrowest 1/u, its longest last step, its number of steps, and
its first entry."""
ROWS = 12

ZERO, SIX = np.float32(0.0), np.float32(6.0)

REACH = 8.0  # The longest first step, in units of 1/u of the round's first entry.


@inlined
def _sum(planes: Floats, rows: Floats, i: int, size: int, tie: float, alone: bool) -> None:
    """Compute P, Q and P's derivatives at the X of entry i. A tied entry's term counts 2c times,
    any other term counts once. `alone` says that no entries are tied in any lane, so that an entry
    is tied only with itself. The bits are the same."""
    for k in range(LANES):
        rows[P, k] = rows[Q, k] = rows[P1, k] = rows[P2, k] = rows[P3, k] = 0.0
    for j in range(size):
        for k in range(LANES):  # its own loop: iterations of short loops overlap
            rows[E, k] = quick_exp((planes[MU, j, k] - planes[X, i, k]) * planes[U, j, k])
        for k in range(LANES):
            u = planes[U, j, k]
            won = u / (1.0 + rows[E, k])
            lost = rows[E, k] * won
            slope = won * lost
            tied = i == j if alone else planes[PLACE, j, k] == planes[PLACE, i, k]
            times = 2.0 * tie if tied else 1.0
            rows[P, k] = fma(times, won, rows[P, k])
            rows[Q, k] = fma(times, lost, rows[Q, k])
            weighed = times * slope
            rows[P1, k] += weighed
            rows[P2, k] = fma(weighed, lost - won, rows[P2, k])
            rows[P3, k] = fma(weighed, fma(u, u, -6.0 * slope), rows[P3, k])


@inlined
def _sum_singly(
    planes: Singles, rows: Singles, i: int, size: int, tie: np.float32, alone: bool
) -> None:
    """Do the same as `_sum`, in single precision, in which a vector has twice as many lanes."""
    for k in range(LANES):
        rows[P, k] = rows[Q, k] = rows[P1, k] = rows[P2, k] = rows[P3, k] = ZERO
    for j in range(size):
        for k in range(LANES):
            rows[E, k] = single_exp((planes[MU, j, k] - planes[X, i, k]) * planes[U, j, k])
        for k in range(LANES):
            u = planes[U, j, k]
            won = u / (ONE + rows[E, k])
            lost = rows[E, k] * won
            slope = won * lost
            tied = i == j if alone else planes[PLACE, j, k] == planes[PLACE, i, k]
            times = tie + tie if tied else ONE
            rows[P, k] = fma(times, won, rows[P, k])
            rows[Q, k] = fma(times, lost, rows[Q, k])
            weighed = times * slope
            rows[P1, k] += weighed
            rows[P2, k] = fma(weighed, lost - won, rows[P2, k])
            rows[P3, k] = fma(weighed, fma(u, u, -SIX * slope), rows[P3, k])


@inlined
def _gather_groups(planes: Singles, size: int) -> None:
    """Compute COUNT, W, WD and WDD of each entry's tie group."""
    for i in range(size):
        for k in range(LANES):
            u, d = planes[U, i, k], planes[MU, i, k]
            planes[COUNT, i, k], planes[W, i, k] = ONE, u
            planes[WD, i, k], planes[WDD, i, k] = u * d, u * d * d
    for plane in (COUNT, W, WD, WDD):
        for i in range(1, size):
            for k in range(LANES):
                tied = planes[PLACE, i, k] == planes[PLACE, i - 1, k]
                planes[plane, i, k] += planes[plane, i - 1, k] if tied else ZERO
        for i in range(size - 2, -1, -1):
            for k in range(LANES):
                tied = planes[PLACE, i, k] == planes[PLACE, i + 1, k]
                planes[plane, i, k] = planes[plane, i + 1, k] if tied else planes[plane, i, k]


@inlined
def _guess(planes: Singles, rows: Singles, size: int, own: float, alone: bool) -> None:
    """Guess each X. The entry itself and those tied with it are added another `own` times."""
    for k in range(LANES):
        rows[P, k] = rows[P1, k] = rows[P2, k] = ZERO
    for i in range(size):
        for k in range(LANES):
            u, d = planes[U, i, k], planes[MU, i, k]
            rows[P, k] += u
            rows[P1, k] += u * d
            rows[P2, k] += u * d * d
    for i in range(size):
        for k in range(LANES):
            u, d = planes[U, i, k], planes[MU, i, k]
            planes[X, i, k] = likely(
                quick_log(np.float64(planes[ODDS, i, k])),
                size + own * (1.0 if alone else planes[COUNT, i, k]),
                rows[P, k] + own * (u if alone else planes[W, i, k]),
                rows[P1, k] + own * (u * d if alone else planes[WD, i, k]),
                rows[P2, k] + own * (u * d * d if alone else planes[WDD, i, k]),
            )


@inlined
def _step_first(
    size: int, starts: Ints, place: Places, mu: Floats, u: Floats, odds: Floats, tie: float,
    alone: bool, planes: Singles, rows: Singles, guess: Floats,
) -> None:  # fmt: skip
    """Guess the performances in some rounds and take a first step, in single precision. Here,
    ratings are relative to the round's first entry."""
    for k in range(LANES):
        first = starts[min(k, len(starts) - 1)]
        for i in range(size):
            e = first + i
            planes[MU, i, k], planes[U, i, k] = np.float32(mu[e] - mu[first]), np.float32(u[e])
            planes[ODDS, i, k] = np.float32(odds[e])
            tied = i > 0 and place[e] == place[e - 1]
            planes[PLACE, i, k] = planes[PLACE, i - 1, k] if tied else np.float32(i)
    if alone:
        _guess(planes, rows, size, 2.0 * tie - 1.0, True)
    else:
        _gather_groups(planes, size)
        _guess(planes, rows, size, 2.0 * tie - 1.0, False)
    for i in range(size):
        if alone:
            _sum_singly(planes, rows, i, size, np.float32(tie), True)
        else:
            _sum_singly(planes, rows, i, size, np.float32(tie), False)
        for k in range(LANES):
            p, q, p1 = np.float64(rows[P, k]), np.float64(rows[Q, k]), np.float64(rows[P1, k])
            p2, p3 = np.float64(rows[P2, k]), np.float64(rows[P3, k])
            f, f1, f2 = excess(p, q, p1, p2, np.float64(planes[ODDS, i, k]))
            step = householder(f, f1, f2, bend_of_slope(p, q, p1, p2, p3))
            is_small = abs(step) * np.float64(planes[U, 0, k]) < REACH
            planes[X, i, k] += np.float32(step if is_small else 0.0)
    for k in range(len(starts)):
        for i in range(size):
            e = starts[k] + i
            guess[e] = mu[starts[k]] + np.float64(planes[X, i, k])


@inlined
def _move(planes: Floats, rows: Floats, size: int, tie: float, alone: bool) -> None:
    """Take a step for every entry, within its round's bounds."""
    for i in range(size):
        if alone:
            _sum(planes, rows, i, size, tie, True)
        else:
            _sum(planes, rows, i, size, tie, False)
        for k in range(LANES):
            p, q, p1, p2 = rows[P, k], rows[Q, k], rows[P1, k], rows[P2, k]
            f, f1, f2 = excess(p, q, p1, p2, planes[ODDS, i, k])
            step = householder(f, f1, f2, bend_of_slope(p, q, p1, p2, rows[P3, k]))
            planes[STEP, i, k] = step if f1 * rows[NARROW, k] > FLAT else math.inf
    for k in range(LANES):
        rows[LONGEST, k] = 0.0
        rows[PASS, k] += 1.0
    for i in range(size):
        for k in range(LANES):
            x, step = planes[X, i, k], planes[STEP, i, k]
            planes[X, i, k] = min(max(x + step, rows[LOW, k]), rows[HIGH, k])
            rows[LONGEST, k] = max(rows[LONGEST, k], abs(step))


@inlined
def _fill_lane(
    planes: Floats, rows: Floats, k: int, size: int, first: int, place: Places, mu: Floats,
    u: Floats, odds: Floats, guess: Floats,
) -> None:  # fmt: skip
    """Load the round whose entries begin at `first` into lane k."""
    widest = 0.0
    for i in range(size):
        e = first + i
        widest = max(widest, u[e])
        planes[MU, i, k], planes[U, i, k], planes[PLACE, i, k] = mu[e], u[e], place[e]
        planes[ODDS, i, k], planes[X, i, k] = odds[e], guess[e]
    rows[NARROW, k], rows[PASS, k], rows[FIRST, k] = 1.0 / widest, 0.0, first


@inlined
def _leave(planes: Floats, rows: Floats, k: int, size: int, found: Floats) -> bool:
    """Whether the search in lane k has ended. If so, its performances are written to `found`."""
    enough = TOLERANCE * rows[NARROW, k]
    if rows[LONGEST, k] > enough and rows[PASS, k] < PASSES:
        return False
    first = int(rows[FIRST, k])
    for i in range(size):
        closed = abs(planes[STEP, i, k]) <= enough
        found[first + i] = planes[X, i, k] if closed else math.nan
    return True


@inlined
def _copy(planes: Floats, rows: Floats, k: int, to: int, size: int) -> None:
    for plane in range(len(planes)):
        for i in range(size):
            planes[plane, i, to] = planes[plane, i, k]
    for row in range(ROWS):
        rows[row, to] = rows[row, k]


@giving
def _solve_size(
    size: int, starts: Ints, lows: Floats, highs: Floats, place: Places, mu: Floats, u: Floats,
    odds: Floats, tie: float, guess: Floats, found: Floats,
) -> None:  # fmt: skip
    """Solve all rounds of this size, whose entries begin at `starts`, within these bounds."""
    alone = True
    for first in starts:
        alone = alone and not are_tied(place[first : first + size])
    little = aligned((SINGLE_ROWS + SINGLE_PLANES * size) * LANES // 2).view(np.float32)
    single_rows = little[: SINGLE_ROWS * LANES].reshape((SINGLE_ROWS, LANES))
    singles = little[SINGLE_ROWS * LANES :].reshape((SINGLE_PLANES, size, LANES))
    for first in range(0, len(starts), LANES):
        some = starts[first : first + LANES]
        _step_first(size, some, place, mu, u, odds, tie, alone, singles, single_rows, guess)
    room = aligned((ROWS + PLANES * size) * LANES)  # rows first: see LANES
    rows = room[: ROWS * LANES].reshape((ROWS, LANES))
    planes = room[ROWS * LANES :].reshape((PLANES, size, LANES))
    n = entered = min(len(starts), LANES)
    for k in range(LANES):
        r = min(k, n - 1)  # surplus lanes hold copies, whose results are dropped
        _fill_lane(planes, rows, k, size, starts[r], place, mu, u, odds, guess)
        rows[LOW, k], rows[HIGH, k] = lows[r], highs[r]
    while n > 0:
        _move(planes, rows, size, tie, alone)
        k = 0
        while k < n:
            if not _leave(planes, rows, k, size, found):
                k += 1
            elif entered < len(starts):
                _fill_lane(planes, rows, k, size, starts[entered], place, mu, u, odds, guess)
                rows[LOW, k], rows[HIGH, k] = lows[entered], highs[entered]
                k, entered = k + 1, entered + 1
            else:
                n -= 1
                _copy(planes, rows, n, k, size)


@kernel
def solve_small(
    round_starts: Ints, which: Ints, known: Floats, place: Places, mu: Floats, u: Floats,
    tie: float, found: Floats,
) -> None:  # fmt: skip
    """Write the performances of the rounds `which` into `found`. These rounds have at most SMALL
    entries, all of which finished. `round_starts` and `known` (see `round_bounds`) cover all
    rounds. `direct` solves performances that are left NaN."""
    odds, guess = np.empty(len(mu)), np.empty(len(mu))
    starts = np.empty((SMALL + 1, len(which)), np.int64)
    lows, highs = np.empty((SMALL + 1, len(which))), np.empty((SMALL + 1, len(which)))
    counts = np.zeros(SMALL + 1, np.int64)
    for r in which:
        a, b = round_starts[r], round_starts[r + 1]
        find_odds(place[a:b], u[a:b], b - a, tie, known[r, sums.TOTAL], odds[a:b])
        at = counts[b - a]
        starts[b - a, at] = a
        lows[b - a, at], highs[b - a, at] = known[r, sums.LOW], known[r, sums.HIGH]
        counts[b - a] += 1
    for size in range(1, SMALL + 1):
        n = counts[size]
        if n > 0:
            _solve_size(
                size, starts[size, :n], lows[size, :n], highs[size, :n], place, mu, u, odds, tie,
                guess, found,
            )  # fmt: skip
