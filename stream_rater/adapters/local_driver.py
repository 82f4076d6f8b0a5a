"""A driver that performs a machine's effects on a log and a store of its own process.

The log and the store are those in memory (`memory`), for the simulator, the unit tests and `demo
--embedded`, or those in a file (`sqlite`). The driver keeps the guarantees of Kafka and Redis that
the protocol relies on, and no others. The contract tests hold all drivers to the same guarantees.
An effect is a generator that pauses after each atomic step, so that a simulator can run other
workers in between, or end the worker there.
"""

from collections.abc import Collection, Container, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from stream_rater.adapters.local_log import Group, LocalLog, Topic
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.contract.errors import LogTrouble, Regrouped
from stream_rater.contract.record import Record, checksum
from stream_rater.pipeline import ladder_history, ports

Steps = Generator[None, None, Any]
"""An effect in progress: it yields after each atomic step and returns the outcome."""


class LocalStore(Protocol):
    """The position and the beliefs of each shard, and the ladders' checkpoints."""

    def read_priors(self, shard: int, players: PlayerColumn) -> ports.Priors:
        """The `applied` of a shard and the players' belief headers."""

    def read(self, shard: int, players: PlayerColumn) -> ports.StoredShard:
        """The position of a shard and the players' records."""

    def apply(self, shard: int, application: ports.Application) -> bool:
        """Write beliefs and position by compare-and-set (`ports.Application`). Returns False if
        nothing was written, or if the shard became VANISHED."""

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

    poll_records = 500
    """The most records of a partition that one poll, or one ReadAgain, returns."""

    def __init__(self, log: LocalLog, store: LocalStore, group: Group, source: Topic) -> None:
        self.log = log
        self.store = store
        self.group = group
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
        steps = self.steps(effect)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value

    def steps(self, effect: ports.Effect[Any]) -> Steps:
        """Perform an effect, pausing after each atomic step. The events of an Apply are sent at
        once."""
        if not isinstance(effect, ports.Publish | ports.NewProducer):
            self._abort_open()
        if isinstance(effect, ports.Apply) and effect.events:
            # The real driver, too, begins the transaction of the next Publish while Redis applies.
            with suppress(LogTrouble):  # the Publish will fail, too
                self.log.transaction(self.group, self.producer).batches.append(effect.events)
                self._open = effect.events
        return effect.perform(self)

    def _abort_open(self) -> None:
        """Abort the transaction that was begun before its Publish."""
        if self._open is not None:
            self._open = None
            self.log.abort(self.group, self.producer)

    def poll(self, effect: ports.Poll) -> Steps:
        yield
        polled = self._membership()
        records: list[Record] = []
        if not effect.no_fetch:
            for partition in [p for p in self._reading if p not in effect.paused]:
                records += self._take(partition, self.poll_records)
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
            parts = self.log.parts
            kept = parts.start(shard) <= offset < parts.end(shard)
            (record,) = parts.read(shard, offset, offset + 1) if kept else (None,)
            found[shard] = None if record is None else checksum(record.value)
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
        return self._source.read(partition, first, min(end, first + self.poll_records))

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

    def apply(
        self, applications: Mapping[int, ports.Application], events: Collection[ports.Event]
    ) -> Steps:
        done = {}
        for shard, application in applications.items():
            yield
            done[shard] = self.store.apply(shard, application)
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
        for batch in self._batches(events if open_events is None else ()):
            yield
            self.log.transaction(self.group, producer).batches.append(batch)
        self.log.transaction(self.group, producer).rejections.extend(rejections)
        yield
        self._check(generation)
        self.log.transaction(self.group, producer).offsets.update(offsets)
        self.log.transaction(self.group, producer).tails |= {p: tails.get(p) for p in offsets}
        yield
        self.log.commit(self.group, producer)
        yield

    def _batches(self, events: Collection[ports.Event]) -> Sequence[Collection[ports.Event]]:
        """The events in two pieces, which are sent one after the other."""
        sent = list(events)
        half = len(sent) // 2
        return sent[:half], sent[half:]

    def _check(self, generation: int) -> None:
        """Raise Regrouped if the group has had one rebalance since the last poll, and LogTrouble if
        it has had more. With Regrouped, the transaction is aborted."""
        if generation < self.group.generation - 1:
            raise LogTrouble("fenced: the worker is no longer a member of its group")
        if generation < self.group.generation:
            self.log.abort(self.group, self.producer)
            raise Regrouped("fenced: the group has a new generation")


def estimator_worker(log: LocalLog, store: LocalStore) -> LocalDriver:
    """A member of the estimators' group."""
    return LocalDriver(log, store, log.estimators, log.rounds)


def updater_worker(log: LocalLog, store: LocalStore) -> LocalDriver:
    """A member of the updaters' group."""
    return LocalDriver(log, store, log.updaters, log.parts)
