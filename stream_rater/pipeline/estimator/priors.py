"""Reads the priors of rounds and decides which of them count (steps 4 and 5).

A player whose belief is cached is not read. Of all others the whole records are read, from which
the beliefs after the round are computed. If a belief in a shard cannot be read, the shard is
refused for some seconds, and rounds with a player in it wait.

All rounds of a ladder pass through one estimator, and a belief is rated nowhere else. So once all
parts of a round are acknowledged, the estimator knows the records that the store will have: it
computes stage 2 by the same kernels, from the records before the round, and caches them as the
store has them, before the draw of any later season. A round whose players' beliefs are cached needs
no answer of the store, and does not wait for the updaters.

A record is dropped with any doubt whether it is of the player's last round: with the player's next
round, seed or reset, with all others of the ladder when a correction is finished, with all when a
partition is lost or gained, and with all after a failure. The table may also drop any record for
want of room. Then the player waits for the pending part, as if nothing had been cached.
"""

import math
from collections.abc import Collection, Mapping
from itertools import count
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_column import RecordColumn
from stream_rater.columns.player_map import Fingerprints, shards_in
from stream_rater.columns.record_table import RecordTable
from stream_rater.columns.strings import StringColumn
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.progress import Progress
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import NO_PLAYERS, Priors, ReadBeliefs, ReadPriors, Step, ask
from stream_rater.rating import record
from stream_rater.rating.model import Beliefs, Table
from stream_rater.rating.record import UnknownRecord

POSITIONS_EVERY_S = 0.02
"""While all players of each wave are cached, the positions of the shards are read this often. They
say which rows are in flight no more."""

CACHE_BYTES = 64 * 2**20  # The default memory of the cache: room for some 350,000 records.


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
        records, empty where none is. Ladders and ids are compared, not fingerprints alone."""
        owners, names = self._owners_of(pending), self._names(pending)
        return self._table.find(owners, names, pending.fingerprints)

    @property
    def bytes_used(self) -> int:
        """The memory of the records."""
        return self._table.bytes_used

    def put(self, sent: PendingRounds, records: StringColumn) -> int:
        """Cache the (P,) records of these rounds' players. Returns how many others were evicted."""
        before = self._table.evictions
        self._table.put(self._owners_of(sent), self._names(sent), sent.fingerprints, records)
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
        return pending.for_each_player(np.array([self._owners[e] for e in ladders], np.int64))


class PriorsRead(NamedTuple):
    """The priors of P players."""

    headers: Table  # (P,) the headers of their beliefs, which stage 1 may overwrite.
    usable: Flags  # (P,) whether each player's prior counts.
    beliefs: Beliefs | None = None  # (P,) the whole beliefs; None if only the headers were read.

    def beliefs_at(self, rows: Ints | slice) -> Beliefs | None:
        """The whole beliefs of the players in `rows`, which stage 2 may overwrite."""
        whole = self.beliefs
        return None if whole is None else Beliefs(whole.header[rows], whole.factors[rows])


