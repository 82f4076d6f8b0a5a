"""Performs a machine's effects in memory, for the simulator, the unit tests and `demo --embedded`.

The driver keeps the guarantees of Kafka and Redis that the protocol relies on, and no others. The
contract tests hold both drivers to the same guarantees. An effect is a generator that pauses after
each atomic step, so that a simulator can run other workers in between, or end the worker there.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from stream_rater.adapters.memory.servers import Group, Log, Records, Store
from stream_rater.contract.errors import LogTrouble, Regrouped
from stream_rater.contract.record import Record, checksum
from stream_rater.pipeline.corrections.correction_ports import (
    Checkpoints,
    DropCheckpoint,
    KeepCheckpoint,
    NoteCorrections,
    NotedCorrections,
    ReadAgain,
    ReadPiece,
    WritePiece,
)
from stream_rater.pipeline.ladder_history import correction_notes, notes
from stream_rater.pipeline.ports import (
    Agree,
    Apply,
    CommitSource,
    Committed,
    Effect,
    Event,
    LogStarts,
    LookForOffsets,
    NewProducer,
    PartSums,
    Poll,
    Polled,
    Publish,
    ReadBeliefs,
    ReadPriors,
    Rejection,
    Remains,
    Scatter,
    Seek,
    ShardEnds,
)

Steps = Generator[None, None, Any]
"""An effect in progress: it yields after each atomic step and returns the outcome."""

POLL_RECORDS = 500


class MemoryDriver:
    """A group member and its producer: performs the effects of one machine."""

    def __init__(self, log: Log, store: Store, group: Group, source: list[Records]) -> None:
        self.log = log
        self.store = store
        self.group = group
        self.now_s = 0.0
        self.producer = log.new_producer()
        self._source = source
        self._owned: frozenset[int] = frozenset()
        self._generation = -1
        self._reading: dict[int, int] = {}
        self._open: Collection[Event] | None = None
        """The events of a transaction that was begun before its Publish."""
        self._actions: dict[type, Callable[[Any], Steps]] = {
            Poll: self._poll,
            Committed: self._committed,
            LookForOffsets: self._look_for_offsets,
            LogStarts: self._log_starts,
            Seek: self._seek,
            NewProducer: self._new_producer,
            ShardEnds: self._shard_ends,
            PartSums: self._part_sums,
            Agree: self._agree,
            ReadPriors: self._read_priors,
            ReadBeliefs: self._read_beliefs,
            Scatter: self._scatter,
            Apply: self._apply,
            CommitSource: self._commit_source,
            Publish: self._publish,
            ReadAgain: self._read_again,
            NoteCorrections: self._note_corrections,
            NotedCorrections: self._noted_corrections,
            Checkpoints: self._checkpoints,
            ReadPiece: self._read_piece,
            WritePiece: self._write_piece,
            KeepCheckpoint: self._keep_checkpoint,
            DropCheckpoint: self._drop_checkpoint,
        }

    def perform(self, effect: Effect[Any]) -> Any:
        """Perform an effect without a pause."""
        steps = self.steps(effect)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value

    def steps(self, effect: Effect[Any]) -> Steps:
        """Perform an effect, pausing after each atomic step. The events of an Apply are sent at
        once."""
        if not isinstance(effect, Publish | NewProducer):
            self._abort_open()
        if isinstance(effect, Apply) and effect.events:
            self._begin(effect.events)
        return self._actions[type(effect)](effect)

    def _begin(self, events: Collection[Event]) -> None:
        """Begin the transaction of the next Publish, as the real driver does while Redis
        applies."""
        with suppress(LogTrouble):  # the Publish will fail, too
            self.log.transaction(self.group, self.producer).events.extend(events)
            self._open = events

    def _abort_open(self) -> None:
        """Abort the transaction that was begun before its Publish."""
        if self._open is not None:
            self._open = None
            self.log.abort(self.group, self.producer)

    def _poll(self, effect: Poll) -> Steps:
        yield
        polled = self._membership()
        records: list[Record] = []
        if not effect.full:
            for partition in [p for p in self._reading if p not in effect.resting]:
                records += self._take(partition, POLL_RECORDS)
        return Polled(polled.now_s, polled.lost, polled.gained, records)

    def _take(self, partition: int, most: int) -> Sequence[Record]:
        offset, log = self._reading[partition], self._source[partition]
        if not log.start <= offset <= len(log):
            raise LogTrouble(f"offset {offset} of partition {partition} is out of range")
        new = log[offset : offset + most]
        self._reading[partition] = offset + len(new)
        return new

    def _membership(self) -> Polled:
        if self._generation == self.group.generation:
            return Polled(self.now_s)
        owned = self.group.owned_by(self)
        slept = (
            self.group.generation > self._generation + 1
        )  # other members may have owned these meanwhile
        lost = self._owned if slept else self._owned - owned
        gained = owned if slept else owned - self._owned
        self._generation = self.group.generation
        self._owned = owned
        for partition in lost:
            self._reading.pop(partition, None)
        return Polled(self.now_s, lost, gained)

    def _committed(self, effect: Committed) -> Steps:
        yield
        for transaction in self.group.transactions.values():
            if effect.partitions & transaction.offsets.keys():
                raise LogTrouble("committed offsets are not stable: a transaction is pending")
        return {p: self.group.committed.get(p) for p in effect.partitions}

    def _look_for_offsets(self, effect: LookForOffsets) -> Steps:
        yield
        places = [(each.record.partition, each.record.offset) for each in self.log.rejected]
        mine = sorted(each for each in places if each[0] in effect.partitions)
        return Remains(
            {partition: offset + 1 for partition, offset in mine},
            {p: len(self._source[p]) for p in effect.partitions},
            any(parts.start for parts in self.log.parts),
        )

    def _log_starts(self, effect: LogStarts) -> Steps:
        yield
        return {p: self._source[p].start for p in effect.partitions}

    def _seek(self, effect: Seek) -> Steps:
        yield
        self._reading.update({p: o for p, o in effect.offsets.items() if p in self._owned})

    def _new_producer(self, effect: NewProducer) -> Steps:
        yield
        self._open = None
        self.log.fence(self.group, self.producer)
        self.producer = self.log.new_producer()

    def _shard_ends(self, effect: ShardEnds) -> Steps:
        ends = []
        for parts in self.log.parts:
            yield
            ends.append(len(parts))
        return ends

    def _part_sums(self, effect: PartSums) -> Steps:
        found: dict[int, int | None] = {}
        for shard, offset in effect.offsets.items():
            yield
            parts = self.log.parts[shard]
            kept = parts.start <= offset < len(parts)
            found[shard] = checksum(parts[offset].value) if kept else None
        return found

    def _agree(self, effect: Agree) -> Steps:
        yield
        ladder_log = self.log.read()
        for ladder, own in effect.histories.items():
            if not ladder_log.noted(ladder):
                yield
                self.log.write(notes("noted", {ladder: own}))
        yield
        ladder_log = self.log.read()
        return {ladder: ladder_log.of(ladder) for ladder in effect.histories}

    def _read_again(self, effect: ReadAgain) -> Steps:
        yield
        first = max(effect.first, self._source[effect.partition].start)
        return self._source[effect.partition][first : min(effect.end, first + POLL_RECORDS)]

    def _note_corrections(self, effect: NoteCorrections) -> Steps:
        for message in correction_notes(effect.noted):
            self.log.write([message])
            yield

    def _noted_corrections(self, _: NotedCorrections) -> Steps:
        yield
        return {ladder: list(each) for ladder, each in self.log.read().corrections.items()}

    def _checkpoints(self, effect: Checkpoints) -> Steps:
        yield
        return dict(self.store.checkpoints.get(effect.ladder, {}))

    def _read_piece(self, effect: ReadPiece) -> Steps:
        yield
        return self.store.pieces.get((effect.ladder, effect.name, effect.number))

    def _write_piece(self, effect: WritePiece) -> Steps:
        self.store.pieces[effect.ladder, effect.name, effect.number] = effect.data
        yield
        return True

    def _keep_checkpoint(self, effect: KeepCheckpoint) -> Steps:
        self.store.checkpoints.setdefault(effect.ladder, {})[effect.name] = effect.head
        yield
        return True

    def _drop_checkpoint(self, effect: DropCheckpoint) -> Steps:
        for number in range(effect.pieces):
            self.store.pieces.pop((effect.ladder, effect.name, number), None)
            yield
        self.store.checkpoints.get(effect.ladder, {}).pop(effect.name, None)
        yield
        return True

    def _read_priors(self, effect: ReadPriors) -> Steps:
        read = {}
        for shard, players in effect.players.items():
            yield
            read[shard] = self.store.read_priors(shard, players)
        return read

    def _read_beliefs(self, effect: ReadBeliefs) -> Steps:
        read = {}
        for shard, players in effect.players.items():
            yield
            read[shard] = self.store.read(shard, players)
        return read

    def _scatter(self, effect: Scatter) -> Steps:
        offsets = []
        for shard, data in effect.parts:
            yield
            offsets.append(self.log.append_part(shard, data))
        yield
        return offsets

    def _apply(self, effect: Apply) -> Steps:
        done = {}
        for shard, application in effect.applications.items():
            yield
            done[shard] = self.store.apply(shard, application)
        yield
        return done

    def _commit_source(self, effect: CommitSource) -> Steps:
        yield from self._transaction((), effect.rejections, effect.offsets)

    def _publish(self, effect: Publish) -> Steps:
        if self._open is not None and self._open != effect.events:
            self._abort_open()
        yield from self._transaction(effect.events, (), effect.offsets)

    def _transaction(
        self, events: Collection[Event], rejections: Sequence[Rejection], offsets: Mapping[int, int]
    ) -> Steps:
        """Send the records, then the offsets, which are not stable from then on, then commit."""
        producer, generation = self.producer, self._generation
        begun, self._open = self._open, None
        if begun is None and producer in self.group.transactions:
            raise LogTrouble("the producer's last transaction has not ended")
        left = list(events) if begun is None else []
        half = len(left) // 2
        for some in (left[:half], left[half:]):
            yield
            self.log.transaction(self.group, producer).events.extend(some)
        self.log.transaction(self.group, producer).rejections.extend(rejections)
        yield
        self._check(generation)
        self.log.transaction(self.group, producer).offsets.update(offsets)
        yield
        self.log.commit(self.group, producer)
        yield

    def _check(self, generation: int) -> None:
        """Raise Regrouped if the group has had one rebalance since the last poll, and LogTrouble if
        it has had more. With Regrouped, the transaction is aborted."""
        if generation < self.group.generation - 1:
            raise LogTrouble("fenced: the worker is no longer a member of its group")
        if generation < self.group.generation:
            self.log.abort(self.group, self.producer)
            raise Regrouped("fenced: the group has a new generation")


def estimator_worker(log: Log, store: Store) -> MemoryDriver:
    """A member of the estimators' group."""
    return MemoryDriver(log, store, log.estimators, log.rounds)


def updater_worker(log: Log, store: Store) -> MemoryDriver:
    """A member of the updaters' group."""
    return MemoryDriver(log, store, log.updaters, log.parts)
