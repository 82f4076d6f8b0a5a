"""Stage 2: what do we now believe of each player? (Sections 3.2 and 4 of the paper.)

A belief is a Gaussian factor (center, precision) times logistic factors (p, a, scale * r); its mode
is the rating mu. One round does three things to it:

1. `diffuse` (Algorithm 2): skill may have changed since. With kappa = sigma^2/(sigma^2 + gamma^2),
   the part 1 - kappa^rho of every factor moves into a Gaussian centred at mu, then all weights
   decay by kappa: by one scale for all. mu stays, sigma^2 grows by exactly gamma^2.
2. the round's performance p joins as a logistic factor of variance beta^2, weight 1/beta^2.
3. the new mode is found (the zero of Algorithm 3), and sigma^-2 grows by beta^-2.

Where factors are merged, numbers are rounded as `rounding` says, before the mode is sought: mu is
the mode of the very belief that the record holds.

The total weight w_0 + sum w_k equals sigma^-2 throughout (Equation 10), and that is how it is
computed here: it then depends on no performance, which incentive compatibility needs (Lemma 5.4),
even after the sketch has merged factors.
"""

import math
from typing import Any

import numpy as np

from stream_rater.rating.compiled import kernel
from stream_rater.rating.elementary import power, tanh
from stream_rater.rating.model import Evidence, Floats, Ints, Table
from stream_rater.rating.performance import C
from stream_rater.rating.roots import MAX_STEPS, safeguard
from stream_rater.rating.rounding import single
from stream_rater.rating.sketch import insert, merge_cheapest, normalise, rebase, settle

TOLERANCE = 1e-4
"""A Halley step smaller than this part of the narrowest width ends the search; it cubes the error,
to some 1e-10 points."""

LANES = 4
"""Factors whose hyperbolic tangents are taken side by side."""

BLOCK = 32
"""Beliefs whose modes are sought side by side."""

