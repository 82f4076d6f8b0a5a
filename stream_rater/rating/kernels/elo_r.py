"""Elo-R, the predecessor of Elo-MMR (the drafts "Elo-R" of February and March 2016).

A belief is a product of a Gaussian factor and logistic factors, as in `belief`, but each factor k
has its own width tau_k. Its term in the equation for the rating is tanh((x - p_k) / tau_k) / tau_k.
So a row (p, a, r) of `model.Beliefs` has a = scale * r = 1 / tau_k: the weight determines the
slope. A record marks this by a width of 0. Diffusion *widens* factors: all tau_k^2, the Gaussian's
too, grow by the factor 1 + eta^2 / sigma^2 (Equation 27). This adds eta^2 to sigma^2 = 1 / sum of
1/tau_k^2 (Equation 25). A round's performance is observed with the spread delta.

Equation 29, eta^2 = 1 / (1/sigma*^2 - 1/delta^2) - sigma*^2, is Elo-MMR's pair (beta, gamma) =
(delta, eta) at sigma_limit = sigma*. So the weight of a round changes both as in Elo-MMR.

A wide factor is nearly linear. So if only K factors are kept, the widest is moved into the
Gaussian, as in the drafts (Equation 6). It keeps its weight and its pull on the present rating, so
the rating does not jump, and the pull of an old outlier stays bounded. (`sketch` merges neighbours
instead. That suits only factors of similar width: the variance of a mixture of narrow and wide
factors comes from the wide ones.)

In stage 1, player i is also compared with a clone of itself, once as winner and once as loser (the
prior of Equation 18). With ties "full", tied entries are treated in the same way (Algorithm 1), and
share one performance. With ties "split", a tie is half a win and half a loss (the text), but the
clone stays whole. The clone pulls each tied player towards the player's own rating, and its pull is
stronger the more certain the rating is. So if two tied players have the same sigma, the higher
rated one has the slightly higher performance (section 5). If their sigmas differ, it may have the
lower one.
"""

import math
from typing import Any

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating import factor, roots
from stream_rater.rating.elementary import exp, log, tanh
from stream_rater.rating.elo_mmr.performance import (
    credit_members,
    is_solo,
    performances,
    player_variances,
    team,
)
from stream_rater.rating.factor import copy, grid_code, growth, insert, power_of_two, single, weight
from stream_rater.rating.model import (
    Evidence,
    Factors,
    Places,
    Table,
    Variances,
    Wave,
    count_ranked,
    tie_bounds,
)
from stream_rater.rating.roots import MAX_STEPS, safeguard

STAND_STILL = 1e-12
"""A step shorter than this fraction of 1/u ends the search for a tied player's performance."""


@kernel
def _log_balance(x: float, mu: Floats, u: Floats, i: int, lo: int, hi: int) -> tuple[float, float]:
    """ln(losses) - ln(wins) of player i at x, and its slope. The tied entries [lo, hi] count
    half."""
    lost = won = slope_lost = slope_won = 0.0
    for j in range(len(mu)):
        e = exp((mu[j] - x) * u[j])
        s = 1.0 / (1.0 + e)
        t = e * s
        both = 1.0 if j == i else 0.5
        loses = 1.0 if j < lo else (both if j <= hi else 0.0)
        wins = 1.0 if j > hi else (both if j >= lo else 0.0)
        lost += loses * u[j] * s
        won += wins * u[j] * t
        slope_lost += loses * u[j] * u[j] * s * t
        slope_won += wins * u[j] * u[j] * s * t
    return log(lost) - log(won), slope_lost / lost + slope_won / won


@kernel
def split_performances(place: Places, mu: Floats, u: Floats, found: Floats) -> None:
    """Write the performances of tied players for split ties into `found` (n,).

    On entry, `found` contains the performances for full ties, which are right for all other
    players. Each tied player has its own equation, and each step of its solution takes O(n). After
    an upset over thousands of points the function may be flat around its root. Then some point of
    the plateau is found, after at most MAX_STEPS steps.
    """
    lo, hi = tie_bounds(place)
    ranked = count_ranked(place)
    reach: float = log(2.0 * np.sum(u) / np.min(u)) / np.min(u)
    for i in range(ranked):
        if lo[i] == hi[i]:
            continue
        x = found[i]
        last = math.inf
        low: float = np.min(mu) - reach
        high: float = np.max(mu) + reach
        for _ in range(MAX_STEPS):
            value, slope = _log_balance(x, mu, u, i, lo[i], hi[i])
            step = -value / slope
            if abs(step) <= STAND_STILL / u[i]:
                break
            x, low, high, last = safeguard(x, value, step, low, high, last)
            if abs(last) <= STAND_STILL / u[i]:
                break
        found[i] = x


@kernel
def rate_rounds(wave: Wave, variances: Variances, initial_mu: float, split: bool) -> Evidence:
    """Evidence (P, 3): performance, delta^2 and eta^2. The latter two are adjusted to the round's
    weight."""
    round_starts, entry_starts, place = wave.round_starts, wave.entry_starts, wave.place
    share, mu, sigma = wave.share, wave.mu, wave.sigma
    out = np.empty((len(mu), 3))
    for r in range(len(wave.weight)):
        first, end = round_starts[r], round_starts[r + 1]
        a, b = entry_starts[first], entry_starts[end]
        player_variances(
            wave.weight[r], wave.rounds[a:b], wave.time[r], wave.last_time[a:b], variances,
            out[a:b],
        )  # fmt: skip
        prior = sigma[a:b] * sigma[a:b] + out[a:b, 2]
        entry_mu, u = np.empty(end - first), np.empty(end - first)
        for e in range(first, end):
            i, j = entry_starts[e], entry_starts[e + 1]
            variance = prior[i - a : j - a] + out[i:j, 1]
            if is_solo(share, i, j):
                entry_mu[e - first], tau2 = mu[i], variance[0]
            else:
                entry_mu[e - first], tau2 = team(initial_mu, share[i:j], mu[i:j], variance)
            u[e - first] = 2.0 / np.sqrt(tau2)
        found = performances(place[first:end], entry_mu, u, 1.0)
        if split:
            split_performances(place[first:end], entry_mu, u, found)
        for e in range(first, end):
            i, j = entry_starts[e], entry_starts[e + 1]
            performance = min(found[e - first], wave.ceiling[e])
            if is_solo(share, i, j):
                out[i, 0] = performance
            else:
                credit_members(
                    performance, initial_mu, share[i:j], mu[i:j], prior[i - a : j - a], out[i:j]
                )
    return out


