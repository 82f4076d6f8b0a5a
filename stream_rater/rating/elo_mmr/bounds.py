"""Finds the range in which a round's performances lie, and tabulates no wider range.

The range is guessed from the moments of the ratings and improved by one step. Then the table itself
checks it: the balances of the first and of the last group must change their sign within the table.
"""

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import inlined
from stream_rater.rating.elementary import VECTOR, log, quick_exp
from stream_rater.rating.elo_mmr.sum_table import (
    COARSE,
    LEVELS,
    WIDEST,
    coarse_sums,
    tabulate,
    won_by_two,
)
from stream_rater.rating.elo_mmr.sums import (
    HIGH,
    LOW,
    MEAN,
    SQUARE,
    TOTAL,
    excess,
    halley,
    likely,
    moments,
    terms,
)
from stream_rater.rating.elo_mmr.sums import WIDEST as WIDEST_U
from stream_rater.rating.model import Places

MARGIN = 0.25
"""The margin added to likely bounds, in units of the narrowest 1/u. A step from a usual guess
leaves an error of less than 0.05."""

FARTHEST = 8.0  # The longest step, in the same units.

BEYOND = 2.0 * (FARTHEST + MARGIN)
"""The most by which a table may be wider than the round's bounds, in the same units."""

LEAST, MOST, LEAST_ODDS, MOST_ODDS, NARROW, SUMS_AT = range(6)
"""Rows with a column for each round: the approximate last and first performance, their odds, the
narrowest 1/u, and 8 rows of sums."""
ENDS = SUMS_AT + 8

STRIP = 4 * VECTOR  # The number of entries that are summed together, a constant for the compiler.

E, F, MU, U = 8 * STRIP, 9 * STRIP, 10 * STRIP, 11 * STRIP
"""The offsets of these rows in the scratch space of `_sum_at`. They follow 8 rows of sums."""


@inlined
def first_group(place: Places) -> int:
    """The end of the group of entries that share the first place."""
    end = 1
    while end < len(place) and place[end] == place[0]:
        end += 1
    return end


@inlined
def last_group(place: Places, ranked: int) -> int:
    """The start of the group of entries that share the last place."""
    first = ranked - 1
    while first > 0 and place[first - 1] == place[ranked - 1]:
        first -= 1
    return first


@inlined
def _parts(mu: Floats, u: Floats, first: int, end: int, x: float) -> tuple[float, float]:
    """The sums of u s and u t over entries [first, end) at x, which are their parts of P and Q."""
    s = r = 0.0
    for j in range(first, end):
        won, lost, _, _ = terms(mu[j], u[j], x)
        s, r = s + won, r + lost
    return s, r


@inlined
def _bounds(
    place: Places, mu: Floats, u: Floats, ranked: int, tie: float, low: float, high: float,
    narrow: float, scratch: Floats,
) -> tuple[float, float]:  # fmt: skip
    """Lower and upper bounds of a round's performances, from P and Q at a few nodes in (low, high).
    Each bound is moved inwards from its node, because ln P and ln Q change by less than the widest
    u per point."""
    if high - low > WIDEST * narrow:
        return low, high
    h = (high - low) / (COARSE - 1)
    coarse_sums(mu, u, low, h, COARSE, scratch)
    sums = scratch[: 2 * COARSE].reshape((2, COARSE))
    best, last = first_group(place[:ranked]), last_group(place, ranked)
    own = 2.0 * tie - 1.0
    first_aim, last_aim = tie * np.sum(u[:best]), tie * np.sum(u[last:ranked]) + np.sum(u[ranked:])
    above, below, left, right = COARSE - 1, 0, first_aim, last_aim
    for k in range(COARSE - 1, 0, -1):
        _, part = _parts(mu, u, 0, best, low + k * h)
        if sums[1, k] + own * part > first_aim:
            break
        above, left = k, sums[1, k] + own * part
    for k in range(above):
        part, _ = _parts(mu, u, last, ranked, low + k * h)
        if sums[0, k] + own * part > last_aim:
            break
        below, right = k, sums[0, k] + own * part
    below_by, above_by = log(last_aim / right) * narrow, log(first_aim / left) * narrow
    return low + below * h + below_by, low + above * h - above_by


