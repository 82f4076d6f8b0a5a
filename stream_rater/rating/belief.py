"""Stage 2: what do we now believe of each player? (Sections 3.2 and 4 of the paper.)

A belief is a Gaussian factor (center, precision) times logistic factors (p, a, o); its mode is the
rating mu. One round does three things to it:

1. `diffuse` (Algorithm 2): skill may have changed since. With kappa = sigma^2/(sigma^2 + gamma^2),
   the part 1 - kappa^rho of every factor moves into a Gaussian centred at mu, then all weights
   decay by kappa. mu stays, sigma^2 grows by exactly gamma^2.
2. the round's performance p joins as a logistic factor of variance beta^2, weight 1/beta^2.
3. the new mode is found (the zero of Algorithm 3), and sigma^-2 grows by beta^-2.

The total weight w_0 + sum w_k equals sigma^-2 throughout (Equation 10), and that is how it is
computed here: it then depends on no performance, which incentive compatibility needs (Lemma 5.4),
even after the sketch has merged factors.
"""

import math

import numpy as np

from stream_rater.rating.compiled import kernel
from stream_rater.rating.elementary import power, tanh
from stream_rater.rating.model import Evidence, Floats, Ints, Table
from stream_rater.rating.performance import C
from stream_rater.rating.roots import MAX_STEPS, safeguard
from stream_rater.rating.sketch import insert, merge_cheapest

TOLERANCE = 1e-9
"""A Newton step smaller than this part of sigma ends the search; it squares the error."""


@kernel
def transfer_and_decay(variance: float, gamma2: float, rho: float) -> tuple[float, float]:
    """(kappa^rho, kappa): the part of each factor that stays itself, and the decay of weights."""
    kappa = variance / (variance + gamma2)
    if rho == 0.0:
        return 1.0, kappa
    if rho == math.inf:
        return 0.0, kappa
    return power(kappa, rho), kappa


@kernel
def mode(
    x: float, center: float, precision: float, factors: Floats, count: int, tolerance: float
) -> float:
    """The zero of precision (x - center) + sum o tanh((x - p) a), searched from x."""
    low, high = min(center, factors[0, 0]), max(center, factors[count - 1, 0])
    last = math.inf
    for _ in range(MAX_STEPS):
        value = precision * (x - center)
        slope = precision
        for k in range(count):
            t = tanh((x - factors[k, 0]) * factors[k, 1])
            value += factors[k, 2] * t
            slope += factors[k, 2] * factors[k, 1] * (1.0 - t * t)
        step = -value / slope
        if abs(step) <= tolerance:
            return x + step
        x, low, high, last = safeguard(x, value, step, low, high, last)
        if abs(last) <= tolerance * 1e-6:
            return x
    return x


@kernel
def update(
    header: Table, factors: Floats, rows: Ints, evidence: Evidence, rho: Floats, kept: Ints
) -> None:
    """Diffuse, add the evidence and solve, in place, for the beliefs in `rows`.

    `header` (n,) and `factors` (n, capacity, 3) as in model.Beliefs; `evidence` (len(rows), 3);
    `rho` and `kept` (len(rows),), kept = 0 for all factors. A belief must have room for one more
    factor than it holds. Previous mu and sigma are remembered; offsets and times are not touched.
    """
    for i in range(len(rows)):
        belief, held = header[rows[i]], factors[rows[i]]
        performance, beta2, gamma2 = evidence[i, 0], evidence[i, 1], evidence[i, 2]
        variance = belief.sigma * belief.sigma
        belief.previous_mu, belief.previous_sigma = belief.mu, belief.sigma

        stays, kappa = transfer_and_decay(variance, gamma2, rho[i])
        gaussian, moved = stays * belief.precision, (1.0 - stays) / variance
        if gaussian + moved > 0.0:
            blend = moved / (gaussian + moved)
            belief.center += blend * (belief.mu - belief.center)
        belief.precision = kappa * (gaussian + moved)
        count = belief.count + 0 if stays > 0.0 else 0  # + 0: signed, or numba counts in floats
        for k in range(count):
            held[k, 2] *= kappa * stays

        u = C / np.sqrt(beta2)
        insert(held, count, performance, 0.5 * u, u)
        count += 1
        while kept[i] > 0 and count > kept[i]:
            count = merge_cheapest(held, count)
        belief.count = count

        belief.mu = mode(
            belief.mu, belief.center, belief.precision, held, count, TOLERANCE * belief.sigma
        )
        belief.sigma = 1.0 / np.sqrt(1.0 / (variance + gamma2) + 1.0 / beta2)


def replace(header: Table, rows: Ints, evidence: Evidence) -> None:
    """Stage 2 of a memoryless system, in place: evidence[:, 1:] are the new mu and sigma."""
    header["previous_mu"][rows] = header["mu"][rows]
    header["previous_sigma"][rows] = header["sigma"][rows]
    header["mu"][rows] = evidence[:, 1]
    header["sigma"][rows] = evidence[:, 2]
