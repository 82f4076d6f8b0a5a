"""The log on Kafka: one worker's consumer and producers, performing the machines' effects.

Every failure, and every doubt, is LogTrouble: the machine then asks for new producers and starts
over. In particular, a commit that was slow or saw a connection break is in doubt even when it
reports success: a retried request may still arrive and end the *next* transaction.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from stream_rater.adapters.topics import QUIET, client_options
from stream_rater.config import Settings
from stream_rater.pipeline.ports import LogTrouble, Polled, Record

TIMEOUT_S = 5.0
SLOW_COMMIT_S = 2.0
"""A transaction that took longer may have been retried on the way: treat it as in doubt."""

POLL_RECORDS = 10_000
NEW_PRODUCER_EVERY_S = 0.2
"""Trouble that comes back at once must not spin."""

DISCONNECTS = frozenset(
    {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
)


def _trouble(error: KafkaException | KafkaError) -> LogTrouble:
    inner = error.args[0] if isinstance(error, KafkaException) else error
    return LogTrouble(f"kafka: {inner.str() if isinstance(inner, KafkaError) else inner}")


def record_of(message: Message) -> Record:
    """A message as the state machines see it."""
    headers: Any = message.headers() or []
    return Record(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        value=message.value(),
        headers=[(name, value or b"") for name, value in headers],
        received_s=message.timestamp()[1] / 1000.0,
        key=message.key(),
    )


class Input:
    """A group member that reads one topic from offsets that we choose."""

    def __init__(self, settings: Settings, topic: str, group: str) -> None:
        self.topic = topic
        self._lost: set[int] = set()
        self._gained: set[int] = set()
        self._owned: set[int] = set()
        self._paused = False
        self.joined = False
        """Whether the group has answered at all, if only to say that there is nothing to own."""
        options = client_options(settings) | {
            "group.id": settings.topic_prefix + group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": settings.session_timeout_ms,
            "heartbeat.interval.ms": settings.session_timeout_ms // 4,
            "queued.max.messages.kbytes": 65_536,
            "fetch.message.max.bytes": 16 * 2**20,
            "fetch.wait.max.ms": 100,
        }
        if settings.instance_id:
            options["group.instance.id"] = settings.instance_id
        self.consumer = Consumer(options, logger=QUIET)
        self.consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.joined = True
        numbers = {each.partition for each in partitions}
        self._gained |= numbers
        self._owned |= numbers
        # Nothing is read before the machine has chosen where to begin.
        for each in partitions:
            each.offset = OFFSET_END
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = {each.partition for each in partitions}
        self._lost |= numbers
        self._gained -= numbers
        self._owned -= numbers
        consumer.incremental_unassign(partitions)

    def poll(self, timeout_s: float, *, full: bool) -> Polled:
        """What the next moment brings: the first record is waited for, others only taken."""
        try:
            self._rest(full)
            first = self.consumer.poll(timeout_s)
            rest = [] if full else self.consumer.consume(POLL_RECORDS, 0.0)
        except KafkaException as error:
            raise _trouble(error) from None
        messages = rest if first is None else [first, *rest]
        records = [r for each in messages if (r := self._record(each)) is not None]
        polled = Polled(time.monotonic(), frozenset(self._lost), frozenset(self._gained), records)
        self._lost.clear()
        self._gained.clear()
        return polled

    def _rest(self, full: bool) -> None:
        if full != self._paused:
            owned = self._tps(dict.fromkeys(self._owned, 0))
            (self.consumer.pause if full else self.consumer.resume)(owned)
            self._paused = full

    def _record(self, message: Message) -> Record | None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._AUTO_OFFSET_RESET or error.fatal():
                raise _trouble(error)
            return None  # passing trouble, which librdkafka mends itself
        return record_of(message)

    def _tps(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, p, o) for p, o in offsets.items()]

    def committed(self, partitions: frozenset[int]) -> dict[int, int | None]:
        """Stable committed offsets: pending transactions are waited for."""
        asked = self._tps(dict.fromkeys(partitions, 0))
        try:
            found = self.consumer.committed(asked, timeout=TIMEOUT_S)
        except KafkaException as error:
            raise _trouble(error) from None
        for each in found:
            if each.error is not None:
                raise _trouble(each.error)
        return {each.partition: each.offset if each.offset >= 0 else None for each in found}

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Read from these offsets: a fresh assignment, which leaves nothing fetched before."""
        mine = {p: o for p, o in offsets.items() if p in self._owned}
        partitions = self._tps(mine)
        try:
            self.consumer.incremental_unassign(self._tps(dict.fromkeys(mine, 0)))
            self.consumer.incremental_assign(partitions)
            self.consumer.resume(partitions)
        except KafkaException as error:
            raise _trouble(error) from None
        self._paused = False

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit outside a transaction."""
        try:
            committed = self.consumer.commit(offsets=self._tps(offsets), asynchronous=False)
        except KafkaException as error:
            raise _trouble(error) from None
        for each in committed or ():
            if each.error is not None:
                raise _trouble(each.error)

    def lag(self) -> dict[int, int]:
        """High watermark of each owned partition, as the last fetch saw it."""
        ends = {}
        for partition in tuple(self._owned):
            _, end = self.consumer.get_watermark_offsets(
                TopicPartition(self.topic, partition), cached=True
            )
            if end >= 0:
                ends[partition] = end
        return ends

    def close(self) -> None:
        """Leave the group (a static member only says that it is gone once its session ends)."""
        self.consumer.close()


class Transactions:
    """A transactional producer that is thrown away at the first doubt."""

    def __init__(self, settings: Settings, role: str, input_: Input) -> None:
        name = settings.instance_id or uuid.uuid4().hex
        self._options = client_options(settings) | {
            "transactional.id": f"{settings.topic_prefix}stream-rater-{role}-{name}",
            "transaction.timeout.ms": settings.transaction_timeout_ms,
            "message.max.bytes": 16 * 2**20,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 512 * 1024,
            "linger.ms": 1,
            "compression.type": "lz4",
            "error_cb": self._noticed,
        }
        self._input = input_
        self._producer: Producer | None = None
        self._doubt = ""
        self._made_s = 0.0

    def _noticed(self, error: KafkaError) -> None:
        if error.code() in DISCONNECTS or error.fatal():
            self._doubt = error.str()

    def renew(self) -> None:
        """Another producer of the same transactional id: what the old one left open is aborted."""
        wait_s = self._made_s + NEW_PRODUCER_EVERY_S - time.monotonic()
        if wait_s > 0.0:
            time.sleep(wait_s)
        self._made_s = time.monotonic()
        self._producer = None
        self._doubt = ""
        producer = Producer(self._options, logger=QUIET)
        try:
            producer.init_transactions(2 * TIMEOUT_S)
        except KafkaException as error:
            raise _trouble(error) from None
        self._producer = producer

    def run(self, send: Callable[[Producer], None], offsets: Mapping[int, int]) -> None:
        """One transaction: what `send` produces, and the input's offsets."""
        if self._producer is None:
            self.renew()
        assert self._producer is not None
        self._doubt = ""
        try:
            self._producer.begin_transaction()
            send(self._producer)
            self._producer.send_offsets_to_transaction(
                [TopicPartition(self._input.topic, p, o) for p, o in offsets.items()],
                self._input.consumer.consumer_group_metadata(),
                TIMEOUT_S,
            )
            began_s = time.monotonic()
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            raise _trouble(error) from None
        if self._doubt or time.monotonic() - began_s > SLOW_COMMIT_S:
            raise LogTrouble(f"kafka: a transaction's end is in doubt: {self._doubt or 'slow'}")

    def produce(self, producer: Producer, topic: str, **message: Any) -> None:
        """Produce one message, waiting while the queue is full."""
        deadline_s = time.monotonic() + 6 * TIMEOUT_S
        while True:
            try:
                producer.produce(topic, **message)
                return
            except BufferError:
                if time.monotonic() > deadline_s:
                    raise LogTrouble("kafka: the producer's queue stays full") from None
                producer.poll(0.05)


