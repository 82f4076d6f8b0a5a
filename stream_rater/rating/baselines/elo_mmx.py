"""Elo-MMx: Elo-MMR with a Gaussian performance model (section 3, "Gaussian performance model").

Entry j performs normally around mu_j with variance delta_j^2; z = (x - mu_j) / delta_j. Beating it
pulls a performance x up by hazard(-z) / delta_j, losing to it down by hazard(z) / delta_j, and a
full tie draws it to mu_j by -z / delta_j. The belief stays Gaussian: the update multiplies two.
"""

import math

import numpy as np

from stream_rater.rating.baselines.places import tie_bounds
from stream_rater.rating.compiled import kernel
from stream_rater.rating.elementary import log
from stream_rater.rating.model import DID_NOT_FINISH, Evidence, Floats, Ints, Places, Wave
from stream_rater.rating.normal import hazard
from stream_rater.rating.parameters import EloMMX
from stream_rater.rating.performance import credit_members, player_variances, team
from stream_rater.rating.roots import MAX_STEPS, safeguard

TOLERANCE = 1e-9


@kernel
def _pull(
    x: float, place: Places, mu: Floats, delta: Floats, i: int, lo: int, hi: int, split: bool
) -> tuple[float, float]:
    """-Q_i(x), increasing in x, and its slope: losses and ties pull down, wins up."""
    value = slope = 0.0
    unfinished = place[i] == DID_NOT_FINISH
    for j in range(len(mu)):
        if unfinished and place[j] == DID_NOT_FINISH and j != i:
            continue
        z = (x - mu[j]) / delta[j]
        win = loss = 0.0
        if j > hi:
            win = 1.0
        elif j < lo:
            loss = 1.0
        elif split:
            win = loss = 0.5
        else:
            value += z / delta[j]
            slope += 1.0 / delta[j] ** 2
        if loss > 0.0:
            h = hazard(z)
            value += loss * h / delta[j]
            slope += loss * h * (h - z) / delta[j] ** 2
        if win > 0.0:
            h = hazard(-z)
            value -= win * h / delta[j]
            slope += win * h * (h + z) / delta[j] ** 2
    return value, slope


@kernel
def performances(place: Places, mu: Floats, delta: Floats, split: bool) -> Floats:
    """The performance of each entry; entries in order of place, unfinished last."""
    n = len(mu)
    lo, hi = tie_bounds(place)
    found = np.empty(n)
    widest: float = np.max(delta)
    reach = widest * (4.0 + np.sqrt(2.0 * log(n + 1.0))) * (widest / np.min(delta)) * n
    x = float(np.mean(mu))
    for i in range(n):
        if i > lo[i] and place[i] != DID_NOT_FINISH:
            found[i] = found[i - 1]
            continue
        low: float = np.min(mu) - reach
        high: float = np.max(mu) + reach
        last = math.inf
        for _ in range(MAX_STEPS):
            value, slope = _pull(x, place, mu, delta, i, lo[i], hi[i], split)
            step = -value / slope
            if abs(step) <= TOLERANCE * widest:
                x = x + step
                break
            x, low, high, last = safeguard(x, value, step, low, high, last)
        found[i] = x
    return found


@kernel
def _rounds(
    round_starts: Ints, weight: Floats, ceiling: Floats, time: Ints, place: Places,
    entry_starts: Ints, share: Floats, mu: Floats, sigma: Floats, rounds: Ints, last_time: Ints,
    weight_limit: float, sigma_limit: float, drift_per_day: float, newcomer_weights: Floats,
    initial_mu: float, split: bool,
) -> Floats:  # fmt: skip
    out = np.empty((len(mu), 3))
    for r in range(len(weight)):
        first, end = round_starts[r], round_starts[r + 1]
        a, b = entry_starts[first], entry_starts[end]
        player_variances(
            weight[r], rounds[a:b], time[r] - last_time[a:b], newcomer_weights,
            weight_limit, sigma_limit, drift_per_day, out[a:b],
        )  # fmt: skip
        prior = sigma[a:b] * sigma[a:b] + out[a:b, 2]
        entry_mu, delta = np.empty(end - first), np.empty(end - first)
        for e in range(first, end):
            i, j = entry_starts[e], entry_starts[e + 1]
            variance = prior[i - a : j - a] + out[i:j, 1]
            entry_mu[e - first], delta2 = team(initial_mu, share[i:j], mu[i:j], variance)
            delta[e - first] = np.sqrt(delta2)
        found = performances(place[first:end], entry_mu, delta, split)
        for e in range(first, end):
            i, j = entry_starts[e], entry_starts[e + 1]
            credit_members(
                min(found[e - first], ceiling[r]), initial_mu, share[i:j], mu[i:j],
                prior[i - a : j - a], out[i:j],
            )  # fmt: skip
        for i in range(a, b):
            before, beta2 = prior[i - a], out[i, 1]
            out[i, 1] = mu[i] + before / (before + beta2) * (out[i, 0] - mu[i])
            out[i, 2] = np.sqrt(before * beta2 / (before + beta2))
    return out


def estimate(config: EloMMX, wave: Wave) -> Evidence:
    """Evidence (P, 3): performance, new mu, new sigma."""
    weight_limit, sigma_limit = config.limits
    evidence: Evidence = _rounds(
        wave.round_starts, wave.weight, wave.ceiling, wave.time, wave.place, wave.entry_starts,
        wave.share, wave.mu, wave.sigma, wave.rounds, wave.last_time,
        weight_limit, sigma_limit, config.drift_per_day,
        np.array(config.newcomer_weights, dtype=np.float64),
        config.initial_mu, config.ties == "split",
    )  # fmt: skip
    return evidence
