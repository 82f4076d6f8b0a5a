"""An index in a folder, with its writer and reader, and events to fill it."""

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.contract.events import RatingChanged
from stream_rater.index import folder
from stream_rater.index.entries import BIN, LadderSummary, player_of
from stream_rater.index.reader import IndexReader
from stream_rater.index.tables import Tables
from stream_rater.index.writer import IndexWriter

LADDER = "eu:{1}"
KEPT = 3  # The number of changes that a player's history keeps.


def an_event(player: str, offset: int, rating: float = 1500.0, **more: Any) -> RatingChanged:
    """An event of a player who is listed, unless `more` says otherwise."""
    given: dict[str, Any] = {
        "event_id": f"{player}:{offset}", "ladder": LADDER, "player": player,
        "round_id": f"r{offset}", "completed_at": f"2026-01-01T00:00:{offset % 60:02}Z", "rank": 1,
        "mu": rating + 1.0, "sigma": 80.0, "previous_mu": 0.0, "previous_sigma": 0.0,
        "performance": 1.0, "rating": rating, "previous_rating": 0.0, "rounds": 7,
        "provisional": False, "offset": offset,
    }  # fmt: skip
    return RatingChanged(**given | more)


def some_events(seed: int) -> list[RatingChanged]:
    """Random events of a few players, in order of offset: provisional, removed, equally rated."""
    rng = random.Random(seed)
    return [
        an_event(
            rng.choice("abcdefgh"), offset, float(rng.choice([-60, 0, 10, 10, 40, 1990])),
            provisional=rng.random() < 0.2, rounds=rng.choice([0, 1, 7, 7]),
            season=rng.choice([None, 3]),
        )
        for offset in range(40)
    ]  # fmt: skip


class Index:
    """An index that is open, and a reader of it."""

    def __init__(
        self, where: Path, ladders: Ladders = ANY_LADDER, now: Callable[[], float] = time.time,
        log: str = "one", kept: int = KEPT,
    ) -> None:  # fmt: skip
        self.where, self.log = where, log
        self._hold = folder.Hold(where)
        self.store = folder.begin(where, log, now())
        self.writer = IndexWriter(self.store, kept, ladders, now)
        self.reader = IndexReader(kept, ladders)
        self.reader.use(self.store.path)
        (self.next,) = self.writer.positions(1)
        self.writer.reached([self.next], current=True)

    def apply(self, events: Sequence[Any]) -> Any:
        """Apply the next events of the only partition."""
        placed = [((0, self.next + i), event) for i, event in enumerate(events)]
        self.next += len(events)
        return self.writer.apply(placed, [self.next])

    def ask(self, question: str, *given: Any) -> Any:
        return asyncio.run(getattr(self.reader, question)(*given))

    def contents(self) -> dict[str, list[tuple[bytes, bytes]]]:
        """All rows of all tables except the one of the index's state."""
        with self.store.begin() as t:
            return {
                name: list(t.cursor(getattr(self.store.tables, name)))
                for name in Tables._fields
                if name != "state"
            }

    def close(self, *, killed: bool = False) -> None:
        """Close the index; if `killed`, leave its files as a killed process leaves them."""
        self.reader.close()
        if killed:
            folder.closed(self.store)
        else:
            folder.end(self.store, self.log, [self.next])
        self._hold.close()


def assert_equal_to_newest(
    where: str, events: Sequence[RatingChanged], ladder: str = LADDER
) -> None:
    """The index in a folder says what the newest event of each player says."""
    newest = {each.player: each for each in sorted(events, key=lambda each: each.offset)}
    found = folder.trusted(Path(where))
    assert found is not None
    reader = IndexReader(KEPT)
    reader.use(found[0])

    async def compare() -> None:
        names = sorted(newest)
        assert await reader.players(ladder, names) == [player_of(newest[name]) for name in names]
        listed = [each for each in newest.values() if each.rounds and not each.provisional]
        page = await reader.page(ladder, None, len(newest))
        ranks = sorted((-each.rating, each.player.encode()) for each in listed)
        assert [(-row.rating, row.player.encode()) for row in page.rows] == ranks
        view = await reader.ladder(ladder)
        last = max(newest.values(), key=lambda each: each.offset)
        counting = sum(each.rounds > 0 for each in newest.values())
        summary = LadderSummary(counting, last.offset, last.completed_at, last.season)
        assert view is not None and view.summary == summary
        assert view.bins == Counter(bin_of(each.rating) for each in listed)
        reader.close()

    asyncio.run(compare())


def bin_of(rating: float) -> int:
    """The lower end of a rating's bin, in points."""
    return BIN * math.floor(rating / BIN)
