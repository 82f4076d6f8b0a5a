"""Records of a batch that is not decompressed: each is reported once, from any offset on."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from stream_rater.adapters.kafka import reader
from stream_rater.adapters.kafka.consumer import Input
from stream_rater.config.settings import Settings
from stream_rater.pipeline.ports import Poll
from tests.builders.consumers import Client, input_with

FIRST, LAST = 4, 8
"""Offsets of the batch."""
BAD = KafkaError(KafkaError._BAD_COMPRESSION, "zstd")


class UnreadableClient(Client):
    """A consumer that reports the first offset of the batch, twice in a poll, until it is sought
    beyond the last."""

    end = LAST + 1

    def poll(self, _: float) -> Message | None:
        return Message(topic="t", partition=0, offset=FIRST, error=BAD) if self.at <= LAST else None

    def consume(self, *_: Any) -> list[Message]:
        return [each for each in [self.poll(0.0)] if each is not None]

    def incremental_assign(self, some: Sequence[TopicPartition]) -> None:
        for each in some:
            self.seek(each)


@pytest.fixture
def input_() -> Iterator[Input]:
    """An input that owns a partition of such a client."""
    with input_with(UnreadableClient()) as found:
        yield found


def read(input_: Input, polls: int) -> list[int]:
    """Offsets of the records of so many polls, none of which can be read."""
    records = [each for _ in range(polls) for each in input_.poll(Poll(0.0)).records]
    assert all(each.unreadable and each.value is None for each in records)
    return [each.offset for each in records]


def test_each_is_reported_once(input_: Input) -> None:
    """The client reports the first of them again and again."""
    input_.seek({0: FIRST})
    assert read(input_, 7) == [4, 5, 6, 7, 8]


def test_they_are_reported_from_where_they_are_sought(input_: Input) -> None:
    """From the midst of the batch, and once more from before it, as after trouble."""
    input_.seek({0: 6})
    assert read(input_, 4) == [6, 7, 8]
    input_.seek({0: 5})
    assert read(input_, 2) == [5, 6]
    input_.seek({0: FIRST})
    assert read(input_, 7) == [4, 5, 6, 7, 8]


def test_they_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """From any of them on, one a call, and to before any of them."""
    client = UnreadableClient()
    monkeypatch.setattr(client, "assign", client.incremental_assign, raising=False)
    monkeypatch.setattr(reader, "new_consumer", lambda *_, **__: client)
    again = reader.Rereader(Settings(kafka="127.0.0.1:1"), "t")
    for first, end in ((4, 9), (6, 9), (4, 7), (7, 8)):
        found: list[int] = []
        while records := again.read(0, (found or [first - 1])[-1] + 1, end):
            found += [each.offset for each in records if each.unreadable]
        assert found == [*range(first, end)]
