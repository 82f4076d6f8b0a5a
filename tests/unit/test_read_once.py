"""adapters.kafka: a record that arrives just as a poll's wait ends is returned once."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Message

from stream_rater.adapters.kafka.consumer import Input
from stream_rater.pipeline.ports import Poll
from tests.builders.consumers import Client, input_with

RECORDS = 3


class LateClient(Client):
    """A consumer whose records arrive between the wait for the first one and the call that takes
    the others."""

    end = RECORDS

    def poll(self, _: float) -> None:
        """Nothing has arrived by the end of the wait."""

    def consume(self, *_: Any) -> list[Message]:
        offsets, self.at = range(self.at, RECORDS), RECORDS
        return [Message(topic="t", partition=0, offset=each, value=b"x") for each in offsets]


@pytest.fixture
def input_() -> Iterator[Input]:
    """An input that has just begun to read a partition of such a client."""
    with input_with(LateClient()) as found:
        found._reading, found._next, found._moved_s = {0}, {0: 0}, time.monotonic()
        yield found


def test_late_records_are_returned_once(input_: Input) -> None:
    """Waking the client's thread by a seek must not go back before them."""
    polls = [[each.offset for each in input_.poll(Poll(0.0)).records] for _ in range(3)]
    assert polls == [[*range(RECORDS)], [], []]
