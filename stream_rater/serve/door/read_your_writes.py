"""Reads one's own writes: answers that include all records up to an offset of `round-completed`.

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

`Settled` knows W1 and W2 from `WorkersProgress`, for all clients. W3 is checked by the read of the
index that gives the answer, so it holds if several processes write the index, or if it goes back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from stream_rater.columns.sharding import partition_of, shards_of
from stream_rater.contract.record import WorkersProgress
from stream_rater.index.reader import Incomplete
from stream_rater.serve.bodies import LookupAnswer, RankedPlayer
from stream_rater.serve.door.outcomes import Waiting
from stream_rater.serve.problems import Refused
from stream_rater.serve.questions import Questions

AGAIN_S = 0.03  # The seconds until the index is asked again whether it has what is needed.

T = TypeVar("T")
Ask = Callable[[Questions], Awaitable[T]]


class _Claim(NamedTuple):
    """A statement about a shard: once `end` is reached, it includes every record before `rated`."""

    rated: list[int]  # By partition of `round-completed`, the offset of W1.
    end: int  # An end of the shard's partition, of one of the two topics.
    rejection_ends: list[int]  # The ends of `round-rejected`, read after `rated`.


class Settled:
    """What follows from the progress of the workers. Without I/O."""

    def __init__(self) -> None:
        # By shard:
        self._parts: list[_Claim | None] = []  # The claim that waits for W2.
        self._passed: list[_Claim | None] = []  # The newest claim that passed W2. Its `end` is R.
        self._reading: list[_Claim | None] = []  # The claim whose R is not read yet.
        self._read: list[list[int]] = []  # The offsets before which this process has everything.
        self._before: dict[int, int] = {}
        """The ends, by shard, of the events from before shards were added. A player may have some
        of them in any partition."""

    @property
    def shards(self) -> int:
        """The number of shards; 0 before the first progress."""
        return len(self._passed)

    @property
    def partitions(self) -> int:
        """The number of partitions of `round-completed`; 0 before the first progress."""
        return len(self._read[0]) if self._read else 0

    def observe(self, progress: WorkersProgress) -> None:
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
        """By shard, the position (R) at which the index includes the record at this place and all
        before it; None while W1 or W2 is not met."""
        ends = dict(self._before)
        for s in shards:
            passed = self._passed[s] if s < self.shards else None
            if passed is None or passed.rated[partition] <= offset:
                return None
            ends[s] = passed.end
        return ends

    def read(self, positions: Sequence[int], rejections: Sequence[int]) -> list[int]:
        """By partition of `round-completed`, the offset before which this process has read every
        event and rejection. `positions` and `rejections`: how far it has read those topics."""
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


class FreshAnswers:
    """Answers questions that name an offset, once the index includes what the workers did up to it.
    It is for one event loop."""

    def __init__(
        self, questions: Questions, after: Callable[[dict[int, int]], Questions],
        hurry: Callable[[], None],
    ) -> None:  # fmt: skip
        """`after` returns questions that are answered only if the index has these positions, by
        shard. `hurry` asks the index's process to report its positions soon."""
        self._questions, self._after, self.hurry = questions, after, hurry
        self.settled, self.waiting = Settled(), Waiting()
        self.trouble = ""  # Why the progress of the workers cannot be read; empty if it can.
        self._denied = False  # Whether a retry is useless: a right or a topic is missing.

    def observed(self, progress: WorkersProgress) -> None:
        """Take in newer progress."""
        self.trouble, self._denied = "", False
        self.settled.observe(progress)

    def failed(self, why: str, denied: bool) -> None:
        """Record why the progress cannot be read."""
        self.trouble, self._denied = why, denied
        if denied:
            self.waiting.notify()

    async def answer(
        self, ladder: str, offset: int, players: Sequence[str] | None, wait_s: float, ask: Ask[T]
    ) -> T:
        """The answer to a question about a ladder. It includes what every record up to `offset` of
        the ladder's partition did to `players`; None: to all players. Raises Refused if the index
        does not get there within `wait_s`."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_s
        if players is not None and (answer := await self._newer(offset, ask)) is not None:
            return answer
        while (needed := self._needed(ladder, offset, players)) is None:
            if not await self.waiting.until(deadline_s) or self._denied:
                raise self._not_yet(offset)
        while True:
            try:
                return await ask(self._after(needed))
            except Incomplete:
                if loop.time() + AGAIN_S > deadline_s:
                    raise self._not_yet(offset) from None
            self.hurry()
            await self.waiting.until(loop.time() + AGAIN_S)

    async def _newer(self, offset: int, ask: Ask[T]) -> T | None:
        """The present answer, if every player in it was changed at `offset` or later; else None."""
        try:
            answer = await ask(self._questions)
        except (Refused, Incomplete):
            return None
        if not isinstance(answer, RankedPlayer | LookupAnswer):
            return None
        found = answer.players if isinstance(answer, LookupAnswer) else [answer]
        newer = all(each.offset is not None and each.offset >= offset for each in found)
        return answer if newer else None

    def _needed(
        self, ladder: str, offset: int, players: Sequence[str] | None
    ) -> dict[int, int] | None:
        """The positions that the index must have; None if it is too early to say."""
        settled = self.settled
        if not settled.shards:
            return None
        partition = partition_of(ladder, settled.partitions)
        shards = (
            range(settled.shards) if players is None
            else sorted(set(shards_of(players, settled.shards).tolist()))
        )  # fmt: skip
        return settled.needed(partition, offset, shards)

    def _not_yet(self, offset: int) -> Refused:
        if why := self.trouble:
            return Refused("log-unavailable", f"{why}: try again")
        why = f"the index does not include offset {offset} yet: try again"
        return Refused("not-yet", why, "query.min_offset")
