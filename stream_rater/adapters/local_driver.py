"""A driver that performs a machine's effects on a log and a store of its own process, and the
interfaces of that log and store.

They are those in memory (`memory`), for the simulator, the unit tests and the self-check, or
those in a file (`sqlite`). The driver keeps the guarantees of Kafka and Redis that the protocol
relies on, and no others. The contract tests hold all drivers to the same guarantees. An effect is a
generator that pauses after each atomic step, so that a simulator can run other workers in between,
or end the worker there.

The consumer groups and the transactions that have not ended are in memory. They do not outlive the
process, and neither do the members.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.contract.errors import LogTrouble, Regrouped
from stream_rater.contract.record import Record, checksum
from stream_rater.pipeline import ladder_history, ports
from stream_rater.rating.record import header_bytes


class Topic(Protocol):
    """The partitions of `round-completed` or `performance-estimated`; `len` is their number."""

    def __len__(self) -> int: ...

    def start(self, partition: int) -> int:
        """The first offset that can be read. Records before it were deleted."""

    def end(self, partition: int) -> int:
        """The offset of the next record."""

    def read(self, partition: int, first: int, end: int) -> Sequence[Record]:
        """The records with offsets in [first, end), where the log has them."""


@dataclass
class Transaction:
    """The messages of a producer in a transaction that has not ended."""

    batches: list[Collection[ports.Event]] = field(default_factory=list)
    """The events, in the order in which they were sent."""
    rejections: list[ports.Rejection] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    tails: dict[int, int | None] = field(default_factory=dict)
    """The checksums that are committed with offsets of `round-completed`."""


class Group:
    """A consumer group on one topic: the owner of each partition, and the committed offsets."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.generation = 0
        self.owners: dict[int, object] = {}
        self.committed: dict[int, int] = {}
        self.tails: dict[int, int | None] = {}
        """The checksum of the record before each committed offset of `round-completed`, where it is
        known. A group of a file knows those of its process only."""
        self.transactions: dict[int, Transaction] = {}
        """Open transactions by producer. The offsets in them are not stable."""

    def assign(self, members: Sequence[object]) -> None:
        """Rebalance: assign all partitions again. Members are fenced until their next poll."""
        self.generation += 1
        owned = range(self.partitions if members else 0)
        self.owners = {p: members[p % len(members)] for p in owned}

    def owned_by(self, member: object) -> frozenset[int]:
        """The partitions that the coordinator has assigned to a member."""
        return frozenset(p for p, owner in self.owners.items() if owner is member)


class LocalLog(ABC):
    """The topics, the two consumer groups, and a `ladder_history.LadderEventLog`."""

    rounds: Topic
    parts: Topic
    rejections_deleted = 0  # The number of the first rejections that retention has deleted.
    poll_records = 500  # The most records of a partition that one poll, or one ReadAgain, returns.
    pieces = 2
    """The number of pieces in which the events of a transaction are sent, one after the other."""

    def __init__(self, partitions: int, shards: int) -> None:
        self.estimators = Group(partitions)
        self.updaters = Group(shards)
        self._producers = itertools.count()
        self._fenced: set[int] = set()

    @abstractmethod
    def append_part(self, shard: int, value: bytes) -> int:
        """Append a part, and return its offset."""

    @abstractmethod
    def read(self) -> ladder_history.LadderLog:
        """Combine the ladder events."""

    @abstractmethod
    def write(self, messages: Sequence[bytes]) -> None:
        """Append ladder events."""

    @abstractmethod
    def after_rejected(self) -> Iterable[tuple[int, int]]:
        """The partition and `next_offset` of rejections, at least each partition's largest."""

    @abstractmethod
    def save(self, group: Group, transaction: Transaction) -> None:
        """Write the messages and offsets of a transaction, all or none."""

    def performing(self, effect: ports.Effect[Any]) -> AbstractContextManager[None]:
        """A context manager for the time in which an effect is performed without a pause."""
        return nullcontext()

    def new_producer(self) -> int:
        """The id of a new producer."""
        return next(self._producers)

    def transaction(self, group: Group, producer: int) -> Transaction:
        """The open transaction of a producer, or a new one. Raises LogTrouble if it is fenced."""
        if producer in self._fenced:
            raise LogTrouble(
                "fenced: another producer replaced this one, or its transaction timed out"
            )
        return group.transactions.setdefault(producer, Transaction())

    def commit(self, group: Group, producer: int) -> None:
        """Commit a producer's transaction. Raises LogTrouble if the producer is fenced."""
        self.transaction(group, producer)
        self.save(group, group.transactions.pop(producer))

    def abort(self, group: Group, producer: int) -> None:
        """Abort a producer's transaction, if it has one."""
        group.transactions.pop(producer, None)

    def fence(self, group: Group, producer: int) -> None:
        """Abort the producer's transaction, and refuse everything that it sends later."""
        self.abort(group, producer)
        self._fenced.add(producer)


