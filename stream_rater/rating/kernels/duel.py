"""The noise of performances in the two-moment filter, and two sides in closed form.

Let D be the difference of the two performances, the better one's minus the worse one's. On each of
the four pairs of days (usual or bad for either side) the skills and D are jointly normal. The mean
of D differs from pair to pair, and its variance V is the same. The result says that D is above 0,
or that it is 0 if the sides tie. With z = E[D] / sqrt V, a pair of days has the likelihood

    Phi(z) if D > 0, and phi(z) if D = 0.

Given the result, the mean of D moves up by lambda sqrt V, and 1 - t is the factor of its variance:

    lambda = phi(z) / Phi(z) and t = lambda (lambda + z) if D > 0; lambda = -z and t = 1 if D = 0.

So the mean of a side's skill moves by lambda v / sqrt V, up for the better side and down for the
worse one, and its variance v shrinks by t v^2 / V. The pairs are mixed by their posterior
probabilities. Nothing is approximated but F, to 5e-14.

So a tie of equals is neutral: the means of D of the two unequal pairs of days are opposite, and
those of the equal pairs are 0.
"""

import math
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import inlined
from stream_rater.rating.elementary import exp
from stream_rater.rating.normal import excess

# The noise is skewed: there are usual days and bad ones, with the probabilities PI_0 and PI_1. On
# either kind of day it is normal, with the mean SHIFT_0 b or SHIFT_1 b and the variance PART b^2.
# Over both kinds of day its mean is 0 and its variance b^2.

BAD, LOWER = 0.2, 2.0
"""BAD is the probability of a bad day. The mean of a bad day is lower than that of a usual day by
LOWER standard deviations of one kind of day. LOWER = 2 is the most skewed noise of two normal
distributions whose density is log-concave. Both numbers were chosen on the games of the benchmarks,
as the parameters' defaults were."""
_TOTAL = 1.0 + BAD * (1.0 - BAD) * LOWER**2  # the variance before it is scaled to 1
PI_0, PI_1 = 1.0 - BAD, BAD
SHIFT_0, SHIFT_1 = BAD * LOWER / math.sqrt(_TOTAL), (BAD - 1.0) * LOWER / math.sqrt(_TOTAL)
PART = 1.0 / _TOTAL
ODDS = math.log(PI_1 / PI_0)

REACH = 6.0  # A grid of performances reaches this many standard deviations beyond every mean.

SQRT_2_PI = math.sqrt(2.0 * math.pi)

TINY = 1e-300
"""Added to the probability of a kind of day, which may be 0, before something is divided by it."""


class Pair(NamedTuple):
    """The evidence of the result about D on a pair of days. The mean of D moves by lift sqrt V; its
    variance shrinks by t V."""

    weight: float
    """The pair's prior probability times its likelihood, up to a factor that all pairs share."""
    lift: float  # The factor lambda.
    t: float  # From 0 to 1.


@inlined
def _pair(z: float, nearest: float, prior: float, tied: bool) -> Pair:
    """The evidence of the result on a pair of days. The densities leave out the factor
    phi(nearest), so that the likeliest pair does not underflow."""
    e = exp(0.5 * (nearest - z) * (nearest + z))
    if tied:
        return Pair(prior * e, -z, 1.0)
    a = abs(z)
    d = excess(a)
    if z < 0.0:
        return Pair(prior * e / (a + d), a + d, (a + d) * d)
    whole = SQRT_2_PI - e / (a + d)  # `nearest` is 0 here
    lift = e / whole
    return Pair(prior * whole, lift, lift * (lift + a))


class Margin(NamedTuple):
    """How far apart two performances were, as the scores show it."""

    seen: float
    """The difference of the performances in units of sqrt V, observed with noise; 0 for none."""
    noise: float  # The variance of the noise in units of V, above 0.


@inlined
def _misfit(z: float, margin: Margin) -> float:
    """How unlikely a pair of days is, given a margin: the square of the margin's distance from z,
    and that of D from 0 if it is expected below 0 even after the margin was seen."""
    k = 1.0 / (1.0 + margin.noise)
    miss = margin.seen - z
    y = (z + k * miss) / np.sqrt(margin.noise * k)
    return k * miss * miss + (y * y if y < 0.0 else 0.0)


@inlined
def _pair_seen(z: float, least: float, prior: float, margin: Margin) -> Pair:
    """The evidence of a victory by a margin on a pair of days: first D is normal given the margin,
    then it is known to be above 0. The weights leave out e^(-least / 2)."""
    k = 1.0 / (1.0 + margin.noise)
    miss, left = margin.seen - z, margin.noise * k
    y = (z + k * miss) / np.sqrt(left)
    e, a = exp(0.5 * (least - _misfit(z, margin))), abs(y)
    d = excess(a)
    if y < 0.0:
        weight, lift, t = e / (a + d), a + d, (a + d) * d
    else:
        whole = SQRT_2_PI - exp(-0.5 * a * a) / (a + d)
        lift = exp(-0.5 * a * a) / whole
        weight, t = e * whole, lift * (lift + a)
    return Pair(prior * weight, k * miss + np.sqrt(left) * lift, 1.0 - left * (1.0 - t))


@inlined
def _raised(pair: Pair, by: float) -> Pair:
    return Pair(pair.weight, pair.lift + by, pair.t)


