"""Stage 2's state machine: from parts to beliefs and events, steps 8 to 14 of the protocol.

8. On assignment, trouble or mismatch forget everything and fetch the committed offset c, stable: no
   transaction pending. Look at `applied` even when idle.
9. Read a = `applied` and the beliefs in one call. If the log starts after a: refuse the shard and
   ask for `rebuild`; never reset silently.
10. a < c (the store lost writes): apply [a, c) without publishing, cut exactly at c.
11. a > c (a crash between store and log): rebuild the events of [c, a) from the rows marked fresh
    and the beliefs, publish, commit a; apply nothing before that.
12. a == c: take a batch and cut it before a player repeats. A row is fresh iff its source offset is
    after the belief's `last`; other rows are ignored, without an event.
13. Apply: one call a shard, compare-and-set on `applied`; it writes the records, the new `applied`
    and which rows were fresh. Outcome unknown: 8.
14. One transaction: events and offsets. Outcome unknown: a new producer, and 8.

Strictly one after the other: a batch is applied and committed before the next is polled. That is
why [c, a) is always exactly the last call, and why one remembered prior per belief is enough.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from stream_rater.pipeline import changes, parts
from stream_rater.pipeline.changes import Change
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.parts import Part, UnknownPart
from stream_rater.pipeline.ports import (
    Apply,
    Committed,
    Held,
    LogStarts,
    NewProducer,
    Player,
    Poll,
    Position,
    Publish,
    ReadBeliefs,
    Record,
    Seek,
    Step,
    Trouble,
    ask,
)
from stream_rater.rating.record import UnknownRecord

RECHECK_S = 1.0
"""How often an idle shard's `applied` is looked at."""

REFUSED_S = 5.0
"""How often a refused shard is tried again: an operator may have mended it."""

ROWS_PER_CALL = 20_000
"""A batch ends once it has so many rows."""


@dataclass(slots=True)
class _Shard:
    """One owned partition of `performance-estimated`."""

    applied: int
    """Protocol's a: the store is the fold of all parts before it."""
    committed: int
    """Protocol's c."""
    position: Position
    next_offset: int
    """The next offset to be read."""
    queue: deque[tuple[int, Part]] = field(default_factory=deque)
    """Parts read and not yet used, with their offsets."""

    @classmethod
    def at(cls, position: Position, committed: int) -> "_Shard":
        """A shard as found: reading begins where the store is, or with the call to be settled."""
        ahead = position.applied > committed
        return cls(
            applied=position.applied,
            committed=committed,
            position=position,
            next_offset=position.start if ahead else position.applied,
        )


@dataclass(frozen=True, slots=True)
class _Batch:
    """Consecutive parts of one shard in which no player stands twice."""

    shard: int
    end: int
    """The offset after the last part."""
    parts: Sequence[Part]
    players: Sequence[Player]


