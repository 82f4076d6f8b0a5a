"""The ports of an index's follower: the log that it follows, and who watches it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from stream_rater.contract.record import Record


class FollowedTopic(Protocol):
    """Records with offsets, by partition. The methods raise Trouble, Denied or Unrecoverable."""

    @property
    def id(self) -> str:
        """A name that no other topic has, not even a later one of the same name."""

    @property
    def partitions(self) -> int:
        """The number of partitions."""

    @property
    def forgets_s(self) -> float:
        """The time after which a record that says that a player was erased may vanish, or inf."""

    @property
    def reached(self) -> Mapping[int, int]:
        """By partition, the end, if the last `gather` has reached it, though no record be there."""

    def ends(self) -> Sequence[int]:
        """The end of each partition."""

    def checksums(self, offsets: Mapping[int, int]) -> Mapping[int, int | None]:
        """By partition, the checksum of the record at an offset before the end, if there is one."""

    def start_at(self, positions: Sequence[int]) -> None:
        """Let `gather` begin at these offsets."""

    def gather(self, wait_s: float) -> Sequence[Record]:
        """The records that arrive within `wait_s`; earlier if there are many. Those of a partition
        are in order. Raises LogTrouble if partitions were added."""

    def wake(self) -> None:
        """Let `gather` return soon, if it can. Any thread may call this."""

    def known_end(self, partition: int) -> int:
        """The end of a partition as far as known. Makes no request."""

    def close(self) -> None:
        """Release what reading needs."""


class FollowedLog(Protocol):
    """A log with the changes of ratings, and perhaps with the standings of past seasons."""

    def changed(self) -> FollowedTopic:
        """The events of `rating-changed`."""

    def standings(self) -> FollowedTopic | None:
        """The records of `season-ended`; None if there is no such topic yet."""

    def close(self) -> None:
        """Release what it holds."""


class NewEvent(NamedTuple):
    """An event that is in the index, with its place in `rating-changed`."""

    partition: int
    offset: int
    ladder: str
    value: bytes  # The event in JSON, with the player's tier if it is known.


class Watcher:
    """Receives what a follower reports. All methods are called in one thread."""

    def opened(self, path: Path) -> None:
        """The index is in this folder now."""

    def begun(self, positions: Sequence[int]) -> None:
        """The events from these offsets on, one for each partition, are going to be reported."""

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
