"""The ports of the index's follower: the log that it follows, and the receiver of its reports."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from stream_rater.contract.record import Record


class FollowedRecords(Protocol):
    """Records with offsets, by partition. The methods raise Trouble, Denied or Unrecoverable."""

    @property
    def id(self) -> str:
        """A name that no other topic has, not even a later topic with the same name."""

    @property
    def ends(self) -> Mapping[int, int]:
        """The ends of those partitions that the last `gather` has read to their end. The offsets
        before an end need not have records."""

    def end_offsets(self) -> Sequence[int]:
        """The end of each partition."""

    def start_at(self, offsets: Mapping[int, int]) -> None:
        """Let `gather` begin at these offsets, by partition."""

    def gather(self, wait_s: float) -> Sequence[Record]:
        """The records that arrive within `wait_s`. Returns early if there are many. The records of
        a partition are in order. Raises LogTrouble if partitions were added."""

    def close(self) -> None:
        """Close connections and files."""


class FollowedTopic(FollowedRecords, Protocol):
    """The records of `rating-changed`."""

    @property
    def partitions(self) -> int:
        """The number of partitions."""

    @property
    def forgets_s(self) -> float:
        """The seconds after which the record of an erasure may vanish; inf: it never does."""

    def checksums(self, offsets: Mapping[int, int]) -> Mapping[int, int | None]:
        """By partition, the checksum of the record at an offset before the end, or None."""

    def wake(self) -> None:
        """Let `gather` return soon, if it supports that. Any thread may call this."""

    def known_end(self, partition: int) -> int:
        """The end of a partition, as far as it is known. Makes no request."""


class FollowedLog(Protocol):
    """A log with the changes of ratings, and perhaps with the standings of past seasons."""

    def changed(self) -> FollowedTopic:
        """The events of `rating-changed`."""

    def standings(self) -> FollowedRecords | None:
        """The records of `season-ended`; None if there is no such topic yet."""

    def close(self) -> None:
        """Close connections and files."""


class NewEvent(NamedTuple):
    """An event that is in the index, with its place in `rating-changed`."""

    partition: int
    offset: int
    ladder: str
    value: bytes  # The event in JSON, with the player's tier if it is known.


class Watcher:
    """Receives what a follower reports. All methods are called in one thread."""

    def opened(self, path: Path) -> None:
        """From now on, the index is in this folder."""

    def begun(self, positions: Sequence[int]) -> None:
        """From now on, events from these offsets on, one for each partition, are reported."""

    def read(self, events: Sequence[NewEvent]) -> None:
        """These events are in the index."""

    def checkpointed(self, positions: Sequence[int], ends: Sequence[int]) -> None:
        """The index has all events before these positions. The partitions end at `ends`."""

    def trouble(self, why: str) -> None:
        """Something failed and is tried again; `why` is the error."""

    def skipped(self, partition: int, offset: int) -> None:
        """The record at this place is not a valid event and is skipped."""

    def polled(self, caught_up: bool, lag: int, oldest_reader_s: float) -> None:
        """The follower has polled. The arguments are its attributes of these names."""