Steps = Generator[None, None, Any]
"""An effect in progress: it yields after each atomic step and returns the outcome."""


class LocalStore(Protocol):
    """The position and the beliefs of each shard, and the ladders' checkpoints."""

    def read_priors(self, shard: int, players: PlayerColumn) -> ports.Priors:
        """The `applied` and the epoch of a shard, and the players' belief headers."""
        stored = self.read(shard, players)
        position, headers = stored.position, header_bytes(stored.column)
        return ports.Priors(position.applied, headers, position.epoch)

    def read(self, shard: int, players: PlayerColumn) -> ports.StoredShard:
        """The position of a shard and the players' records."""

    def apply(self, shard: int, application: ports.Application) -> bool:
        """Write beliefs and position by compare-and-set. Returns False, and writes nothing, if
        `applied` is not `position.start` or the epoch differs. It also returns False if the number
        of new beliefs differs from the number of absent ones; then the shard is VANISHED."""

    def heads(self, ladder: str) -> dict[str, bytes]:
        """The heads of a ladder's checkpoints by name."""

    def read_piece(self, ladder: str, name: str, number: int) -> bytes | None:
        """A piece of a checkpoint; None if there is none."""

    def write_piece(self, ladder: str, name: str, number: int, data: bytes) -> None:
        """Write a piece of a checkpoint."""

    def keep_head(self, ladder: str, name: str, head: bytes) -> None:
        """Write the head of a checkpoint."""

    def drop_piece(self, ladder: str, name: str, number: int) -> None:
        """Delete a piece, if it is there."""

    def drop_head(self, ladder: str, name: str) -> None:
        """Delete the head of a checkpoint, if it is there."""


