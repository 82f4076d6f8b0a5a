"""Computes stage 1 of large rounds in linear time: the cost of each player does not grow with the
round.

P and Q are tabulated once for the whole round (`sum_table`). Each entry looks up its own position
and needs one or two of Halley's steps on its balance (`sums`).
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating.elementary import aligned, log, quick_exp, quick_log
from stream_rater.rating.elo_mmr.bounds import (
    BEYOND,
    ENDS,
    LEAST,
    MOST,
    likely_ends,
    tabulate_round,
)
from stream_rater.rating.elo_mmr.direct import FLAT, NOISE
from stream_rater.rating.elo_mmr.sum_table import (
    INVERSE,
    LEVELS,
    between,
    guess,
    interval,
    look_up,
    room,
    tabulate,
)
from stream_rater.rating.elo_mmr.sums import (
    BLOCK,
    HIGH,
    LANES,
    LOW,
    ODDS,
    P1,
    P2,
    STEP,
    TABLE,
    TOTAL,
    WIDEST,
    P,
    Q,
    X,
    are_tied,
    count_long,
    enter,
    excess,
    find_odds,
    find_own,
    halley,
    move,
    step_ranked,
    terms,
)
from stream_rater.rating.model import Places, count_ranked
from stream_rater.rating.roots import MAX_STEPS, safeguard

TOLERANCE = 1e-2
"""A step shorter than this fraction of the narrowest 1/u ends the search. The remaining error is of
the order of its cube. Here, Halley's method leaves a hundredth of that, because f is nearly
straight."""

FURTHEST = 2.0**28
"""The widest round for which a table is made, in units of the narrowest 1/u. Beyond it, a table
takes more than 56 GB, although a rating in a record has only 24 bits. So `direct` solves such a
round."""
UNFINISHED = 1e-3  # The tolerance for entries that did not finish, whose f is less straight.

OWN = 1500
"""In rounds smaller than this, a first step adds each entry's own terms to the guess. It is cheap,
because L is known at the guess."""

PASSES = 4  # The most steps that entries take together. An entry that needs more continues alone.

FEW = 8  # If at most one in this many entries needs another step, these continue alone at once.


@inlined
def _look_all_up(f: Floats, low: float, h: float, total: float, lanes: Floats, n: int) -> None:
    """Look up P, Q and P's derivatives at each X. L comes from the table. Then
    P = total / (1 + e^-L), and the others follow in the same way."""
    scale = 1.0 / h
    for i in range(min(n, BLOCK)):  # only the look-ups go lane by lane
        k, lanes[STEP + i] = interval(low, scale, f.shape[1] - 2, lanes[X + i])
        for row in range(4):
            lanes[TABLE + row * BLOCK + i] = f[row, k]
            lanes[TABLE + (row + 4) * BLOCK + i] = f[row, k + 1]
    for i in range(n):
        value, slope, bend = between(
            lanes[TABLE + i], lanes[TABLE + BLOCK + i], lanes[TABLE + 2 * BLOCK + i],
            lanes[TABLE + 3 * BLOCK + i], lanes[TABLE + 4 * BLOCK + i],
            lanes[TABLE + 5 * BLOCK + i], lanes[TABLE + 6 * BLOCK + i],
            lanes[TABLE + 7 * BLOCK + i], lanes[STEP + i],
        )  # fmt: skip
        lanes[P + i], lanes[P1 + i], lanes[P2 + i] = value, slope * scale, bend * (scale * scale)
    for i in range(n):
        value, rise, bend = lanes[P + i], lanes[P1 + i], lanes[P2 + i]
        e = quick_exp(-value)
        s = 1.0 / (1.0 + e)
        t = e * s
        slope = total * s * t
        lanes[P + i], lanes[Q + i] = total * s, total * t
        lanes[P1 + i], lanes[P2 + i] = slope * rise, slope * fma((t - s) * rise, rise, bend)


@inlined
def _guess(back: Floats, low: float, h: float, lanes: Floats, n: int, k: int) -> int:
    """Guess each X from its odds: it is where L is about -ln ODDS. The odds rise from entry to
    entry, and no X is beyond interval k. Returns the interval of the last X, and writes 1 / (rise
    of L) there to P1."""
    for i in range(n):
        lanes[STEP + i] = -quick_log(lanes[ODDS + i])
    last = k
    while last > 0 and back[0, last] > lanes[STEP + n - 1]:
        last -= 1
    for i in range(n):
        lanes[X + i] = last
    for node in range(last + 1, k + 1, 4):
        for i in range(n):
            at = lanes[STEP + i]
            first = 1.0 if back[0, node] <= at else 0.0
            second = 1.0 if back[0, node + 1] <= at else 0.0
            third = 1.0 if back[0, node + 2] <= at else 0.0
            fourth = 1.0 if back[0, node + 3] <= at else 0.0
            behind = lanes[X + i] + ((first + second) + (third + fourth))
            lanes[X + i] = min(behind, float(k))
    for i in range(min(n, BLOCK)):
        at = int(lanes[X + i])
        for row in range(4):
            lanes[TABLE + row * BLOCK + i] = back[row, at]
    for i in range(n):
        inverse = lanes[TABLE + BLOCK + i]
        part = guess(
            lanes[STEP + i], lanes[TABLE + i], inverse, lanes[TABLE + 2 * BLOCK + i],
            lanes[TABLE + 3 * BLOCK + i],
        )  # fmt: skip
        lanes[X + i], lanes[P1 + i] = low + h * (lanes[X + i] + part), inverse
    return last


@inlined
def _follow_from_odds(total: float, h: float, lanes: Floats, n: int) -> None:
    """Compute P, Q and P's derivatives at each guessed X, where P/Q is 1/ODDS, as if L were
    straight."""
    for i in range(n):
        odds, rise = lanes[ODDS + i], 1.0 / (h * lanes[P1 + i])
        s = 1.0 / (1.0 + odds)
        t = odds * s
        slope = total * s * t * rise
        lanes[P + i], lanes[Q + i] = total * s, total * t
        lanes[P1 + i], lanes[P2 + i] = slope, slope * (t - s) * rise


@inlined
def _solve(
    x: float, c: Floats, low: float, h: float, total: float, mu: Floats, u: Floats,
    odds: float, tie: float, tolerance: float,
) -> float:  # fmt: skip
    """The performance of the tie group (mu, u), searched from x with all safeguards. Returns NaN if
    f is too flat to locate its zero, as after an upset over a wide gap."""
    below, above = low, low + h * (c.shape[1] - 1)
    last, own = math.inf, 2.0 * tie - 1.0
    for _ in range(MAX_STEPS):
        value, rise, bend = look_up(c, low, h, x)
        e = quick_exp(-value)
        s = 1.0 / (1.0 + e)
        t = e * s
        p, q, p1 = total * s, total * t, total * s * t * rise
        p2 = total * s * t * (bend + (t - s) * rise * rise)
        for j in range(len(mu)):
            won, lost, slope, curve = terms(mu[j], u[j], x)
            p, q = p + own * won, q + own * lost
            p1, p2 = p1 + own * slope, p2 + own * curve
        f, f1, f2 = excess(p, q, p1, p2, odds)
        step = halley(f, f1, f2)
        if abs(f) < NOISE and f1 * tolerance < FLAT * TOLERANCE:
            return math.nan
        if abs(step) <= tolerance:
            return x + step
        x, below, above, last = safeguard(x, f, step, below, above, last)
        if abs(last) <= tolerance * 1e-6:
            break
    return x


@inlined
def _ranked_performances(
    place: Places, mu: Floats, u: Floats, ranked: int, tie: float, known: Floats, least: float,
    most: float, lanes: Floats, scratch: Floats, found: Floats,
) -> None:  # fmt: skip
    """Write the performances of the first `ranked` entries, which finished, into `found`, which
    contains their odds at first. `least` and `most` estimate the last and the first performance.

    A tie group whose balance is too flat gets NaN (see `_solve`). There is at most one such group
    for each gap in ratings.
    """
    total, narrow = known[TOTAL], 1.0 / known[WIDEST]
    nodes, wide, low, h = tabulate_round(
        place, mu, u, ranked, tie, known, found, least, most, scratch
    )
    c = scratch[LEVELS * wide : INVERSE * wide].reshape((4, wide))[:, :nodes]
    back = scratch[INVERSE * wide : (INVERSE + 4) * wide].reshape((4, wide))
    high = low + h * (nodes - 1)
    first_own = len(mu) < OWN
    k = nodes - 2
    first = 0
    while first < ranked:
        end = _block(place, first, ranked)
        part, n = place[first:end], min(end - first, BLOCK)
        filled = enter(first, first + n, mu, u, found, lanes)
        beside = part if are_tied(part) else part[:0]
        k = _guess(back, low, h, lanes, filled, k)
        if first_own:
            _follow_from_odds(total, h, lanes, filled)
            find_own(beside[:n], lanes, filled)
            step_ranked(2.0 * tie - 1.0, lanes, filled, narrow)
            move(lanes, filled, low, high)
        for _ in range(PASSES if n == end - first else 0):
            _look_all_up(c, low, h, total, lanes, filled)
            find_own(beside, lanes, filled)
            step_ranked(2.0 * tie - 1.0, lanes, filled, narrow)
            move(lanes, filled, low, high)
            if count_long(lanes, n, TOLERANCE * narrow) * FEW <= n:
                break
        for i in range(n):
            found[first + i] = lanes[X + i]
        i = 0 if n < len(part) or count_long(lanes, n, TOLERANCE * narrow) > 0 else n
        while i < len(part):
            j = i + 1
            while j < len(part) and part[j] == part[i]:
                j += 1
            if len(part) > BLOCK or not abs(lanes[STEP + i]) <= TOLERANCE * narrow:
                found[first + i : first + j] = _solve(
                    lanes[X + i], c, low, h, total, mu[first + i : first + j],
                    u[first + i : first + j], lanes[ODDS + i], tie, TOLERANCE * narrow,
                )  # fmt: skip
            i = j
        first = end


@inlined
def _block(place: Places, first: int, ranked: int) -> int:
    """The end of the entries from `first` on that are solved together: whole tie groups that fit
    into a block, or a single group that does not."""
    if ranked - first <= BLOCK:
        return ranked
    end = first + BLOCK
    while end > first and place[end - 1] == place[end]:
        end -= 1
    if end == first:
        end = first + BLOCK
        while end < ranked and place[end] == place[first]:
            end += 1
    return end


@inlined
def _unfinished_performances(
    mu: Floats, u: Floats, ranked: int, tie: float, known: Floats, scratch: Floats, found: Floats
) -> None:
    """Write the performances of entries [ranked, n), which did not finish, into `found`. Each has
    only itself as a tied entry, and all ranked entries as better ones, so the table covers the
    ranked entries alone."""
    narrow = 1.0 / known[WIDEST]
    nodes, wide, low, h = tabulate(
        mu[:ranked], u[:ranked], known[LOW], known[HIGH], narrow, scratch
    )
    c = scratch[LEVELS * wide : INVERSE * wide].reshape((4, wide))[:, :nodes]
    total, tolerance = np.sum(u[:ranked]), UNFINISHED * narrow
    x = low
    for i in range(ranked, len(mu)):
        x = _solve_unfinished(x, c, low, h, total, mu[i], u[i], tie, tolerance)
        found[i] = x


@inlined
def _solve_unfinished(
    x: float, c: Floats, low: float, h: float, total: float, mu: float, u: float, tie: float,
    tolerance: float,
) -> float:  # fmt: skip
    """The zero of ln(P + tie u s) - ln(tie u t), where all ranked entries are better, and only the
    entry itself is tied."""
    below, above = low, low + h * (c.shape[1] - 1)
    last = math.inf
    for _ in range(MAX_STEPS):
        value, rise, bend = look_up(c, low, h, x)
        e = quick_exp(-value)
        s = 1.0 / (1.0 + e)
        t = e * s
        won, lost, slope, curve = terms(mu, u, x)
        p = total * s + tie * won
        p1 = (total * s * t * rise + tie * slope) / p
        p2 = (total * s * t * (bend + (t - s) * rise * rise) + tie * curve) / p - p1 * p1
        f = log(p / (tie * lost))
        step = halley(f, p1 + won, p2 + slope)
        if abs(step) <= tolerance:
            return x + step
        x, below, above, last = safeguard(x, f, step, below, above, last)
        if abs(last) <= tolerance * 1e-6:
            break
    return x


@inlined
def _solve_all(
    round_starts: Ints, which: Ints, ranked: Ints, known: Floats, place: Places, mu: Floats,
    u: Floats, tie: float, ends: Floats, lanes: Floats, scratch: Floats, found: Floats,
) -> None:  # fmt: skip
    """Write the performances of the rounds `which` into `found`, which contains their odds at
    first. `ranked` (len(which),) is the number of entries of each round that finished."""
    likely_ends(round_starts, which, ranked, known, place, mu, u, tie, found, lanes, ends)
    for i in range(len(which)):
        r = which[i]
        a, b = round_starts[r], round_starts[r + 1]
        _ranked_performances(
            place[a:b], mu[a:b], u[a:b], ranked[i], tie, known[r], ends[LEAST, i], ends[MOST, i],
            lanes, scratch, found[a:b],
        )  # fmt: skip
        if ranked[i] < b - a:
            _unfinished_performances(mu[a:b], u[a:b], ranked[i], tie, known[r], scratch, found[a:b])


@inlined
def _begin_all(
    round_starts: Ints, which: Ints, known: Floats, place: Places, mu: Floats, u: Floats,
    tie: float, some: Ints, ranked: Ints, found: Floats,
) -> tuple[int, int]:  # fmt: skip
    """Prepare the rounds `which`. Rounds with finishers are written to `some`, their numbers of
    finishers to `ranked`, and their odds to `found`. Returns the number of these rounds, and the
    most scratch space that one of their tables needs."""
    count = most = 0
    for r in which:
        a, b = round_starts[r], round_starts[r + 1]
        finished = count_ranked(place[a:b])
        if finished == 0:
            for i in range(a, b):
                found[i] = mu[i]  # nobody to compare with
            continue
        narrow = 1.0 / known[r, WIDEST]
        if known[r, HIGH] - known[r, LOW] > FURTHEST * narrow:
            found[a:b] = math.nan
            continue
        find_odds(place[a:b], u[a:b], finished, tie, known[r, TOTAL], found[a:b])
        some[count], ranked[count] = r, finished
        most = max(most, room(known[r, HIGH] - known[r, LOW] + BEYOND * narrow, narrow))
        count += 1
    return count, most


@kernel
def solve_large(
    round_starts: Ints, which: Ints, known: Floats, place: Places, mu: Floats, u: Floats,
    tie: float, found: Floats,
) -> None:  # fmt: skip
    """Write the performances of the rounds `which` into `found`. `round_starts` and `known` (see
    `round_bounds`) cover all rounds. `direct` solves performances that are left NaN."""
    some, ranked = np.empty_like(which), np.empty_like(which)
    count, most = _begin_all(round_starts, which, known, place, mu, u, tie, some, ranked, found)
    _solve_all(
        round_starts, some[:count], ranked[:count], known, place, mu, u, tie,
        np.empty((ENDS, count)), aligned(LANES), aligned(most), found,
    )  # fmt: skip
