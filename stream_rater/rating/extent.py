"""Where the performances of a round lie, and a table no wider than that.

A guess, by the moments of the ratings or by a sample of the entries, is checked against the table
made from it: at either end the balance of the last and of the first group must change its sign.
"""

import numpy as np

from stream_rater.rating.balance import likely, moments, terms
from stream_rater.rating.compiled import inlined
from stream_rater.rating.elementary import log, quick_exp
from stream_rater.rating.model import Floats, Places
from stream_rater.rating.table import COARSE, WIDEST, coarse_sums, tabulate

SAMPLE = 64
"""Where a round has twice as many entries and more, so many are enough to guess the bounds by."""

MARGIN = 1.5
"""What is added to such bounds, in units of the narrowest 1/u."""


@inlined
def first_group(place: Places) -> int:
    """The end of the entries that share the first place."""
    end = 1
    while end < len(place) and place[end] == place[0]:
        end += 1
    return end


@inlined
def last_group(place: Places, ranked: int) -> int:
    """Where the entries that share the last place begin."""
    first = ranked - 1
    while first > 0 and place[first - 1] == place[ranked - 1]:
        first -= 1
    return first


@inlined
def _parts(mu: Floats, u: Floats, first: int, end: int, x: float) -> tuple[float, float]:
    """What entries [first, end) have of P and of Q at x."""
    s = r = 0.0
    for j in range(first, end):
        won, lost, _, _ = terms(mu[j], u[j], x)
        s, r = s + won, r + lost
    return s, r


@inlined
def _bounds(
    place: Places, mu: Floats, u: Floats, ranked: int, tie: float, low: float, high: float,
    narrow: float, scratch: Floats, stride: int,
) -> tuple[float, float]:  # fmt: skip
    """Bounds of the last and the first performance, from P and Q at a few nodes in (low, high).

    Each is drawn in from its node: ln P and ln Q change by less than the widest u per point. With a
    stride only every so many entries are looked at, so these are bounds for most rounds, not all.
    """
    if high - low > WIDEST * narrow:
        return low, high
    h = (high - low) / (COARSE - 1)
    if stride > 1:
        sums = coarse_sums(mu[::stride].copy(), u[::stride].copy(), low, h, COARSE, scratch)
    else:
        sums = coarse_sums(mu, u, low, h, COARSE, scratch)
    best, last = first_group(place[:ranked]), last_group(place, ranked)
    own, times = 2.0 * tie - 1.0, float(stride)
    first_aim, last_aim = tie * np.sum(u[:best]), tie * np.sum(u[last:ranked]) + np.sum(u[ranked:])
    above, below, left, right = COARSE - 1, 0, first_aim, last_aim
    for k in range(COARSE - 1, 0, -1):
        _, part = _parts(mu, u, 0, best, low + k * h)
        if times * sums[1, k] + own * part > first_aim:
            break
        above, left = k, times * sums[1, k] + own * part
    for k in range(above):
        part, _ = _parts(mu, u, last, ranked, low + k * h)
        if times * sums[0, k] + own * part > last_aim:
            break
        below, right = k, times * sums[0, k] + own * part
    below_by, above_by = log(last_aim / right) * narrow, log(first_aim / left) * narrow
    margin = MARGIN * narrow if stride > 1 else 0.0
    return low + below * h + below_by - margin, low + above * h - above_by + margin


@inlined
def _likely_bounds(
    place: Places, mu: Floats, u: Floats, ranked: int, own: float, odds: Floats
) -> tuple[float, float]:
    """About where the last and the first performance are."""
    n, best, last = len(mu), first_group(place[:ranked]), last_group(place, ranked)
    total, mean, square = moments(mu, u, 0, n)
    more, mean_more, square_more = moments(mu, u, last, ranked)
    low = mu[0] + likely(
        log(odds[last]), n + own * (ranked - last),
        total + own * more, mean + own * mean_more, square + own * square_more,
    )  # fmt: skip
    more, mean_more, square_more = moments(mu, u, 0, best)
    high = mu[0] + likely(
        log(odds[0]), n + own * best,
        total + own * more, mean + own * mean_more, square + own * square_more,
    )  # fmt: skip
    return low, high


@inlined
def _whole(value: float, total: float, p: float, q: float) -> tuple[float, float]:
    """P and Q where ln(P/Q) is `value`, with p and q added."""
    e = quick_exp(-value)
    s = 1.0 / (1.0 + e)
    return total * s + p, total * (e * s) + q


@inlined
def _spans(
    c: Floats, low: float, h: float, total: float, mu: Floats, u: Floats, odds: Floats,
    best: int, last: int, ranked: int, own: float,
) -> bool:  # fmt: skip
    """Whether all performances lie within the table: f changes its sign there for both ends."""
    high = c.shape[1] - 1
    s, r = _parts(mu, u, last, ranked, low)
    p, q = _whole(c[0, 0], total, own * s, own * r)
    if p * odds[ranked - 1] > q:
        return False
    s, r = _parts(mu, u, 0, best, low + h * high)
    p, q = _whole(c[0, high], total, own * s, own * r)
    return bool(p * odds[0] >= q)


@inlined
def tabulate_round(
    place: Places, mu: Floats, u: Floats, ranked: int, tie: float, low: float, high: float,
    odds: Floats, total: float, narrow: float, scratch: Floats,
) -> tuple[Floats, Floats, float, float]:  # fmt: skip
    """The table of a round, no wider than its performances need; where it begins, and its h."""
    stride = len(mu) // SAMPLE
    if high - low < WIDEST * narrow:
        if stride > 1:
            a, b = _bounds(place, mu, u, ranked, tie, low, high, narrow, scratch, stride)
        else:
            a, b = _likely_bounds(place, mu, u, ranked, 2.0 * tie - 1.0, odds)
            a, b = a - MARGIN * narrow, b + MARGIN * narrow
        c, back, a, h = tabulate(mu, u, a, b, narrow, scratch)
        best, last = first_group(place[:ranked]), last_group(place, ranked)
        if _spans(c, a, h, total, mu, u, odds, best, last, ranked, 2.0 * tie - 1.0):
            return c, back, a, h
    a, b = _bounds(place, mu, u, ranked, tie, low, high, narrow, scratch, 1)
    return tabulate(mu, u, a, b, narrow, scratch)
