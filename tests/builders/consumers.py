"""Doubles of consumers: of an input's, and of one that reads a topic whose partitions grow."""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

from stream_rater.adapters.kafka.consumer import Input
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Record


class Client:
    """A consumer of one partition, which remembers where it was sought. Other calls do nothing."""

    end = 0  # The end of the partition.
    name = "member"  # Its id in the group; empty if it is no member.
    epoch = 1  # The group's generation, or the member's epoch.

    def __init__(self) -> None:
        self.at = 0

    def seek(self, to: TopicPartition) -> None:
        self.at = to.offset

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return 0, self.end

    def memberid(self) -> str:
        return self.name

    def consumer_group_metadata(self) -> bytes:
        return b"CGMDv2:" + struct.pack("=i", self.epoch)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@contextmanager
def input_of_nobody() -> Iterator[Input]:
    """The input of a broker that is not there."""
    found = Input(Settings(kafka="127.0.0.1:1"), "t", "g")
    consumer = found.consumer
    yield found
    consumer.close()


@contextmanager
def input_with(client: Client) -> Iterator[Input]:
    """An input that owns partition 0 and reads by this client."""
    with input_of_nobody() as found:
        found.consumer = client  # type: ignore[assignment]
        found._owned, found._subscribed = {0}, True
        yield found


class Topic:
    """A topic in memory, whose partitions a test adds while it is read."""

    def __init__(self, *partitions: list[Record]) -> None:
        self.partitions = [*partitions]
        self.away = False
        """Whether Kafka cannot say how many partitions there are."""

    def client(self, *_: object) -> "TopicClient":
        """Takes the place of `new_consumer`: returns a consumer of this topic."""
        return TopicClient(self)


class TopicClient:
    """A consumer that reads a Topic as Kafka's does."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._next: dict[int, int] = {}
        self._ended: set[int] = set()
        """The partitions whose end was reported."""

    def assign(self, places: Sequence[TopicPartition]) -> None:
        special = {OFFSET_BEGINNING: lambda _: 0, OFFSET_END: self._end}
        self._ended.clear()
        self._next = {
            each.partition: special.get(each.offset, lambda _, at=each.offset: at)(each.partition)
            for each in places
        }

    def _end(self, partition: int) -> int:
        return len(self._topic.partitions[partition])

    def consume(self, most: int, _: float) -> list[Any]:
        found: list[Any] = []
        for p, at in self._next.items():
            new = self._topic.partitions[p][at : at + most - len(found)]
            found += [_message(each) for each in new]
            self._next[p] = at + len(new)
            if p not in self._ended and self._next[p] == self._end(p) and len(found) < most:
                self._ended.add(p)
                eof = KafkaError(KafkaError._PARTITION_EOF)
                found.append(_message(Record(p, self._next[p], None), eof))
        return found

    def list_topics(self, topic: str, _: float) -> Any:
        if self._topic.away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        known = SimpleNamespace(partitions=dict(enumerate(self._topic.partitions)))
        return SimpleNamespace(topics={topic: known})

    def get_watermark_offsets(self, place: TopicPartition, *_: Any, **__: Any) -> tuple[int, int]:
        return 0, self._end(place.partition)

    def close(self) -> None:
        pass


def _message(record: Record, error: KafkaError | None = None) -> Any:
    return SimpleNamespace(
        error=lambda: error, value=lambda: record.value, key=lambda: record.key,
        partition=lambda: record.partition, offset=lambda: record.offset,
        headers=lambda: list(record.headers), timestamp=lambda: (1, int(1000 * record.received_s)),
    )  # fmt: skip
