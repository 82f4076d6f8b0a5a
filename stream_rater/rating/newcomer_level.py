"""Where newcomers begin: at the level of the field that they play in.

A round says something of its newcomers before it is played: whom they were matched with, or in what
contest they dared to take part. So a newcomer's mean is

    initial_mu + newcomer_offset + newcomer_field * sum x_i (mu_i - initial_mu) / (1 + sum x_i)

over those of the round's players who played before, where x_i = max(0, 1 - sigma_i^2 /
initial_sigma^2) is what is known of player i. The 1 stands for one player at the initial rating,
so that a field of a few players says less.

Stage 1 alone knows this. A record is still as new as `initial_mu` until the first round, and stage
2 takes what stage 1 makes of it. So only systems whose evidence is the new mu and sigma can have
it.
"""

from dataclasses import replace

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.model import Wave
from stream_rater.rating.parameters import PlacingNewcomers, RatingConfig


@kernel
def _placed(
    starts: Ints, mu: Floats, sigma: Floats, rounds: Ints, initial_mu: float,
    initial_sigma: float, offset: float, field: float,
) -> Floats:  # fmt: skip
    """(P,) the means of players who meet in rounds, in which players starts[r] : starts[r + 1]
    are."""
    found = mu.copy()
    for r in range(len(starts) - 1):
        total, known = 0.0, 1.0
        for i in range(starts[r], starts[r + 1]):
            if rounds[i] > 0:
                part = sigma[i] / initial_sigma
                x = max(1.0 - part * part, 0.0)
                total, known = total + x * (mu[i] - initial_mu), known + x
        level = initial_mu + offset + field * total / known
        for i in range(starts[r], starts[r + 1]):
            if rounds[i] == 0:
                found[i] = level
    return found


def means(config: RatingConfig, starts: Ints, mu: Floats, sigma: Floats, rounds: Ints) -> Floats:
    """(P,) the means of P players as a round of theirs begins, in rating points.

    `starts` (R+1,) has the first player of each of R rounds, and P. `mu`, `sigma` and `rounds` (P,)
    are what was believed of the players before, in rating points, and how many rounds they played.
    """
    if not isinstance(config, PlacingNewcomers) or (
        config.newcomer_offset == config.newcomer_field == 0.0
    ):
        return mu
    found: Floats = _placed(
        starts, mu, sigma, rounds, config.initial_mu, config.initial_sigma, config.newcomer_offset,
        config.newcomer_field,
    )  # fmt: skip
    return found


def of_one_round(config: RatingConfig, mu: Floats, sigma: Floats, rounds: Ints) -> Floats:
    """The same for P players of one round."""
    return means(config, np.array([0, len(mu)]), mu, sigma, rounds)


def placed(config: RatingConfig, wave: Wave) -> Wave:
    """The wave with its newcomers where they begin."""
    starts = wave.entry_starts[wave.round_starts]
    mu = means(config, starts, wave.mu, wave.sigma, wave.rounds)
    return wave if mu is wave.mu else replace(wave, mu=mu)