@inlined
def _nearest(y_00: float, y_01: float, y_10: float, y_11: float, tied: bool) -> float:
    """The z of the likeliest pair of days, or 0 if it is not below 0."""
    if not tied:
        return min(max(y_00, y_01, y_10, y_11), 0.0)
    return min(abs(y_00), abs(y_01), abs(y_10), abs(y_11))


class KindOfDay(NamedTuple):
    """The evidence about D on one kind of day of a side, whatever kind the other side has."""

    weight: float
    lift: float
    t: float


@inlined
def _mixed(a: Pair, b: Pair) -> KindOfDay:
    """Two pairs of days together."""
    weight = a.weight + b.weight
    q = b.weight / (weight + TINY)
    apart = b.lift - a.lift
    t = a.t + q * (b.t - a.t) - q * (1.0 - q) * apart * apart
    return KindOfDay(weight, a.lift + q * apart, min(max(t, 0.0), 1.0))


@inlined
def _write(
    usual: KindOfDay, bad: KindOfDay, sign: float, m: float, v: float, b2: float, v_d: float,
    ceiling: float, out: Floats,
) -> None:  # fmt: skip
    """Write a side's mean performance, and the mean and the variance of its skill. `v_d` is the
    variance of D. `sign` says which way the side's performance moves if D rises."""
    b, whole = np.sqrt(b2), v + PART * b2
    usual_day, bad_day = m + SHIFT_0 * b, m + SHIFT_1 * b
    step = sign * whole / np.sqrt(v_d)
    p_0 = min(usual_day + step * usual.lift, ceiling)
    p_1 = min(bad_day + step * bad.lift, ceiling)
    k, part = v / whole, v / v_d
    s_0, s_1 = k * (p_0 - usual_day), k * (p_1 - bad_day)
    # 1 - part * t, without cancellation if part is nearly 1
    var_0 = v * ((v_d - v) / v_d + part * (1.0 - usual.t))
    var_1 = v * ((v_d - v) / v_d + part * (1.0 - bad.t))
    q = bad.weight / (usual.weight + bad.weight)
    apart = s_1 - s_0
    out[0] = p_0 + q * (p_1 - p_0)
    out[1] = m + s_0 + q * apart
    out[2] = var_0 + q * (var_1 - var_0) + q * (1.0 - q) * apart * apart


@inlined
def rate_duel(
    tied: bool, m: Floats, v: Floats, b2: Floats, ceiling: Floats, seen: float, noise: float,
    out: Floats,
) -> None:  # fmt: skip
    """Write into `out` (2, 3) what `two_moment.rate_sides` does, for two sides of which the first
    is better unless they tie.

    `seen` is the difference of the performances in points as the scores show it, 0 if they say
    nothing. `noise` is the variance of what they show, as a multiple of both sides' noise.
    """
    v_d = v[0] + v[1] + PART * (b2[0] + b2[1])
    u, b_0, b_1 = 1.0 / np.sqrt(v_d), np.sqrt(b2[0]), np.sqrt(b2[1])
    mean = m[0] - m[1]
    z_00 = (mean + SHIFT_0 * b_0 - SHIFT_0 * b_1) * u
    z_01 = (mean + SHIFT_0 * b_0 - SHIFT_1 * b_1) * u
    z_10 = (mean + SHIFT_1 * b_0 - SHIFT_0 * b_1) * u
    z_11 = (mean + SHIFT_1 * b_0 - SHIFT_1 * b_1) * u
    if seen > 0.0 and not tied:
        margin = Margin(seen * u, noise * (b2[0] + b2[1]) * u * u)
        least = min(
            _misfit(z_00, margin), _misfit(z_01, margin), _misfit(z_10, margin),
            _misfit(z_11, margin),
        )  # fmt: skip
        both = _pair_seen(z_00, least, PI_0 * PI_0, margin)
        second = _pair_seen(z_01, least, PI_0 * PI_1, margin)
        first = _pair_seen(z_10, least, PI_1 * PI_0, margin)
        none = _pair_seen(z_11, least, PI_1 * PI_1, margin)
        whole = _mixed(both, second).weight + _mixed(first, none).weight
        lift = both.weight * both.lift + second.weight * second.lift
        lift = (lift + first.weight * first.lift + none.weight * none.lift) / whole
        by = max(-lift, 0.0)  # a narrow victory costs nothing
        both, second = _raised(both, by), _raised(second, by)
        first, none = _raised(first, by), _raised(none, by)
    else:
        nearest = _nearest(z_00, z_01, z_10, z_11, tied)
        both = _pair(z_00, nearest, PI_0 * PI_0, tied)
        second = _pair(z_01, nearest, PI_0 * PI_1, tied)
        first = _pair(z_10, nearest, PI_1 * PI_0, tied)
        none = _pair(z_11, nearest, PI_1 * PI_1, tied)
    usual, bad = _mixed(both, second), _mixed(first, none)
    _write(usual, bad, 1.0, m[0], v[0], b2[0], v_d, ceiling[0], out[0])
    usual, bad = _mixed(both, first), _mixed(second, none)
    _write(usual, bad, -1.0, m[1], v[1], b2[1], v_d, ceiling[1], out[1])
