"""The state machine of stage 2: it turns parts into beliefs and events. It runs steps 8 to 14 of
the protocol.

8. On assignment, failure or mismatch, forget the shard and open it again. Check `applied` even when
   idle.
9. Read a = `applied` and the mark of the last rebuild in one call, and then the stable committed
   offset c, on which no transaction is pending. The order matters: another worker may apply and
   commit between the two reads. If c were read first, the last call could begin after it, and the
   shard would be refused as if the group's offset had been reset. An a that is too old does no
   harm: the first call finds that `applied` has moved. If the log starts after the offset where
   reading begins, or ends before a or c, or if its record before a is not the one that was applied
   (`same_history`), refuse the shard and ask for `rebuild`; never reset it silently. Refuse it,
   too, if the next record is the mark of a rebuild that the store does not include, or a part that
   must not be applied. If there is no c and nothing was applied, commit 0 before anything is
   applied. If there is no c but something was applied, refuse the shard: Kafka has deleted c, as it
   does some days after the last worker left.
10. If a < c, the store lost writes: apply [a, c) without publishing, cut exactly at c.
11. If a > c, a worker crashed between the write to the store and the commit. Settle the shard:
    build the events of [c, a) again, from the rows of these parts, the beliefs and the notes of the
    last call. Publish them and commit a. Apply nothing before that.
12. If a == c, take a batch. Read the records of its players, except those that are cached. If a
    shard was read at another position than expected, that is a mismatch. A row is fresh if and only
    if its source offset is after the belief's `last`, which includes the rows before it. Other rows
    are ignored, without an event, and so are parts of an older store (`shard`). A player may have
    several fresh rows (`changes`): they are applied in order. A row of a seed or a reset is fresh
    only if its player also has no round, or has one (`belief_changes`).
13. Apply with one call for each shard, by compare-and-set on `applied` and the epoch, which each
    rebuild changes. The call writes the records, the new `applied` and its notes for step 11: one
    bit for each row, whether it was fresh; the mu and sigma before each fresh row that is not its
    player's last one; and the last published mu and sigma of beliefs that were unannounced. If the
    call creates another number of beliefs than were absent, the shard is refused. If the outcome is
    unknown, go to step 8. What a successful call has written is cached (`record_cache`). While the
    call runs, the driver may send the events in the transaction of step 14, which ends only after
    the call.
14. Publish the events and commit the offsets in one transaction. If the outcome is unknown, get a
    new producer and go to step 8.

The steps run strictly in sequence: a batch is applied and committed before the next one is applied.
So [c, a) is the last call or the end of it, and the notes of that call are enough to build its
events again. (It is only the end if a zombie applied published parts once more and went on to new
parts in the same call.)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NoReturn

import numpy as np

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_column import PlayerColumn, RecordColumn
from stream_rater.contract.errors import Regrouped, Trouble
from stream_rater.contract.record import Record
from stream_rater.pipeline import ports, same_history
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.parts import decoder
from stream_rater.pipeline.parts.decoder import PartView
from stream_rater.pipeline.parts.schema import NotAPart
from stream_rater.pipeline.updater.belief_changes import build_given_events_again, compute_given
from stream_rater.pipeline.updater.changes import (
    Change,
    Disagreement,
    build_events_again,
    compute_changes,
)
from stream_rater.pipeline.updater.rating_events import Events
from stream_rater.pipeline.updater.record_cache import RecordCache
from stream_rater.pipeline.updater.shard import (
    Shard,
    ShardBatch,
    last_calls,
    next_batches,
    published,
    traced,
)
from stream_rater.rating.record import UnknownRecord

RECHECK_S = 1.0  # The interval at which the `applied` of open shards is checked, in seconds.

REFUSED_S = 5.0
"""Seconds until a refused shard is opened again. An operator may repair it in that time."""

ROWS_PER_CALL = 20_000  # A batch ends once it has this many rows.

GATHER_S = 0.006
"""The longest time in seconds for which a poll gathers parts. It ends earlier once it has as many
parts as there are open shards: a wave has a part for most shards, and they arrive one after the
other. At 4,400 updates per second in lobbies of 5, p99 was 87 ms with this value and 120 ms with
half of it. No poll ended early in that measurement."""

READ_AHEAD = 4
"""The updater stops reading while more than this many batches' worth of rows wait in memory."""


