"""adapters.kafka: a record that arrives just as a poll's wait ends is returned once."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition

from stream_rater.adapters.kafka.consumer import Input
from stream_rater.config.settings import Settings
from stream_rater.pipeline.ports import Poll

RECORDS = 3


class LateClient:
    """A consumer whose records arrive between the wait for the first one and the call that takes
    the others."""

    def __init__(self) -> None:
        self.at = 0

    def poll(self, _: float) -> None:
        """Nothing has arrived by the end of the wait."""

    def consume(self, *_: Any) -> list[Message]:
        offsets, self.at = range(self.at, RECORDS), RECORDS
        return [Message(topic="t", partition=0, offset=each, value=b"x") for each in offsets]

    def seek(self, to: TopicPartition) -> None:
        self.at = to.offset

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return 0, RECORDS

    def memberid(self) -> str:
        return "member"

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@pytest.fixture
def input_() -> Iterator[Input]:
    """An input that has just begun to read a partition of such a client."""
    found = Input(Settings(kafka="127.0.0.1:1"), "t", "g")
    consumer, found.consumer = found.consumer, LateClient()  # type: ignore[assignment]
    found._owned = found._reading = {0}
    found._next, found._subscribed, found._moved_s = {0: 0}, True, time.monotonic()
    yield found
    consumer.close()


def test_late_records_are_returned_once(input_: Input) -> None:
    """Waking the client's thread by a seek must not go back before them."""
    polls = [[each.offset for each in input_.poll(Poll(0.0)).records] for _ in range(3)]
    assert polls == [[*range(RECORDS)], [], []]
