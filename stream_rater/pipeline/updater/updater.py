"""Stage 2's state machine: from parts to beliefs and events. These are steps 8 to 14 of the
protocol.

8. On assignment, failure or mismatch, forget all state and fetch the stable committed offset c: no
   transaction is pending on it. Check `applied` even when idle. If there is no c, and nothing was
   applied, commit 0 before anything is applied. If something was applied, Kafka has deleted c, as
   it does some days after the last worker left: refuse the shard.
9. Read a = `applied` and the beliefs in one call. If the log starts after a, or ends before a or c,
   or if its record before a is not the one that was applied (`same_history`), refuse the shard and
   ask for `rebuild`; never reset silently. Refuse it, too, if a replay comes
   to the mark of a rebuild that the store does not include.
10. If a < c, the store lost writes: apply [a, c) without publishing, cut exactly at c.
11. If a > c, the worker crashed between store and log: rebuild the events of [c, a) from the rows
    marked fresh, from the beliefs and from what the call noted of earlier rows, publish them and
    commit a. Apply nothing before that.
12. If a == c, take a batch. A row is fresh if and only if its source offset is after the belief's
    `last`, as the rows before it left it. Other rows are ignored, without an event. A player may
    have several fresh rows (`repeats`): they are applied in order.
13. Apply with one call for each shard, by compare-and-set on `applied` and the epoch, which each
    rebuild sets anew. The call writes the records, the new `applied` and the flags of fresh rows;
    also, of each fresh row that is not its player's last, the mu and sigma before it. If other
    beliefs are new than were absent, the shard is refused. If the outcome is unknown, go to step 8.
    Meanwhile the driver may send the events in the transaction of step 14, which ends only after
    the call.
14. Publish the events and commit the offsets in one transaction. If the outcome is unknown, get a
    new producer and go to step 8.

The steps run strictly in sequence: a batch is applied and committed before the next one is applied.
So [c, a) is always exactly the last call, and what it noted is enough.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.contract.errors import Regrouped, Trouble
from stream_rater.contract.record import Record
from stream_rater.pipeline import same_history
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.parts import decoder
from stream_rater.pipeline.parts.decoder import PartView
from stream_rater.pipeline.parts.schema import NotAPart
from stream_rater.pipeline.ports import (
    NO_PLAYERS,
    REBUILT_KEY,
    REGROUPING_S,
    Apply,
    Committed,
    Held,
    LogStarts,
    NewProducer,
    Poll,
    Publish,
    ReadBeliefs,
    Seek,
    Step,
    ask,
    insist,
    pause_s,
    shard_ends,
)
from stream_rater.pipeline.updater import changes
from stream_rater.pipeline.updater.changes import Change, Disagreement
from stream_rater.pipeline.updater.corrected_changes import corrected, recalled_correction
from stream_rater.pipeline.updater.rating_events import InterleavedEvents
from stream_rater.pipeline.updater.shard import Batch, Shard, traced
from stream_rater.pipeline.updater.shard_group import ShardGroup, shard_groups
from stream_rater.rating.record import UnknownRecord

RECHECK_S = 1.0
"""How often the `applied` of open shards is checked."""

REFUSED_S = 5.0
"""How long a refused shard is not tried again. An operator may repair it meanwhile."""

ROWS_PER_CALL = 20_000
"""A batch ends once it has this many rows."""

GATHER_S = 0.006
"""How long a poll gathers parts, in seconds, until it has as many as there are open shards: a wave
has a part for most shards, and they arrive one after the other. At 4,400 updates a second in
lobbies of 5, p99 was 87 ms with this and 120 ms with half of it, when each poll took all of that
time."""

READ_AHEAD = 4
"""The updater stops reading while more than this many batches' worth of rows wait in memory."""


