"""Glicko-2 for rounds of any size: a round is a rating period.

Stage 1 does steps 3 and 4 of the source (M. Glickman, Example of the Glicko-2 system, 2013), which
need no volatility. Stage 2 does steps 5 to 8, because only the updater reads the volatility. The
source's numbers are in units of a scale; here they are points.

A round of n entries is n - 1 games of each of them. They depend on each other: among equals, the
number of opponents beaten has the variance (n^2 - 1) / 12, which is (n + 1) / 3 times that of n - 1
games. So each counts as 3 / (n + 1) games. An opponent's g and u are proportional, so the sum
of all g_j s_j(x) is the fraction P / (P + Q) of the sum of all g, and the sum of all g_j u_j s_j
(1 - s_j) is its slope (`sum_table`).

The evidence of a player is the performance mu + delta, its variance v, and the variance by which
skill diffuses at the ladder's initial volatility. A belief stores the *relative volatility*: the
ratio of the player's volatility to the initial one. So the source's sigma^2 is the diffusion times
the square of the ratio.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.elo_mmr.sum_table import FEW, chance, log_odds, scores, table_of
from stream_rater.rating.factor import single
from stream_rater.rating.model import Evidence, Places, Table, Wave, tie_bounds

LEAST_PRECISION = 1e-12
"""The least information of a round, relative to that of one game against an equal opponent. It
keeps v finite where the result was certain."""
WIDEST = math.log(10.0)
"""The greatest distance of the logarithm of the relative volatility from 0. The source has no such
bound, and its volatilities grow without end in rounds of many entries and little skill."""
STEPS = 100
CLOSE = 1e-9
"""The error of the logarithm of the square of the volatility, after STEPS steps at most."""


@kernel
def rate(
    place: Places, mu: Floats, sigma: Floats, weight: float, ceiling: Floats, scale: float
) -> tuple[Floats, Floats]:
    """The performance of each entry of one round above its mu, (n,), and its variance, (n,).
    `scale` is the number of points of one natural logarithm of the odds."""
    n = len(mu)
    g = 1.0 / np.sqrt(1.0 + 3.0 / (math.pi * math.pi) * (sigma / scale) ** 2)
    u = g / scale
    lo, hi = tie_bounds(place)
    actual, total = scores(lo, hi, g)
    c, low, h = table_of(mu, u, np.min(mu), np.max(mu))
    games = weight * 3.0 / (n + 1)
    least = LEAST_PRECISION * 0.25 / scale
    gap, noise = np.empty(n), np.empty(n)
    for i in range(n):
        surprise, information = actual[i] - 0.5 * g[i], 0.0
        if n <= FEW:
            for j in range(n):
                if j != i:
                    won = 1.0 / (1.0 + exp((mu[j] - mu[i]) * u[j]))
                    surprise -= g[j] * won
                    information += g[j] * u[j] * won * (1.0 - won)
        else:
            value, slope = log_odds(mu[i], mu, u, c, low, h)
            part = chance(value)
            surprise -= total * part - 0.5 * g[i]
            information = total * part * (1.0 - part) * slope - 0.25 * g[i] * u[i]
        information = games * max(information, least) / scale
        gap[i] = min(games * surprise / scale / information, ceiling[i] - mu[i])
        noise[i] = 1.0 / information
    return gap, noise


@kernel
def rate_rounds(wave: Wave, initial_mu: float, scale: float, diffusion: Floats) -> Evidence:
    """(P, 3) the evidence of the players of a wave. `diffusion` (P,) is its third column.

    A team plays as one entry, with the sum of its members' deviations from the initial rating, each
    times the share. Each member's evidence has the effect that the team's result has on the member
    in a linear Gaussian model (section 3.3 of the paper of Elo-MMR): it has the team's surprise
    divided by the share, and as noise what the member does not explain.
    """
    out = np.empty((len(wave.mu), 3))
    for r in range(len(wave.weight)):
        first, end = wave.round_starts[r], wave.round_starts[r + 1]
        mu, variance = np.full(end - first, initial_mu), np.zeros(end - first)
        for e in range(first, end):
            for p in range(wave.entry_starts[e], wave.entry_starts[e + 1]):
                mu[e - first] += wave.share[p] * (wave.mu[p] - initial_mu)
                variance[e - first] += (wave.share[p] * wave.sigma[p]) ** 2
        gap, noise = rate(
            wave.place[first:end],
            mu,
            np.sqrt(variance),
            wave.weight[r],
            wave.ceiling[first:end],
            scale,
        )
        for e in range(first, end):
            for p in range(wave.entry_starts[e], wave.entry_starts[e + 1]):
                share, own = wave.share[p], (wave.share[p] * wave.sigma[p]) ** 2
                others = variance[e - first] - own
                out[p, 0] = wave.mu[p] + gap[e - first] / share
                out[p, 1] = (noise[e - first] + others) / share**2
                out[p, 2] = diffusion[p]
    return out


@inlined
def _slope(x: float, before: float, tau: float, known: float, delta2: float, d: float) -> float:
    """The source's f at x, the logarithm of the square of the relative volatility. `known` is
    sigma^2 + v, and `d` the diffusion."""
    drift = d * exp(x)
    whole = known + drift
    return 0.5 * drift / whole * ((delta2 - whole) / whole) - (x - before) / (tau * tau)


@inlined
def _volatility(before: float, tau: float, known: float, delta2: float, d: float) -> float:
    """The root of `_slope` that the source's step 5 finds, by the Illinois algorithm from the same
    two points. After a great surprise there can be a second root, far above."""
    if d == 0.0:
        return before
    low, high = before, before - tau
    if delta2 > known:
        high = log((delta2 - known) / d)
    else:
        for _ in range(STEPS):
            if _slope(high, before, tau, known, delta2, d) >= 0.0:
                break
            high -= tau
    at_low = _slope(low, before, tau, known, delta2, d)
    at_high = _slope(high, before, tau, known, delta2, d)
    for _ in range(STEPS):
        if abs(high - low) <= CLOSE:
            break
        x = low + (low - high) * at_low / (at_high - at_low)
        at_x = _slope(x, before, tau, known, delta2, d)
        if at_x * at_high <= 0.0:
            low, at_low = high, at_high
        else:
            at_low *= 0.5
        high, at_high = x, at_x
    return min(max(low, -2.0 * WIDEST), 2.0 * WIDEST)


@kernel
def update(header: Table, rows: Ints, evidence: Evidence, tau: Floats, kept: Ints) -> None:
    """Stage 2, in place: steps 5 to 8 for the beliefs in `rows`. `tau` (len(rows),) bounds the
    change of the volatility. Numbers are rounded as a record stores them, unless `kept` is 0. A
    relative volatility of 0 stands for 1: the player has played no round of Glicko-2."""
    for j in range(len(rows)):
        belief = header[rows[j]]
        mu, variance = belief.mu, belief.sigma * belief.sigma
        gap, noise, d = evidence[j, 0] - mu, evidence[j, 1], evidence[j, 2]
        ratio = belief.volatility if belief.volatility > 0.0 else 1.0
        x = _volatility(2.0 * log(ratio), tau[j], variance + noise, gap * gap, d)
        prior = variance + d * exp(x)
        after = 1.0 / (1.0 / prior + 1.0 / noise)
        moved, sigma, ratio = mu + after / noise * gap, np.sqrt(after), exp(0.5 * x)
        belief.previous_mu, belief.previous_sigma = mu, belief.sigma
        rounded = kept[j] > 0
        belief.mu = single(moved) if rounded else moved
        belief.sigma = single(sigma) if rounded else sigma
        belief.volatility = single(ratio) if rounded else ratio
