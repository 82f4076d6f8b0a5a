"""A record of a Kafka topic with its headers, and what is exchanged with a log of rounds.

A W3C trace context in a round's headers is copied to the headers of its rating events, byte for
byte and without being read, whether or not tracing is on; the workers' spans are children of it. So
a part that is written twice has the same bytes, and neither an event's value nor a belief contains
the context. Headers are untrusted input: a context that is invalid or too long is dropped.
"""

import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

Player = tuple[str, str]  # (ladder, player id): the key of a belief.

ANY_OFFSET = -1  # The offset of a record that may get any offset.

Headers = Sequence[tuple[str, bytes | None]]
"""A record's headers as Kafka returns them. The value of a header may be None."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of a machine's input topic."""

    partition: int
    offset: int
    value: bytes | None
    headers: Headers = ()
    received_s: float = 0.0  # The time when the log received the record, in Unix seconds.
    key: bytes | None = None
    unreadable: str = ""
    """Why the value cannot be read: the record's batch decompresses to more bytes than the worker
    accepts. Empty if nothing is wrong."""


def checksum(message: bytes | None) -> int:
    """The checksum of a message of any kind. A message without a value has one, too."""
    return zlib.crc32(message or b"")


def runs(messages: Sequence[bytes], most: int) -> Iterator[Sequence[bytes]]:
    """Cut messages into runs of consecutive ones: of at most `most` bytes, or of one message."""
    if messages and sum(map(len, messages)) <= most:
        yield messages
        return
    ends = [*accumulate(map(len, messages))]
    first = size = 0
    while first < len(messages):
        last = max(first + 1, bisect_right(ends, size + most))
        yield messages[first:last]
        first, size = last, ends[last - 1]


def header(headers: Headers, name: str) -> str:
    """The first header of this name as text. Empty if there is none."""
    for key, value in headers:
        if key == name:
            return (value or b"").decode("utf-8", "replace")
    return ""


# --- trace context -------------------------------------------------------------------------------

PARENT: Final = "traceparent"
STATE: Final = "tracestate"

VALID_PARENT: Final = r"^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$"
"""Version, trace, span and flags, as in section 3.2 of the recommendation. A later version is valid
if it has no further fields."""
PARENT_LENGTH: Final = 55

VALID_STATE: Final = r"^[ -~]*\Z"
STATE_LENGTH: Final = 512  # The length in characters that every system should be able to propagate.


class Trace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The trace context in which a round was reported."""

    parent: Annotated[str, msgspec.Meta(pattern=VALID_PARENT, max_length=PARENT_LENGTH)]
    state: Annotated[str, msgspec.Meta(pattern=VALID_STATE, max_length=STATE_LENGTH)] = ""
    """The vendors' own entries (`tracestate`). Empty if there are none."""

    @property
    def id(self) -> str:
        """The id of the trace, which all of its spans share: 32 hexadecimal digits."""
        return self.parent[3:35]

    def headers(self) -> list[tuple[str, bytes]]:
        """The headers that propagate the context."""
        parent = (PARENT, self.parent.encode())
        return [parent, (STATE, self.state.encode())] if self.state else [parent]


def trace_of(headers: Headers) -> Trace | None:
    """The context in these headers; None if there is no valid parent. If only the state is invalid,
    the context has the parent without a state."""
    parent = header(headers, PARENT)
    if not parent:
        return None
    return _valid(parent, header(headers, STATE)) or _valid(parent, "")


def _valid(parent: str, state: str) -> Trace | None:
    try:
        return msgspec.convert((parent, state), Trace)
    except msgspec.ValidationError:
        return None


# --- submitting rounds to a log, on Kafka or in a file ---


class RecordPlace(NamedTuple):
    """The place of a record in `round-completed`."""

    partition: int
    offset: int


class NewRecord(NamedTuple):
    """A record to append to `round-completed`."""

    partition: int
    key: bytes
    value: bytes
    headers: Headers


class NotAppended(NamedTuple):
    """The reason why a record was not acknowledged. After `unavailable` the record may be in the
    log all the same. After `busy` and `too-large` it is not."""

    cause: Literal["busy", "unavailable", "too-large"]
    detail: str


Appended = RecordPlace | NotAppended  # The outcome of appending a record.

REJECTIONS_BACK = 1000
"""A process that takes rounds reads this many of the last offsets of each partition of
`round-rejected` at its start."""


class RejectedRecord(NamedTuple):
    """A record of `round-completed` that the workers rejected."""

    place: RecordPlace
    code: str
    detail: str
    ladder: str  # The ladder of the round; empty if it cannot be read, and for a correction.
    round_id: str


class WorkersProgress(NamedTuple):
    """How far the workers have come. The fields were read one after the other, in this order. The
    rules of `serve.door.read_your_writes` depend on the order."""

    rated: list[int]
    """For each partition of `round-completed`, the offset that the estimators committed."""
    part_ends: list[int]  # For each shard, the end of its partition of `performance-estimated`.
    applied: list[int]  # For each shard, the offset that the updaters committed.
    change_ends: list[int]
    """For each shard, the end of its partition of `rating-changed`, whether transactions are
    pending or not."""
    rejection_ends: list[int]  # The end of each partition of `round-rejected`.