class LocalDriver:
    """A group member and its producer: performs the effects of one machine."""

    def __init__(self, log: LocalLog, store: LocalStore, group: Group, source: Topic) -> None:
        self.log, self.store, self.group = log, store, group
        self.now_s = 0.0
        self.producer = log.new_producer()
        self._source = source
        self._owned: frozenset[int] = frozenset()
        self._generation = -1
        self._reading: dict[int, int] = {}
        self._open: Collection[ports.Event] | None = None
        """The events of a transaction that was begun before its Publish."""

    def perform(self, effect: ports.Effect[Any]) -> Any:
        """Perform an effect without a pause."""
        with self.log.performing(effect):
            steps = self.steps(effect)
            while True:
                try:
                    next(steps)
                except StopIteration as done:
                    return done.value

    def steps(self, effect: ports.Effect[Any]) -> Steps:
        """Perform an effect in atomic steps. The events of an Apply are sent at once."""
        if not isinstance(effect, ports.Publish | ports.NewProducer):
            self._abort_open()
        if isinstance(effect, ports.Apply) and effect.events:
            # The real driver, too, begins the transaction of the next Publish while Redis applies.
            with suppress(LogTrouble):  # the Publish will fail, too
                self.log.transaction(self.group, self.producer).batches.append(effect.events)
                self._open = effect.events
        return effect.perform(self)

    def _abort_open(self) -> None:
        if self._open is not None:
            self._open = None
            self.log.abort(self.group, self.producer)

    def poll(self, effect: ports.Poll) -> Steps:
        yield
        polled = self._membership()
        records: list[Record] = []
        if not effect.no_fetch:
            for partition in [p for p in self._reading if p not in effect.paused]:
                records += self._take(partition, self.log.poll_records)
        return ports.Polled(polled.now_s, polled.lost, polled.gained, records)

    def has_news(self, paused: Collection[int]) -> bool:
        """Whether a poll would return a change of ownership or records now."""
        return self._generation != self.group.generation or any(
            offset < self._source.end(partition)
            for partition, offset in self._reading.items()
            if partition not in paused
        )

    def _take(self, partition: int, most: int) -> Sequence[Record]:
        offset, source = self._reading[partition], self._source
        if not source.start(partition) <= offset <= source.end(partition):
            raise LogTrouble(f"offset {offset} of partition {partition} is out of range")
        new = source.read(partition, offset, offset + most)
        self._reading[partition] = offset + len(new)
        return new

    def _membership(self) -> ports.Polled:
        if self._generation == self.group.generation:
            return ports.Polled(self.now_s)
        owned = self.group.owned_by(self)
        # If this member missed a generation, others may have owned its partitions in between.
        missed_generation = self.group.generation > self._generation + 1
        lost = self._owned if missed_generation else self._owned - owned
        gained = owned if missed_generation else owned - self._owned
        self._generation = self.group.generation
        self._owned = owned
        for partition in lost:
            self._reading.pop(partition, None)
        return ports.Polled(self.now_s, lost, gained)

    def committed(self, partitions: frozenset[int]) -> Steps:
        yield
        for transaction in self.group.transactions.values():
            if partitions & transaction.offsets.keys():
                raise LogTrouble("committed offsets are not stable: a transaction is pending")
        return {p: self.group.committed.get(p) for p in partitions}

    def committed_source(self, partitions: frozenset[int]) -> Steps:
        found = yield from self.committed(partitions)
        return {
            p: None if offset is None else ports.SourceCommit(offset, self.group.tails.get(p))
            for p, offset in found.items()
        }

    def source_tails(self, offsets: Mapping[int, int]) -> Steps:
        found = {}
        for partition, offset in offsets.items():
            yield
            kept = offset > self._source.start(partition)
            records = self._source.read(partition, offset - 1, offset) if kept else ()
            tail = next((checksum(each.value) for each in records), None)
            found[partition] = ports.SourceTail(self._source.end(partition), tail)
        return found

    def look_for_offsets(self, partitions: frozenset[int]) -> Steps:
        yield
        mine = sorted(each for each in self.log.after_rejected() if each[0] in partitions)
        parts = self.log.parts
        return ports.OffsetEvidence(
            dict(mine),
            {p: self._source.end(p) for p in partitions},
            any(parts.start(shard) for shard in range(len(parts))),
            self.log.rejections_deleted > 0,
        )

    def log_starts(self, partitions: frozenset[int]) -> Steps:
        yield
        return {p: self._source.start(p) for p in partitions}

    def seek(self, offsets: Mapping[int, int]) -> Steps:
        yield
        self._reading.update({p: o for p, o in offsets.items() if p in self._owned})

    def new_producer(self) -> Steps:
        yield
        self._open = None
        self.log.fence(self.group, self.producer)
        self.producer = self.log.new_producer()

    def shard_ends(self) -> Steps:
        ends = []
        for shard in range(len(self.log.parts)):
            yield
            ends.append(self.log.parts.end(shard))
        return ends

    def part_sums(self, offsets: Mapping[int, int]) -> Steps:
        found: dict[int, int | None] = {}
        for shard, offset in offsets.items():
            yield
            kept = offset >= self.log.parts.start(shard)
            records = self.log.parts.read(shard, offset, offset + 1) if kept else ()
            found[shard] = next((checksum(each.value) for each in records), None)
        return found

    def agree(self, histories: Mapping[str, Sequence[str]], only_read: Container[str]) -> Steps:
        yield
        for ladder, own in ladder_history.to_note(histories, only_read, self.log.read()).items():
            yield
            self.log.write(ladder_history.encode_histories("noted", {ladder: own}))
        yield
        return ladder_history.agreed_histories(histories, self.log.read())

    def read_again(self, partition: int, first: int, end: int) -> Steps:
        yield
        first = max(first, self._source.start(partition))
        return self._source.read(partition, first, min(end, first + self.log.poll_records))

    def note_corrections(self, in_force: ports.CorrectionsByLadder) -> Steps:
        for message in ladder_history.encode_corrections(in_force):
            self.log.write([message])
            yield

    def noted_corrections(self) -> Steps:
        yield
        return {ladder: list(each) for ladder, each in self.log.read().corrections.items()}

    def checkpoints(self, ladder: str) -> Steps:
        yield
        return self.store.heads(ladder)

    def read_piece(self, ladder: str, name: str, number: int) -> Steps:
        yield
        return self.store.read_piece(ladder, name, number)

    def write_piece(self, ladder: str, name: str, number: int, data: bytes) -> Steps:
        self.store.write_piece(ladder, name, number, data)
        yield
        return True

    def keep_checkpoint(self, ladder: str, name: str, head: bytes) -> Steps:
        self.store.keep_head(ladder, name, head)
        yield
        return True

    def drop_checkpoint(self, ladder: str, name: str, pieces: int) -> Steps:
        for number in range(pieces):
            self.store.drop_piece(ladder, name, number)
            yield
        self.store.drop_head(ladder, name)
        yield
        return True

    def read_priors(self, players: Mapping[int, PlayerColumn]) -> Steps:
        return _by_shard(self.store.read_priors, players)

    def read_beliefs(self, players: Mapping[int, PlayerColumn]) -> Steps:
        return _by_shard(self.store.read, players)

    def scatter(self, parts: Sequence[tuple[int, bytes]]) -> Steps:
        offsets = []
        for shard, data in parts:
            yield
            offsets.append(self.log.append_part(shard, data))
        yield
        return offsets

    def apply(
        self, applications: Mapping[int, ports.Application], events: Collection[ports.Event]
    ) -> Steps:
        done = yield from _by_shard(self.store.apply, applications)
        yield
        return done

    def commit_source(
        self, offsets: Mapping[int, int], rejections: Sequence[ports.Rejection], tails: ports.Tails
    ) -> Steps:
        yield from self._transaction((), rejections, offsets, tails)

    def publish(self, events: Collection[ports.Event], offsets: Mapping[int, int]) -> Steps:
        if self._open is not None and self._open != events:
            self._abort_open()
        yield from self._transaction(events, (), offsets)

    def _transaction(
        self, events: Collection[ports.Event], rejections: Sequence[ports.Rejection],
        offsets: Mapping[int, int], tails: ports.Tails = ports.NO_TAILS,
    ) -> Steps:  # fmt: skip
        """Send the records, then the offsets, which are not stable from then on, then commit."""
        producer, generation = self.producer, self._generation
        open_events, self._open = self._open, None
        if open_events is None and producer in self.group.transactions:
            raise LogTrouble("the producer's last transaction has not ended")
        sent = list(events) if open_events is None else []
        cuts = [len(sent) * i // self.log.pieces for i in range(self.log.pieces + 1)]
        for first, end in itertools.pairwise(cuts):
            yield
            self.log.transaction(self.group, producer).batches.append(sent[first:end])
        self.log.transaction(self.group, producer).rejections.extend(rejections)
        yield
        self._check(generation)
        self.log.transaction(self.group, producer).offsets.update(offsets)
        self.log.transaction(self.group, producer).tails |= {p: tails.get(p) for p in offsets}
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


def _by_shard(action: Callable[[int, Any], Any], wanted: Mapping[int, Any]) -> Steps:
    found = {}
    for shard, each in wanted.items():
        yield
        found[shard] = action(shard, each)
    return found


def estimator_worker(log: LocalLog, store: LocalStore) -> LocalDriver:
    return LocalDriver(log, store, log.estimators, log.rounds)


def updater_worker(log: LocalLog, store: LocalStore) -> LocalDriver:
    return LocalDriver(log, store, log.updaters, log.parts)
