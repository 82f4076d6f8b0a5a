"""Reads and writes topics outside of any consumer group, for commands that are not workers."""

import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from stream_rater.adapters.access import CALLBACK_FAILURES, QUIET, client_options, trouble_of
from stream_rater.adapters.kafka.envelopes import Headers, cloud_event_headers
from stream_rater.adapters.kafka.records import Unreadable, record_of
from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import ROUND_COMPLETED
from stream_rater.contract.record import Record

TIMEOUT_S = 30.0

AT_ONCE = 1000
"""The most messages that one call takes from the client."""

LOOK_BACK = 20_000
"""How many offsets the first look back covers."""

PASSING = frozenset({KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED})
"""Errors that a reader ignores. The client asks for the coordinator of its group, which it never
uses, and needs no right on that group."""


AT_THE_END_MS = 20
"""How long a broker lets a consumer wait at the end of a partition where it only reads back. The
default is half a second."""


def lone_consumer(settings: Settings, **options: Any) -> Consumer:
    """A consumer that reads the partitions that it is told to, and joins no group. `options` are
    further settings of the client."""
    return Consumer(
        client_options(settings)
        | {
            "group.id": f"stream-rater-{uuid.uuid4().hex}",  # required, never used
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.error.backoff.ms": 10,
        }
        | {name.replace("_", "."): value for name, value in options.items()},
        logger=QUIET,
    )


def follow(
    settings: Settings, topic: str, partitions: int, *, from_start: bool, wait_s: float = 0.2
) -> Iterator[Message | None]:
    """Yield the messages of all partitions as they arrive, and None after each `wait_s` without
    one. Raises LogTrouble or Denied."""
    consumer = lone_consumer(settings)
    begin = OFFSET_BEGINNING if from_start else OFFSET_END
    consumer.assign([TopicPartition(topic, p, begin) for p in range(partitions)])
    try:
        while True:
            message = consumer.poll(wait_s)
            error = None if message is None else message.error()
            if error is None:
                yield message
            elif error.code() not in PASSING:
                raise trouble_of(error)
    except KafkaException as error:
        raise trouble_of(error) from None
    finally:
        consumer.close()


def read_all(settings: Settings, topic: str, partitions: int) -> Iterator[Record]:
    """Yield every record that a topic holds now. The records of each partition come in order."""
    for some in read_batches(settings, topic, partitions):
        yield from some


def read_batches(settings: Settings, topic: str, partitions: int) -> Iterator[list[Record]]:
    """Yield every record that a topic holds now, in lists of those that arrive together. The
    records of each partition come in order. Raises LogTrouble if nothing arrives for TIMEOUT_S, or
    Denied."""
    return _read(settings, topic, set(range(partitions)))


def read_partition(settings: Settings, topic: str, partition: int, end: int) -> Iterator[Record]:
    """Yield the records of one partition before the offset `end`, in order. Raises LogTrouble or
    Denied, as `read_batches` does."""
    for some in _read(settings, topic, {partition}):
        for record in some:
            if record.offset >= end:
                return
            yield record


def _read(settings: Settings, topic: str, reading: set[int]) -> Iterator[list[Record]]:
    """Yield the records of these partitions, which are taken out of the set as they end."""
    consumer = lone_consumer(settings)
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in sorted(reading)])
    unreadable = Unreadable()
    try:
        while reading:
            first = consumer.poll(TIMEOUT_S)
            if first is None:
                raise LogTrouble(
                    f"kafka: {topic} could not be read: nothing arrived for {TIMEOUT_S:.0f} s"
                )
            unreadable.begin()
            records: list[Record] = []
            for message in (first, *consumer.consume(AT_ONCE, 0.0)):
                if message.error() is not None:
                    records += _record_of_error(message, reading, unreadable)
                elif (record := record_of(message)).partition in reading:
                    records.append(record)
            yield records
            for partition, offset in unreadable.skips.items():
                consumer.seek(TopicPartition(topic, partition, offset))
    except KafkaException as error:
        raise trouble_of(error) from None
    finally:
        consumer.close()


def _record_of_error(
    message: Message, reading: set[int], unreadable: Unreadable
) -> Iterator[Record]:
    """Handle an error in the place of a message: the end of a partition, which is removed from
    `reading`, or a record that cannot be read, which is yielded. Raises LogTrouble or Denied for
    other errors."""
    error = message.error()
    assert error is not None
    if error.code() == KafkaError._PARTITION_EOF:
        reading.discard(message.partition() or 0)
    elif error.code() == KafkaError._BAD_COMPRESSION:
        yield from filter(None, [unreadable.record(message)])
    elif error.code() not in PASSING:
        raise trouble_of(error)


