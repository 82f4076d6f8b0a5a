"""Elo-MMx: Elo-MMR with a Gaussian performance model (section 3, "Gaussian performance model").

Stage 1 is in `gaussian`. The belief stays Gaussian, so the new belief is known at once: it is the
product of two Gaussians, the prior and the performance.
"""

from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating.elo_mmr.performance import player_variances
from stream_rater.rating.kernels.gaussian import Room, new_room, perform
from stream_rater.rating.model import Evidence, Variances, Wave


@inlined
def _entry_moments(
    initial_mu: float, i: int, j: int, share: Floats, mu: Floats, prior: Floats, beta2: Floats
) -> tuple[float, float]:
    """(mu, delta) of the entry of players [i, j). The members' deviations from the initial rating
    add up, and so do their variances (section 3.3). A single player who played the whole round
    needs no team arithmetic, and is spared its rounding."""
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
    """Write each member's evidence into `out`. The new belief is the product of two: the prior, and
    the team's performance minus the other members."""
    for m in range(i, j):
        found, noise = performance, beta2[m]
        if j > i + 1 or share[m] != 1.0:
            found = mu[m] + (performance - team_mu) / share[m]
            noise = delta * delta / (share[m] * share[m]) - prior[m]
        out[m, 0] = found
        out[m, 1] = mu[m] + prior[m] / (prior[m] + noise) * (found - mu[m])
        out[m, 2] = np.sqrt(prior[m] * noise / (prior[m] + noise))


class WaveWork(NamedTuple):
    """Scratch space for the players and entries of the largest round."""

    prior: Floats  # (P,) each player's variance before the round, after diffusion.
    beta2: Floats  # (P,) beta^2 of each player.
    entry_mu: Floats  # (E,) the rating of each entry.
    delta: Floats  # (E,) the standard deviation of each entry's performance.
    found: Floats  # (E,) the performance of each entry.
    room: Room


@inlined
def _rate_all(
    wave: Wave, variances: Variances, initial_mu: float, split: bool, work: WaveWork, out: Floats
) -> None:
    """Rate the rounds one after the other, and write the evidence into `out` (P, 3); `work` is
    scratch space."""
    round_starts, entry_starts, sigma = wave.round_starts, wave.entry_starts, wave.sigma
    prior, beta2, entry_mu, delta, found = (
        work.prior, work.beta2, work.entry_mu, work.delta, work.found
    )  # fmt: skip
    for r in range(len(wave.weight)):
        first, end = round_starts[r], round_starts[r + 1]
        a, b, n = entry_starts[first], entry_starts[end], end - first
        own_share, own_mu, own = wave.share[a:b], wave.mu[a:b], out[a:b]
        player_variances(
            wave.weight[r], wave.rounds[a:b], wave.time[r], wave.last_time[a:b], variances, own
        )
        for i in range(b - a):
            prior[i] = sigma[a + i] * sigma[a + i] + own[i, 2]
            beta2[i] = own[i, 1]
        for e in range(n):
            i, j = entry_starts[first + e] - a, entry_starts[first + e + 1] - a
            entry_mu[e], delta[e] = _entry_moments(
                initial_mu, i, j, own_share, own_mu, prior, beta2
            )
        perform(wave.place[first:end], entry_mu[:n], delta[:n], split, work.room, found[:n])
        for e in range(n):
            i, j = entry_starts[first + e] - a, entry_starts[first + e + 1] - a
            _learn(
                min(found[e], wave.ceiling[r]), i, j, entry_mu[e], delta[e], initial_mu,
                own_share, own_mu, prior, beta2, own,
            )  # fmt: skip


@kernel
def rate_rounds(wave: Wave, variances: Variances, initial_mu: float, split: bool) -> Evidence:
    """Evidence (P, 3): performance, new mu, new sigma."""
    out = np.empty((len(wave.mu), 3))
    entries = players = 0
    for r in range(len(wave.weight)):
        first, end = wave.round_starts[r], wave.round_starts[r + 1]
        entries = max(entries, end - first)
        players = max(players, wave.entry_starts[end] - wave.entry_starts[first])
    work = WaveWork(
        np.empty(players), np.empty(players), np.empty(entries), np.empty(entries),
        np.empty(entries), new_room(entries),
    )  # fmt: skip
    _rate_all(wave, variances, initial_mu, split, work, out)
    return out
