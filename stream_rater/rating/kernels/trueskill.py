"""TrueSkill in its St Petersburg variant (Nikolenko and Sirotkin), in which every place has a
performance.

Each entry's performance t_i (skill plus noise) is within epsilon of its place's l_k, and
consecutive places are more than 2 epsilon apart. The beliefs are found by expectation propagation.
Each of these factors sends Gaussian messages (precision, precision times mean) to its two
variables. The messages are computed from the exact moments of the variables' truncated difference.
This is repeated until no message changes any more. Entries that did not finish share the last place
(see `stages.compared`).
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elementary import exp
from stream_rater.rating.kernels.historic import SoloRound
from stream_rater.rating.model import tie_bounds
from stream_rater.rating.normal import hazard, mills

MAX_SWEEPS = 200
NARROW = 1e-2
"""An interval of less than this many standard deviations counts as narrow. The moments in it then
err by 1e-5 of its width at most."""


@kernel
def _above(m: float, v: float, limit: float) -> tuple[float, float]:
    """The mean and the variance of N(m, v) above a limit."""
    s = np.sqrt(v)
    z = (limit - m) / s
    h = hazard(z)
    return m + s * h, v * (1.0 - h * (h - z))


@kernel
def _narrowly(k: float) -> tuple[float, float]:
    """The mean and the variance of a density that falls as e^(-k t) on [-1, 1], for k >= 0."""
    if k < 0.1:
        return -k * (1.0 / 3.0 - k * k / 45.0), 1.0 / 3.0 - k * k / 15.0
    e = exp(-2.0 * k)
    return 1.0 / k - (1.0 + e) / (1.0 - e), 1.0 / (k * k) - 4.0 * e / ((1.0 - e) * (1.0 - e))


@kernel
def _within(m: float, v: float, limit: float, narrow: float) -> tuple[float, float]:
    """The mean and the variance of N(m, v) within [-limit, limit]. If this is less than `narrow`
    standard deviations wide, the density is taken as exponential there."""
    s = np.sqrt(v)
    side = 1.0 if m <= 0.0 else -1.0  # mirrored, so that the mean is not right of the middle
    a, b = (-limit - side * m) / s, (limit - side * m) / s
    if 2.0 * limit < narrow * s:
        mean, variance = _narrowly(abs(m) / s * (limit / s))
        return side * limit * mean, limit * limit * variance
    ratio = exp(0.5 * (a - b) * (a + b))  # phi(b) / phi(a)
    if a >= 0.0:
        mass = mills(a) - ratio * mills(b)
    else:
        mass = math.sqrt(2.0 * math.pi) * exp(0.5 * a * a) - mills(-a) - ratio * mills(b)
    shift = (1.0 - ratio) / mass
    spread = 1.0 + (a - b * ratio) / mass - shift * shift
    return m + side * s * shift, v * spread


@kernel
def _messages(
    pi1: float, tau1: float, pi2: float, tau2: float, m: float, v: float
) -> tuple[float, float, float, float]:
    """The messages to two variables with these cavities, if their difference has moments (m, v).
    The factor's belief about the difference is N(d, c). Each variable receives it through the other
    one."""
    m1, m2, v1, v2 = tau1 / pi1, tau2 / pi2, 1.0 / pi1, 1.0 / pi2
    pi = 1.0 / v - 1.0 / (v1 + v2)
    tau = m / v - (m1 - m2) / (v1 + v2)
    if pi <= 0.0:
        return 0.0, 0.0, 0.0, 0.0
    c, d = 1.0 / pi, tau / pi
    p1, p2 = 1.0 / (c + v2), 1.0 / (c + v1)
    return p1, p1 * (m2 + d), p2, p2 * (m1 - d)


@kernel
def rate(solo: SoloRound, beta: float, drift: float, margin: float, tolerance: float) -> Floats:
    """(n, 3) evidence of one round. `margin` is epsilon, and `beta` is the noise of one
    performance.

    If the noise is a million margins wide, the exact moments may cancel out, so that the result is
    no number. Then it is computed again with the limits of the moments in narrow intervals.
    """
    out = _rate(solo, beta, drift, margin, tolerance, 0.0)
    if not np.isfinite(out).all():
        out = _rate(solo, beta, drift, margin, tolerance, NARROW)
    return out


@kernel
def _rate(
    solo: SoloRound, beta: float, drift: float, margin: float, tolerance: float, narrow: float
) -> Floats:
    """(n, 3) evidence of one round; `narrow` is that of `_within`."""
    n, mu = len(solo.mu), solo.mu
    variance = solo.sigma * solo.sigma + drift * drift
    noise = beta * beta / solo.weight
    lo, _ = tie_bounds(solo.place)
    of = np.zeros(n, np.int64)
    for i in range(1, n):
        of[i] = of[i - 1] + (1 if lo[i] == i else 0)
    places = of[n - 1] + 1
    to_t, to_l = np.zeros((n, 2)), np.zeros((n, 2))
    down, up = np.zeros((places, 2)), np.zeros((places, 2))  # to l_k from its better, worse side
    total = np.zeros((places, 2))  # all messages to l_k
    for _ in range(MAX_SWEEPS):
        change = _tie_sweep(of, mu, variance + noise, margin, narrow, to_t, to_l, total)
        for k in range(places - 1):
            change = max(change, _order(k, margin, up, down, total))
        for k in range(places - 2, -1, -1):
            change = max(change, _order(k, margin, up, down, total))
        if change <= tolerance:
            break
    out = np.empty((n, 3))
    for i in range(n):
        pi, tau = to_t[i]
        out[i, 0], out[i, 1], out[i, 2] = mu[i], mu[i], np.sqrt(variance[i])
        if pi > 0.0:
            said = 1.0 / (1.0 / pi + noise)
            after = 1.0 / (1.0 / variance[i] + said)
            out[i, 0] = tau / pi
            out[i, 1] = after * (mu[i] / variance[i] + said * tau / pi)
            out[i, 2] = np.sqrt(after)
    return out


@kernel
def _tie_sweep(
    of: Ints, mu: Floats, v: Floats, margin: float, narrow: float, to_t: Floats, to_l: Floats,
    total: Floats,
) -> float:  # fmt: skip
    """Recompute the messages of every |t_i - l_k| <= margin. Returns the largest change."""
    change = 0.0
    for i in range(len(mu)):
        k = of[i]
        pi, tau = total[k, 0] - to_l[i, 0], total[k, 1] - to_l[i, 1]
        if pi <= 1e-300:
            p2 = 1.0 / (v[i] + margin * margin / 3.0)
            new = (0.0, 0.0, p2, p2 * mu[i])
        else:
            m, spread = _within(mu[i] - tau / pi, v[i] + 1.0 / pi, margin, narrow)
            new = _messages(1.0 / v[i], mu[i] / v[i], pi, tau, m, spread)
        change = max(change, abs(new[2] - to_l[i, 0]) * v[i])
        change = max(change, abs(new[3] - to_l[i, 1]) * np.sqrt(v[i]))
        total[k, 0] += new[2] - to_l[i, 0]
        total[k, 1] += new[3] - to_l[i, 1]
        to_t[i, 0], to_t[i, 1], to_l[i, 0], to_l[i, 1] = new
    return change


@kernel
def _order(k: int, margin: float, up: Floats, down: Floats, total: Floats) -> float:
    """Recompute the messages of l_k - l_{k+1} > 2 margin. Returns the largest change."""
    pi1, tau1 = total[k, 0] - up[k, 0], total[k, 1] - up[k, 1]
    pi2, tau2 = total[k + 1, 0] - down[k + 1, 0], total[k + 1, 1] - down[k + 1, 1]
    m, v = _above(tau1 / pi1 - tau2 / pi2, 1.0 / pi1 + 1.0 / pi2, 2.0 * margin)
    p1, t1, p2, t2 = _messages(pi1, tau1, pi2, tau2, m, v)
    change: float = max(
        abs(p1 - up[k, 0]) / pi1, abs(t1 - up[k, 1]) / np.sqrt(pi1),
        abs(p2 - down[k + 1, 0]) / pi2, abs(t2 - down[k + 1, 1]) / np.sqrt(pi2),
    )  # fmt: skip
    total[k, 0] += p1 - up[k, 0]
    total[k, 1] += t1 - up[k, 1]
    total[k + 1, 0] += p2 - down[k + 1, 0]
    total[k + 1, 1] += t2 - down[k + 1, 1]
    up[k, 0], up[k, 1], down[k + 1, 0], down[k + 1, 1] = p1, t1, p2, t2
    return change