def read_back(
    settings: Settings, topic: str, partition: int, key: bytes, *, count: int, within_s: float
) -> tuple[list[Message], int]:
    """The last messages with this key in a partition, at most `count`, oldest first; and the offset
    down to which the partition was searched. The search ends early after `within_s`.

    It begins near the end of the partition, and doubles the range at each further step back.
    """
    end_s = time.monotonic() + within_s
    consumer = lone_consumer(settings, fetch_wait_max_ms=AT_THE_END_MS)
    try:
        first, last = consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
        found: list[Message] = []
        begin, size = last, LOOK_BACK
        while begin > first and len(found) < count:
            place = TopicPartition(topic, partition, max(first, begin - size))
            window = _between(consumer, place, begin, key, end_s)
            if window is None:
                break
            found, begin, size = window + found, place.offset, 2 * size
        return found[-count:], begin
    except KafkaException as error:
        raise trouble_of(error) from None
    finally:
        consumer.close()


def _between(
    consumer: Consumer, place: TopicPartition, end: int, key: bytes, end_s: float
) -> list[Message] | None:
    """The messages with this key from `place` to before offset `end`; None if the time is over
    first."""
    consumer.assign([place])
    found: list[Message] = []
    while (left_s := end_s - time.monotonic()) > 0.0:
        message = consumer.poll(left_s)
        if message is None:
            continue
        failure = message.error()
        if failure is None:
            if (message.offset() or 0) >= end:
                return found
            if message.key() == key:
                found.append(message)
        elif failure.code() == KafkaError._PARTITION_EOF:
            return found
        elif failure.code() not in PASSING:
            raise trouble_of(failure)
    return None


class Submitter:
    """Produces rounds and corrections, keyed by ladder, and collects delivery failures."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self.failures: list[str] = []
        self.corrections: list[tuple[int, int]] = []
        """Partition and offset of each correction that was acknowledged, in order."""
        self._producer = Producer(
            client_options(settings)
            | {
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "message.max.bytes": 16 * 2**20,
                "linger.ms": 5,
            },
            logger=QUIET,
        )

    def submit(self, ladder: str, round_id: str, completed_at: str, value: bytes) -> None:
        """Send one round, and wait while the client's queue is full."""
        headers = cloud_event_headers(round_id, ROUND_COMPLETED, completed_at)
        self._produce(round_id, ladder, value, headers, self._delivered(round_id))

    def correct(self, ladder: str, kind: str, value: bytes, subject: str) -> None:
        """Send one correction of this kind, as a round is sent. `subject` is what it is about."""
        now = datetime.now(UTC).isoformat()
        headers = cloud_event_headers(uuid.uuid4().hex, kind, now)
        headers.append((EVENT_TYPE, kind.encode()))
        told = f"{kind} {subject}".rstrip()
        self._produce(told, ladder, value, headers, self._delivered(told, self.corrections))

    def _produce(
        self, name: str, ladder: str, value: bytes, headers: Headers,
        delivered: Callable[[KafkaError | None, Message], None],
    ) -> None:  # fmt: skip
        message: dict[str, Any] = {
            "value": value, "key": ladder.encode(), "headers": headers, "on_delivery": delivered,
        }  # fmt: skip
        while True:
            try:
                self._producer.produce(self._topic, **message)
                break
            except BufferError:
                self._serve(lambda: self._producer.poll(0.1))
            except KafkaException as error:
                self.failures.append(f"{name}: {error.args[0].str()}")
                break
        self._serve(lambda: self._producer.poll(0))

    def _serve(self, action: Callable[[], int]) -> int:
        """Call the client so that callbacks run. Raises the exception that ends the client, if
        there is one."""
        try:
            return action()
        except CALLBACK_FAILURES as error:
            raise trouble_of(error) from None

    def _delivered(
        self, name: str, places: list[tuple[int, int]] | None = None
    ) -> Callable[[KafkaError | None, Message], None]:
        def callback(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(f"{name}: {error.str()}")
            elif places is not None:
                places.append((message.partition() or 0, message.offset() or 0))

        return callback

    def flush(self) -> None:
        """Wait until all records were delivered or have failed."""
        left = self._serve(lambda: self._producer.flush(2 * TIMEOUT_S))
        if left:
            self.failures.append(f"{left} records were not acknowledged in time")
