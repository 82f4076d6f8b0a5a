"""Reads topics outside of any consumer group: a whole topic, new records as they arrive, the last
records of a key, or some records again."""

import math
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, TopicPartition

from stream_rater.adapters.access import client_options, new_consumer, translated_failures
from stream_rater.adapters.kafka import envelopes, topics
from stream_rater.adapters.kafka.records import Messages
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import REJECTIONS_BACK, Record, RejectedRecord, checksum
from stream_rater.pipeline.ports import SourceTail
from stream_rater.rounds.lines import PlainRecords

TIMEOUT_S = 30.0
AT_ONCE = 1000  # The most messages that one call takes from the client.
ROUNDS_AT_ONCE = 5000
"""The most messages that one call takes for a replay. The client's queue bounds their bytes."""
LOOK_BACK = 20_000  # How many offsets the first look back covers.
REREAD_AT_ONCE = 5000  # The most records that are read again by one call.
REREAD_TIMEOUT_S = 10.0
FIRST_RECORD_S = 0.02
"""How long a call that reads again waits for the first record. Other rounds wait during this."""
IGNORED = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})
"""Errors that a reader ignores: it needs no right on its group, which it never uses."""
ONE_BATCH = 1  # The most bytes of a partition in a response: the first batch is sent whole.
QUEUE_BACKOFF_MS = 10
"""How long the client waits before it fetches more, once its queue is full. The default, a second,
is longer than it takes to read a full queue."""

FETCH_WAIT_MS = 20
"""How long a broker lets a consumer wait at the end of a partition; Kafka's default is 500 ms."""
POLL_S = 0.2  # How long a reader that goes on for long waits for the next record.
COUNT_S = 2.0
"""The interval at which a reader that goes on for long asks for the number of partitions."""


