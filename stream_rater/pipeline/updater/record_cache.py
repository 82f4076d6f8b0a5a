"""The records that an updater has written, so that step 12 need not read them back.

The records of a shard at `applied` are the fold of the log before it, whoever wrote them. So what
the updater wrote last for a player is the player's record in the store, as long as the shard has
been open since then and its position is the one that the updater knows. The compare-and-set of the
next call proves the position.

Only records that a successful call wrote are cached. Each opening of a shard has a number of its
own, which is part of what a record is found by. So whatever closes a shard drops its records.
"""

from itertools import count

import numpy as np

from stream_rater.columns.arrays import Bytes, Hashes, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn, RecordColumn
from stream_rater.columns.player_map import TAKEN, Fingerprints
from stream_rater.columns.record_table import RecordTable
from stream_rater.columns.siphash import Key, derived, hashed
from stream_rater.columns.strings import SECRET_KEY

LADDER_BITS = 32  # The number of lowest bits of an owner, which contain the number of the ladder.

MOST_LADDERS = 1_000_000  # The most ladders that are numbered. Beyond them, the cache is emptied.


@kernel
def _fingerprints(
    data: Bytes, starts: Ints, ends: Ints, ladder: Ints, ladders: Hashes, key: Key
) -> Fingerprints:
    found = np.empty(len(ends), np.uint64)
    for i in range(len(ends)):
        own = derived(key, ladders[ladder[i]])
        found[i] = hashed(own, data, starts[i], ends[i]) | TAKEN
    return found


def fingerprints_of(players: PlayerColumn) -> Fingerprints:
    """(P,) a fingerprint of each player's ladder and id. Two players may have the same one."""
    names, ladders = players.names, players.ladders.names.hashes
    return _fingerprints(names.data, names.starts, names.ends, players.ladder, ladders, SECRET_KEY)


class RecordCache:
    """The newest records of players of the open shards, in a bounded amount of memory."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes`: the most memory of the records; with 0, nothing is cached."""
        self._table = RecordTable(most_bytes)
        self._openings = count(1)
        self._ladders: dict[str, int] = {}

    def opening(self) -> int:
        """A number for a shard that is opened now."""
        return next(self._openings)

    @property
    def is_off(self) -> bool:
        """Whether nothing is ever cached."""
        return self._table.is_off

    @property
    def evictions(self) -> int:
        """The number of records that gave way to others."""
        return self._table.evictions

    @property
    def bytes_used(self) -> int:
        """The memory of the records."""
        return self._table.bytes_used

    def find(self, openings: Ints, players: PlayerColumn) -> RecordColumn:
        """(P,) the cached records of these players. `openings` (P,) are the numbers of their
        shards' openings."""
        owners = self._owners(openings, players)
        is_cached, records = self._table.find(owners, players.names, fingerprints_of(players))
        return RecordColumn(records, is_cached)

    def put(self, opening: int, written: BeliefColumn) -> None:
        """Cache what a successful call wrote to a shard with this opening."""
        players = written.players
        owners = self._owners(np.full(len(players), opening, np.int64), players)
        self._table.put(owners, players.names, fingerprints_of(players), written.records)

    def _owners(self, openings: Ints, players: PlayerColumn) -> Ints:
        """(P,) the number of each player's opening and ladder."""
        if len(self._ladders) > MOST_LADDERS:
            self._ladders.clear()
            self._table.clear()
        known = self._ladders
        ladders = [known.setdefault(each, len(known)) for each in players.ladders.texts]
        owners: Ints = (openings << LADDER_BITS) + np.array(ladders, np.int64)[players.ladder]
        return owners
