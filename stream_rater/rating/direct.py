"""Stage 1 of small rounds: every sum taken anew, for all entries side by side.

It is also the last resort for any round: `solve` searches one performance with all safeguards.
There the two sides of Theorem 3.2 are U = sum over better and tied of u_j s_j and V = that over
worse and tied of u_j t_j, the tied counting c.
After an upset over a gap of thousands of points, with weights that happen to balance, both are
saturated between the two and any point there seems a root. Then we bisect U - V, summed so that the
weights cancel first and the small remainders decide.
"""

import math

import numpy as np

from stream_rater.rating.balance import (  # fmt: skip
    GROUP,
    ODDS,
    P1,
    P2,
    S1,
    S2,
    STEP,
    P,
    Q,
    R,
    S,
    X,
    find_odds,
    find_own,
    move,
    step_ranked,
    step_unfinished,
    terms,
)
from stream_rater.rating.compiled import kernel
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.model import Floats, Places
from stream_rater.rating.roots import MAX_STEPS, safeguard

TOLERANCE = 3e-4
"""A Halley step smaller than this part of the narrowest 1/u ends the search; it cubes the error."""

FLAT, NOISE = 1e-6, 1e-9
"""Where |f| < NOISE and its slope is below FLAT of the widest u, f is too flat to show its zero."""

PASSES = 8
"""Steps that entries take side by side, before each that needs more is searched alone."""

LANES = 4
"""Columns are filled up to a multiple of this."""


@kernel
def _sums(
    x: float, mu: Floats, u: Floats, first: int, end: int
) -> tuple[float, float, float, float]:
    """Sums over entries [first, end) of u s, u t, u^2 s t and u^3 s t (t - s)."""
    won = lost = slope = bend = 0.0
    for j in range(first, end):
        e = exp((mu[j] - x) * u[j])
        s = 1.0 / (1.0 + e)
        t = e * s
        won += u[j] * s
        lost += u[j] * t
        d = u[j] * u[j] * s * t
        slope += d
        bend += d * u[j] * (t - s)
    return won, lost, slope, bend


@kernel
def _halley_step(
    x: float, mu: Floats, u: Floats, better: int, tied: int, tied_end: int, worse: int, tie: float
) -> tuple[float, float, float]:
    """f = ln(left) - ln(right) at x, its slope, and Halley's step towards its zero.

    Of the entries, [0, better) are better, [tied, tied_end) tied and [worse, n) worse.
    """
    left, _, left1, left2 = _sums(x, mu, u, 0, better)
    _, right, right1, right2 = _sums(x, mu, u, worse, len(mu))
    won, lost, slope, bend = _sums(x, mu, u, tied, tied_end)
    left, right = left + tie * won, right + tie * lost
    rise = (left1 + tie * slope) / left
    fall = (right1 + tie * slope) / right
    f = log(left) - log(right)
    f1 = rise + fall
    f2 = (left2 + tie * bend) / left - rise * rise + (right2 + tie * bend) / right + fall * fall
    return f, f1, -2.0 * f * f1 / (2.0 * f1 * f1 - f * f2)


@kernel
def _balance(
    x: float, mu: Floats, u: Floats, better: int, tied: int, tied_end: int, worse: int, tie: float
) -> float:
    """left - right at x, exact where every term is saturated: u s = u - u t, the u apart."""
    whole = rest = 0.0
    for j in range(len(mu)):
        wins = loses = tie
        if not tied <= j < tied_end:
            wins = 1.0 if j < better else 0.0
            loses = 1.0 if j >= worse else 0.0
        small = (wins + loses) * u[j] / (1.0 + exp(abs(x - mu[j]) * u[j]))
        if x > mu[j]:
            whole += wins * u[j]
            rest -= small
        else:
            whole -= loses * u[j]
            rest += small
    return whole + rest


@kernel
def _bisect(
    mu: Floats, u: Floats, better: int, tied: int, tied_end: int, worse: int, tie: float,
    low: float, high: float, tolerance: float,
) -> float:  # fmt: skip
    """The zero of `_balance` in (low, high)."""
    for _ in range(MAX_STEPS):
        x = 0.5 * (low + high)
        if high - low <= 3e-7 * tolerance:
            break
        if _balance(x, mu, u, better, tied, tied_end, worse, tie) < 0.0:
            low = x
        else:
            high = x
    return x


