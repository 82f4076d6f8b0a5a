"""Plackett-Luce, or the exponential model, in both orientations. `gradient` is that of Kerby's note
(sections 3.2.2 and 4), which decides the last place first. `gradient_of_choices` is the usual one.

Performances are exponential with means exp(x_j), so rates are lambda_j = exp(-x_j). Entries are
eliminated at random, and the first eliminated is last. If Lambda is the sum of the rates of all
better entries, entry k's factor of P(order) is lambda_k / (lambda_k + Lambda).

The last entries did not finish, and the order among them is not observed. It is only known that all
of them were eliminated before the others. Given the order of the others, the probability of that is
one exact integral:

    P = integral over t > 0 of  e^-t  prod_j (1 - exp(-c_j t)) dt,    c_j = lambda_j / Lambda.

In y = ln t the integrand is analytic and log-concave. So the trapezoidal rule about its peak
reaches the precision of float64 with a few dozen to a few hundred nodes, for two entries or
thousands. Everything is computed in logarithms, so nothing underflows.

In the usual orientation the winner is chosen among all entries, the second among the others. With
w_j = exp(x_j), and W as the sum over entry k and all worse ones, entry k's factor is w_k / W: the
other model with order and signs reversed. Who did not finish was never chosen: there is no factor.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.roots import MAX_STEPS

WIDEST_STEP = 0.2
"""The widest step of the trapezoidal rule in y; its error is about exp(-pi^2 / step)."""
STEP = 0.5  # The step of the trapezoidal rule, in standard deviations of the peak.
NEGLIGIBLE = 42.0
"""The sum ends at a node whose logarithm is this far below the peak's: e^-42 is 6e-19."""
MAX_NODES = 4000


@kernel
def log_add(a: float, b: float) -> float:
    """ln(e^a + e^b)."""
    top, other = max(a, b), min(a, b)
    return top + log(1.0 + exp(other - top))


@kernel
def _survival(t: float) -> tuple[float, float]:
    """ln(1 - e^-t), and its derivative by ln t, t / (e^t - 1), without cancellation for small t."""
    if t < 1e-2:
        loss = t * (0.5 - t * (1.0 / 24.0 - t * t / 2880.0))
        return log(t) - loss, 1.0 - t * (0.5 - t * (1.0 / 12.0 - t * t / 720.0))
    e = exp(-t)
    return log(1.0 - e), t * e / (1.0 - e)


@kernel
def _height(y: float, log_c: Floats) -> tuple[float, float, float]:
    """The integrand's logarithm at y, its slope, and its curvature with the opposite sign."""
    t = exp(y)
    value, slope, bend = y - t, 1.0 - t, t
    for j in range(len(log_c)):
        cleared, pull = _survival(max(exp(y + log_c[j]), 1e-300))
        value += cleared
        slope += pull
        # t / (e^t - 1) falls with ln t by pull * (t + pull - 1)
        bend += pull * max(exp(min(y + log_c[j], 40.0)) + pull - 1.0, 0.0)
    return value, slope, bend


@kernel
def _peak(log_c: Floats) -> float:
    """The y at which the integrand is largest. It is found as the zero of the slope of the
    integrand's logarithm, which falls from n + 1 to minus infinity."""
    low, high = -700.0, log(len(log_c) + 2.0)
    y = high
    for _ in range(MAX_STEPS):
        _, slope, bend = _height(y, log_c)
        if slope > 0.0:
            low = y
        else:
            high = y
        step = slope / bend
        target = y + step
        if not low < target < high:
            target = 0.5 * (low + high)
        if abs(target - y) < 1e-6:
            break
        y = target
    return y


@kernel
def unobserved(log_c: Floats, pull: Floats) -> float:
    """ln P for the c_j (m,) of the last entries; writes -d ln P / d x_j, each in (0, 1), into
    `pull` (m,)."""
    m = len(log_c)
    if m == 1:
        pull[0] = 1.0 / (1.0 + exp(log_c[0]))
        return -log_add(0.0, -log_c[0])
    peak = _peak(log_c)
    top, _, bend = _height(peak, log_c)
    step = min(WIDEST_STEP, STEP / np.sqrt(bend))
    total = 0.0
    pull[:] = 0.0
    for side in (-1, 1):
        for k in range(0 if side < 0 else 1, MAX_NODES):
            y = peak + side * k * step
            value, _, _ = _height(y, log_c)
            if value < top - NEGLIGIBLE:
                break
            weight = exp(value - top)
            total += weight
            for j in range(m):
                pull[j] += weight * _survival(max(exp(y + log_c[j]), 1e-300))[1]
    for j in range(m):
        pull[j] /= total
    return top + log(total * step)


@kernel
def gradient(x: Floats, ranked: int, g: Floats) -> float:
    """ln P(order); writes its gradient, which sums to zero, into g (n,). x (n,) is in order of
    place, without ties. The order of entries from `ranked` >= 1 on is not observed."""
    n = len(x)
    better = np.empty(n + 1)  # ln Lambda
    better[0] = -math.inf
    better[1] = -x[0]
    for k in range(1, ranked):
        better[k + 1] = log_add(better[k], -x[k])
    logarithm = 0.0
    given = -math.inf  # ln of the sum over worse groups of their terms, per rate
    g[:] = 0.0
    if ranked < n:
        pull = np.empty(n - ranked)
        logarithm += unobserved(-x[ranked:] - better[ranked], pull)
        g[ranked:] = -pull
        given = log(np.sum(pull)) - better[ranked]
    for k in range(ranked - 1, -1, -1):
        gain = exp(given - x[k])
        if k > 0:
            chance = -log_add(0.0, -x[k] - better[k])  # ln of Lambda / (lambda + Lambda)
            logarithm += chance - x[k] - better[k]
            g[k] = gain - exp(chance)
            given = log_add(given, chance - better[k])
        else:
            g[k] = gain
    return logarithm


@kernel
def gradient_of_choices(x: Floats, ranked: int, g: Floats) -> float:
    """The same as `gradient` in the usual orientation."""
    n = len(x)
    rest = np.empty(n)  # ln W
    rest[n - 1] = x[n - 1]
    for k in range(n - 2, -1, -1):
        rest[k] = log_add(x[k], rest[k + 1])
    logarithm = 0.0
    passed_over = -math.inf  # ln of the sum over the choices before k of 1 / W
    for k in range(n):
        g[k] = -exp(passed_over + x[k])
        if k < min(ranked, n - 1):
            g[k] += exp(-log_add(0.0, x[k] - rest[k + 1]))  # 1 - w / W
            logarithm += x[k] - rest[k]
            passed_over = log_add(passed_over, -rest[k])
    return logarithm
