"""The belief records that an estimator computes itself, before the store has applied their last
rounds (step 6).

All rounds of a ladder pass through one estimator, and a belief is rated nowhere else. So once all
parts of a round are acknowledged, the estimator knows the records that the store will have: it
computes stage 2 by the same kernels, from the records before the round. A round whose players'
beliefs are cached needs no answer of the store, and does not wait for the updaters.

A record is dropped with any doubt whether it is of the player's last round: with the player's next
round, seed or reset, with all others of the ladder when a correction is finished, with all when a
partition is lost or gained, and with all after a failure. The table may also drop any record for
want of room. Then the player waits for the pending part, as if nothing had been cached.

The records are cached as the store has them, before the draw of any later season.
"""

from itertools import count

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.record_table import RecordTable
from stream_rater.columns.strings import StringColumn
from stream_rater.pipeline.estimator.estimation import PendingRounds

CACHE_BYTES = 64 * 2**20
"""The default memory of an estimator's cache: room for some 350,000 records."""


class BeliefCache:
    """The newest records of the players of one estimator, in at most `most_bytes` of memory."""

    def __init__(self, most_bytes: int) -> None:
        self._table = RecordTable(most_bytes)
        self._owners: dict[str, int] = {}
        """The owner number of each ladder. A number is never used again."""
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._table)

    @property
    def is_off(self) -> bool:
        """Whether there is too little memory to cache anything."""
        return self._table.is_off

    def may_contain(self, players: Fingerprints) -> Flags:
        """(P,) whether a record is cached for a player with this fingerprint."""
        return self._table.may_contain(players)

    def find(self, pending: PendingRounds) -> tuple[Flags, StringColumn]:
        """(P,) whether the record of each of the rounds' players is cached, and (P,) copies of the
        records; an empty string stands for one that is not. Ladders and ids are compared, not
        fingerprints alone."""
        return self._table.find(
            self._owners_of(pending), self._names(pending), pending.fingerprints
        )

    @property
    def bytes_used(self) -> int:
        """The memory of the records."""
        return self._table.bytes_used

    def put(self, sent: PendingRounds, records: StringColumn) -> int:
        """Cache the (P,) records of the players of these rounds. Returns how many it evicted."""
        names, before = self._names(sent), self._table.evictions
        self._table.put(self._owners_of(sent), names, sent.fingerprints, records)
        return self._table.evictions - before

    def drop(self, players: Fingerprints) -> None:
        """Drop the records of the players with these fingerprints."""
        self._table.forget(players)

    def drop_ladder(self, ladder: str) -> None:
        """Drop the records of all players of a ladder."""
        owner = self._owners.pop(ladder, None)
        if owner is not None:
            self._table.forget_owner(owner)

    def clear(self) -> None:
        """Drop all records."""
        self._owners.clear()
        if len(self._table):  # else memory would be taken that may never be used
            self._table.clear()

    def _names(self, pending: PendingRounds) -> StringColumn:
        return pending.rounds.names

    def _owners_of(self, pending: PendingRounds) -> Ints:
        """(P,) the owner number of each player's ladder."""
        ladders = [head.ladder for head in pending.rounds.heads]
        for ladder in set(ladders) - self._owners.keys():
            self._owners[ladder] = next(self._numbers)
        return np.repeat(
            np.array([self._owners[each] for each in ladders], np.int64), pending.sizes
        )
