"""Interprets what a consumer returns: messages, errors in place of messages, and offsets."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from operator import methodcaller

import numpy as np
from confluent_kafka import KafkaError, Message, TopicPartition

from stream_rater.adapters.access import trouble_of
from stream_rater.contract.record import Headers, Record
from stream_rater.pipeline.ports import SourceCommit, Tails
from stream_rater.rounds.lines import Arrivals, PlainRecords

_error, _value, _partition, _offset = map(methodcaller, ("error", "value", "partition", "offset"))
_client_headers = methodcaller("headers")
"""Calls `message.headers()` from C. If a header's name is not UTF-8, the client returns a list with
holes and sets an error at once. A call from C checks for the error. A call that the interpreter has
optimised does not, and the process ends with a segmentation fault. A second call returns the same
list without the error, and whoever reads it ends so, too. So each message is asked only once."""


class Messages:
    """Converts the messages of one consumer to records. The client cannot decompress a batch that
    grows beyond a limit. It reports the first offset of such a batch again and again, and never
    gets past it. After a seek to the next offset it fetches the same batch, until the seek is past
    its last record. So each record of the batch gets a placeholder, one after the other."""

    def __init__(
        self, ignored: Set[int], error_of: Callable[[KafkaError], Exception] = trouble_of,
        *, placeholders: bool = True,
    ) -> None:  # fmt: skip
        """`ignored`: the codes of the errors that are ignored. `error_of` translates the others,
        and these are raised. `placeholders`: whether there are any; otherwise a batch that cannot
        be decompressed is an error."""
        self._ignored = ignored
        self._error_of = error_of
        self._placeholders = placeholders
        self.ends: dict[int, int] = {}
        """By partition, the end of the log, if the last messages reached it."""
        self.skips: dict[int, int] = {}
        """By partition, the offset to seek to after the last messages."""
        self._next: dict[int, int] = {}
        """By partition, the offset of the next placeholder."""

    def begin_at(self, offsets: Mapping[int, int]) -> None:
        """Note that partitions are read from these offsets on, which may lie within a batch that
        cannot be decompressed."""
        self._next.update(offsets)

    def records(self, messages: Iterable[Message]) -> list[Record]:
        """Convert the messages of one call. Sets `ends` and `skips`."""
        self.ends, self.skips = {}, {}
        found: list[Record] = []
        for message in messages:
            error = message.error()
            if error is None:
                found.append(_record_of(message, _headers(message)))
            elif error.code() == KafkaError._PARTITION_EOF:
                self.ends[message.partition() or 0] = message.offset() or 0
            elif error.code() == KafkaError._BAD_COMPRESSION and self._placeholders:
                found += self._placeholder(message, error)
            elif error.code() not in self._ignored:
                raise self._error_of(error)
        return found

    def rounds(self, messages: Sequence[Message]) -> Sequence[Record]:
        """The same as `records`; as columns, if none of the messages has a header."""
        if any(map(_error, messages)):
            return self.records(messages)
        self.ends, self.skips = {}, {}
        headers = [*map(_headers, messages)]
        if not any(headers) and None not in (values := [*map(_value, messages)]):
            return PlainRecords(values, _arrivals_of(messages))
        return [*map(_record_of, messages, headers)]

    def _placeholder(self, message: Message, error: KafkaError) -> tuple[Record, ...]:
        """The record of an error. All errors of a partition in one call are about one record."""
        partition = message.partition() or 0
        if partition in self.skips:
            return ()
        offset = max(message.offset() or 0, self._next.get(partition, 0))
        self.skips[partition] = self._next[partition] = offset + 1
        why = f"batch not decompressed: {error.str()}"
        return (Record(partition, offset, None, unreadable=why),)


def _arrivals_of(messages: Sequence[Message]) -> Arrivals:
    count = len(messages)
    received_ms = np.array([each.timestamp()[1] for each in messages], np.float64)
    return Arrivals(
        np.fromiter(map(_partition, messages), np.int64, count),
        np.fromiter(map(_offset, messages), np.int64, count),
        received_ms / 1000.0,
    )


def _record_of(message: Message, headers: Headers) -> Record:
    received_s = message.timestamp()[1] / 1000.0
    place = message.partition() or 0, message.offset() or 0
    return Record(*place, message.value(), headers, received_s, message.key())


def _headers(message: Message) -> Headers:
    """The headers of a message; none if the client cannot represent them. Call it only once."""
    try:
        found: Headers | None = _client_headers(message)
    except (SystemError, UnicodeDecodeError):
        return ()
    return found or ()


# --- committed offsets ---------------------------------------------------------------------------

TAIL = "tail="
"""The prefix of a commit's metadata. The checksum of the record before follows, in hexadecimal."""


def committing(topic: str, offsets: Mapping[int, int], tails: Tails) -> list[TopicPartition]:
    """The offsets to commit."""
    known = {p: f"{TAIL}{tail:08x}" for p, tail in tails.items() if tail is not None}
    return [
        TopicPartition(topic, p, o, known[p]) if p in known else TopicPartition(topic, p, o)
        for p, o in offsets.items()
    ]


def source_commit(found: TopicPartition) -> SourceCommit | None:
    """A committed offset as Kafka returns it; None: never committed."""
    return SourceCommit(found.offset, _tail_in(found.metadata)) if found.offset >= 0 else None


def _tail_in(metadata: str | None) -> int | None:
    """The checksum in a commit's metadata; None if something else committed it."""
    prefix, digits = (metadata or "")[: len(TAIL)], (metadata or "")[len(TAIL) :]
    try:
        return int(digits, 16) if prefix == TAIL else None
    except ValueError:
        return None