NARROWER = 1.0 - 1e-6
"""A performance narrower by more than rounding is a new narrowest."""


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
def _halley_step(x: float, belief: Any, columns: Floats, i: int) -> tuple[float, float]:
    """f = w_0 (x - center) + scale * sum r tanh((x - p) a) at x, and a step towards its zero.

    columns[i] are p, a, r and scratch space, so that a processor takes several hyperbolic tangents
    at once.
    """
    count = belief.count + 0
    for k in range((count + LANES - 1) // LANES * LANES):
        columns[i, 3, k] = tanh((x - columns[i, 0, k]) * columns[i, 1, k])
    pull = slope = bend = 0.0
    for k in range(count):
        a, r, t = columns[i, 1, k], columns[i, 2, k], columns[i, 3, k]
        steepness = r * a * (1.0 - t * t)
        pull += r * t
        slope += steepness
        bend -= steepness * a * t
    f = belief.precision * (x - belief.center) + belief.scale * pull
    f1, half_f2 = belief.precision + belief.scale * slope, belief.scale * bend
    return f, -f * f1 / max(f1 * f1 - f * half_f2, 0.5 * f1 * f1)


@kernel
def find_modes(header: Table, factors: Floats, rows: Ints, x: Floats) -> None:
    """The modes of a few beliefs, searched from x and left there.

    Beliefs do not depend on each other: a processor works on several at once, pass by pass.
    """
    n, capacity = len(rows), factors.shape[1]
    columns, search = np.zeros((n, 4, capacity + LANES)), np.empty((n, 4))
    for i in range(n):
        belief, steepest = header[rows[i]], 1.0 / header[rows[i]].sigma
        for k in range(belief.count):
            for c in range(3):
                columns[i, c, k] = factors[rows[i], k, c]
            steepest = max(steepest, columns[i, 1, k])
        low = min(belief.center, columns[i, 0, 0])
        high = max(belief.center, columns[i, 0, belief.count - 1])
        search[i, 0], search[i, 1], search[i, 2], search[i, 3] = (
            low, high, math.inf, TOLERANCE / steepest,
        )  # fmt: skip
    for _ in range(MAX_STEPS):
        left = 0
        for i in range(n):
            low, high, last, tolerance = search[i, 0], search[i, 1], search[i, 2], search[i, 3]
            if abs(last) <= tolerance * 1e-6:
                continue
            belief = header[rows[i]]
            f, step = _halley_step(x[i], belief, columns, i)
            if abs(step) <= tolerance:
                x[i] += step
                search[i, 2] = 0.0
            else:
                x[i], search[i, 0], search[i, 1], search[i, 2] = safeguard(
                    x[i], f, step, low, high, last
                )
                left += 1
        if left == 0:
            break


@kernel
def _diffuse(belief: Any, gamma2: float, rho: float) -> int:
    """Algorithm 2, in place; how many logistic factors are left."""
    variance = belief.sigma * belief.sigma
    stays, kappa = transfer_and_decay(variance, gamma2, rho)
    gaussian, moved = stays * belief.precision, (1.0 - stays) / variance
    if gaussian + moved > 0.0:
        blend = moved / (gaussian + moved)
        belief.center += blend * (belief.mu - belief.center)
    belief.precision = kappa * (gaussian + moved)
    belief.scale *= kappa * stays
    return belief.count + 0 if stays > 0.0 else 0  # + 0: signed, or numba counts in floats


@kernel
def _join(
    belief: Any, factors: Floats, count: int, performance: float, beta2: float, kept: int
) -> int:
    """Let a round's performance join `count` factors, of which `kept` (0: all) remain; how many."""
    beta = np.sqrt(beta2)
    u = C / beta
    if count == 0:
        belief.scale, belief.width = single(u), single(beta)
    elif kept > 0 and beta < belief.width * NARROWER:
        belief.width = rebase(factors, count, belief.width, single(beta))
    belief.scale = normalise(factors, count, belief.scale, u / belief.scale, kept > 0)
    i = insert(factors, count, performance, 0.5 * u, u / belief.scale)
    count += 1
    if kept > 0:
        settle(factors, i, belief.grid, belief.width)
        while count > kept:
            i = merge_cheapest(factors, count)
            count -= 1
            belief.scale = normalise(factors, count, belief.scale, factors[i, 2], True)
            settle(factors, i, belief.grid, belief.width)
    return count


@kernel
def _advance(
    belief: Any, factors: Floats, performance: float, beta2: float, gamma2: float, rho: float,
    kept: int,
) -> float:  # fmt: skip
    """All of a round but the new mode, in place; a guess at that."""
    variance = belief.sigma * belief.sigma
    belief.previous_mu, belief.previous_sigma = belief.mu, belief.sigma
    count = _diffuse(belief, gamma2, rho)
    belief.count = _join(belief, factors, count, performance, beta2, kept)
    belief.sigma = 1.0 / np.sqrt(1.0 / (variance + gamma2) + 1.0 / beta2)
    if kept > 0:
        belief.center, belief.precision = single(belief.center), single(belief.precision)
        belief.scale, belief.sigma = single(belief.scale), single(belief.sigma)
    u = C / np.sqrt(beta2)
    pull = u * tanh(0.5 * u * (performance - belief.mu))
    return float(belief.mu + belief.sigma * belief.sigma * pull)


@kernel
def update(
    header: Table, factors: Floats, rows: Ints, evidence: Evidence, rho: Floats, kept: Ints
) -> None:
    """Diffuse, add the evidence and solve, in place, for the beliefs in `rows`.

    `header` (n,) and `factors` (n, capacity, 3) as in model.Beliefs; `evidence` (len(rows), 3);
    `rho` and `kept` (len(rows),), kept = 0 for all factors, unrounded. A belief must have room for
    one more factor than it holds. Previous mu and sigma are remembered; offsets and times are not
    touched.
    """
    guess = np.empty(BLOCK)
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        for i in range(len(block)):
            belief, held = header[block[i]], factors[block[i]]
            guess[i] = _advance(
                belief, held, evidence[start + i, 0], evidence[start + i, 1],
                evidence[start + i, 2], rho[start + i], kept[start + i],
            )  # fmt: skip
        find_modes(header, factors, block, guess)
        for i in range(len(block)):
            mu = guess[i]
            header[block[i]].mu = single(mu) if kept[start + i] > 0 else mu


def replace(header: Table, rows: Ints, evidence: Evidence, kept: Ints) -> None:
    """Stage 2 of a memoryless system, in place: evidence[:, 1:] are the new mu and sigma.

    They are rounded to what a record holds unless kept is 0.
    """
    header["previous_mu"][rows] = header["mu"][rows]
    header["previous_sigma"][rows] = header["sigma"][rows]
    rounded = np.where(kept[:, None] > 0, evidence[:, 1:].astype(np.float32), evidence[:, 1:])
    header["mu"][rows], header["sigma"][rows] = rounded.T
