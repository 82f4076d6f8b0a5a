"""Rates many rounds in one call, each by the beliefs that the rounds before it left.

The rounds come in *turns*: those of a turn share no player, and are rated together once all earlier
turns are. Each turn passes through the kernels that the service calls for a wave, so the bits are
those of rating one round after the other. Only the way from one turn to the next is compiled, too:
in Python it would take longer than a round of a few players.
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
    note_rounds,
    read_priors,
)


class EloMMRModel(NamedTuple):
    """The parameters of Elo-MMR, as kernels take them."""

    variances: Variances
    initial_mu: float
    tie: float
    """1.0 or 0.5: see `performance`."""
    rho: float
    """The inverse momentum; may be infinite."""
    kept: int
    """The number of factors that a belief keeps; 0 for a full history."""


class Posteriors(NamedTuple):
    """What stage 2 makes of P players."""

    mu: Floats
    """(P,)"""
    sigma: Floats
    """(P,)"""


class Noted(NamedTuple):
    """What is noted of each player's round."""

    offset: Ints
    """(P,) the source offset."""
    time: Ints
    """(P,) Unix seconds."""


@kernel
def fold(
    header: Table, factors: Factors, rows: Ints, wave: Wave, turns: Ints, noted: Noted,
    model: EloMMRModel, evidence: Evidence, after: Posteriors,
) -> None:  # fmt: skip
    """Rate rounds by Elo-MMR, in place. There are T turns and P players, each once for each of
    their rounds.

    `header` and `factors` hold the beliefs, those of the players in `rows` (P,). Turn t has the
    rounds turns[t] : turns[t + 1], so `turns` is (T+1,). The columns mu, sigma, rounds and
    last_time of `wave` are written: what they were before each round. So are `evidence` (P, 3), and
    `after`: mu and sigma after each round.
    """
    rho, kept = np.full(len(rows), model.rho), np.full(len(rows), model.kept)
    for t in range(len(turns) - 1):
        some = performance.some_rounds(wave, turns[t], turns[t + 1])
        i = wave.entry_starts[wave.round_starts[turns[t]]]
        j = wave.entry_starts[wave.round_starts[turns[t + 1]]]
        own, found = rows[i:j], evidence[i:j]
        read_priors(header, own, some.mu, some.sigma, some.rounds, some.last_time)
        performance.estimate(some, model.variances, model.initial_mu, model.tie, found)
        belief.update(header, factors, own, found, rho[i:j], kept[i:j])
        note_rounds(header, own, noted.offset[i:j], noted.time[i:j])
        for k in range(i, j):
            after.mu[k], after.sigma[k] = header[rows[k]].mu, header[rows[k]].sigma
