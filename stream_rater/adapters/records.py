"""Kafka's messages as the state machines see them; those that the client cannot read, too."""

from collections.abc import Mapping
from operator import methodcaller

from confluent_kafka import Message

from stream_rater.contract.events import Headers
from stream_rater.contract.record import Record

_client_headers = methodcaller("headers")
"""Not `message.headers()`: where a header's name is not UTF-8, the client returns a list with holes
in it and an error at once. A call from C checks for the error; a call that the interpreter has
optimised does not, and the process ends by a segmentation fault."""


def _headers(message: Message) -> Headers:
    """A message's headers; none where the client cannot represent them."""
    try:
        found: Headers | None = _client_headers(message)
    except (SystemError, UnicodeDecodeError):
        return ()
    return found or ()


def record_of(message: Message) -> Record:
    """A message as the state machines see it."""
    return Record(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        value=message.value(),
        headers=_headers(message),
        received_s=message.timestamp()[1] / 1000.0,
        key=message.key(),
    )


class Unreadable:
    """Records of batches that the client does not decompress, one after the other.

    The client tells the first offset of such a batch, again and again, and never goes on. Sent to
    the next offset, it fetches the same batch until all its records are behind.
    """

    def __init__(self) -> None:
        self.skips: dict[int, int] = {}
        """Where to read on, by partition."""
        self._next: dict[int, int] = {}

    def begin(self) -> None:
        """Another poll: what is told several times within one is told of one record."""
        self.skips = {}

    def record(self, message: Message) -> Record | None:
        """The record that this error stands for."""
        partition, error = message.partition() or 0, message.error()
        if partition in self.skips or error is None:
            return None
        offset = max(message.offset() or 0, self._next.get(partition, 0))
        self.skips[partition] = self._next[partition] = offset + 1
        return Record(partition, offset, None, unreadable=f"batch not decompressed: {error.str()}")

    def begin_at(self, offsets: Mapping[int, int]) -> None:
        """These partitions are read from here on, maybe from the midst of such a batch."""
        self._next.update(offsets)
