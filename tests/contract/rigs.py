"""The log in memory, in a data file and on Kafka: a `Member` performs a machine's effects; a `Rig`
makes members, writes as other clients do, and reads as a subscriber does."""

import threading
import time
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import confluent_kafka as kafka
import msgspec
from confluent_kafka import OFFSET_END, KafkaError, Message, TopicPartition, admin

from stream_rater.adapters import memory
from stream_rater.adapters.driver import Driver
from stream_rater.adapters.kafka import consumer
from stream_rater.adapters.kafka.ladder_events import LadderEvents
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.local_driver import Group, LocalStore, estimator_worker, updater_worker
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.adapters.sqlite.database import Database, connect_reader
from stream_rater.adapters.sqlite.events import read_events
from stream_rater.adapters.sqlite.log import SqliteLog, read_rejections
from stream_rater.adapters.sqlite.store import SqliteStore
from stream_rater.config.settings import Settings
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from stream_rater.contract.record import Record
from stream_rater.pipeline.ladder_history import LadderEventLog
from stream_rater.pipeline.ports import Effect, Event, Poll, Publish, Rejection, Seek
from tests.integration.topics import (
    Bytes,
    add_shards,
    delete_records,
    headers_of,
    produce,
    read_topic,
)
from tests.waits import HANGS_S, Watch, wait_until

ESTIMATOR, UPDATER = "estimator", "updater"
PARTITIONS, SHARDS = 2, 3

GAIN_S = 60.0  # far longer than a record takes to arrive
POLL_INTERVAL_MS = 6000  # An evictable member must poll this often; Kafka's least.


class Rejected(NamedTuple):
    partition: int
    offset: int
    code: str
    message: str
    key: bytes | None
    value: bytes | None


class Performer(Protocol):
    """A driver, on Kafka or local, which performs effects."""

    def perform(self, effect: Effect[Any]) -> Any: ...


class Member:
    def __init__(self, performer: Performer, role: str) -> None:
        self.performer = performer
        self.role = role
        self.owned: set[int] = set()
        self.lost: set[int] = set()
        self.records: list[Record] = []

    def do(self, effect: Effect[Any]) -> Any:
        return self.performer.perform(effect)

    def poll(
        self, timeout_s: float = 0.05, *, no_fetch: bool = False, paused: Set[int] = frozenset()
    ) -> Sequence[Record]:
        polled = self.do(Poll(timeout_s, no_fetch=no_fetch, paused=frozenset(paused)))
        self.owned = (self.owned - polled.lost) | polled.gained
        self.lost |= polled.lost
        self.records += polled.records
        return polled.records

    def poll_until(self, holds: Callable[[], bool], *, no_fetch: bool = False) -> None:
        watch = Watch(f"{self.role}'s polls have what they should", self._moves)
        while not holds():
            watch.look()
            self.poll(no_fetch=no_fetch)

    def _moves(self) -> object:
        return sorted(self.owned), len(self.records)

    def read(self, count: int) -> list[tuple[int, int]]:
        """Poll until `count` records have come since the last call: (partition, offset) of each."""
        self.poll_until(lambda: len(self.records) >= count)
        read = [(record.partition, record.offset) for record in self.records]
        self.records = []
        return read


class LocalRig:
    log: Any
    store: LocalStore
    cut: Callable[[int, int], None]  # Delete the records of round-completed before this offset.
    cut_rejections: Callable[[], None]  # Delete all records of round-rejected.
    _events: Callable[[], list[Event]]
    _rejections: Callable[[], list[Rejection]]

    def __init__(self) -> None:
        self._members: dict[str, list[Member]] = {ESTIMATOR: [], UPDATER: []}

    def join(self, role: str, *, evictable: bool = False) -> Member:
        """A new member, which learns by polling what it owns."""
        make = estimator_worker if role == ESTIMATOR else updater_worker
        member = Member(make(self.log, self.store), role)
        self._members[role].append(member)
        self._assign(role, self._members[role])
        return member

    def _group(self, role: str) -> Group:
        group: Group = self.log.estimators if role == ESTIMATOR else self.log.updaters
        return group

    def _assign(self, role: str, members: Sequence[Member]) -> None:
        self._group(role).assign([member.performer for member in members])

    def leave(self, member: Member) -> None:
        """Let a member leave its group, as a stopped worker does."""
        self._members[member.role].remove(member)
        self._assign(member.role, self._members[member.role])

    def evict(self, member: Member, others: Sequence[Member]) -> None:
        """Rebalance the group among the other members. The evicted one does not learn of it yet."""
        self._assign(member.role, others)
        for each in others:
            each.poll()

    def count_in(self, newcomer: Member) -> None:
        """Rebalance the group with a new member. The other members do not learn of it yet."""
        newcomer.poll()

    def submit(self, partition: int, *records: Bytes) -> None:
        for each in records:
            self.log.submit(partition, each.value, each.headers, time.time(), each.key)

    def notes(self) -> LadderEventLog:
        """The ladders' notes, as another process reads and writes them."""
        log: LadderEventLog = self.log
        return log

    def add_shards(self, count: int) -> None:
        """Add partitions to performance-estimated and rating-changed."""
        self.log.add_shards(count)

    def leave_open(self, member: Member, effect: Publish) -> None:
        """Perform all of a transaction except its end."""
        worker: Any = member.performer
        transactions = self._group(member.role).transactions
        for _ in worker.steps(effect):
            if worker.producer in transactions and transactions[worker.producer].offsets:
                return

    def committed(self, role: str, partition: int) -> int | None:
        """A committed offset, as another client sees it."""
        return self._group(role).committed.get(partition)

    def events(self) -> list[tuple[int, bytes, bytes]]:
        """(shard, key, value) of all events that subscribers see, once no transaction is unfinished
        except those that `leave_open` left so."""
        return seen(self._events())

    visible_events = events

    def rejections(self) -> list[Rejected]:
        return [
            Rejected(
                each.record.partition, each.record.offset, each.code, each.message,
                each.record.key, each.record.value,
            )
            for each in self._rejections()
        ]  # fmt: skip


