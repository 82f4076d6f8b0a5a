"""Whom corrections change: the players whose records differ between two replays."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.rating import record as belief_record
from stream_rater.rating.model import newcomers
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.pool import Pool

AT_ONCE = 5000
"""About how many players are compared at a time."""


class Corrected(NamedTuple):
    """Some players whose beliefs change."""

    players: list[str]
    records: list[bytes]
    """Their records now; `last` is the offset of their last round."""


NOBODY = Corrected([], [])


def differing(before: Pool, now: Pool, first: int, rule: RatingRule) -> Iterator[Corrected]:
    """The players of two pools whose records differ, some at a time. The pools were the same
    before the round at offset `first`. Whom no round is left of is as new as `rule` says."""
    now.rows(before.names)  # now it has all players
    names = now.names
    old = before.rows(names)
    new = newcomers(1, 1, rule.initial_mu, rule.initial_sigma, coded=True)
    (nobody,) = belief_record.encode(new)
    for start in range(0, len(names), AT_ONCE):
        rows = np.arange(start, min(start + AT_ONCE, len(names)))
        latest = np.maximum(now.headers(rows)["last"], before.headers(old[rows])["last"])
        rows = rows[latest >= first]
        both = zip(_records_of(now, rows, nobody), before.records(old[rows]), strict=True)
        changed = zip(rows.tolist(), both, strict=True)
        differ = {row: one for row, (one, other) in changed if one != other}
        if not differ:
            yield NOBODY
        else:
            yield Corrected(names.take(np.array(list(differ))).texts(), list(differ.values()))


def _records_of(pool: Pool, rows: Ints, nobody: bytes) -> list[bytes]:
    """The records of these players, and `nobody` for whom no round is left of."""
    rounds = pool.headers(rows)["rounds"].tolist()
    both = zip(pool.records(rows), rounds, strict=True)
    return [data if played else nobody for data, played in both]