class Parts:
    """The idempotent producer of parts."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self._options = client_options(settings) | {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            "compression.type": "lz4",
            "message.max.bytes": 16 * 2**20,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.timeout.ms": 30_000,
        }
        self._producer: Producer | None = None

    def renew(self) -> None:
        """Another producer; what the old one had in flight may still arrive, which is harmless."""
        self._producer = None

    def scatter(self, parts: Sequence[tuple[int, bytes]]) -> list[int]:
        """Append; the parts' offsets once all are acknowledged."""
        if self._producer is None:
            self._producer = Producer(self._options, logger=QUIET)
        offsets: list[int | None] = [None] * len(parts)
        failures: list[KafkaError] = []

        def delivered(index: int) -> Callable[[KafkaError | None, Message], None]:
            def callback(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    failures.append(error)
                else:
                    offsets[index] = message.offset()

            return callback

        try:
            for i, (shard, data) in enumerate(parts):
                self._producer.produce(self._topic, data, partition=shard, on_delivery=delivered(i))
            self._producer.flush(30.0 + TIMEOUT_S)
        except (KafkaException, BufferError) as error:
            raise LogTrouble(f"kafka: {error}") from None
        if failures:
            raise _trouble(failures[0])
        known = [offset for offset in offsets if offset is not None]
        if len(known) < len(parts):
            raise LogTrouble("kafka: parts were not acknowledged in time")
        return known