class MemoryRig(LocalRig):
    log: memory.Log

    def __init__(self) -> None:
        super().__init__()
        self.log = memory.Log(PARTITIONS, SHARDS)
        self.store = memory.Store()

    def cut(self, partition: int, offset: int) -> None:
        self.log.rounds[partition].start = offset

    def cut_rejections(self) -> None:
        self.log.rejections_deleted = len(self.log.rejected)

    def _events(self) -> list[Event]:
        return [event for events in self.log.changed for event in events]

    def _rejections(self) -> list[Rejection]:
        return self.log.rejected


class SqliteRig(LocalRig):
    """The rig on a data file. Subscribers read by a connection of their own."""

    log: SqliteLog

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.database = Database.open(path, partitions=PARTITIONS, shards=SHARDS)
        self.log = SqliteLog(self.database)
        self.store = SqliteStore(self.database)
        self._reader = connect_reader(path)

    def cut(self, partition: int, offset: int) -> None:
        with self.database.turn():
            self.log.rounds.cut(self.database.connection, partition, offset)

    def _events(self) -> list[Event]:
        shards = range(len(self.log.parts))
        return [event for shard in shards for _, event in read_events(self._reader, shard)]

    def _rejections(self) -> list[Rejection]:
        return [each for _, each in read_rejections(self._reader)]

    def close(self) -> None:
        self._reader.close()
        self.database.close()


