"""Follows the events and the rejections in a data file, as records of the topics that they would
be in on Kafka."""

from collections.abc import Iterator

from stream_rater.adapters.kafka.envelopes import change_headers, rejected_message
from stream_rater.adapters.sqlite.reading import DataFile
from stream_rater.contract.events import ROUND_COMPLETED
from stream_rater.contract.record import Record

WAIT_S = 0.2
"""The time after which None shows that nothing has come."""

LARGEST = 1 << 40
"""A number of bytes that no record has: a record in a file is never cut."""


def changed_records(file: DataFile, *, from_start: bool) -> Iterator[Record | None]:
    """Yield the records of `rating-changed`, and None after each WAIT_S without one. Of the oldest
    events, only the last one of each player is kept."""
    ends = file.changed_ends()
    nexts = [0] * len(ends) if from_start else ends
    while True:
        found = False
        for shard, first in enumerate(nexts):
            for offset, event in file.events_from(shard, first):
                headers = change_headers(event)
                yield Record(shard, offset, event.value, headers, key=event.key)
                nexts[shard], found = offset + 1, True
        if not found:
            file.await_change(WAIT_S)
            yield None


def rejected_records(file: DataFile, *, from_start: bool) -> Iterator[Record | None]:
    """Yield the records of `round-rejected`, and None after each WAIT_S without one."""
    last = 0 if from_start else file.last_rejection()
    while True:
        found = file.rejections(last)
        for last, rejection in found:
            message = rejected_message(rejection, ROUND_COMPLETED, LARGEST)
            yield Record(0, last, message["value"], message["headers"], key=message["key"])
        if not found:
            file.await_change(WAIT_S)
            yield None
