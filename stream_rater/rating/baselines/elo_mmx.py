"""Elo-MMx: Elo-MMR with a Gaussian performance model (section 3, "Gaussian performance model").

Stage 1 is in `gaussian`. The belief stays Gaussian, so what it becomes is known at once: prior and
performance are two Gaussians, multiplied.
"""

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating.baselines.gaussian import Room, new_room, perform
from stream_rater.rating.model import Evidence, Places, Wave
from stream_rater.rating.parameters import EloMMX
from stream_rater.rating.performance import player_variances


@inlined
def _enter(
    initial_mu: float, i: int, j: int, share: Floats, mu: Floats, prior: Floats, beta2: Floats
) -> tuple[float, float]:
    """(mu, delta) of the entry of players [i, j): deviations from the initial rating add up, and so
    do variances (section 3.3). One player who played the whole round is not to be rounded so."""
    if j == i + 1 and share[i] == 1.0:
        return mu[i], np.sqrt(prior[i] + beta2[i])
    team_mu, variance = initial_mu, 0.0
    for m in range(i, j):
        team_mu += share[m] * (mu[m] - initial_mu)
        variance += share[m] * share[m] * (prior[m] + beta2[m])
    return team_mu, np.sqrt(variance)


@inlined
def _learn(
    performance: float, i: int, j: int, team_mu: float, delta: float, initial_mu: float,
    share: Floats, mu: Floats, prior: Floats, beta2: Floats, out: Floats,
) -> None:  # fmt: skip
    """What each member's prior and the team's performance, less the others, make: two Gaussians."""
    for m in range(i, j):
        found, noise = performance, beta2[m]
        if j > i + 1 or share[m] != 1.0:
            found = mu[m] + (performance - team_mu) / share[m]
            noise = delta * delta / (share[m] * share[m]) - prior[m]
        out[m, 0] = found
        out[m, 1] = mu[m] + prior[m] / (prior[m] + noise) * (found - mu[m])
        out[m, 2] = np.sqrt(prior[m] * noise / (prior[m] + noise))


@inlined
def _rate_all(
    round_starts: Ints, weight: Floats, ceiling: Floats, time: Ints, place: Places,
    entry_starts: Ints, share: Floats, mu: Floats, sigma: Floats, rounds: Ints, last_time: Ints,
    weight_limit: float, sigma_limit: float, drift_per_day: float, newcomer_weights: Floats,
    initial_mu: float, split: bool, prior: Floats, beta2: Floats, entry_mu: Floats,
    delta: Floats, found: Floats, room: Room, out: Floats,
) -> None:  # fmt: skip
    """One round after the other into `out`, worked on in the arrays before that."""
    for r in range(len(weight)):
        first, end = round_starts[r], round_starts[r + 1]
        a, b, n = entry_starts[first], entry_starts[end], end - first
        own_share, own_mu, own = share[a:b], mu[a:b], out[a:b]
        player_variances(
            weight[r], rounds[a:b], time[r], last_time[a:b], newcomer_weights,
            weight_limit, sigma_limit, drift_per_day, own,
        )  # fmt: skip
        for i in range(b - a):
            prior[i] = sigma[a + i] * sigma[a + i] + own[i, 2]
            beta2[i] = own[i, 1]
        for e in range(n):
            i, j = entry_starts[first + e] - a, entry_starts[first + e + 1] - a
            entry_mu[e], delta[e] = _enter(initial_mu, i, j, own_share, own_mu, prior, beta2)
        perform(place[first:end], entry_mu[:n], delta[:n], split, room, found[:n])
        for e in range(n):
            i, j = entry_starts[first + e] - a, entry_starts[first + e + 1] - a
            _learn(
                min(found[e], ceiling[r]), i, j, entry_mu[e], delta[e], initial_mu,
                own_share, own_mu, prior, beta2, own,
            )  # fmt: skip


@kernel
def _rounds(
    round_starts: Ints, weight: Floats, ceiling: Floats, time: Ints, place: Places,
    entry_starts: Ints, share: Floats, mu: Floats, sigma: Floats, rounds: Ints, last_time: Ints,
    weight_limit: float, sigma_limit: float, drift_per_day: float, newcomer_weights: Floats,
    initial_mu: float, split: bool,
) -> Floats:  # fmt: skip
    out = np.empty((len(mu), 3))
    entries = players = 0
    for r in range(len(weight)):
        first, end = round_starts[r], round_starts[r + 1]
        entries = max(entries, end - first)
        players = max(players, entry_starts[end] - entry_starts[first])
    _rate_all(
        round_starts, weight, ceiling, time, place, entry_starts, share, mu, sigma, rounds,
        last_time, weight_limit, sigma_limit, drift_per_day, newcomer_weights, initial_mu, split,
        np.empty(players), np.empty(players), np.empty(entries), np.empty(entries),
        np.empty(entries), new_room(entries), out,
    )  # fmt: skip
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
