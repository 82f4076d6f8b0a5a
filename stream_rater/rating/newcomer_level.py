"""Where newcomers begin: at the level of the field that they play in.

A round is evidence about its newcomers before it is played: they were matched with these players,
or chose to take part in this contest. So a newcomer's mean is

    initial_mu + newcomer_offset / max(1, A) + newcomer_field * sum x_i (mu_i - initial_mu)
                                                                / (1 + sum x_i)

where the sums are over those of the round's players who played before, and x_i = max(0, 1 -
sigma_i^2 / initial_sigma^2) is what is known of player i. The 1 stands for one player at the
initial rating, so that a field of a few players counts less. A is the sum of the shares of the
newcomers on the newcomer's own side.

A side's mean is the sum of its members' deviations, each times the share. So the newcomers of a
side bring `newcomer_offset` once, however many they are: n newcomers and m newcomers are level.
With A below 1, somebody who hardly played brings that share of it. A newcomer whose share is nearly
nothing changes nothing for the others.

Stage 1 alone knows this. A record is still as new as `initial_mu` until the first round, and stage
2 takes what stage 1 makes of it. So only systems whose evidence is the new mu and sigma can have
it. The evidence also says where each newcomer began: it becomes the mu before the first round.
"""

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.factor import single
from stream_rater.rating.model import Evidence, Wave
from stream_rater.rating.parameters import PlacingNewcomers, RatingConfig


@kernel
def _place(
    round_starts: Ints, entry_starts: Ints, share: Floats, mu: Floats, sigma: Floats, rounds: Ints,
    initial_mu: float, initial_sigma: float, offset: float, field: float, kept: int,
) -> None:  # fmt: skip
    """Write the means of the newcomers among the players of some rounds into `mu` (P,), rounded to
    float32 unless `kept` is 0, because their events show it as a record holds it."""
    for r in range(len(round_starts) - 1):
        first, end = round_starts[r], round_starts[r + 1]
        total, known = 0.0, 1.0
        for p in range(entry_starts[first], entry_starts[end]):
            if rounds[p] > 0:
                part = sigma[p] / initial_sigma
                x = max(1.0 - part * part, 0.0)
                total, known = total + x * (mu[p] - initial_mu), known + x
        for e in range(first, end):
            i, j = entry_starts[e], entry_starts[e + 1]
            newcomers = 0.0
            for p in range(i, j):
                if rounds[p] == 0:
                    newcomers += share[p]
            level = initial_mu + offset / max(newcomers, 1.0) + field * total / known
            for p in range(i, j):
                if rounds[p] == 0:
                    mu[p] = single(level) if kept > 0 else level


def place(config: PlacingNewcomers, wave: Wave) -> None:
    """Write into the wave's `mu` where its newcomers begin."""
    _place(
        wave.round_starts, wave.entry_starts, wave.share, wave.mu, wave.sigma, wave.rounds,
        config.initial_mu, config.initial_sigma, config.newcomer_offset, config.newcomer_field,
        config.kept,
    )  # fmt: skip


def of_one_round(
    config: RatingConfig, starts: Ints, share: Floats, mu: Floats, sigma: Floats, rounds: Ints
) -> Floats:
    """(P,) the means of the P players of one round as it begins, in rating points.

    `starts` (S+1,) has the first player of each of its S sides, and P. `share`, `mu`, `sigma` and
    `rounds` (P,) are their parts of the round, what was believed of them before, in rating points,
    and how many rounds they played.
    """
    if not (isinstance(config, PlacingNewcomers) and config.places_newcomers):
        return mu
    found = np.array(mu, np.float64)
    _place(
        np.array([0, len(starts) - 1]), starts, share, found, sigma, rounds, config.initial_mu,
        config.initial_sigma, config.newcomer_offset, config.newcomer_field, config.kept,
    )  # fmt: skip
    return found


def with_starts(wave: Wave, evidence: Evidence) -> Evidence:
    """The evidence (P, 3) of a wave whose newcomers are placed, with a fourth column: where each
    newcomer began, and NaN for all others."""
    return np.column_stack((evidence, np.where(wave.rounds == 0, wave.mu, np.nan)))