class Updater:
    """Owns shards. Drive it with `run()`."""

    def __init__(self, *, observer: Observer | None = None, idle_s: float = 0.1) -> None:
        self._observer = observer or Observer()
        self._idle_s = idle_s
        self._owned: frozenset[int] = frozenset()
        self._shards: dict[int, _Shard] = {}
        self._refused_until: dict[int, float] = {}
        self._now_s = 0.0
        self._checked_s = 0.0

    def run(self) -> Step[NoReturn]:
        """The machine: steps 8 to 14, for ever."""
        while True:
            try:
                yield from self._open()
                yield from self._poll()
                yield from self._settle()
                yield from self._work()
                yield from self._recheck()
            except Trouble as trouble:
                self._observer.started_over(str(trouble))
                self._shards = {}
                yield from self._new_producer()

    def _new_producer(self) -> Step[None]:
        """Until one can be had; the adapter spaces the attempts."""
        while True:
            try:
                yield from ask(NewProducer())
                return
            except Trouble as trouble:
                self._observer.started_over(str(trouble))

    # --- steps 8 and 9 ---

    def _open(self) -> Step[None]:
        """Open every owned shard that is neither open nor refused of late."""
        refused = {s for s, until in self._refused_until.items() if until > self._now_s}
        to_open = self._owned - self._shards.keys() - refused
        if not to_open:
            return
        committed = yield from ask(Committed(to_open))
        starts = yield from ask(LogStarts(to_open))
        held = yield from ask(ReadBeliefs(dict.fromkeys(to_open, ())))
        offsets = {}
        for shard in to_open:
            opened = _Shard.at(held[shard].position, committed[shard] or 0)
            if starts[shard] > opened.next_offset:
                self._refuse(
                    shard,
                    f"the store needs offset {opened.next_offset} and the log starts at"
                    f" {starts[shard]}: stop the workers and run `stream-rater rebuild`",
                )
                continue
            offsets[shard] = opened.next_offset
            self._shards[shard] = opened
            self._observer.shard_opened(shard)
        if offsets:
            yield from ask(Seek(offsets))

    def _refuse(self, shard: int, reason: str) -> None:
        self._shards.pop(shard, None)
        self._refused_until[shard] = self._now_s + REFUSED_S
        self._observer.shard_refused(shard, reason)

    def _poll(self) -> Step[None]:
        waiting = any(shard.queue for shard in self._shards.values())
        polled = yield from ask(Poll(0.0 if waiting else self._idle_s, full=waiting))
        self._now_s = polled.now_s
        if polled.lost or polled.gained:
            self._owned = (self._owned - polled.lost) | polled.gained
            self._observer.owned(self._owned)
            for shard in polled.lost | polled.gained:
                self._shards.pop(shard, None)
                self._refused_until.pop(shard, None)
        for record in polled.records:
            self._read(record)

    def _read(self, record: Record) -> None:
        shard = self._shards.get(record.partition)
        if shard is None or record.offset < shard.next_offset:
            return
        if record.offset > shard.next_offset:
            # Parts are not written in transactions, so nothing but loss leaves a gap.
            self._refuse(
                record.partition,
                f"offsets [{shard.next_offset}, {record.offset}) are missing from the log",
            )
            return
        shard.next_offset += 1
        try:
            shard.queue.append((record.offset, parts.decode(record.value or b"")))
        except UnknownPart as error:
            self._refuse(record.partition, f"offset {record.offset}: {error}")

    # --- step 11 ---

    def _settle(self) -> Step[None]:
        """Publish what a predecessor applied and did not publish.

        The last call began at or before c, never after it: whoever made it had read a committed
        offset, and those only rise. Where it began before c, a zombie repeated what was published.
        """
        unsettled = {}
        for number, shard in self._shards.items():
            if shard.committed < shard.applied <= shard.next_offset:
                unsettled[number] = _taken(shard.queue, shard.applied)
        if not unsettled:
            return
        players = {s: _players(part for _, part in taken) for s, taken in unsettled.items()}
        held = yield from ask(ReadBeliefs(players))
        done: list[Change] = []
        for number, taken in unsettled.items():
            shard = self._shards[number]
            if held[number].position != shard.position:
                del self._shards[number]
            elif shard.position.start > shard.committed:
                self._refuse(number, f"the store is more than a call ahead of {shard.committed}")
            else:
                published = sum(offset < shard.committed for offset, _ in taken)
                parts_ = [part for _, part in taken]
                done.append(changes.recalled(number, parts_, held[number], published))
        yield from self._publish(done, settled=True)

    # --- steps 10, 12 and 13 ---

    def _cut(self, number: int) -> _Batch | None:
        """Parts from the head of the queue: no player twice, not beyond c while a < c."""
        shard = self._shards[number]
        if shard.committed < shard.applied:
            return None
        limit = shard.committed if shard.applied < shard.committed else shard.next_offset
        taken: list[Part] = []
        seen: set[Player] = set()
        ordered: list[Player] = []
        end = shard.applied
        while shard.queue and shard.queue[0][0] < limit and len(ordered) < ROWS_PER_CALL:
            offset, part = shard.queue[0]
            players = changes.players_of(part)
            if not seen.isdisjoint(players):
                break
            shard.queue.popleft()
            seen.update(players)
            ordered += players
            taken.append(part)
            end = offset + 1
        return _Batch(number, end, taken, ordered) if taken else None

    def _work(self) -> Step[None]:
        batches = {s: batch for s in self._shards if (batch := self._cut(s)) is not None}
        if not batches:
            return
        held = yield from ask(ReadBeliefs({s: batch.players for s, batch in batches.items()}))
        computed: dict[int, Change] = {}
        for number, batch in batches.items():
            change = self._compute(batch, held[number])
            if change is not None:
                computed[number] = change
        if not computed:
            return
        applied = yield from ask(Apply({s: change.application for s, change in computed.items()}))
        done = []
        for number, change in computed.items():
            if not applied[number]:
                del self._shards[number]
                continue
            done.append(change)
        yield from self._conclude(done)

    def _compute(self, batch: _Batch, held: Held) -> Change | None:
        if held.position != self._shards[batch.shard].position:
            del self._shards[batch.shard]
            return None
        try:
            return changes.computed(batch.shard, batch.parts, batch.end, held)
        except UnknownRecord as error:
            self._refuse(batch.shard, str(error))
            return None

    def _conclude(self, done: Sequence[Change]) -> Step[None]:
        publish = []
        for change in done:
            shard = self._shards[change.shard]
            replayed = shard.applied < shard.committed
            shard.position = change.application.position
            shard.applied = shard.position.applied
            self._observer.beliefs_applied(
                change.fresh, change.rows - change.fresh, replayed=replayed
            )
            if not replayed:
                publish.append(change)
        yield from self._publish(publish, settled=False)

    # --- step 14 ---

    def _publish(self, done: Sequence[Change], *, settled: bool) -> Step[None]:
        if not done:
            return
        events = [event for change in done for event in change.events]
        offsets = {change.shard: change.application.position.applied for change in done}
        yield from ask(Publish(events, offsets))
        for shard, offset in offsets.items():
            self._shards[shard].committed = offset
        self._observer.events_published(len(events), settled=settled)
        self._observer.positions(offsets)

    # --- step 8, when idle ---

    def _recheck(self) -> Step[None]:
        """A store rolled back behind our back shows in `applied`: open such a shard anew."""
        if self._now_s - self._checked_s < RECHECK_S or not self._shards:
            return
        self._checked_s = self._now_s
        held = yield from ask(ReadBeliefs(dict.fromkeys(self._shards, ())))
        for number in [s for s in held if held[s].position != self._shards[s].position]:
            del self._shards[number]


def _taken(queue: deque[tuple[int, Part]], end: int) -> list[tuple[int, Part]]:
    """Take the parts before offset `end` from the queue."""
    taken = []
    while queue and queue[0][0] < end:
        taken.append(queue.popleft())
    return taken


def _players(taken: Iterable[Part]) -> list[Player]:
    return [player for part in taken for player in changes.players_of(part)]
