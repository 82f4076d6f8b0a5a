"""Reads a partition of `round-completed` again, from any offset, beside the group's own reading."""

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from stream_rater.adapters.access import trouble_of
from stream_rater.adapters.kafka.reader import AT_THE_END_MS, PASSING, lone_consumer
from stream_rater.adapters.kafka.records import Unreadable, record_of
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import Record, checksum


def part_sums(
    settings: Settings, admin: Admin, offsets: Mapping[int, int]
) -> dict[int, int | None]:
    """The checksum of the record at one offset of each of these shards; None where the log does not
    hold it any more. Raises LogTrouble or Denied."""
    topic = admin.topics.parts
    starts = admin.starts(topic, max(offsets) + 1)
    reader = Rereader(settings, topic)
    found = dict[int, int | None]()
    for shard, offset in offsets.items():
        kept = offset >= starts[shard]
        records = reader.read(shard, offset, offset + 1) if kept else []
        found[shard] = next((checksum(each.value) for each in records if not each.unreadable), None)
    reader.close()
    return found


TIMEOUT_S = 10.0
AT_ONCE = 5000
MOMENT_S = 0.02
"""How long a call waits for the first record. Other rounds wait meanwhile."""


class Rereader:
    """Reads records in order. One that goes on where it stopped makes no new request."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._consumer: Consumer | None = None
        self._at = (-1, -1)
        """Partition and offset where the consumer goes on; -1 where it has taken more than was
        returned."""

    def read(self, partition: int, first: int, end: int) -> Sequence[Record]:
        """Records from offset `first` to before `end`: at least one, if there is any. The log
        reaches `end`; a replica where it does not is waited for. Raises LogTrouble or Denied."""
        try:
            records = self._read(partition, first, end) if first < end else []
        except KafkaException as error:
            self.close()
            raise trouble_of(error) from None
        except Exception:
            self.close()
            raise
        if not records:
            self.close()
        return records

    def _read(self, partition: int, first: int, end: int) -> list[Record]:
        consumer = self._placed(partition, first)
        self._at = -1, -1
        deadline_s = time.monotonic() + TIMEOUT_S
        unreadable = Unreadable()
        unreadable.begin_at({partition: first})
        while time.monotonic() < deadline_s:
            records, eof = self._consumed(consumer, unreadable)
            found = [each for each in records if each.offset < end]
            if found and eof is None and len(found) == len(records):
                self._at = partition, found[-1].offset + 1
            if found or records or (eof is not None and eof >= end):
                return found
        raise LogTrouble(f"kafka: {self._topic} could not be read again within {TIMEOUT_S:g} s")

    def _consumed(
        self, consumer: Consumer, unreadable: Unreadable
    ) -> tuple[list[Record], int | None]:
        """The next records, and the offset of the log's end if it was met."""
        records, eof = list[Record](), None
        unreadable.begin()
        for message in consumer.consume(AT_ONCE, 0.0) or consumer.consume(1, MOMENT_S):
            failure = message.error()
            if failure is None:
                records.append(record_of(message))
            elif failure.code() == KafkaError._BAD_COMPRESSION:
                records += filter(None, [unreadable.record(message)])
            elif failure.code() == KafkaError._PARTITION_EOF:
                eof = message.offset()
            elif failure.code() not in PASSING:
                raise trouble_of(failure)
        for partition, offset in unreadable.skips.items():
            consumer.seek(TopicPartition(self._topic, partition, offset))
        return records, eof

    def _placed(self, partition: int, first: int) -> Consumer:
        """The consumer, which reads from there on."""
        if self._consumer is None:
            self._consumer = lone_consumer(self._settings, fetch_wait_max_ms=AT_THE_END_MS)
            self._at = -1, -1
        if self._at != (partition, first):
            self._consumer.assign([TopicPartition(self._topic, partition, first)])
        return self._consumer

    def close(self) -> None:
        """Close the consumer. The next read opens another."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