@kernel
def solve(
    x: float, mu: Floats, u: Floats, better: int, tied: int, tied_end: int, worse: int, tie: float,
    low: float, high: float, tolerance: float,
) -> float:  # fmt: skip
    """The performance of the entries [tied, tied_end), searched from x within (low, high)."""
    last = math.inf
    for _ in range(MAX_STEPS):
        f, slope, step = _halley_step(x, mu, u, better, tied, tied_end, worse, tie)
        if abs(f) < NOISE and slope * tolerance < FLAT * TOLERANCE:
            return _bisect(mu, u, better, tied, tied_end, worse, tie, low, high, tolerance)
        if abs(step) <= tolerance:
            return x + step
        x, low, high, last = safeguard(x, f, step, low, high, last)
        if abs(last) <= tolerance * 1e-6:
            return x
    return x


@kernel
def _add(
    place: Places, mu: Floats, u: Floats, first: int, end: int, tie: float, lanes: Floats, n: int
) -> None:
    """Add the terms of entries [first, end) to columns [0, n): 2c times if tied, once if not."""
    for j in range(first, end):
        group = float(place[j])
        for i in range(n):
            won, lost, slope, bend = terms(mu[j], u[j], lanes[X, i])
            times = 2.0 * tie if lanes[GROUP, i] == group else 1.0
            lanes[P, i] += times * won
            lanes[Q, i] += times * lost
            lanes[P1, i] += times * slope
            lanes[P2, i] += times * bend


@kernel
def _guess(place: Places, mu: Floats, u: Floats, ranked: int, tie: float, lanes: Floats) -> None:
    """X as if all ratings were one logistic distribution of the entries' mean and variance."""
    n = len(mu)
    total = mean = square = 0.0
    for j in range(n):
        total += u[j]
        mean += u[j] * (mu[j] - mu[0])
        square += u[j] * (mu[j] - mu[0]) * (mu[j] - mu[0])
    mean /= total
    spread = max(square / total - mean * mean, 0.0)
    scale = np.sqrt(n * n / (total * total) + spread * 3.0 / math.pi**2)
    for i in range(ranked):
        pull = (2.0 * tie - 1.0) * u[i]
        middle = mu[0] + (mean * total + pull * (mu[i] - mu[0])) / (total + pull)
        tied = i > 0 and place[i] == place[i - 1]
        lanes[X, i] = lanes[X, i - 1] if tied else middle - scale * log(lanes[ODDS, i])
    for i in range(ranked, n):
        lanes[X, i] = min(mu[i], mu[0] + mean + scale * log(u[i] / total))


@kernel
def direct_performances(
    place: Places, mu: Floats, u: Floats, ranked: int, tie: float, low: float, high: float,
    lanes: Floats, found: Floats,
) -> None:  # fmt: skip
    """All performances into `found`."""
    n = len(mu)
    wide = (n + LANES - 1) // LANES * LANES
    narrow = 1.0 / np.max(u)
    for i in range(wide):
        lanes[X, i], lanes[ODDS, i] = mu[0], 1.0
        lanes[GROUP, i] = float(place[i]) if i < ranked else -1.0
        lanes[S, i] = lanes[R, i] = lanes[S1, i] = lanes[S2, i] = 0.0
    find_odds(place, u, ranked, tie, lanes[ODDS])
    _guess(place, mu, u, ranked, tie, lanes)
    for _ in range(PASSES):
        for i in range(wide):
            lanes[P, i] = lanes[Q, i] = lanes[P1, i] = lanes[P2, i] = 0.0
        _add(place, mu, u, 0, ranked, tie, lanes, wide)
        _add(place, mu, u, ranked, n, tie, lanes, ranked)
        step_ranked(0.0, lanes, wide, narrow)
        if ranked < n:
            find_own(place[:0], mu, u, lanes)
            step_unfinished(tie, lanes, ranked, n)
        if move(lanes, n, low, high) <= TOLERANCE * narrow:
            break
    for i in range(n):
        found[i] = lanes[X, i] if abs(lanes[STEP, i]) <= TOLERANCE * narrow else math.nan


@kernel
def fill_open(
    place: Places, mu: Floats, u: Floats, ranked: int, tie: float, low: float, high: float,
    found: Floats,
) -> None:  # fmt: skip
    """Solve, one by one, what other methods left open as NaN."""
    n = len(mu)
    tolerance = TOLERANCE / np.max(u)
    first = 0
    while first < n:
        end = first + 1
        while end < ranked and place[end] == place[first]:
            end += 1
        if np.isnan(found[first]):
            better, worse = (first, end) if first < ranked else (ranked, n)
            found[first:end] = solve(
                0.5 * (low + high), mu, u, better, first, end, worse, tie, low, high, tolerance
            )
        first = end
