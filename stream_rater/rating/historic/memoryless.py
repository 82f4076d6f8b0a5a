"""Rates the rounds of a wave one by one, for systems that are defined only for rounds without
teams.

A team enters as one player, whose rating is the initial rating plus the members' deviations from it
(section 3.3). The team's change is distributed to the members as in a linear Gaussian model, in
proportion to their parts of the team's variance.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.rating.model import Evidence, Places, Wave


class SoloRound(NamedTuple):
    """A round without teams, of n entries in order of place."""

    place: Places  # (n,) the places, as in Wave.
    mu: Floats  # (n,) the ratings before the round.
    sigma: Floats  # (n,) the uncertainties before the round.
    rounds: Ints  # (n,) the number of rounds played before.
    weight: float  # The relative weight of the round's evidence.
    ceiling: float  # The cap on performances; infinite for none.
    moved: Floats
    """(n,) by how many points `mu` is above the entry's own rating, for this round (`levels`)."""


def rate_each_round(wave: Wave, initial_mu: float, rate: Callable[[SoloRound], Floats]) -> Evidence:
    """Evidence (P, 3) for every player of a wave: the performance, the new mu and the new sigma.

    `rate` computes these three numbers for the n entries of one round, as (n, 3).
    """
    out = np.empty((len(wave.mu), 3))
    for r in range(len(wave.weight)):
        first, end = wave.round_starts[r], wave.round_starts[r + 1]
        starts = wave.entry_starts[first : end + 1]
        a, b = starts[0], starts[-1]
        mu, sigma, rounds = wave.mu[a:b], wave.sigma[a:b], wave.rounds[a:b]
        place = wave.place[first:end]
        weight, ceiling = float(wave.weight[r]), float(wave.ceiling[r])
        moved = wave.moved_side[first:end] if len(wave.moved) else np.zeros(len(place))
        if len(mu) == len(place):
            out[a:b] = rate(SoloRound(place, mu, sigma, rounds, weight, ceiling, moved))
            continue
        share, own = wave.share[a:b], starts[:-1] - a
        team_mu = initial_mu + np.add.reduceat(share * (mu - initial_mu), own)
        team_sigma = np.sqrt(np.add.reduceat((share * sigma) ** 2, own))
        played = np.maximum.reduceat(rounds, own)
        rated = rate(SoloRound(place, team_mu, team_sigma, played, weight, ceiling, moved))
        of = np.repeat(np.arange(len(place)), np.diff(starts))
        gain = share * (sigma / team_sigma[of]) ** 2
        shrink = (rated[of, 2] / team_sigma[of]) ** 2 - 1.0
        out[a:b, 0] = rated[of, 0]
        out[a:b, 1] = mu + gain * (rated[of, 1] - team_mu[of])
        out[a:b, 2] = sigma * np.sqrt(1.0 + gain * share * shrink)
    return out
