"""Rates many rounds in one call, each with the beliefs after the rounds before it.

The rounds come in *waves*. The rounds of a wave share no player, and are rated together once all
earlier waves are rated. Each wave is computed by the kernels that the service calls for a wave, so
the bits are those of rating one round after the other. The only difference is that the loop over
waves is compiled, too: in Python it would take longer than a round of a few players.
"""

from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elo_mmr import belief, performance
from stream_rater.rating.model import (
    Evidence,
    Factors,
    Table,
    Variances,
    Wave,
    read_priors,
    record_rounds,
)


class EloMMRModel(NamedTuple):
    """The parameters of Elo-MMR, as kernels take them."""

    variances: Variances
    initial_mu: float
    tie: float  # 1.0 or 0.5: see `performance`.
    rho: float  # The inverse momentum; may be infinite.
    kept: int  # The number of factors that a belief keeps; 0 for a full history.


class Posteriors(NamedTuple):
    """The ratings of P players after stage 2."""

    mu: Floats  # (P,) the rating.
    sigma: Floats  # (P,) the uncertainty.


class RoundStamps(NamedTuple):
    """The offset and the time of each player's round, which the belief stores."""

    offset: Ints  # (P,) the source offset.
    time: Ints  # (P,) Unix seconds.


@kernel
def rate_waves(
    header: Table, factors: Factors, rows: Ints, wave: Wave, waves: Ints, stamps: RoundStamps,
    model: EloMMRModel, evidence: Evidence, after: Posteriors,
) -> None:  # fmt: skip
    """Rate rounds by Elo-MMR, in place. There are T waves and P players; a player is counted once
    for each round.

    `header` and `factors` are the beliefs, and `rows` (P,) are the players' rows in them. Wave t
    has the rounds waves[t] : waves[t + 1], so `waves` is (T+1,). The columns mu, sigma, rounds and
    last_time of `wave` are overwritten with the values before each round. The evidence is written
    to `evidence` (P, 3), and mu and sigma after each round are written to `after`.
    """
    rho, kept = np.full(len(rows), model.rho), np.full(len(rows), model.kept)
    for t in range(len(waves) - 1):
        some = performance.some_rounds(wave, waves[t], waves[t + 1])
        i = wave.entry_starts[wave.round_starts[waves[t]]]
        j = wave.entry_starts[wave.round_starts[waves[t + 1]]]
        own, found = rows[i:j], evidence[i:j]
        read_priors(header, own, some.mu, some.sigma, some.rounds, some.last_time)
        performance.estimate(some, model.variances, model.initial_mu, model.tie, found)
        belief.update(header, factors, own, found, rho[i:j], kept[i:j])
        record_rounds(header, own, stamps.offset[i:j], stamps.time[i:j])
        for k in range(i, j):
            after.mu[k], after.sigma[k] = header[rows[k]].mu, header[rows[k]].sigma
