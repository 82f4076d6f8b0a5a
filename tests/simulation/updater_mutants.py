"""Mutants of steps 8 to 14, each with one rule left out."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from stream_rater.adapters.local_driver import Steps
from stream_rater.columns.arrays import Flags, Ints
from stream_rater.contract.record import Record
from stream_rater.pipeline.parts.correction_parts import CorrectionPart
from stream_rater.pipeline.parts.decoder import PartView
from stream_rater.pipeline.parts.seed_parts import SeedPart
from stream_rater.pipeline.ports import (
    REGROUPING_S,
    Application,
    Event,
    Position,
    Step,
    StoredShard,
)
from stream_rater.pipeline.updater import changes
from stream_rater.pipeline.updater.changes import Change
from stream_rater.pipeline.updater.rating_events import Events
from stream_rater.pipeline.updater.shard import Shard, ShardBatch
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.rating.record import HEADER_SIZE, read_headers

from .world import UnkindDriver


class EarlierRowsUnnoted(Updater):
    """Step 12 without the notes of a player's earlier rows in a call: step 11 has one remembered
    prior of each player."""

    def _build_events_again(
        self, number: int, call: ShardBatch, stored: StoredShard
    ) -> Events | None:
        shard = self._shards[number]
        if stored.position == shard.position:
            fresh, size = shard.position.fresh, (len(call.rows) + 7) // 8
            shard.position = replace(shard.position, fresh=fresh[:size] + bytes(len(fresh) - size))
            stored = StoredShard(shard.position, stored.records)
        return super()._build_events_again(number, call, stored)


class FreshByTheFirst(Updater):
    """Step 12 that compares all rows of a call with the belief before it."""

    def _compute(self, batch: ShardBatch, stored: Mapping[int, StoredShard]) -> dict[int, Change]:
        with patch.object(changes, "fresh_rows", _all_by_the_belief):
            return super()._compute(batch, stored)


def _all_by_the_belief(which: Ints, offset: Ints, last: Ints) -> tuple[Flags, Ints]:
    fresh = offset > last[which]
    turn = [np.count_nonzero(which[:i][fresh[:i]] == who) for i, who in enumerate(which)]
    return fresh, np.array(turn, np.int64)


class AppliesBeforeSettling(Updater):
    """Step 11 left out: what follows [c, a) is applied and committed first."""

    def _settle(self) -> Step[None]:
        for shard in self._shards.values():
            if shard.last_call():
                shard.committed = shard.applied
        yield from ()


class PublishesRefills(Updater):
    """Step 10 left out: parts that the store lost are applied and published like new ones."""

    def _settle(self) -> Step[None]:
        for shard in self._shards.values():
            if shard.is_refilling:
                shard.committed = shard.applied
        yield from super()._settle()


class RememberedOffset(Updater):
    """Step 8 with the offset that was last known to be committed, instead of the group's."""

    def __init__(self, shard_count: int, **options: Any) -> None:
        super().__init__(shard_count, **options)
        self._known: dict[int, int] = {}

    def _start_over(self, troubles: int) -> Step[None]:
        self._known |= {number: shard.committed for number, shard in self._shards.items()}
        yield from super()._start_over(troubles)

    def _committed(self, shards: frozenset[int]) -> Step[Mapping[int, int | None]]:
        fetched = yield from super()._committed(shards)
        return {s: self._known.pop(s, fetched[s]) for s in shards}


class CommittedReadFirst(Updater):
    """Step 9 with c read before a: between the two reads, another worker may apply and commit."""

    def __init__(self, shard_count: int, **options: Any) -> None:
        super().__init__(shard_count, **options)
        self._read_first: Mapping[int, int | None] = {}

    def _open(self) -> Step[None]:
        if self._owned - self._shards.keys():
            self._read_first = yield from super()._committed(self._owned)
        yield from super()._open()

    def _committed(self, shards: frozenset[int]) -> Step[Mapping[int, int | None]]:
        yield from ()
        return self._read_first


