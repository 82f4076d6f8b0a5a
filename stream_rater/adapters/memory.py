"""Kafka and Redis in memory, and a driver that performs a machine's effects on them, for the
simulator, the unit tests and `demo --embedded`.

The driver keeps the guarantees of Kafka and Redis that the protocol relies on, and no others. The
contract tests hold both drivers to the same guarantees. An effect is a generator that pauses after
each atomic step, so that a simulator can run other workers in between, or end the worker there.
"""

import itertools
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.contract.errors import LogTrouble, Regrouped
from stream_rater.contract.record import Headers, Player, Record, checksum
from stream_rater.pipeline.ladder_history import LadderLog, encode_corrections, encode_histories
from stream_rater.pipeline.ports import (
    VANISHED,
    Application,
    Apply,
    CorrectionsByLadder,
    Effect,
    Event,
    NewProducer,
    OffsetEvidence,
    Poll,
    Polled,
    Position,
    Priors,
    Publish,
    Rejection,
    StoredShard,
)
from stream_rater.rating.record import HEADER_SIZE

Steps = Generator[None, None, Any]
"""An effect in progress: it yields after each atomic step and returns the outcome."""

POLL_RECORDS = 500


# --- the servers ---------------------------------------------------------------------------------


@dataclass
class Transaction:
    """The messages of a producer in a transaction that has not ended."""

    events: list[Event] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)


class Group:
    """A consumer group on one topic: the owner of each partition, and the committed offsets."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.generation = 0
        self.owners: dict[int, object] = {}
        self.committed: dict[int, int] = {}
        self.transactions: dict[int, Transaction] = {}
        """Open transactions by producer. The offsets in them are not stable."""

    def assign(self, members: Sequence[object]) -> None:
        """Rebalance: assign all partitions again. Members are fenced until their next poll."""
        self.generation += 1
        self.owners = (
            {p: members[p % len(members)] for p in range(self.partitions)} if members else {}
        )

    def owned_by(self, member: object) -> frozenset[int]:
        """The partitions that the coordinator has assigned to a member."""
        return frozenset(p for p, owner in self.owners.items() if owner is member)


class Records(list[Record]):
    """One partition: the record at offset o has index o. Records before `start` were deleted and
    cannot be read."""

    start = 0


class Log:
    """The topics, the two consumer groups, and the ladder events (a
    `ladder_history.LadderEventLog`)."""

    def __init__(self, partitions: int, shards: int) -> None:
        self.rounds = [Records() for _ in range(partitions)]
        self.parts = [Records() for _ in range(shards)]
        self.changed: list[list[Event]] = [[] for _ in range(shards)]
        self.rejected: list[Rejection] = []
        self.ladder_events: list[bytes] = []
        self.estimators = Group(partitions)
        self.updaters = Group(shards)
        self._producers = itertools.count()
        self._fenced: set[int] = set()

    def add_shards(self, count: int) -> None:
        """Add shards. Running workers do not notice them."""
        self.parts += [Records() for _ in range(count)]
        self.changed += [[] for _ in range(count)]
        self.updaters.partitions += count

    def submit(
        self,
        partition: int,
        value: bytes | None,
        headers: Headers = (),
        received_s: float = 0.0,
        key: bytes | None = None,
    ) -> int:
        """Append a record to `round-completed`, and return its offset."""
        log = self.rounds[partition]
        log.append(Record(partition, len(log), value, headers, received_s, key))
        return len(log) - 1

    def append_part(self, shard: int, value: bytes) -> int:
        """Append a part, and return its offset."""
        log = self.parts[shard]
        log.append(Record(shard, len(log), value))
        return len(log) - 1

    def read(self) -> LadderLog:
        """Combine the ladder events."""
        ladder_log = LadderLog()
        for each in self.ladder_events:
            ladder_log.read(each)
        return ladder_log

    def write(self, messages: Sequence[bytes]) -> None:
        """Append ladder events."""
        self.ladder_events += messages

    def new_producer(self) -> int:
        """The id of a new producer."""
        return next(self._producers)

    def transaction(self, group: Group, producer: int) -> Transaction:
        """The open transaction of a producer, which is begun if there is none. Raises LogTrouble if
        the producer is fenced."""
        if producer in self._fenced:
            raise LogTrouble(
                "fenced: another producer replaced this one, or its transaction timed out"
            )
        return group.transactions.setdefault(producer, Transaction())

    def commit(self, group: Group, producer: int) -> None:
        """Commit a producer's transaction. Raises LogTrouble if the producer is fenced."""
        self.transaction(group, producer)
        transaction = group.transactions.pop(producer)
        for event in transaction.events:
            self.changed[event.shard].append(event)
        self.rejected.extend(transaction.rejections)
        group.committed.update(transaction.offsets)

    def abort(self, group: Group, producer: int) -> None:
        """Abort a producer's transaction, if it has one."""
        group.transactions.pop(producer, None)

    def fence(self, group: Group, producer: int) -> None:
        """Abort the producer's transaction, and refuse everything that it sends later."""
        self.abort(group, producer)
        self._fenced.add(producer)


