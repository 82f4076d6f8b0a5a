"""Answers as of an offset: never older, and never from an index that lacks what is needed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stream_rater.columns.sharding import partition_of, shards_of
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.record import WorkersProgress
from stream_rater.index.entries import IndexedPlayer
from stream_rater.index.reader import Incomplete, PlayerView
from stream_rater.serve.door.read_your_writes import FreshAnswers
from stream_rater.serve.problems import Refused
from stream_rater.serve.questions import Questions
from tests.unit.test_serve_questions import Index

PARTITIONS, SHARDS = 2, 3
HOME = partition_of("l", PARTITIONS)
ANN_SHARD = int(shards_of(["ann"], SHARDS)[0])


class Indexed(Index):
    """An index up to some positions, whose player `ann` was last changed at `offset`."""

    def __init__(self) -> None:
        super().__init__()
        self.positions, self.needed = [0] * SHARDS, dict[int, int]()
        self.offset = 0

    def _check(self) -> None:
        super()._check()
        if any(self.positions[s] < at for s, at in self.needed.items()):
            raise Incomplete

    async def player(self, ladder: str, player: str) -> PlayerView | None:
        self._check()
        ann = IndexedPlayer(1600.0, 80.0, 1520.0, 7, False, "2026-01-01T00:00:00Z", self.offset)
        return PlayerView(ann, 1, 1) if player == "ann" else None


class Workers:
    """What workers have rated and published."""

    def __init__(self) -> None:
        self.index, self.hurried = Indexed(), 0
        self.answers = FreshAnswers(self._of(self.index), self.after, self.hurry)
        self.waiting = self.answers.waiting

    def hurry(self) -> None:
        self.hurried += 1

    def after(self, needed: dict[int, int]) -> Questions:
        view = Indexed()
        view.positions, view.needed, view.offset = self.index.positions, needed, self.index.offset
        return self._of(view)

    def _of(self, index: Indexed) -> Questions:
        nothing: Any = None
        return Questions(index, ANY_LADDER, lambda: True, lambda: 0.0, nothing, lambda: 0.0)

    def observe(self, rated: int, changes: int) -> None:
        """All parts of the rounds before an offset are applied, with events before another."""
        nine, ends = [9] * SHARDS, [changes] * SHARDS
        self.answers.observed(WorkersProgress([rated] * PARTITIONS, nine, nine, ends, [0]))
        self.waiting.notify()

    async def ann(self, offset: int, wait_s: float = 0.0) -> int | None:
        """The offset of ann's last change, in an answer that includes an offset."""
        asked = self.answers.answer(
            "l", offset, ["ann"], wait_s, lambda ask: ask.player("l", "ann")
        )
        return (await asked).offset

    async def board(self, offset: int) -> int:
        """The number of listed players."""
        page = await self.answers.answer(
            "l", offset, None, 0.0, lambda ask: ask.leaderboard("l", 1, None, None)
        )
        return page.listed


def played(story: Callable[[Workers], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test of a story in an event loop."""

    def test() -> None:
        asyncio.run(story(Workers()))

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


async def refused(asked: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(Refused) as caught:
        await asked
    return caught.value.problem.code


@played
async def test_a_newer_change_suffices(place: Workers) -> None:
    """A player who was changed at the offset or later needs no look at the workers."""
    place.index.offset = 5
    assert await place.ann(5) == 5
    assert await refused(place.ann(6)) == "not-yet"
    assert await refused(place.board(5)) == "not-yet"


@played
async def test_an_answer_waits_for_the_workers_and_for_the_index(place: Workers) -> None:
    """First W1 and W2, then W3: the position of the index that the answer itself checks."""
    place.observe(rated=7, changes=100)
    assert await refused(place.ann(7)) == "not-yet"  # W1
    place.observe(rated=8, changes=100)
    assert await refused(place.ann(7)) == "not-yet"  # W3
    place.index.positions[ANN_SHARD] = 99
    assert await refused(place.ann(7)) == "not-yet"
    place.index.positions[ANN_SHARD] = 100
    assert await place.ann(7) == 0  # it is included, and did nothing to ann
    for behind in range(SHARDS):
        place.index.positions = [100 - (s == behind) for s in range(SHARDS)]
        assert await refused(place.board(7)) == "not-yet"
    place.index.positions = [100] * SHARDS
    assert await place.board(7) == 1


@played
async def test_it_waits_while_that_helps(place: Workers) -> None:
    """The wait ends as soon as the index is far enough; positions are asked for."""
    asked = asyncio.ensure_future(place.ann(7, wait_s=30))
    while not place.waiting.count:
        await asyncio.sleep(0)
    assert place.waiting.wanted.is_set()
    place.observe(rated=8, changes=100)
    while not place.hurried:
        await asyncio.sleep(0)
    place.index.positions[ANN_SHARD], place.index.offset = 100, 7
    assert await asked == 7
    assert not place.waiting.wanted.is_set()


@played
async def test_a_trouble_is_named(place: Workers) -> None:
    """If the workers' progress cannot be read, the answer says why."""
    place.answers.failed("kafka: away", denied=False)
    assert await refused(place.ann(7)) == "log-unavailable"
    asked = asyncio.ensure_future(refused(place.ann(7, wait_s=30)))
    while not place.waiting.count:
        await asyncio.sleep(0)
    place.answers.failed("kafka: denied", denied=True)
    assert await asked == "log-unavailable"
