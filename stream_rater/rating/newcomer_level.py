"""Places newcomers: their first rating is the level of the field that they play in.

A round is evidence about its newcomers even before it is played: they were matched with these
players, or they chose to take part in this contest. So a newcomer's mean is

    initial_mu + newcomer_offset / max(1, A) + newcomer_field * sum x_i (mu_i - initial_mu)
                                                                / (1 + sum x_i)

where the sums are over the round's players who have played before, and x_i = max(0, 1 - sigma_i^2 /
initial_sigma^2) measures how much is known about player i. The 1 stands for one player at the
initial rating, so that a field of a few players counts less. A is the sum of the shares of the
newcomers on the newcomer's own side.

A side's mean is the sum of its members' deviations, each times the member's share. So the newcomers
of a side add `newcomer_offset` once, whatever their number: a side of n newcomers and a side of m
newcomers are equal. If A is below 1, because a newcomer hardly played, the side adds only that
share of the offset. A newcomer whose share is nearly 0 changes nothing for the others.

Only stage 1 places newcomers. Until the first round, a belief still has `initial_mu`, and stage 2
stores the result of stage 1. So only systems whose evidence is the new mu and sigma can place
newcomers. The evidence also contains each newcomer's mu at the beginning of the round, which
becomes the mu before the first round.
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
    """Write the mean of each newcomer in some rounds into `mu` (P,).

    Unless `kept` is 0, the means are rounded to float32, because events show them as records store
    them.
    """
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
    """Write the mean of each newcomer of a wave into the wave's `mu`, in place."""
    _place(
        wave.round_starts, wave.entry_starts, wave.share, wave.mu, wave.sigma, wave.rounds,
        config.initial_mu, config.initial_sigma, config.newcomer_offset, config.newcomer_field,
        config.kept,
    )  # fmt: skip


def of_one_round(
    config: RatingConfig, starts: Ints, share: Floats, mu: Floats, sigma: Floats, rounds: Ints
) -> Floats:
    """(P,) the means of the P players at the beginning of one round, in rating points.

    `starts` (S+1,) has the first player of each of the round's S sides; its last element is P.
    `share` (P,) is the share of the round that each player plays. `mu` and `sigma` (P,) are the
    ratings and uncertainties before, in rating points. `rounds` (P,) is the number of rounds that
    each player has played.
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
    """(P, 4) the evidence (P, 3) of a wave whose newcomers are placed, with a fourth column: each
    newcomer's mu at the beginning of the round, and NaN for all other players."""
    return np.column_stack((evidence, np.where(wave.rounds == 0, wave.mu, np.nan)))
