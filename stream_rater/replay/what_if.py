"""What is believed of the sides of a round, and what its result would change.

A result is rated by the service's own kernels, on a copy of what is believed of the round's
players. So it changes nothing, and takes no longer on a large ladder.
"""

from collections.abc import Sequence

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.rating.seasons import seen
from stream_rater.replay.edits import Edits
from stream_rater.replay.pool import ONE_TURN, Pool
from stream_rater.replay.sequential import Rated
from stream_rater.rounds.batch import RoundBatch, Standings

NOT_YET = -1
"""The offset of a round that was not reported: no correction is about it."""


def believed(pool: Pool, players: Sequence[str]) -> tuple[Floats, Floats]:
    """(P,) mu and (P,) sigma of these players now, in rating points. Who has not played is a
    newcomer."""
    mu = np.full(len(players), pool.rule.initial_mu)
    sigma = np.full(len(players), pool.rule.initial_sigma)
    found = [(i, row) for i, name in enumerate(players) if (row := pool.find(name)) is not None]
    if found:
        known, rows = np.array(found).T
        mu[known], sigma[known] = seen(pool.rule, pool.headers(rows))
    return mu, sigma


def what_if(pool: Pool, edits: Edits, round_: RoundBatch) -> Rated | None:
    """What one round would do to a ladder's pool, which stays as it is; None if it would teach
    nothing. `edits`: those that rounds to come are rated by."""
    now = edits.edited(round_, NOT_YET)
    if now is None or not Standings(now).rates(skip_all_tied=pool.rating.skip_all_tied):
        return None
    copy = pool.part(now.names)
    rows = copy.rows(now.names)
    folded = copy.rate_rows(now, rows, ONE_TURN, np.zeros(1, np.int64))
    return Rated(np.zeros(1, np.int64), now, copy, copy.rule, rows, folded)