@inlined
def _guess(
    mu: Floats, u: Floats, first: int, end: int, own: float, odds: float, known: Floats
) -> float:
    """An estimate of the performance of the tie group [first, end) (see `likely`)."""
    total, mean, square = moments(mu, u, first, end)
    x: float = mu[0] + likely(
        log(odds), len(mu) + own * (end - first),
        known[TOTAL] + own * total, known[MEAN] + own * mean, known[SQUARE] + own * square,
    )  # fmt: skip
    return x


@inlined
def _add(lanes: Floats, row: int, k: int, times: float, won: float, lost: float) -> None:
    """Add a term to P, Q and P's two derivatives, in rows from `row` on."""
    slope = times * won * lost
    lanes[row + k] = fma(times, won, lanes[row + k])
    lanes[row + STRIP + k] = fma(times, lost, lanes[row + STRIP + k])
    lanes[row + 2 * STRIP + k] += slope
    lanes[row + 3 * STRIP + k] = fma(slope, lost - won, lanes[row + 3 * STRIP + k])


@inlined
def _sum_at(
    low: float, high: float, mu: Floats, u: Floats, best: int, last: int, ranked: int, own: float,
    lanes: Floats,
) -> None:  # fmt: skip
    """Compute P, Q and P's two derivatives, one row each, split into STRIP partial sums. The first
    four rows are the sums at `low`, with `own` times the last group's terms added. The next four
    are the sums at `high`, with `own` times the first group's terms added."""
    for k in range(8 * STRIP):
        lanes[k] = 0.0
    for k in range(STRIP):
        lanes[MU + k] = mu[0]
    for first in range(0, len(mu), STRIP):
        n = min(STRIP, len(mu) - first)
        for k in range(n):
            lanes[MU + k], lanes[U + k] = mu[first + k], u[first + k]
        for k in range(n, STRIP):
            lanes[U + k] = 0.0  # weighs nothing
        for k in range(STRIP):
            lanes[E + k] = quick_exp((lanes[MU + k] - low) * lanes[U + k])
        for k in range(STRIP):
            lanes[F + k] = quick_exp((lanes[MU + k] - high) * lanes[U + k])
        for k in range(STRIP):
            e, f = lanes[E + k], lanes[F + k]
            won, won_too = won_by_two(e, f, lanes[U + k], lanes[U + k])
            times = 1.0 + own if last <= first + k < ranked else 1.0
            _add(lanes, 0, k, times, won, e * won)
            times = 1.0 + own if first + k < best else 1.0
            _add(lanes, 4 * STRIP, k, times, won_too, f * won_too)


@inlined
def _total(lanes: Floats, row: int) -> float:
    """The sum of the STRIP partial sums of a row."""
    total = 0.0
    for k in range(row * STRIP, row * STRIP + VECTOR):
        total += (lanes[k] + lanes[k + VECTOR]) + (lanes[k + 2 * VECTOR] + lanes[k + 3 * VECTOR])
    return total


@inlined
def _guess_all(
    round_starts: Ints, which: Ints, ranked: Ints, known: Floats, place: Places, mu: Floats,
    u: Floats, own: float, odds: Floats, ends: Floats,
) -> None:  # fmt: skip
    """Fill all rows of `ends` except the sums."""
    for i in range(len(which)):
        r, m = which[i], ranked[i]
        a, b = round_starts[r], round_starts[r + 1]
        best, last = first_group(place[a : a + m]), last_group(place[a:b], m)
        low, high = known[r, LOW], known[r, HIGH]
        x = _guess(mu[a:b], u[a:b], last, m, own, odds[a + last], known[r])
        y = _guess(mu[a:b], u[a:b], 0, best, own, odds[a], known[r])
        ends[LEAST, i], ends[MOST, i] = min(max(x, low), high), min(max(y, low), high)
        ends[LEAST_ODDS, i], ends[MOST_ODDS, i] = odds[a + last], odds[a]
        ends[NARROW, i] = 1.0 / known[r, WIDEST_U]