class Store:
    """The position and the beliefs of each shard, and the ladders' checkpoints."""

    def __init__(self) -> None:
        self.positions: dict[int, Position] = {}
        self.beliefs: dict[int, dict[Player, bytes]] = {}
        self.checkpoints: dict[str, dict[str, bytes]] = {}
        """Heads by ladder and name."""
        self.pieces: dict[tuple[str, str, int], bytes] = {}
        """The pieces of checkpoints by ladder, name and number."""

    def read_priors(self, shard: int, players: PlayerColumn) -> Priors:
        """The `applied` of a shard and the players' belief headers."""
        stored = self.read(shard, players)
        nothing = bytes(HEADER_SIZE)
        headers = b"".join(r[:HEADER_SIZE] if r else nothing for r in stored.records)
        return Priors(stored.position.applied, headers)

    def read(self, shard: int, players: PlayerColumn) -> StoredShard:
        """The position of a shard and the players' records."""
        beliefs = self.beliefs.get(shard, {})
        position = self.positions.get(shard, Position())
        return StoredShard(position, [beliefs.get(player) for player in players])

    def apply(self, shard: int, application: Application) -> bool:
        """Write beliefs and position by compare-and-set. Returns False, and writes nothing, if
        `applied` is not `position.start` or the epoch differs. It also returns False if the number
        of new beliefs differs from the number of absent ones; then the shard is VANISHED."""
        position, beliefs = application.position, application.beliefs
        stored = self.positions.get(shard, Position())
        if (stored.applied, stored.epoch) != (position.start, position.epoch):
            return False
        before = self.beliefs.setdefault(shard, {})
        new = sum(player not in before for player, _ in beliefs)
        before.update(beliefs)
        vanished = application.absent is not None and new != application.absent
        vanished_position = Position(VANISHED, VANISHED, epoch=position.epoch)
        self.positions[shard] = vanished_position if vanished else position
        return not vanished