class PriorReader:
    """Reads priors for one estimator. Reports which shards are refused or readable again."""

    def __init__(self, shards: int, observer: Observer) -> None:
        self._shards = shards
        self._observer = observer
        self._refused: set[int] = set()  # The shards whose beliefs could not be read the last time.
        self._positions_s = -math.inf  # When positions were last read, monotonic seconds.

    def read(
        self, pending: PendingRounds, progress: Progress, refused_until_s: float
    ) -> Step[PriorsRead]:
        """Read the headers of all priors of the rounds' players from the store. A shard whose
        headers cannot be read is refused until `refused_until_s`."""
        order, cuts = pending.by_shard
        players = pending.rounds.players().take(order)
        read = yield from ask(ReadPriors({shard: players[where] for shard, where in cuts}))
        usable = _accept(read, progress)
        headers, unreadable = estimation.headers_of(pending, read)
        self._report_unreadable(read, unreadable, progress, refused_until_s)
        counts = np.zeros(self._shards, np.bool_)
        counts[list(usable - unreadable.keys())] = True
        return PriorsRead(headers, counts[shards_in(pending.fingerprints)])

    def read_with_cache(
        self, pending: PendingRounds, cache: BeliefCache, progress: Progress,
        refused_until_s: float, now_s: float,
    ) -> Step[PriorsRead]:  # fmt: skip
        """Read all beliefs of the rounds' players, from the cache where they are in it, and else
        from the store. Without a cache, read the headers."""
        if cache.is_off:
            return (yield from self.read(pending, progress, refused_until_s))
        is_cached, records = cache.find(pending)
        hits = int(np.count_nonzero(is_cached))
        self._observer.records_looked_up(hits, pending.count - hits)
        found = _FoundPriors(pending, is_cached, records)
        # A round gets into the wave despite a player's pending part only if fingerprints collide.
        has_pending_part = progress.has_pending_part(pending.fingerprints) & ~is_cached
        rows = found.missing()
        if rows or abs(now_s - self._positions_s) >= POSITIONS_EVERY_S:
            self._positions_s = now_s
            yield from self._read_missing(found, rows, progress)
        beliefs, unreadable = found.decoded()
        self._report_unreadable(rows, unreadable, progress, refused_until_s)
        found.refuse(progress.closed_shards())
        usable = found.usable & ~has_pending_part
        return PriorsRead(beliefs.header.copy(), usable, beliefs)

    def _read_missing(
        self, found: "_FoundPriors", rows: Mapping[int, Ints], progress: Progress
    ) -> Step[None]:
        """Read the records of the players in these rows, and all positions that may have moved."""
        to_read = dict.fromkeys(progress.shards_to_read(), NO_PLAYERS)
        if rows:
            players = found.pending.rounds.players()
            to_read |= {shard: players.take(own) for shard, own in rows.items()}
        if to_read:
            read = yield from ask(ReadBeliefs(to_read))
            at = {shard: each.position for shard, each in read.items()}
            found.refuse([s for s, p in at.items() if not progress.accept(s, p.applied, p.epoch)])
            for shard, own in rows.items():
                found.take(own, read[shard].column)

    def _report_unreadable(
        self, read_shards: Collection[int], unreadable: Mapping[int, str], progress: Progress,
        until_s: float,
    ) -> None:  # fmt: skip
        for shard, reason in unreadable.items():
            progress.refuse(shard, until_s)
            self._refused.add(shard)
            self._observer.shard_refused(shard, reason)
        for shard in self._refused.intersection(read_shards) - unreadable.keys():
            self._refused.remove(shard)
            self._observer.shard_opened(shard)


class _FoundPriors:
    """The records of P players that were found so far."""

    def __init__(self, pending: PendingRounds, is_cached: Flags, records: StringColumn) -> None:
        """`records` has the (P,) cached records; an empty string stands for one that is not."""
        self.pending = pending
        self._is_cached = is_cached
        self._is_present = is_cached.copy()
        self._data = [records.data]
        self._starts, self._ends = records.starts, records.ends
        self._size = len(records.data)
        self.usable: Flags = np.ones(pending.count, np.bool_)

    def missing(self) -> dict[int, Ints]:
        """By shard, the rows of the players whose records are not cached."""
        if self._is_cached.all():
            return {}
        order, cuts = self.pending.by_shard
        chosen = {shard: order[where][~self._is_cached[order[where]]] for shard, where in cuts}
        return {shard: own for shard, own in chosen.items() if len(own)}

    def take(self, rows: Ints, records: RecordColumn) -> None:
        """Add the records that the store has of the players in these rows."""
        strings = records.strings
        self._data.append(strings.data)
        self._starts[rows] = strings.starts + self._size
        self._ends[rows] = strings.ends + self._size
        self._is_present[rows] = records.is_present
        self._size += len(strings.data)

    def decoded(self) -> tuple[Beliefs, dict[int, str]]:
        """(P,) the beliefs, and, by shard, why its beliefs cannot be decoded. Players of such a
        shard seem to have no belief, and players without a belief seem to have played no round."""
        unreadable = dict[int, str]()
        strings = StringColumn(np.concatenate(self._data), self._starts, self._ends)
        records = RecordColumn(strings, self._is_present)
        try:
            return _decode(records), unreadable
        except UnknownRecord:
            order, cuts = self.pending.by_shard
            for shard, where in cuts:
                try:
                    _decode(records.take(order[where]))
                except UnknownRecord as error:
                    unreadable[shard] = str(error)
                    self._is_present[order[where]] = False
            return _decode(records), unreadable

    def refuse(self, shards: Collection[int]) -> None:
        """Accept no prior of these shards."""
        if shards:
            self.usable &= ~np.isin(shards_in(self.pending.fingerprints), list(shards))


def _decode(records: RecordColumn) -> Beliefs:
    """The beliefs in these records, with room for another round. Raises UnknownRecord."""
    return record.decode(records, 1, 0.0, 1.0)


def read_positions(progress: Progress) -> Step[None]:
    """Read `applied`, and no priors, of the shards where it may have moved."""
    if shards_to_read := progress.shards_to_read():
        _accept((yield from ask(ReadPriors(dict.fromkeys(shards_to_read, NO_PLAYERS)))), progress)


def _accept(read: Mapping[int, Priors], progress: Progress) -> set[int]:
    """Step 4: the shards whose `applied` is not below their floor. Raises Rebuilt."""
    return {s for s, found in read.items() if progress.accept(s, found.applied, found.epoch)}
