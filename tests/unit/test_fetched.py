"""The end of a partition whose last offsets have no record, by what the client says it fetched."""

import json
from collections.abc import Callable, Iterator

import pytest

from stream_rater.adapters.kafka import consumer
from stream_rater.adapters.kafka.consumer import Input
from tests.builders.cases import cases
from tests.builders.consumers import Client, input_with

END, NEXT = 10, 7
"""The high watermark, and the offset after the last record that was read."""


@pytest.fixture
def input_(monkeypatch: pytest.MonkeyPatch) -> Iterator[Input]:
    """An input that has read all records of a partition."""
    monkeypatch.setattr(consumer, "ENDS_EVERY_S", 0.0)
    client = Client()
    client.end = END
    with input_with(client) as found:
        found.seek({0: NEXT})
        yield found


def report(to: Input, next_offset: int = END, waiting: int = 0) -> None:
    """Give it statistics, which have more than is read of them."""
    of_one = {"partition": 0, "next_offset": next_offset, "fetchq_cnt": waiting, "hi_offset": END}
    none = {"partition": -1, "next_offset": -1001, "fetchq_cnt": 0}
    topics = {"t": {"topic": "t", "partitions": {"0": of_one, "-1": none}}}
    to._on_statistics(json.dumps({"name": "client", "brokers": {}, "topics": topics}))


def end_of(found: Input) -> int:
    found._read_ends()
    return found.ends()[0]


def test_offsets_without_records_do_not_count(input_: Input) -> None:
    """Nothing is known before the first statistics, and what is new counts at once."""
    assert end_of(input_) == END
    report(input_)
    assert end_of(input_) == NEXT
    input_.consumer.end = END + 1  # type: ignore[attr-defined]
    assert end_of(input_) == END + 1


@cases(("next_offset", "waiting"), [(END - 1, 0), (END, 1)])
def test_what_was_not_fetched_or_read_counts(next_offset: int, waiting: int, input_: Input) -> None:
    """Statistics that are behind, or of records that wait in the client."""
    report(input_, next_offset, waiting)
    assert end_of(input_) == END


@cases(
    "change",
    [
        lambda it: it.seek({0: NEXT - 2}),
        lambda it: it._pause({0}),
        lambda it: (it._pause({0}), it._pause(set())),
    ],
)
def test_statistics_are_forgotten_where_it_is_fetched_again(
    change: Callable[[Input], object], input_: Input
) -> None:
    """They are of a fetch that is over."""
    input_.seek({0: NEXT})
    report(input_)
    change(input_)
    assert end_of(input_) == END
    input_._pause(set())


def test_statistics_do_not_count_while_it_is_paused(input_: Input) -> None:
    """They may be older than the pause."""
    input_._pause({0})
    report(input_)
    assert end_of(input_) == END