class Updater:
    """Owns some of the `among` shards. Drive it with `run()`."""

    kernel = KERNEL_VERSION
    """The version of the kernels that apply parts."""

    kind_of_shard = Shard

    def __init__(
        self,
        among: int,
        *,
        observer: Observer | None = None,
        idle_s: float = 0.1,
        rows_per_call: int = ROWS_PER_CALL,
    ) -> None:
        self._among = among
        self._observer = observer or Observer()
        self._idle_s = idle_s
        self._rows_per_call = rows_per_call
        self._owned: frozenset[int] = frozenset()
        self._shards: dict[int, Shard] = {}
        self._refused_until: dict[int, float] = {}
        self._unproven: set[int] = set()
        """Open shards that have not yet passed the record that may have stopped them before."""
        self._now_s = 0.0
        self._checked_s = 0.0

    def run(self) -> Step[NoReturn]:
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

    def _start_over(self, troubles: int) -> Step[None]:
        """Pause, then continue with a new producer and no remembered state."""
        self._shards = {}
        yield from self._poll(pause_s(troubles), full=True)
        yield from ask(NewProducer())

    # --- steps 8 and 9 ---

    def _open(self) -> Step[None]:
        """Open every owned shard that is neither open nor recently refused."""
        refused = {s for s, until in self._refused_until.items() if until > self._now_s}
        to_open = self._owned - self._shards.keys() - refused
        if not to_open:
            return
        held = yield from ask(ReadBeliefs(dict.fromkeys(to_open, REBUILT_KEY)))
        committed = yield from self._committed(to_open)  # after a: c may have moved past it
        starts = yield from ask(LogStarts(to_open))
        ends = yield from shard_ends(self._among)
        positions = {shard: each.position for shard, each in held.items()}
        found = yield from same_history.tails(positions, ends)
        offsets = {}
        for shard in to_open:
            opened = self.kind_of_shard.found(held[shard], committed[shard] or 0, self._among)
            reason = opened.misfit(starts[shard], ends[shard], found.get(shard))
            reason = reason or (opened.forgotten if committed[shard] is None else "")
            if reason := reason or opened.too_far_ahead:
                self._refuse(shard, reason, opened.next_offset)
                continue
            offsets[shard] = opened.next_offset
            self._shards[shard] = opened
            if opened.next_offset < ends[shard]:
                self._unproven.add(shard)
            else:
                self._observer.shard_opened(shard)
        if begun := [shard for shard in offsets if committed[shard] is None]:
            try:
                yield from ask(Publish((), dict.fromkeys(begun, 0)))
            except Regrouped:  # the next poll says who owns them
                for shard in begun:
                    del self._shards[shard], offsets[shard]
        if offsets:
            yield from ask(Seek(offsets))

    def _committed(self, shards: frozenset[int]) -> Step[Mapping[int, int | None]]:
        return (yield from ask(Committed(shards)))

    def _refuse(self, shard: int, reason: str, offset: int) -> None:
        self._shards.pop(shard, None)
        self._refused_until[shard] = self._now_s + REFUSED_S
        self._observer.shard_refused(shard, reason, offset)

    # --- polls ---

    def _read_on(self) -> Step[None]:
        rows = sum(shard.rows for shard in self._shards.values())
        full = rows > READ_AHEAD * self._rows_per_call
        if rows:
            yield from self._poll(0.0, full=full)
        else:
            yield from self._poll(self._idle_s, full=full, gather_s=GATHER_S)

    def _poll(self, timeout_s: float, *, full: bool, gather_s: float = 0.0) -> Step[None]:
        enough = len(self._shards)
        polled = yield from ask(Poll(timeout_s, full=full, gather_s=gather_s, enough=enough))
        self._now_s = polled.now_s
        if polled.lost or polled.gained:
            self._owned = (self._owned - polled.lost) | polled.gained
            self._observer.owned(self._owned)
            for shard in polled.lost | polled.gained:
                self._shards.pop(shard, None)
                self._refused_until.pop(shard, None)
        pieces = decoder.read_all([record.value or b"" for record in polled.records], self.kernel)
        for record, piece in zip(polled.records, pieces, strict=True):
            self._read(record, piece)

    def _read(self, record: Record, piece: PartView | None) -> None:
        shard = self._shards.get(record.partition)
        if shard is None:
            return
        try:
            shard.read(record, self.kernel, piece)
        except NotAPart as error:
            self._observer.part_ignored(record.partition, record.offset, str(error))
        if record.partition in self._unproven and not shard.barrier:
            self._unproven.remove(record.partition)
            self._observer.shard_opened(record.partition)

    def _refuse_stopped(self) -> None:
        for number, shard in tuple(self._shards.items()):
            if shard.stopped:
                self._refuse(number, shard.barrier, shard.next_offset)

    # --- step 11 ---

    def _settle(self) -> Step[None]:
        """Publish the events of a call whose transaction did not commit.

        The last call began at or before c, never after it: its worker had read a committed offset,
        and committed offsets only rise. If it began before c, a zombie repeated rows whose events
        are out.
        """
        calls = self._batches(Shard.last_call)
        if not calls:
            return
        held = yield from ask(ReadBeliefs({s: call.players for s, call in calls.items()}))
        changed = [self._recall(number, call, held[number]) for number, call in calls.items()]
        yield from self._publish([each for each in changed if each is not None], settled=True)

    def _batches(self, cut_batch: Callable[[Shard], Batch | None]) -> dict[int, Batch]:
        taken = ((number, cut_batch(shard)) for number, shard in self._shards.items())
        return {number: batch for number, batch in taken if batch is not None}

    def _recall(self, number: int, call: Batch, held: Held) -> Change | None:
        shard = self._shards[number]
        if held.position != shard.position:
            del self._shards[number]
            return None
        published = sum(item.offset < shard.committed for item in call.items)
        recalled = changes.recalled if call.correction is None else recalled_correction
        try:
            return recalled(number, call, held, published)
        except (UnknownRecord, Disagreement) as error:
            self._refuse(number, str(error), shard.position.start)
            return None

    # --- steps 10, 12 and 13 ---

    def _cut(self, shard: Shard) -> Batch | None:
        return shard.cut(self._rows_per_call)

    def _work(self) -> Step[None]:
        batches = self._batches(self._cut)
        if batches:
            with self._observer.at_work(traced(batches)):
                yield from self._update(batches)

    def _update(self, batches: Mapping[int, Batch]) -> Step[None]:
        corrections = {s: batch for s, batch in batches.items() if batch.correction is not None}
        rounds = {s: batch for s, batch in batches.items() if s not in corrections}
        groups = list(shard_groups(rounds, self._rows_per_call))
        players = {s: column for group in groups for s, column in group.players.items()}
        players |= {shard: batch.players for shard, batch in corrections.items()}
        held = yield from ask(ReadBeliefs(players))
        computed = {
            each.shard: each
            for group in groups
            for each in self._compute(self._ready(group, held), held)
        }
        for shard in self._as_expected(corrections, held):
            computed |= self._corrected(shard, corrections[shard], held[shard])
        if not computed:
            return
        applied = yield from ask(self._application(list(computed.values())))
        done = []
        for number, change in computed.items():
            if not applied[number]:
                del self._shards[number]
                continue
            done.append(change)
        yield from self._conclude(done)

    def _application(self, changes_: Sequence[Change]) -> Apply:
        """The Apply effect for these changes, with the events that the next Publish will send."""
        events = [each.events for each in changes_ if not self._shards[each.shard].replaying]
        return Apply({each.shard: each.application for each in changes_}, InterleavedEvents(events))

    def _ready(self, group: ShardGroup, held: Mapping[int, Held]) -> ShardGroup:
        """The group reduced to the shards whose position in the store is as expected. The others
        are closed."""
        return group.take(self._as_expected(group.batches, held))

    def _as_expected(self, shards: Iterable[int], held: Mapping[int, Held]) -> list[int]:
        ready = []
        for number in shards:
            if held[number].position == self._shards[number].position:
                ready.append(number)
            else:
                del self._shards[number]
        return ready

    def _corrected(self, shard: int, batch: Batch, held: Held) -> dict[int, Change]:
        """The change of a correction part. If a record cannot be decoded, the shard is refused."""
        try:
            return {shard: corrected(shard, batch, held)}
        except UnknownRecord as error:
            self._refuse(shard, str(error), held.position.applied)
            return {}

    def _compute(self, group: ShardGroup, held: Mapping[int, Held]) -> Sequence[Change]:
        """Compute a group's changes. If a record cannot be decoded, only its own shard is
        refused."""
        try:
            return changes.computed(group, held) if group.batches else ()
        except UnknownRecord as error:
            if len(group.batches) > 1:
                alone = (group.take([number]) for number in group.batches)
                return [change for each in alone for change in self._compute(each, held)]
            for number in group.batches:
                self._refuse(number, str(error), held[number].position.applied)
            return ()

    def _conclude(self, done: Sequence[Change]) -> Step[None]:
        publish = []
        for change in done:
            shard = self._shards[change.shard]
            replayed = shard.replaying
            shard.position = change.application.position
            self._observer.beliefs_applied(
                change.shard, shard.applied, change.fresh, change.rows - change.fresh,
                replayed=replayed,
            )  # fmt: skip
            if not replayed:
                publish.append(change)
            elif not shard.replaying:
                self._observer.shard_refilled(change.shard, shard.applied)
        yield from self._publish(publish, settled=False)

    # --- step 14 ---

    def _publish(self, done: Sequence[Change], *, settled: bool) -> Step[None]:
        def publication() -> Publish | None:
            ours = [change for change in done if change.shard in self._shards]
            offsets = {change.shard: change.application.position.applied for change in ours}
            return (
                Publish(InterleavedEvents([change.events for change in ours]), offsets)
                if ours
                else None
            )

        published = yield from insist(publication, lambda: self._poll(REGROUPING_S, full=True))
        if published is None:
            return
        for shard, offset in published.offsets.items():
            self._shards[shard].committed = offset
        self._observer.events_published(len(published.events), settled=settled)
        self._observer.positions(published.offsets)

    # --- step 8, when idle ---

    def _recheck(self) -> Step[None]:
        """Close shards whose `applied` has changed, as after a rollback of the store. They are
        opened again."""
        if self._now_s - self._checked_s < RECHECK_S or not self._shards:
            return
        self._checked_s = self._now_s
        held = yield from ask(ReadBeliefs(dict.fromkeys(self._shards, NO_PLAYERS)))
        for number in [s for s in held if held[s].position != self._shards[s].position]:
            del self._shards[number]