@inlined
def _step_all(ends: Floats, end: int, odds: int, sums: int) -> None:
    """Take Halley's step from the sums in four rows from `sums` on, unless it is too long to be
    trusted."""
    for i in range(ends.shape[1]):
        f, f1, f2 = excess(
            ends[sums, i], ends[sums + 1, i], ends[sums + 2, i], ends[sums + 3, i], ends[odds, i]
        )
        step = halley(f, f1, f2)
        ends[end, i] += step if abs(step) < FARTHEST * ends[NARROW, i] else 0.0


@inlined
def likely_ends(
    round_starts: Ints, which: Ints, ranked: Ints, known: Floats, place: Places, mu: Floats,
    u: Floats, tie: float, odds: Floats, lanes: Floats, ends: Floats,
) -> None:  # fmt: skip
    """Estimate the last and the first performance of the rounds `which`, to within about MARGIN.
    Each estimate is a guess from the moments of all ratings, improved by one step. The results are
    written into rows LEAST and MOST of `ends` (ENDS, len(which))."""
    own = 2.0 * tie - 1.0
    _guess_all(round_starts, which, ranked, known, place, mu, u, own, odds, ends)
    for i in range(len(which)):
        m = ranked[i]
        a, b = round_starts[which[i]], round_starts[which[i] + 1]
        best, last = first_group(place[a : a + m]), last_group(place[a:b], m)
        _sum_at(ends[LEAST, i], ends[MOST, i], mu[a:b], u[a:b], best, last, m, own, lanes)
        for row in range(8):
            ends[SUMS_AT + row, i] = _total(lanes, row)
    _step_all(ends, LEAST, LEAST_ODDS, SUMS_AT)
    _step_all(ends, MOST, MOST_ODDS, SUMS_AT + 4)


@inlined
def _whole(value: float, total: float, p: float, q: float) -> tuple[float, float]:
    """P + p and Q + q, where ln(P/Q) is `value` and P + Q is `total`."""
    e = quick_exp(-value)
    s = 1.0 / (1.0 + e)
    return total * s + p, total * (e * s) + q


@inlined
def _spans(
    low: float, high: float, first: float, end: float, total: float, mu: Floats, u: Floats,
    odds: Floats, best: int, last: int, ranked: int, own: float,
) -> bool:  # fmt: skip
    """Whether all performances lie in a table from `low`, where L is `first`, to `high`, where L is
    `end`. They do if f changes its sign in between for both the first and the last group."""
    s, r = _parts(mu, u, last, ranked, low)
    p, q = _whole(first, total, own * s, own * r)
    if p * odds[ranked - 1] > q:
        return False
    s, r = _parts(mu, u, 0, best, high)
    p, q = _whole(end, total, own * s, own * r)
    return bool(p * odds[0] >= q)


@inlined
def tabulate_round(
    place: Places, mu: Floats, u: Floats, ranked: int, tie: float, known: Floats, odds: Floats,
    least: float, most: float, scratch: Floats,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Tabulate L of a round (see `tabulate`), no wider than its performances need."""
    low, high, narrow, own = known[LOW], known[HIGH], 1.0 / known[WIDEST_U], 2.0 * tie - 1.0
    if high - low < WIDEST * narrow:
        best, last = first_group(place[:ranked]), last_group(place, ranked)
        a, b = min(least, most) - MARGIN * narrow, max(least, most) + MARGIN * narrow
        nodes, wide, a, h = tabulate(mu, u, a, b, narrow, scratch)
        first, end = scratch[LEVELS * wide], scratch[LEVELS * wide + nodes - 1]
        b = a + h * (nodes - 1)
        if _spans(a, b, first, end, known[TOTAL], mu, u, odds, best, last, ranked, own):
            return nodes, wide, a, h
    a, b = _bounds(place, mu, u, ranked, tie, low, high, narrow, scratch)
    return tabulate(mu, u, a, b, narrow, scratch)