class KafkaRig:
    def __init__(self, settings: Settings) -> None:
        self._settings = msgspec.structs.replace(
            settings, partitions=PARTITIONS, shards=SHARDS, transaction_timeout_ms=60_000
        )
        self._admin = Admin(self._settings)
        self._admin.create_topics()
        self._admin.check_topics()
        self._members: list[Member] = []
        self._opened: list[Any] = []  # Producers that were left in an open transaction.

    def join(self, role: str, *, evictable: bool = False) -> Member:
        settings = self._settings
        if evictable:
            options = {"max.poll.interval.ms": str(POLL_INTERVAL_MS)}
            settings = msgspec.structs.replace(
                settings, kafka_options=options, session_timeout_ms=POLL_INTERVAL_MS
            )
        topic, group = self._where(role)
        store = RedisStore(settings)
        store.prepare()
        worker = Driver(
            settings, consumer.Input(settings, topic, group), self._admin, store,
            role, stop=threading.Event(), on_effect=lambda name, seconds: None,
        )  # fmt: skip
        member = Member(worker, role)
        self._members.append(member)
        return member

    def _where(self, role: str) -> tuple[str, str]:
        """The topic that a role reads, and its group."""
        topics = self._admin.topics
        return (topics.rounds, ESTIMATORS) if role == ESTIMATOR else (topics.parts, UPDATERS)

    def leave(self, member: Member) -> None:
        self._members.remove(member)
        worker: Any = member.performer
        worker.input.close()

    def evict(self, member: Member, others: Sequence[Member]) -> None:
        every = range(PARTITIONS if member.role == ESTIMATOR else SHARDS)
        watch = Watch("the others own all", lambda: [sorted(each.owned) for each in others])
        while set().union(*(each.owned for each in others)) != set(every):
            watch.look()
            for each in others:
                each.poll()

    def count_in(self, newcomer: Member) -> None:
        worker: Any = newcomer.performer
        newcomer.poll_until(lambda: worker.input.joined)

    def submit(self, partition: int, *records: Bytes) -> None:
        produce(self._settings, [each._replace(partition=partition) for each in records])

    def cut(self, partition: int, offset: int) -> None:
        delete_records(self._settings, self._admin.topics.rounds, {partition: offset})

    def cut_rejections(self) -> None:
        delete_records(self._settings, self._admin.topics.rejected, {0: OFFSET_END})

    def notes(self) -> LadderEventLog:
        return LadderEvents(self._settings, self._admin)

    def add_shards(self, count: int) -> None:
        add_shards(self._settings, SHARDS + count)

    def leave_open(self, member: Member, effect: Publish) -> None:
        worker: Any = member.performer
        producer = worker._transactions.ready()
        self._opened.append(producer)
        producer.begin_transaction()
        for event in effect.events:
            producer.produce(
                self._admin.topics.changed, event.value, event.key, partition=event.shard
            )
        assert producer.flush(HANGS_S) == 0
        producer.send_offsets_to_transaction(
            [TopicPartition(worker.input.topic, p, o) for p, o in effect.offsets.items()],
            worker.input.membership(),
            HANGS_S,
        )

    def committed(self, role: str, partition: int) -> int | None:
        topic, group = self._where(role)
        name = self._settings.topic_prefix + group
        asked = kafka.ConsumerGroupTopicPartitions(name, [TopicPartition(topic, partition)])
        client: Any = self._admin._client
        watch = Watch("no transaction is open")
        while True:
            stable = client.list_consumer_group_offsets([asked], require_stable=True)
            found = stable[name].result(HANGS_S).topic_partitions[0]
            if found.error is None:
                return found.offset if found.offset >= 0 else None
            assert found.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT, found.error
            watch.look()

    def _read(self, topic: str) -> list[Message]:
        """All committed messages of a topic. A broker shows them a moment after their commit."""
        admin, count = self._admin, self._admin.partitions()[topic]

        def shown() -> bool:
            return self._left_open() or admin.stable_ends(topic, count) == admin.ends(topic, count)

        wait_until(shown, "the broker shows all")
        return read_topic(self._settings, topic)

    def _left_open(self) -> bool:
        workers: list[Any] = [member.performer for member in self._members]
        return any(each._transactions._producer in self._opened for each in workers)

    def events(self) -> list[tuple[int, bytes, bytes]]:
        return _seen(self._read(self._admin.topics.changed))

    def visible_events(self) -> list[tuple[int, bytes, bytes]]:
        return _seen(read_topic(self._settings, self._admin.topics.changed))

    def rejections(self) -> list[Rejected]:
        rejected = []
        for message in self._read(self._admin.topics.rejected):
            headers = {name: value.decode() for name, value in headers_of(message)}
            assert headers["source-topic"] == self._admin.topics.rounds
            place = int(headers["source-partition"]), int(headers["source-offset"])
            said = headers["error-code"], headers["error"]
            rejected.append(Rejected(*place, *said, message.key(), message.value()))
        return rejected

    def close(self) -> None:
        for member in tuple(self._members):
            self.leave(member)


Rig = LocalRig | KafkaRig  # A log and its groups.


def configure(client: Any, topic: str, name: str, value: str) -> None:
    change = admin.ConfigEntry(name, value, incremental_operation=admin.AlterConfigOpType.SET)
    resource = admin.ConfigResource("topic", topic, incremental_configs=[change])
    client.incremental_alter_configs([resource])[resource].result(HANGS_S)


def _seen(messages: Sequence[Message]) -> list[tuple[int, bytes, bytes]]:
    found = [(m.partition() or 0, m.key() or b"", m.value() or b"") for m in messages]
    return sorted(found, key=lambda event: event[0])


def event(shard: int, name: str) -> Event:
    """An event that its name identifies."""
    return Event(
        shard, f"key {name}".encode(), f"value {name}".encode(), name.encode(), "2026-01-01"
    )


def seen(events: Sequence[Event]) -> list[tuple[int, bytes, bytes]]:
    """What a subscriber sees of these events."""
    found = [(each.shard, each.key, each.value) for each in events]
    return sorted(found, key=lambda event: event[0])


def settle(first: Member, second: Member, *, no_fetch: bool = False) -> None:
    """Poll both members until each knows its assignment."""
    every = PARTITIONS if first.role == ESTIMATOR else SHARDS

    def shared() -> bool:
        second.poll()
        owned = first.owned, second.owned
        return all(owned) and not set.intersection(*owned) and len(set.union(*owned)) == every

    first.poll(no_fetch=no_fetch)
    first.poll_until(shared, no_fetch=no_fetch)


def read_from_start(rig: Rig, role: str) -> Member:
    """A member that owns everything and reads from the first offset."""
    member = rig.join(role)
    every = set(range(PARTITIONS if role == ESTIMATOR else SHARDS))
    member.poll_until(lambda: member.owned == every)
    member.do(Seek(dict.fromkeys(every, 0)))
    return member
