"""Reads from belief headers what stage 1 needs, and notes a round in them afterwards.

Each is one pass over players whose rows lie far apart in memory.
"""

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating.model import Table


@inlined
def read(header: Table, rows: Ints, mu: Floats, sigma: Floats, played: Ints, time: Ints) -> None:
    """Write mu, sigma, the number of rounds played, and the time of the last one, each
    (len(rows),)."""
    for i in range(len(rows)):
        belief = header[rows[i]]
        mu[i], sigma[i] = belief.mu, belief.sigma
        played[i], time[i] = belief.rounds, belief.time


@kernel
def look_up(header: Table, rows: Ints) -> tuple[Floats, Floats, Ints, Ints]:
    """mu, sigma, the number of rounds played, and the time of the last one, each (len(rows),)."""
    mu, sigma = np.empty(len(rows)), np.empty(len(rows))
    played, time = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    read(header, rows, mu, sigma, played, time)
    return mu, sigma, played, time


@kernel
def note(header: Table, rows: Ints, offset: Ints, time: Ints) -> None:
    """Note a round of each of these players: its source offset, and its time if it is not earlier.
    It is told, whatever was not told before it.

    The previous season is the present one; `seasons.remember` puts right those that were drawn.
    `offset` and `time` (len(rows),) are those of each player's round.
    """
    for i in range(len(rows)):
        belief = header[rows[i]]
        before = belief.time
        belief.previous_time, belief.previous_season = before, belief.season
        belief.time = time[i] if belief.rounds == 0 else max(before, time[i])
        belief.last = offset[i]
        belief.untold = 0
        belief.rounds += 1