@kernel
def merge_widest(belief: Any, terms: Floats, count: int) -> int:
    """Move the widest of `count` factors into the belief's Gaussian. Returns the new count."""
    widest = 0
    for k in range(1, count):
        if terms[k, 1] < terms[widest, 1]:
            widest = k
    p, a = terms[widest, 0], terms[widest, 1]
    pull = a * tanh((belief.mu - p) * a)
    total = belief.precision + a * a
    if total > 0.0:  # otherwise both are so wide that nothing is left of them
        # This keeps the factor's pull: its weight times (mu - new center) is that pull
        belief.center += (a * a * (belief.mu - belief.center) - pull) / total
    belief.precision = total
    for k in range(widest, count - 1):
        copy(terms, k + 1, k)
    return count - 1


@kernel
def _join(belief: Any, terms: Floats, count: int, performance: float, a: float, kept: int) -> int:
    """Add a performance to `count` factors. At most `kept` stay (0: all). Returns the new count."""
    while kept > 0 and count >= kept:
        count = merge_widest(belief, terms, count)
    if count == 0:
        belief.scale, belief.width = single(a), 0.0
    belief.scale *= growth(a / belief.scale)
    for k in range(count):
        terms[k, 2] = terms[k, 1] / belief.scale
    if kept > 0:
        step = power_of_two(belief.grid)
        performance = grid_code(performance, 1.0 / step) * step
    insert(terms, count, performance, a, a / belief.scale)
    count += 1
    if kept > 0:
        for k in range(count):
            terms[k, 2] = weight(terms[k, 2])
            terms[k, 1] = belief.scale * terms[k, 2]
        belief.center, belief.precision = single(belief.center), single(belief.precision)
    return count


@kernel
def _advance(
    belief: Any, terms: Floats, performance: float, delta2: float, eta2: float, kept: int
) -> None:
    """Apply a round to a belief in place, except for the new mode."""
    variance = belief.sigma * belief.sigma
    belief.previous_mu, belief.previous_sigma = belief.mu, belief.sigma
    widening = 1.0 + eta2 / variance
    belief.precision /= widening
    count = belief.count + 0  # + 0 makes it signed; otherwise numba counts in floats
    for k in range(count):
        terms[k, 1] /= np.sqrt(widening)
    belief.count = _join(belief, terms, count, performance, 1.0 / np.sqrt(delta2), kept)
    belief.sigma = 1.0 / np.sqrt(1.0 / (variance + eta2) + 1.0 / delta2)
    if kept > 0:
        belief.sigma = single(belief.sigma)


@inlined
def widen(belief: Any, factors: Factors, sigma: float, coded: bool) -> None:
    """Widen a belief until its sigma equals `sigma`, which is greater. `factors` are the belief's
    own factors: (capacity,) codes or (capacity, 3) rows. The scale takes up the whole change, so no
    weight is rounded again. If `coded`, the scale is rounded as a record stores it."""
    narrower = belief.sigma / sigma
    belief.precision *= narrower * narrower
    scale = belief.scale * narrower
    belief.scale = single(scale) if coded else scale
    if factors.ndim == 2:
        for k in range(belief.count):
            factors[k, 1] *= narrower
    belief.sigma = sigma


@kernel
def _mode(belief: Any, terms: Floats) -> float:
    """The mode of the belief, searched from its mu."""
    count = belief.count + 0
    columns, found = np.empty((3, count, roots.WIDTH)), np.empty(1)
    lanes = np.empty((roots.FREE, roots.WIDTH))
    for i in range(roots.WIDTH):
        lanes[roots.X, i], lanes[roots.SIGMA, i] = belief.mu, belief.sigma
        lanes[roots.CENTER, i], lanes[roots.PRECISION, i] = belief.center, belief.precision
        lanes[roots.SCALE, i], lanes[roots.COUNT, i] = belief.scale, count
        for k in range(count):
            for c in range(3):
                columns[c, k, i] = terms[k, c]
    roots.find_modes(columns, lanes, 1, count, False, found)
    return float(found[0])


@kernel
def update(header: Table, factors: Factors, rows: Ints, evidence: Evidence, kept: Ints) -> None:
    """Widen the beliefs, add the evidence and find the new modes, in place. The arguments are those
    of `belief.update`, without `rho`."""
    terms = np.empty((factors.shape[1], 3))
    for i in range(len(rows)):
        belief = header[rows[i]]
        if factors.ndim == 2:
            factor.read(belief, factors[rows[i]], terms)
        else:
            terms = factors[rows[i]]
        _advance(belief, terms, evidence[i, 0], evidence[i, 1], evidence[i, 2], kept[i])
        if factors.ndim == 2:
            factor.write(belief, terms, factors[rows[i]])
        mu = _mode(belief, terms)
        belief.mu = single(mu) if kept[i] > 0 else mu
