"""Workers on the log and the store in memory: for the simulator, the unit tests and
`demo --embedded`.

They keep the promises of Kafka and Redis that the protocol rests on, and no more; the contract
suite holds both to the same. An effect on several shards is a generator that pauses after each
shard, so that a simulator can let others in between, or let it die there.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from stream_rater.adapters.memory_servers import Group, Log, Records, Store
from stream_rater.contract.record import Record
from stream_rater.pipeline.ladder_history import notes
from stream_rater.pipeline.ports import (
    Agree,
    Apply,
    CommitSource,
    Committed,
    Effect,
    Event,
    LogStarts,
    LogTrouble,
    LookForOffsets,
    NewProducer,
    Poll,
    Polled,
    Publish,
    ReadBeliefs,
    ReadPriors,
    Regrouped,
    Rejection,
    Remains,
    Scatter,
    Seek,
    ShardEnds,
)

Steps = Generator[None, None, Any]
"""An effect being performed: yields after each atomic piece, returns the outcome."""

POLL_RECORDS = 500


class Worker:
    """One member of a group with its producer: performs one machine's effects."""

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
        self._ahead: Collection[Event] | None = None
        """What the open transaction holds that was begun ahead of its Publish."""
        self._actions: dict[type, Callable[[Any], Steps]] = {
            Poll: self._poll,
            Committed: self._committed,
            LookForOffsets: self._look_for_offsets,
            LogStarts: self._log_starts,
            Seek: self._seek,
            NewProducer: self._new_producer,
            ShardEnds: self._shard_ends,
            Agree: self._agree,
            ReadPriors: self._read_priors,
            ReadBeliefs: self._read_beliefs,
            Scatter: self._scatter,
            Apply: self._apply,
            CommitSource: self._commit_source,
            Publish: self._publish,
        }

    def perform(self, effect: Effect[Any]) -> Any:
        """Perform an effect at one go."""
        steps = self.steps(effect)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value

    def steps(self, effect: Effect[Any]) -> Steps:
        """Perform an effect, pausing after each atomic piece; events go ahead at once."""
        if not isinstance(effect, Publish | NewProducer):
            self._withdraw()
        if isinstance(effect, Apply) and effect.events:
            self._go_ahead(effect.events)
        return self._actions[type(effect)](effect)

    def _go_ahead(self, events: Collection[Event]) -> None:
        """Let the log take them in while the store applies."""
        with suppress(LogTrouble):  # of which their Publish will tell
            self.log.transaction(self.group, self.producer).events.extend(events)
            self._ahead = events

    def _withdraw(self) -> None:
        """What went ahead is as if it had never been."""
        if self._ahead is not None:
            self._ahead = None
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
        slept = self.group.generation > self._generation + 1  # others may have owned what we own
        lost = self._owned if slept else self._owned - owned
        gained = owned if slept else owned - self._owned
        self._generation = self.group.generation
        self._owned = owned
        for partition in lost:
            self._reading.pop(partition, None)
        return Polled(self.now_s, lost, gained)

    def _committed(self, effect: Committed) -> Steps:
        yield
        for transaction in self.group.pending.values():
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
        self._ahead = None
        self.log.fence(self.group, self.producer)
        self.producer = self.log.new_producer()

    def _shard_ends(self, effect: ShardEnds) -> Steps:
        ends = []
        for parts in self.log.parts:
            yield
            ends.append(len(parts))
        return ends

    def _agree(self, effect: Agree) -> Steps:
        yield
        story = self.log.read()
        for ladder, own in effect.histories.items():
            if not story.noted(ladder):
                yield
                self.log.write(notes("noted", {ladder: own}))
        yield
        story = self.log.read()
        return {ladder: story.of(ladder) for ladder in effect.histories}

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
            done[shard] = self.store.apply(shard, application.position, application.beliefs)
        yield
        return done

    def _commit_source(self, effect: CommitSource) -> Steps:
        yield from self._transaction((), effect.rejections, effect.offsets)

    def _publish(self, effect: Publish) -> Steps:
        if self._ahead is not None and self._ahead != effect.events:
            self._withdraw()
        yield from self._transaction(effect.events, (), effect.offsets)

    def _transaction(
        self, events: Collection[Event], rejections: Sequence[Rejection], offsets: Mapping[int, int]
    ) -> Steps:
        """Send the records, then the offsets, which are not stable from then on, then end it."""
        producer, generation = self.producer, self._generation
        ahead, self._ahead = self._ahead, None
        if ahead is None and producer in self.group.pending:
            raise LogTrouble("the producer's last transaction has not ended")
        left = list(events) if ahead is None else []
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
        """Whether who asks is what it was; of those that are a member still, no transaction is left
        open."""
        if generation < self.group.generation - 1:
            raise LogTrouble("fenced: no member of the group any more")
        if generation < self.group.generation:
            self.log.abort(self.group, self.producer)
            raise Regrouped("fenced: the group has a new generation")


def estimator_worker(log: Log, store: Store) -> Worker:
    """A member of the estimators' group."""
    return Worker(log, store, log.estimators, log.rounds)


def updater_worker(log: Log, store: Store) -> Worker:
    """A member of the updaters' group."""
    return Worker(log, store, log.updaters, log.parts)
