"""What an index is made of: the ports to the log that it follows."""

from collections.abc import Mapping, Sequence
from typing import Protocol

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
        """The time after which a record without a value may vanish, which says that a player was
        erased; infinity if never."""

    @property
    def reached(self) -> Mapping[int, int]:
        """By partition, the end, if the last call of `gather` has reached it. There may be offsets
        without a record before it."""

    def ends(self) -> Sequence[int]:
        """The end of each partition."""

    def checksums(self, offsets: Mapping[int, int]) -> Mapping[int, int | None]:
        """By partition, the checksum of the record at an offset before the end; None if there is
        none."""

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
