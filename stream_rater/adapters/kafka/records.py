"""Converts Kafka's messages to records, including those that the client cannot decompress."""

from collections.abc import Mapping
from operator import methodcaller

from confluent_kafka import Message

from stream_rater.contract.events import Headers
from stream_rater.contract.record import Record

_client_headers = methodcaller("headers")
"""Calls `message.headers()` from C. If a header's name is not UTF-8, the client returns a list with
holes and sets an error at once. A call from C checks for the error. A call that the interpreter has
optimised does not, and the process ends with a segmentation fault."""


def _headers(message: Message) -> Headers:
    """The headers of a message; none if the client cannot represent them."""
    try:
        found: Headers | None = _client_headers(message)
    except (SystemError, UnicodeDecodeError):
        return ()
    return found or ()


def record_of(message: Message) -> Record:
    """Convert a message to a record."""
    return Record(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        value=message.value(),
        headers=_headers(message),
        received_s=message.timestamp()[1] / 1000.0,
        key=message.key(),
    )


class Unreadable:
    """The records of batches that the client cannot decompress, one after the other.

    The client reports the first offset of such a batch again and again, and never gets past it.
    After a seek to the next offset it fetches the same batch, until the seek is past its last
    record.
    """

    def __init__(self) -> None:
        self.skips: dict[int, int] = {}
        """By partition, the offset to seek to."""
        self._next: dict[int, int] = {}

    def begin(self) -> None:
        """Begin a poll. Several errors of one partition within a poll are about one record."""
        self.skips = {}

    def record(self, message: Message) -> Record | None:
        """The record that an error stands for; None if it was already returned in this poll."""
        partition, error = message.partition() or 0, message.error()
        if partition in self.skips or error is None:
            return None
        offset = max(message.offset() or 0, self._next.get(partition, 0))
        self.skips[partition] = self._next[partition] = offset + 1
        return Record(partition, offset, None, unreadable=f"batch not decompressed: {error.str()}")

    def begin_at(self, offsets: Mapping[int, int]) -> None:
        """Note that partitions are read from these offsets on, which may lie within such a
        batch."""
        self._next.update(offsets)
