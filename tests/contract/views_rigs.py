"""Indexes of ladders with views: what writes them, and questions that are answered from them."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stream_rater.config.ladders import Ladder, Ladders
from stream_rater.config.settings import Settings
from stream_rater.config.views import Listing, Protection, Tier
from stream_rater.rating.parameters import EloMMR
from stream_rater.serve.index.file_index import FileIndexReader, FileIndexWriter
from stream_rater.serve.index.reader import IndexReader, ReadPositions
from stream_rater.serve.index.writer import IndexWriter
from stream_rater.serve.questions import Questions
from tests.contract.test_serve_index import TOPIC

START_S = 1_780_000_000
DRIFT = 40.0
NAMES = [f"p{i}é" for i in range(12)]


def a_ladder(listing: Listing = Listing(), tiers: Sequence[Tier] = ()) -> Ladders:  # noqa: B008
    rating = EloMMR(weight_limit=0.2, sigma_limit=80.0, drift_per_day=DRIFT)
    return Ladders(ladders={"*": Ladder(rating=rating, listing=listing, tiers=tuple(tiers))})


TIERS = (
    Tier(name="bronze"), Tier(name="silver", from_rating=1200.0, hysteresis=60.0),
    Tier(name="gold", from_rating=1500.0, hysteresis=Protection(rounds=4)),
)  # fmt: skip
LISTING = Listing(min_rounds=3, max_sigma=120.0, idle_days=20.0)
BOTH = a_ladder(LISTING, TIERS)


class Clock:
    """A clock that is set by hand, Unix seconds."""

    def __init__(self) -> None:
        self.now_s = float(START_S)

    def __call__(self) -> float:
        return self.now_s


class Rig:
    """An index: what writes it, and questions that are answered from it."""

    writer: Any

    def sweep(self) -> None:
        """Take everybody off the lists whose moment has come."""
        while self.writer.sweep():
            pass


def questions(index: Any, ladders: Ladders, clock: Clock) -> Questions:
    async def computed(work: Callable[[], Any]) -> Any:
        return work()

    return Questions(index, ladders, lambda: True, lambda: clock.now_s, computed, clock)


class FileRig(Rig):
    """The index in a file."""

    def __init__(self, path: Path, ladders: Ladders, clock: Clock) -> None:
        self.writer = FileIndexWriter(path, 3, ladders, clock)
        self.next = self.writer.begin("one", 10**9)
        self._reader = FileIndexReader(path, 3, None, ladders)
        self._questions = questions(self._reader, ladders, clock)

    def apply(self, events: Sequence[Any]) -> Any:
        self.next += len(events)
        return self.writer.apply(events, self.next)

    def ask(self, question: str, *given: Any) -> Any:
        return asyncio.run(getattr(self._questions, question)(*given))

    def close(self) -> None:
        """Close all connections."""
        asyncio.run(self._reader.close())
        self.writer.close()


class RedisRig(Rig):
    """The index in Redis."""

    def __init__(
        self, at: Settings, ladders: Ladders, clock: Clock, runner: asyncio.Runner,
        position: int = 0,
    ) -> None:  # fmt: skip
        self._runner, self.position = runner, position
        self.writer = IndexWriter(at, ladders, clock)
        self.begun = self.writer.begin(TOPIC, 1)
        positions = ReadPositions()
        positions.all_read([0])

        async def made() -> IndexReader:
            return IndexReader(at, positions, ladders)

        self._reader = runner.run(made())
        self._questions = questions(self._reader, ladders, clock)

    def apply(self, events: Sequence[Any]) -> Any:
        first, self.position = self.position, self.position + len(events)
        places = [(0, at) for at in range(first, self.position)]
        return self.writer.apply(events, [self.position], places)

    def ask(self, question: str, *given: Any) -> Any:
        return self._runner.run(getattr(self._questions, question)(*given))

    def close(self) -> None:
        """Close the reader's connections."""
        self._runner.run(self._reader.close())


def at_time(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), UTC).isoformat().replace("+00:00", "Z")
