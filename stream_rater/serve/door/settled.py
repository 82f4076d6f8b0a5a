"""Decides up to where the index includes what the workers have done with `round-completed`.

Positions of the index are offsets of `rating-changed`, and rounds have offsets of
`round-completed`. So the two cannot be compared, and a rejected round has no event at all. These
rules are exact, because each value only rises:

- W1: the estimators' committed offset of the ladder's partition is greater than the round's offset.
  No transaction is pending then, and the round's parts, or its rejection, are in the log.
- W2: E is the end of `performance-estimated` after W1. The updaters' committed offset of each shard
  is at least E. So the events of the round are in the log.
- W3: R is the end of `rating-changed` after W2. The position of the index is at least R. It is the
  end, not the last stable offset, since the open transaction of a worker that was thought dead
  would keep the last stable offset below events that are committed.

`Settled` knows W1 and W2 from `Progress`, for all clients. W3 is checked where the index is read.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stream_rater.contract.submissions import Progress


class _Claim(NamedTuple):
    """A statement about a shard: once `end` is reached, it includes every record before `rated`."""

    rated: list[int]
    """By partition of `round-completed`, the offset of W1."""
    end: int
    """An end of the shard's partition, of one of the two topics."""
    rejection_ends: list[int]
    """The ends of `round-rejected`, read after `rated`."""


class Settled:
    """What follows from the progress of the workers. Without I/O."""

    def __init__(self) -> None:
        self._parts: list[_Claim | None] = []
        """By shard, a claim that waits for W2."""
        self._passed: list[_Claim | None] = []
        """By shard, the newest claim that passed W2. Its `end` is R."""
        self._reading: list[_Claim | None] = []
        """By shard, a claim that passed W2 and waits for this process to read up to R."""
        self._read: list[list[int]] = []
        """By shard, the offsets before which everything is in this process's hands."""
        self._before: dict[int, int] = {}
        """By shard, where those events end that were published before shards were added: a player's
        may be in any partition."""

    @property
    def shards(self) -> int:
        """The number of shards; 0 before the first progress."""
        return len(self._passed)

    @property
    def partitions(self) -> int:
        """The number of partitions of `round-completed`; 0 before the first progress."""
        return len(self._read[0]) if self._read else 0

    def observe(self, progress: Progress) -> None:
        """Take in newer progress."""
        shards = len(progress.part_ends)
        if self.shards != shards:
            none: list[_Claim | None] = [None] * shards
            self._before = dict(enumerate(progress.change_ends)) if self.shards else {}
            self._parts, self._passed, self._reading = [*none], [*none], [*none]
            read = [min(each) for each in zip(*self._read, strict=True)]
            self._read = [read or [0] * len(progress.rated)] * shards
        for s, end in enumerate(progress.part_ends):
            waiting = self._parts[s] or _Claim(progress.rated, end, progress.rejection_ends)
            self._parts[s] = waiting
            if progress.applied[s] >= waiting.end:
                passed = waiting._replace(
                    end=progress.change_ends[s], rejection_ends=progress.rejection_ends
                )
                self._passed[s], self._parts[s] = passed, None
                self._reading[s] = self._reading[s] or passed

    def needed(self, partition: int, offset: int, shards: Iterable[int]) -> dict[int, int] | None:
        """By shard, the position that the index must have (R), so that it includes the record at
        this place and all before it; None while W1 or W2 is not passed."""
        found = dict(self._before)
        for s in shards:
            passed = self._passed[s] if s < self.shards else None
            if passed is None or passed.rated[partition] <= offset:
                return None
            found[s] = passed.end
        return found

    def read(self, positions: Sequence[int], rejections: Sequence[int]) -> list[int]:
        """The offsets of `round-completed`, by partition, before which this process has read every
        event and rejection. `positions` and `rejections` are those up to which it has read
        `rating-changed` and `round-rejected`."""
        for s, waiting in enumerate(self._reading):
            if waiting is None or not s < len(positions) or positions[s] < waiting.end:
                continue
            if len(rejections) < len(waiting.rejection_ends) or any(
                at < end for at, end in zip(rejections, waiting.rejection_ends, strict=False)
            ):
                continue
            self._read[s] = waiting.rated
            newest = self._passed[s]
            self._reading[s] = newest if newest is not waiting else None
        return [min(by_shard) for by_shard in zip(*self._read, strict=True)]
