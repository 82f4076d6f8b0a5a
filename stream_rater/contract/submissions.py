"""What is exchanged with a log to which rounds are submitted: the records to append, the outcome of
each, and the rejections that follow.

The log is Kafka or a file. So whatever takes rounds from clients knows only these types.
"""

from typing import Literal, NamedTuple

from stream_rater.contract.record import Headers


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
    """The reason why a record was not acknowledged.

    After `unavailable` the record may be in the log all the same. After `busy` and `too-large` it
    is not.
    """

    cause: Literal["busy", "unavailable", "too-large"]
    detail: str


Appended = RecordPlace | NotAppended
"""The outcome of appending a record."""


REJECTIONS_BACK = 1000
"""The number of the last offsets of each partition of `round-rejected` that a process which takes
rounds reads at its start."""


class RejectedRecord(NamedTuple):
    """A record of `round-completed` that the workers rejected."""

    place: RecordPlace
    code: str
    detail: str
    ladder: str
    """The ladder of the round; empty if it cannot be read, and for a correction."""
    round_id: str


class WorkersProgress(NamedTuple):
    """How far the workers are. The fields were read one after the other, in this order, which the
    rules of `serve.door.read_your_writes` depend on."""

    rated: list[int]
    """For each partition of `round-completed`, the offset that the estimators committed."""
    part_ends: list[int]
    """For each shard, the end of its partition of `performance-estimated`."""
    applied: list[int]
    """For each shard, the offset that the updaters committed."""
    change_ends: list[int]
    """For each shard, the end of its partition of `rating-changed`, whether transactions are
    pending or not."""
    rejection_ends: list[int]
    """The end of each partition of `round-rejected`."""