class Updater:
    """Owns some of the `shard_count` shards. A driver runs it by `run()`. Tests derive mutants from
    it, each of which overrides one method. So some methods are small."""

    def __init__(
        self, shard_count: int, *, observer: Observer | None = None, idle_s: float = 0.1,
        rows_per_call: int = ROWS_PER_CALL, cache_bytes: int = 0, kernel: int = KERNEL_VERSION,
        open_shard: Callable[[ports.StoredShard, int, int], Shard] = Shard.from_stored,
    ) -> None:  # fmt: skip
        """`cache_bytes` is the memory of the cached records; 0: none are cached. `kernel` is the
        version of the kernels that apply parts. `open_shard` makes a Shard from its stored state,
        its committed offset and the number of shards; mutants pass another one."""
        self._shard_count = shard_count
        self._observer = observer or Observer()
        self._idle_s = idle_s
        self._rows_per_call = rows_per_call
        self._kernel = kernel
        self._open_shard = open_shard
        self._cache = RecordCache(cache_bytes)
        self._owned: frozenset[int] = frozenset()
        self._shards: dict[int, Shard] = {}
        self._refused_until: dict[int, float] = {}
        self._unreported: set[int] = set()
        """Open shards that were not reported as opened yet. A shard is reported once it has read a
        record that sets no barrier. A shard that is tried again every REFUSED_S and stops at the
        same record is not reported."""
        self._now_s = 0.0
        self._checked_s = 0.0

    def run(self) -> ports.Step[NoReturn]:
        """Run steps 8 to 14 for ever."""
        troubles = 0
        while True:
            try:
                if troubles:
                    yield from self._start_over(troubles)
                yield from self._open()
                yield from self._read_on()
                yield from self._settle()
                yield from self._work()
                self._refuse_stopped()
                yield from self._recheck()
                troubles = 0
            except Trouble as trouble:
                self._observer.started_over(trouble)
                troubles += 1

    def _start_over(self, troubles: int) -> ports.Step[None]:
        """Forget the open shards, pause, and get a new producer. The next `_open` fetches the
        committed offsets, after the new producer has ended the old one's transaction."""
        self._shards = {}
        yield from self._poll(ports.pause_s(troubles), no_fetch=True)
        yield from ports.ask(ports.NewProducer())

    # --- steps 8 and 9 ---

    def _open(self) -> ports.Step[None]:
        """Open every owned shard that is not open yet and was not refused recently."""
        refused = {s for s, until in self._refused_until.items() if until > self._now_s}
        to_open = self._owned - self._shards.keys() - refused
        if not to_open:
            return
        stored = yield from ports.ask(ports.ReadBeliefs(dict.fromkeys(to_open, ports.REBUILT_KEY)))
        # c after a, never before: an older c with a newer a looks like an offset that was reset
        # (`too_far_ahead_reason`, `lost_offset_reason`). A newer c with an older a is only a
        # mismatch.
        committed = yield from self._committed(to_open)
        starts = yield from ports.ask(ports.LogStarts(to_open))
        ends = yield from ports.shard_ends(self._shard_count)
        positions = {shard: each.position for shard, each in stored.items()}
        log_tails = yield from same_history.tails(positions, ends)
        offsets = {}
        for shard in to_open:
            opened = self._open_shard(stored[shard], committed[shard] or 0, self._shard_count)
            reason = opened.mismatch(starts[shard], ends[shard], log_tails.get(shard))
            reason = reason or (opened.lost_offset_reason if committed[shard] is None else "")
            if reason := reason or opened.too_far_ahead_reason:
                self._refuse(shard, reason, opened.next_offset)
                continue
            offsets[shard] = opened.next_offset
            opened.opening = self._cache.opening()
            self._shards[shard] = opened
            if opened.next_offset < ends[shard]:
                self._unreported.add(shard)
            else:
                self._observer.shard_opened(shard)
        if begun := [shard for shard in offsets if committed[shard] is None]:
            try:
                yield from ports.ask(ports.Publish((), dict.fromkeys(begun, 0)))
            except Regrouped:  # the next poll says which worker owns them
                for shard in begun:
                    del self._shards[shard], offsets[shard]
        if offsets:
            yield from ports.ask(ports.Seek(offsets))

    def _committed(self, shards: frozenset[int]) -> ports.Step[Mapping[int, int | None]]:
        return (yield from ports.ask(ports.Committed(shards)))

    def _refuse(self, shard: int, reason: str, offset: int) -> None:
        self._shards.pop(shard, None)
        self._refused_until[shard] = self._now_s + REFUSED_S
        self._observer.shard_refused(shard, reason, offset)

    # --- polls ---

    def _read_on(self) -> ports.Step[None]:
        rows = sum(shard.rows for shard in self._shards.values())
        no_fetch = rows > READ_AHEAD * self._rows_per_call
        timeout_s, gather_s = (0.0, 0.0) if rows else (self._idle_s, GATHER_S)
        yield from self._poll(timeout_s, no_fetch=no_fetch, gather_s=gather_s)

    def _poll(self, timeout_s: float, *, no_fetch: bool, gather_s: float = 0.0) -> ports.Step[None]:
        enough = len(self._shards)
        polled = yield from ports.ask(
            ports.Poll(timeout_s, no_fetch=no_fetch, gather_s=gather_s, enough=enough)
        )
        self._now_s = polled.now_s
        if polled.lost or polled.gained:
            self._owned = (self._owned - polled.lost) | polled.gained
            self._observer.owned(self._owned)
            for shard in polled.lost | polled.gained:
                self._shards.pop(shard, None)
                self._refused_until.pop(shard, None)
        parts = decoder.read_all([record.value or b"" for record in polled.records], self._kernel)
        for record, part in zip(polled.records, parts, strict=True):
            self._read(record, part)

    def _read(self, record: Record, part: PartView | None) -> None:
        shard = self._shards.get(record.partition)
        if shard is None:
            return
        try:
            shard.read(record, self._kernel, part)
        except NotAPart as error:
            self._observer.part_ignored(record.partition, record.offset, str(error))
        if record.partition in self._unreported and not shard.barrier:
            self._unreported.remove(record.partition)
            self._observer.shard_opened(record.partition)

    def _refuse_stopped(self) -> None:
        for number, shard in tuple(self._shards.items()):
            if shard.is_stopped:
                self._refuse(number, shard.barrier, shard.next_offset)

    # --- step 11 ---

    def _settle(self) -> ports.Step[None]:
        """Publish the events of a call whose transaction did not commit. The call began at or
        before c: its worker had read a committed offset, and committed offsets only rise. If it
        began before c, a zombie repeated rows whose events are already published."""
        calls = last_calls(self._shards)
        if not calls:
            return
        players = {shard: call.players[shard] for shard, call in calls.items()}
        stored = yield from ports.ask(ports.ReadBeliefs(players))
        events = {s: self._build_events_again(s, call, stored[s]) for s, call in calls.items()}
        events_again = {shard: each for shard, each in events.items() if each is not None}
        yield from self._publish(events_again, calls.values(), settled=True)

    def _build_events_again(
        self, number: int, call: ShardBatch, stored: ports.StoredShard
    ) -> Events | None:
        """The events of a shard's last call. None if the shard was closed or refused."""
        shard = self._shards[number]
        if stored.position != shard.position:
            del self._shards[number]
            return None
        build = build_events_again if call.given is None else build_given_events_again
        try:
            return build(number, call, stored, shard.committed)
        except (UnknownRecord, Disagreement) as error:
            self._refuse(number, str(error), shard.position.start)
            return None

    # --- steps 10, 12 and 13 ---

    def _work(self) -> ports.Step[None]:
        if batches := next_batches(self._shards, self._rows_per_call):
            with self._observer.working_on(traced(batches)):
                yield from self._update(batches)

    def _update(self, batches: Sequence[ShardBatch]) -> ports.Step[None]:
        stored = yield from self._records(batches)
        changes: dict[int, Change] = {}
        for batch in batches:
            still_open = [number for number in batch.cuts if number in stored]
            changes |= self._compute(batch.take(still_open), stored)
        if not changes:
            return
        new = (change.events for s, change in changes.items() if not self._shards[s].is_refilling)
        applied = yield from ports.ask(ports.Apply(changes, Events.combined(new)))
        for shard in [shard for shard in changes if not applied[shard]]:
            del self._shards[shard], changes[shard]
        self._remember(changes)
        yield from self._conclude(changes, batches)

    def _records(self, batches: Sequence[ShardBatch]) -> ports.Step[dict[int, ports.StoredShard]]:
        """The records of the players of these batches, by shard: from the cache where possible,
        else from the store. Shards that another worker has written to are closed and left out."""
        cached = [self._cached(batch) for batch in batches]
        to_read = dict[int, PlayerColumn]()
        for batch, known in zip(batches, cached, strict=True):
            for number, span in batch.spans.items():
                if len(missing := np.flatnonzero(~known.is_present[span])):
                    to_read[number] = batch.all_players[span].take(missing)
        read = (yield from ports.ask(ports.ReadBeliefs(to_read))) if to_read else {}
        hits = sum(len(each) - each.absent for each in cached)
        self._observer.records_looked_up(hits, sum(map(len, to_read.values())))
        for number in [s for s in read if not self._is_as_expected(s, read[s])]:
            del self._shards[number]
        found = dict[int, ports.StoredShard]()
        for batch, known in zip(batches, cached, strict=True):
            found |= self._stored(batch, known, read)
        return found

    def _cached(self, batch: ShardBatch) -> RecordColumn:
        """The cached records of a batch's players."""
        if self._cache.is_off:
            return RecordColumn.nothing(len(batch.all_players))
        openings = [self._shards[number].opening for number in batch.spans]
        sizes = [span.stop - span.start for span in batch.spans.values()]
        return self._cache.find(np.repeat(np.array(openings, np.int64), sizes), batch.all_players)

    def _is_as_expected(self, number: int, read: ports.StoredShard) -> bool:
        """Whether a shard was read at the position where this worker left it."""
        return read.position == self._shards[number].position

    def _stored(
        self, batch: ShardBatch, known: RecordColumn, read: Mapping[int, ports.StoredShard]
    ) -> dict[int, ports.StoredShard]:
        """The records of a batch by open shard: those that are known, and those that were read."""
        spans = {s: span for s, span in batch.spans.items() if s in self._shards}
        rows = [np.flatnonzero(~known.is_present[span]) + span.start for span in spans.values()]
        others = [read[number].column for number in spans if number in read]
        if others:
            known = known.replaced(np.concatenate(rows), RecordColumn.joined(others))
        return {
            s: ports.StoredShard(self._shards[s].position, known[span]) for s, span in spans.items()
        }

    def _remember(self, changes: Mapping[int, Change]) -> None:
        """Cache what a successful call has written."""
        evicted = self._cache.evictions
        for number, change in changes.items():
            self._cache.put(self._shards[number].opening, change.beliefs)
        evicted = self._cache.evictions - evicted
        self._observer.records_cached(evicted, self._cache.bytes_used)

    def _compute(
        self, batch: ShardBatch, stored: Mapping[int, ports.StoredShard]
    ) -> dict[int, Change]:
        """Compute a batch's changes. If a belief is undecodable, only its shard is refused."""
        if not batch.parts:
            return {}
        compute = compute_changes if batch.given is None else compute_given
        try:
            return compute(batch, stored)
        except UnknownRecord as error:
            if len(batch.parts) == 1:
                for number in batch.parts:
                    self._refuse(number, str(error), stored[number].position.applied)
                return {}
        alone = (self._compute(batch.take([number]), stored) for number in batch.parts)
        return {number: change for each in alone for number, change in each.items()}

    def _conclude(
        self, changes: Mapping[int, Change], batches: Sequence[ShardBatch]
    ) -> ports.Step[None]:
        publish = {}
        for number, change in changes.items():
            shard = self._shards[number]
            refilled = shard.is_refilling  # before the position changes
            shard.position = change.position
            self._report(number, change, refilled=refilled)
            if not refilled:
                publish[number] = change.events
            elif not shard.is_refilling:
                self._observer.shard_refilled(number, shard.applied)
        yield from self._publish(publish, batches, settled=False)

    def _report(self, number: int, change: Change, *, refilled: bool) -> None:
        end, idle = change.position.applied, change.without_effect
        repeated = change.rows - change.fresh - idle
        self._observer.beliefs_applied(number, end, change.fresh, repeated, refilled=refilled)
        if idle:
            self._observer.seeds_without_effect(number, end, idle)

    # --- step 14 ---

    def _publish(
        self, events: Mapping[int, Events], batches: Iterable[ShardBatch], *, settled: bool
    ) -> ports.Step[None]:
        """Publish the events of these shards, and commit their `applied` offsets. `batches`: those
        that have the shards' parts."""

        def publication() -> ports.Publish | None:
            offsets = {s: self._shards[s].applied for s in events if s in self._shards}
            ours = (events[shard] for shard in offsets)
            return ports.Publish(Events.combined(ours), offsets) if offsets else None

        poll = partial(self._poll, ports.REGROUPING_S, no_fetch=True)
        done = yield from ports.commit_through_regrouping(publication, poll)
        if done is None:
            return
        for shard, offset in done.offsets.items():
            self._shards[shard].committed = offset
        waited = (
            each for batch in batches for s, parts in batch.parts.items() if s in done.offsets
            for each in published(parts, len(events[s]))
        )  # fmt: skip
        self._observer.events_published(len(done.events), waited, settled=settled)
        self._observer.positions(done.offsets)

    # --- step 8, when idle ---

    def _recheck(self) -> ports.Step[None]:
        """Close the shards whose position in the store has changed, as after a rollback."""
        if self._now_s - self._checked_s < RECHECK_S or not self._shards:
            return
        self._checked_s = self._now_s
        asked = dict.fromkeys(self._shards, ports.NO_PLAYERS)
        stored = yield from ports.ask(ports.ReadBeliefs(asked))
        for number in [s for s in stored if stored[s].position != self._shards[s].position]:
            del self._shards[number]
