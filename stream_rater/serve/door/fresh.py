"""Reads one's own writes: answers that include all records up to an offset of `round-completed`.

`settled` has the rules. W1 and W2 are the same for all clients. W3 is checked in
the transaction that reads the answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from stream_rater.columns.sharding import partition_of, shards_of
from stream_rater.index.answers import Incomplete
from stream_rater.serve.bodies import LookupAnswer, RankedPlayer
from stream_rater.serve.door.door import Waiting
from stream_rater.serve.door.settled import Settled
from stream_rater.serve.problems import Refused
from stream_rater.serve.questions import Questions

AGAIN_S = 0.03
"""The seconds until the index is asked again whether it has what is needed."""

T = TypeVar("T")
Ask = Callable[[Questions], Awaitable[T]]


class Following(Protocol):
    """What of the process is needed to wait for an offset."""

    settled: Settled
    waiting: Waiting
    trouble: str
    """Why the progress of the workers cannot be read; empty if it can."""

    denied: bool
    """Whether trying again does not help, because a right or a topic is missing."""

    def hurry(self) -> None:
        """Ask for the positions of the index to be stored soon."""

    def after(self, needed: dict[int, int]) -> Questions:
        """Questions that are answered only if the index has these positions, by shard."""


class FreshAnswers:
    """Answers questions that name an offset. It is for one event loop."""

    def __init__(self, following: Following, questions: Questions) -> None:
        self._following, self._questions = following, questions

    async def answer(
        self, ladder: str, offset: int, players: Sequence[str] | None, wait_s: float, ask: Ask[T]
    ) -> T:
        """The answer to a question about a ladder. It includes what every record at or before
        `offset` of the ladder's partition did to `players`, or to all players if that is None.
        Raises Refused if that is not so within `wait_s`."""
        loop, follow = asyncio.get_running_loop(), self._following
        deadline_s = loop.time() + wait_s
        if players is not None and (found := await self._newer(offset, ask)) is not None:
            return found
        while (needed := self._needed(ladder, offset, players)) is None:
            if not await follow.waiting.until(deadline_s) or follow.denied:
                raise self._not_yet(offset)
        while True:
            try:
                return await ask(follow.after(needed))
            except Incomplete:
                if loop.time() + AGAIN_S > deadline_s:
                    raise self._not_yet(offset) from None
            follow.hurry()
            await follow.waiting.until(loop.time() + AGAIN_S)

    async def _newer(self, offset: int, ask: Ask[T]) -> T | None:
        """The answer now, if every player in it was changed at `offset` or later. None if not, or
        if there is no answer yet."""
        try:
            found = await ask(self._questions)
        except (Refused, Incomplete):
            return None
        match found:
            case RankedPlayer():
                offsets = [found.offset]
            case LookupAnswer():
                offsets = [each.offset for each in found.players]
            case _:
                return None
        return found if all(at is not None and at >= offset for at in offsets) else None

    def _needed(
        self, ladder: str, offset: int, players: Sequence[str] | None
    ) -> dict[int, int] | None:
        """The positions that the index must have; None if it is too early to say."""
        settled = self._following.settled
        if not settled.shards:
            return None
        partition = partition_of(ladder, settled.partitions)
        shards = (
            range(settled.shards) if players is None
            else sorted(set(shards_of(players, settled.shards).tolist()))
        )  # fmt: skip
        return settled.needed(partition, offset, shards)

    def _not_yet(self, offset: int) -> Refused:
        if why := self._following.trouble:
            return Refused("log-unavailable", f"{why}: try again")
        why = f"the index does not include offset {offset} yet: try again"
        return Refused("not-yet", why, "query.min_offset")