class Reader:
    """Reads partitions of one topic. Every method raises LogTrouble or Denied."""

    def __init__(
        self, settings: Settings, topic: str, *, placeholders: bool = False, plain: bool = False,
        **options: Any,
    ) -> None:  # fmt: skip
        """`placeholders`: whether a record that cannot be decompressed comes as one without a
        value; otherwise it is an error. `plain`: whether records may come as PlainRecords.
        `options`: further settings of the client."""
        self.topic = topic
        self._counted_s = time.monotonic()
        self._messages = Messages(IGNORED, placeholders=placeholders)
        self._convert = self._messages.rounds if plain else self._messages.records
        self._consumer = new_consumer(
            settings,
            client_options(settings)
            | {
                "group.id": f"stream-rater-{uuid.uuid4().hex}",  # required, never used
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.error.backoff.ms": 10,
                "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS,
            }
            | {name.replace("_", "."): value for name, value in options.items()},
        )

    def start_at(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions, each from its offset on, and no others."""
        self._messages.begin_at(offsets)
        with translated_failures():
            self._consumer.assign([TopicPartition(self.topic, p, o) for p, o in offsets.items()])

    def read(self, wait_s: float, at_most: int = AT_ONCE) -> Sequence[Record]:
        """Wait for a first record, or for the end of a partition, and take what else is there.
        Nothing and no end means that nothing came within `wait_s`."""
        end_s = time.monotonic() + wait_s
        with translated_failures():
            while messages := self._consumer.consume(1, max(0.0, end_s - time.monotonic())):
                if at_most > 1:
                    messages += self._consumer.consume(at_most - 1, 0.0)
                records = self._converted(messages)
                if records or self.ends:  # otherwise all were errors that are ignored
                    return records
            return self._converted([])

    def gather(self, wait_s: float) -> Sequence[Record]:
        """The records that arrive within `wait_s`. Returns early once there are AT_ONCE."""
        with translated_failures():
            return self._converted(self._consumer.consume(AT_ONCE, wait_s))

    def _converted(self, messages: list[Any]) -> Sequence[Record]:
        records = self._convert(messages)
        for partition, offset in self._messages.skips.items():
            self._consumer.seek(TopicPartition(self.topic, partition, offset))
        return records

    @property
    def ends(self) -> Mapping[int, int]:
        """By partition, the end of the log, if the last call reached it. The last offsets before
        it may have no record: compaction leaves gaps, and control records use offsets."""
        return self._messages.ends

    def bounds(self, partition: int) -> tuple[int, int]:
        """Ask for the first offset of a partition and for its end."""
        with translated_failures():
            place = TopicPartition(self.topic, partition)
            first, end = self._consumer.get_watermark_offsets(place, TIMEOUT_S)
            return first, end

    def known_end(self, partition: int) -> int:
        """The end of a partition as the last response said. Makes no request."""
        with translated_failures():
            place = TopicPartition(self.topic, partition)
            _, end = self._consumer.get_watermark_offsets(place, cached=True)
            return int(end)

    def added(self, partitions: int) -> range:
        """The partitions that the topic has now besides the first `partitions`. Kafka is asked
        every COUNT_S. Otherwise, and if it does not answer, none is known."""
        known = partitions
        if time.monotonic() >= self._counted_s + COUNT_S:
            with suppress(LogTrouble), translated_failures():
                found = self._consumer.list_topics(self.topic, 1.0)
                known = len(found.topics[self.topic].partitions)
            self._counted_s = time.monotonic()
        return range(partitions, known)

    def follow(self, positions: list[int]) -> Iterator[Sequence[Record]]:
        """Read all partitions for ever, each from its position on. A partition that is added is
        read from its beginning. First yields an empty sequence, once reading has begun, and then
        the records of each read, of which there may be none. The positions rise as it reads."""
        self.start_at(dict(enumerate(positions)))
        yield ()
        while True:
            records = self.read(POLL_S)
            for record in records:
                positions[record.partition] = record.offset + 1
            for p, end in self.ends.items():
                positions[p] = max(positions[p], end)
            yield records
            if added := self.added(len(positions)):
                positions += [OFFSET_BEGINNING] * len(added)
                self.start_at(dict(enumerate(positions)))

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()


# --- whole topics --------------------------------------------------------------------------------


def follow(
    settings: Settings, topic: str, partitions: int, *, from_start: bool
) -> Iterator[Record | None]:
    """Yield the records of all partitions as they arrive; None after each POLL_S without one."""
    positions = [OFFSET_BEGINNING if from_start else OFFSET_END] * partitions
    with closing(Reader(settings, topic)) as reader:
        following = reader.follow(positions)
        next(following)
        for records in following:
            yield from records
            if not (records or reader.ends):
                yield None


def follow_rejections(
    settings: Settings, topic: str, partitions: int, positions: list[int]
) -> Iterator[Sequence[RejectedRecord]]:
    """Yield the rejections in `round-rejected` as they come (see `places.port.Place`)."""
    with closing(Reader(settings, topic, placeholders=True)) as reader:
        if not positions:
            bounds = map(reader.bounds, range(partitions))
            positions += [max(first, end - REJECTIONS_BACK) for first, end in bounds]
        for records in reader.follow(positions):
            yield [each for record in records if (each := envelopes.rejection_in(record))]


def read_all(settings: Settings, topic: str, partitions: int) -> Iterator[Record]:
    """Yield every record that a topic has now. The records of each partition come in order."""
    for batch in read_batches(settings, topic, range(partitions)):
        yield from batch


def read_rounds(
    settings: Settings, topic: str, ends: Mapping[int, int]
) -> Iterator[Sequence[Record]]:
    """Yield every record before these ends, as columns where that is possible."""
    return read_batches(settings, topic, ends, ROUNDS_AT_ONCE, plain=True)


def read_partition(settings: Settings, topic: str, partition: int, end: int) -> Iterator[Record]:
    """Yield the records of one partition before an offset. Raises as `read_batches` does."""
    return chain.from_iterable(read_batches(settings, topic, {partition: end}))


def read_batches(
    settings: Settings, topic: str, partitions: Iterable[int] | Mapping[int, int],
    at_most: int = AT_ONCE, *, plain: bool = False,
) -> Iterator[Sequence[Record]]:  # fmt: skip
    """Yield every record that these partitions have now, or that is before the ends in a mapping,
    in batches of those that arrive together. The records of each partition come in order. `plain`
    is that of Reader. Raises LogTrouble if nothing arrives for TIMEOUT_S, or Denied."""
    reading: dict[int, float] = dict.fromkeys(partitions, math.inf)
    reading |= partitions if isinstance(partitions, Mapping) else {}
    with closing(Reader(settings, topic, placeholders=True, plain=plain)) as reader:
        reader.start_at(dict.fromkeys(sorted(reading), OFFSET_BEGINNING))
        while reading:
            records = reader.read(TIMEOUT_S, at_most)
            if not (records or reader.ends):
                raise LogTrouble(
                    f"kafka: {topic} could not be read: nothing arrived for {TIMEOUT_S:.0f} s"
                )
            if isinstance(records, PlainRecords):
                last = records.last
            else:
                last = {each.partition: each.offset for each in records}
            if any(offset >= reading.get(p, 0) for p, offset in last.items()):
                records = [e for e in records if e.offset < reading.get(e.partition, 0)]
            yield records
            done = {p for p, offset in last.items() if offset + 1 >= reading.get(p, 0)}
            reading = {p: end for p, end in reading.items() if p not in done | reader.ends.keys()}


def read_back(
    settings: Settings, topic: str, partition: int, key: bytes, *, count: int, within_s: float
) -> tuple[list[Record], int]:
    """The last records with this key in a partition, at most `count`, oldest first; and the offset
    down to which the partition was searched. The search ends early after `within_s`. It begins near
    the end of the partition, and doubles the range at each further step back."""
    end_s = time.monotonic() + within_s
    with closing(Reader(settings, topic, fetch_wait_max_ms=FETCH_WAIT_MS)) as reader:
        first, last = reader.bounds(partition)
        found: list[Record] = []
        begin, size = last, LOOK_BACK
        while begin > first and len(found) < count:
            start = max(first, begin - size)
            reader.start_at({partition: start})
            window = _window(reader, partition, begin, key, end_s)
            if window is None:
                break
            found = window + found
            begin, size = start, 2 * size
        return found[-count:], begin


def _window(
    reader: Reader, partition: int, end: int, key: bytes, end_s: float
) -> list[Record] | None:
    """The next records with this key before offset `end`; None if the time is over first."""
    found: list[Record] = []
    while (left_s := end_s - time.monotonic()) > 0.0:
        records = reader.read(left_s)
        found += [each for each in records if each.offset < end and each.key == key]
        if partition in reader.ends or any(each.offset >= end for each in records):
            return found
    return None


# --- some records again --------------------------------------------------------------------------


class Rereader:
    """Reads a topic again, from any offset. Sequential reads reuse the open consumer."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self._reader: Reader | None = None
        self._next_place = (-1, -1)
        """Place of the consumer's next record; -1 if it has taken more than was returned."""

    def read(self, partition: int, first: int, end: int) -> Sequence[Record]:
        """The records from offset `first` to before `end`: at least one, if there is any. The log
        reaches `end`. If a replica does not, this waits for it. Raises LogTrouble or Denied."""
        records: Sequence[Record] = ()
        try:
            if first < end:
                records = self._read(partition, first, end)
        finally:
            if not records:
                self.close()
        return records

    def _read(self, partition: int, first: int, end: int) -> list[Record]:
        reader = self._reader_at(partition, first)
        self._next_place = -1, -1
        deadline_s = time.monotonic() + REREAD_TIMEOUT_S
        while time.monotonic() < deadline_s:
            records = reader.read(FIRST_RECORD_S, REREAD_AT_ONCE)
            eof = reader.ends.get(partition)
            found = [each for each in records if each.offset < end]
            if found and eof is None and len(found) == len(records):
                self._next_place = partition, found[-1].offset + 1
            if records or (eof is not None and eof >= end):
                return found
        raise LogTrouble(
            f"kafka: {self._topic} could not be read again within {REREAD_TIMEOUT_S:g} s"
        )

    def _reader_at(self, partition: int, first: int) -> Reader:
        """The reader, placed so that its next record is at offset `first`."""
        if self._reader is None:
            self._reader = Reader(
                self._settings, self._topic, placeholders=True, fetch_wait_max_ms=FETCH_WAIT_MS
            )
            self._next_place = -1, -1
        if self._next_place != (partition, first):
            self._reader.start_at({partition: first})
        return self._reader

    def close(self) -> None:
        """Close the consumer. The next read opens another."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def record_sums(
    settings: Settings, admin: topics.Admin, topic: str, offsets: Mapping[int, int]
) -> dict[int, int | None]:
    """The checksum of the record at one offset of each of these partitions, all of which end after
    it; None if the log does not have it. Raises LogTrouble or Denied."""
    if not offsets:
        return {}
    records = _records_at(settings, admin, topic, offsets)
    return {partition: _sum_of(record) for partition, record in records.items()}


def source_tails(
    settings: Settings, admin: topics.Admin, offsets: Mapping[int, int]
) -> dict[int, SourceTail]:
    """The end of each of these partitions, and the checksum of the record before an offset."""
    if not offsets:
        return {}
    topic = admin.topics.rounds
    ends = admin.ends(topic, max(offsets) + 1)
    before = {p: offset - 1 for p, offset in offsets.items() if offset <= ends[p]}
    records = _records_at(settings, admin, topic, before) if before else {}
    found = {p: records.get(p) for p in offsets}
    return {
        p: SourceTail(ends[p], _sum_of(record), record is not None and bool(record.unreadable))
        for p, record in found.items()
    }


def _sum_of(record: Record | None) -> int | None:
    return None if record is None or record.unreadable else checksum(record.value)


def _records_at(
    settings: Settings, admin: topics.Admin, topic: str, offsets: Mapping[int, int]
) -> dict[int, Record | None]:
    """The record at one offset of each partition, all of which end after it; None if it is gone."""
    starts = admin.starts(topic, max(offsets) + 1)
    found: dict[int, Record | None] = dict.fromkeys(offsets)
    left = {p: offset for p, offset in offsets.items() if offset >= starts[p]}
    if not left:
        return found
    options: dict[str, Any] = {
        "fetch_wait_max_ms": FETCH_WAIT_MS,
        "fetch_message_max_bytes": ONE_BATCH,
    }
    with closing(Reader(settings, topic, placeholders=True, **options)) as reader:
        reader.start_at(left)
        deadline_s = time.monotonic() + REREAD_TIMEOUT_S
        while left and time.monotonic() < deadline_s:
            for record in reader.read(FIRST_RECORD_S, REREAD_AT_ONCE):
                offset = left.get(record.partition)
                if offset is not None and record.offset >= offset:
                    del left[record.partition]
                    found[record.partition] = record if record.offset == offset else None
            left = {p: offset for p, offset in left.items() if reader.ends.get(p, -1) <= offset}
    if left:
        raise LogTrouble(f"kafka: {topic} could not be read again within {REREAD_TIMEOUT_S:g} s")
    return found
