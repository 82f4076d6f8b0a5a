"""Computes stage 1 one performance at a time, with all safeguards. It is the fallback for any
round.

Theorem 3.2 equates U, the sum of u_j s_j over better and tied entries, and V, the sum of u_j t_j
over worse and tied ones; tied entries count c times. After an upset over thousands of points, with
weights that happen to balance, both sums are saturated between the two groups, and any point there
looks like a root. Then U - V is bisected instead, summed so that the weights cancel first and the
small remainders decide.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.model import Places, count_ranked
from stream_rater.rating.roots import MAX_STEPS, safeguard

TOLERANCE = 1e-4
"""A Halley step shorter than this fraction of the narrowest 1/u ends the search. The remaining
error is of the order of its cube."""

FLAT, NOISE = 1e-6, 1e-9
"""Where |f| < NOISE and the slope is below FLAT of the widest u, f is too flat to locate its
zero."""


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
    """f = ln(left) - ln(right) at x, its slope, and Halley's step towards its zero. Entries [0,
    better) are better, [tied, tied_end) are tied, and [worse, n) are worse."""
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
    """U - V at x. It is exact if every term is saturated, because u s is written as u - u t, and
    the u are summed separately."""
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
    """The zero of `_balance` in (low, high), by bisection."""
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
def fill_open(
    place: Places, mu: Floats, u: Floats, tie: float, low: float, high: float, found: Floats
) -> None:
    """Solve one by one the performances that other methods left open as NaN."""
    n, ranked = len(mu), count_ranked(place)
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
