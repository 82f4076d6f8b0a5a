"""Puts rounds into turns: those of one turn share no player, so that they can be rated together."""

from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.kernels import kernel


class Turns(NamedTuple):
    """An order in which R rounds can be rated, turn by turn."""

    order: Ints
    """(R,) the rounds. Those of one player keep their order."""
    bounds: Ints
    """(T+1,) turn t has the rounds order[bounds[t] : bounds[t + 1]], in rising order."""


@kernel
def depths(starts: Ints, rows: Ints, latest: Ints) -> Ints:
    """(R,) the length of the longest chain of earlier rounds, each sharing a player with the next,
    that must be rated before each round.

    Round r has the players rows[starts[r] : starts[r + 1]]. `latest` has an element for every row,
    and is zero before and after the call.
    """
    found = np.zeros(len(starts) - 1, np.int64)
    for r in range(len(found)):
        for i in range(starts[r], starts[r + 1]):
            found[r] = max(found[r], latest[rows[i]])
        for i in range(starts[r], starts[r + 1]):
            latest[rows[i]] = found[r] + 1
    for row in rows:
        latest[row] = 0
    return found


def turns_of(starts: Ints, rows: Ints, players: int) -> Turns:
    """The turns of rounds by the rows of their players, which are below `players`: as few as
    possible. Round r has the players rows[starts[r] : starts[r + 1]]."""
    depth = depths(starts, rows, np.zeros(players, np.int64))
    return Turns(np.argsort(depth, kind="stable"), np.append(0, np.cumsum(np.bincount(depth))))