# --- the driver ----------------------------------------------------------------------------------


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
            # The real driver, too, begins the transaction of the next Publish while Redis applies.
            with suppress(LogTrouble):  # the Publish will fail, too
                self.log.transaction(self.group, self.producer).events.extend(effect.events)
                self._open = effect.events
        return effect.perform(self)

    def _abort_open(self) -> None:
        """Abort the transaction that was begun before its Publish."""
        if self._open is not None:
            self._open = None
            self.log.abort(self.group, self.producer)

    def poll(self, effect: Poll) -> Steps:
        yield
        polled = self._membership()
        records: list[Record] = []
        if not effect.no_fetch:
            for partition in [p for p in self._reading if p not in effect.paused]:
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
        # If this member missed a generation, others may have owned its partitions in between.
        missed_generation = self.group.generation > self._generation + 1
        lost = self._owned if missed_generation else self._owned - owned
        gained = owned if missed_generation else owned - self._owned
        self._generation = self.group.generation
        self._owned = owned
        for partition in lost:
            self._reading.pop(partition, None)
        return Polled(self.now_s, lost, gained)

    def committed(self, partitions: frozenset[int]) -> Steps:
        yield
        for transaction in self.group.transactions.values():
            if partitions & transaction.offsets.keys():
                raise LogTrouble("committed offsets are not stable: a transaction is pending")
        return {p: self.group.committed.get(p) for p in partitions}

    def look_for_offsets(self, partitions: frozenset[int]) -> Steps:
        yield
        places = [(each.record.partition, each.record.offset) for each in self.log.rejected]
        mine = sorted(each for each in places if each[0] in partitions)
        return OffsetEvidence(
            {partition: offset + 1 for partition, offset in mine},
            {p: len(self._source[p]) for p in partitions},
            any(parts.start for parts in self.log.parts),
        )

    def log_starts(self, partitions: frozenset[int]) -> Steps:
        yield
        return {p: self._source[p].start for p in partitions}

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
        for parts in self.log.parts:
            yield
            ends.append(len(parts))
        return ends

    def part_sums(self, offsets: Mapping[int, int]) -> Steps:
        found: dict[int, int | None] = {}
        for shard, offset in offsets.items():
            yield
            parts = self.log.parts[shard]
            kept = parts.start <= offset < len(parts)
            found[shard] = checksum(parts[offset].value) if kept else None
        return found

    def agree(self, histories: Mapping[str, Sequence[str]]) -> Steps:
        yield
        ladder_log = self.log.read()
        for ladder, own in histories.items():
            if not ladder_log.in_force(ladder):
                yield
                self.log.write(encode_histories("noted", {ladder: own}))
        yield
        ladder_log = self.log.read()
        return {ladder: ladder_log.of(ladder) for ladder in histories}

    def read_again(self, partition: int, first: int, end: int) -> Steps:
        yield
        first = max(first, self._source[partition].start)
        return self._source[partition][first : min(end, first + POLL_RECORDS)]

    def note_corrections(self, in_force: CorrectionsByLadder) -> Steps:
        for message in encode_corrections(in_force):
            self.log.write([message])
            yield

    def noted_corrections(self) -> Steps:
        yield
        return {ladder: list(each) for ladder, each in self.log.read().corrections.items()}

    def checkpoints(self, ladder: str) -> Steps:
        yield
        return dict(self.store.checkpoints.get(ladder, {}))

    def read_piece(self, ladder: str, name: str, number: int) -> Steps:
        yield
        return self.store.pieces.get((ladder, name, number))

    def write_piece(self, ladder: str, name: str, number: int, data: bytes) -> Steps:
        self.store.pieces[ladder, name, number] = data
        yield
        return True

    def keep_checkpoint(self, ladder: str, name: str, head: bytes) -> Steps:
        self.store.checkpoints.setdefault(ladder, {})[name] = head
        yield
        return True

    def drop_checkpoint(self, ladder: str, name: str, pieces: int) -> Steps:
        for number in range(pieces):
            self.store.pieces.pop((ladder, name, number), None)
            yield
        self.store.checkpoints.get(ladder, {}).pop(name, None)
        yield
        return True

    def read_priors(self, players: Mapping[int, PlayerColumn]) -> Steps:
        read = {}
        for shard, of_shard in players.items():
            yield
            read[shard] = self.store.read_priors(shard, of_shard)
        return read

    def read_beliefs(self, players: Mapping[int, PlayerColumn]) -> Steps:
        read = {}
        for shard, of_shard in players.items():
            yield
            read[shard] = self.store.read(shard, of_shard)
        return read

    def scatter(self, parts: Sequence[tuple[int, bytes]]) -> Steps:
        offsets = []
        for shard, data in parts:
            yield
            offsets.append(self.log.append_part(shard, data))
        yield
        return offsets

    def apply(self, applications: Mapping[int, Application], events: Collection[Event]) -> Steps:
        done = {}
        for shard, application in applications.items():
            yield
            done[shard] = self.store.apply(shard, application)
        yield
        return done

    def commit_source(self, offsets: Mapping[int, int], rejections: Sequence[Rejection]) -> Steps:
        yield from self._transaction((), rejections, offsets)

    def publish(self, events: Collection[Event], offsets: Mapping[int, int]) -> Steps:
        if self._open is not None and self._open != events:
            self._abort_open()
        yield from self._transaction(events, (), offsets)

    def _transaction(
        self, events: Collection[Event], rejections: Sequence[Rejection], offsets: Mapping[int, int]
    ) -> Steps:
        """Send the records, then the offsets, which are not stable from then on, then commit."""
        producer, generation = self.producer, self._generation
        open_events, self._open = self._open, None
        if open_events is None and producer in self.group.transactions:
            raise LogTrouble("the producer's last transaction has not ended")
        left = list(events) if open_events is None else []
        half = len(left) // 2
        for batch in (left[:half], left[half:]):
            yield
            self.log.transaction(self.group, producer).events.extend(batch)
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