class EventsByOffset(Updater):
    """Step 11 with events for rows whose offset is the belief's last, instead of fresh rows."""

    def _build_events_again(
        self, number: int, call: ShardBatch, stored: StoredShard
    ) -> Events | None:
        shard = self._shards[number]
        if stored.position == shard.position:
            last = read_headers(b"".join(r[:HEADER_SIZE] for r in stored.records if r))["last"]
            fresh = np.packbits(call.rows.offset == last).tobytes()
            shard.position = replace(shard.position, fresh=fresh)
            stored = StoredShard(shard.position, stored.records)
        return super()._build_events_again(number, call, stored)


class MarksOverlooked(Updater):
    """Step 9 without the marks: a store that lost a rebuild is refilled from parts before it."""

    def _read(self, record: Record, part: PartView | None) -> None:
        if record.partition in self._shards:
            self._shards[record.partition].marks_before = 2**60
        super()._read(record, part)


class CutUnchecked(Updater):
    """Step 12 without the check of the number of shards that a part was cut for."""

    class Careless(Shard):
        """A shard that accepts every part."""

        __slots__ = ()

        def _check_shard(self, part: PartView | CorrectionPart | SeedPart, shard: int) -> None:
            pass

    def __init__(self, shard_count: int, **options: Any) -> None:
        super().__init__(shard_count, **options, open_shard=self.Careless.from_stored)


class PublishesWhatWasLost(Updater):
    """Step 14 without the check of what the worker still owns, after the group changed before the
    commit."""

    def _poll(self, timeout_s: float, *, no_fetch: bool, gather_s: float = 0.0) -> Step[None]:
        before = dict(self._shards)
        yield from super()._poll(timeout_s, no_fetch=no_fetch, gather_s=gather_s)
        if timeout_s == REGROUPING_S:
            self._shards = before


class UnstableOffset(UnkindDriver):
    """Step 8 with offsets fetched while a transaction is pending on them."""

    def committed(self, partitions: frozenset[int]) -> Steps:
        yield
        return {p: self.group.committed.get(p) for p in partitions}


class NoCompareAndSet(UnkindDriver):
    """Step 13 without the comparison: any writer's call is applied, however late."""

    def apply(self, applications: Mapping[int, Application], events: Collection[Event]) -> Steps:
        done = {}
        for shard, application in applications.items():
            yield
            _, beliefs = self.store.state(shard)
            self.store.put(shard, (application.position, beliefs | dict(application.beliefs)))
            done[shard] = True
        return done


class EpochNotCompared(UnkindDriver):
    """Step 13 that compares `applied` alone: what was read before a rebuild is written after it."""

    def apply(self, applications: Mapping[int, Application], events: Collection[Event]) -> Steps:
        now = {
            shard: replace(call, position=self._of_now(shard, call.position))
            for shard, call in applications.items()
        }
        return (yield from super().apply(now, events))

    def _of_now(self, shard: int, position: Position) -> Position:
        stored, _ = self.store.state(shard)
        return replace(position, epoch=stored.epoch)


class TailsNotCompared(UnkindDriver):
    """Step 9 without the record before `applied`: any log that is long enough will do."""

    def part_sums(self, offsets: Mapping[int, int]) -> Steps:
        yield
        return dict.fromkeys(offsets)


class AbsencesNotCompared(UnkindDriver):
    """Step 13 without the count of new beliefs: those that vanished are taken for newcomers'."""

    def apply(self, applications: Mapping[int, Application], events: Collection[Event]) -> Steps:
        uncounted = {s: replace(call, absent=None) for s, call in applications.items()}
        return (yield from super().apply(uncounted, events))


class PublishesWhatWentAhead(UnkindDriver):
    """Step 14 with all events that were sent during step 13, even those of shards that refused the
    call."""

    def publish(self, events: Collection[Event], offsets: Mapping[int, int]) -> Steps:
        if self._open is not None:
            self._open = events
        yield from super().publish(events, offsets)


class KeptProducer(UnkindDriver):
    """Step 14 with the same producer after an end in doubt: a late end hits the next
    transaction."""

    def new_producer(self) -> Steps:
        if self.producer in self.log._fenced:
            yield from super().new_producer()
        else:
            yield
            self.log.abort(self.group, self.producer)
