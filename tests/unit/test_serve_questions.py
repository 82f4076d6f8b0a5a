"""What `serve` answers while its index is not known to be complete: nothing that may be wrong."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from stream_rater.config.ladders import DEFAULT_RATING, Ladder, Ladders, any_ladder
from stream_rater.config.views import Listing
from stream_rater.serve.bodies import BalanceQuestion, PredictQuestion, SideQuestion
from stream_rater.serve.cursors import RankedRow
from stream_rater.serve.entries import IndexedPlayer, LadderSummary
from stream_rater.serve.index.reader import ReadPositions
from stream_rater.serve.problems import Refused
from stream_rater.serve.questions import (
    AbsentLadder,
    Incomplete,
    LadderView,
    PageView,
    PlayerView,
    Questions,
)

ANN = IndexedPlayer(1600.0, 80.0, 1520.0, 7, False, "2026-01-01T00:00:00Z", 5)


class Index:
    """An index of one ladder, with one player, that may be lost."""

    def __init__(self) -> None:
        self.lost = self.absent = False
        self.board = PageView([RankedRow(1, "ann", 1520.0)], False, 1)

    def _check(self) -> None:
        if self.lost:
            raise Incomplete
        if self.absent:
            raise AbsentLadder

    async def ladders(self) -> list[str]:
        self._check()
        return ["l"]

    async def ladder(self, ladder: str) -> LadderView | None:
        if self.absent or ladder != "l":
            return None
        self._check()
        return LadderView(LadderSummary(1, 5, ANN.completed_at), 1, {1500: 1})

    async def players(self, _: str, players: Sequence[str]) -> list[IndexedPlayer | None]:
        self._check()
        return [ANN if each == "ann" else None for each in players]

    async def player(self, _: str, player: str) -> PlayerView | None:
        self._check()
        return PlayerView(ANN, 1, 1) if player == "ann" else None

    async def history(self, *_: Any) -> tuple[()]:
        self._check()
        return ()

    async def page(self, *_: Any) -> PageView:
        self._check()
        return self.board

    async def around(self, *_: Any) -> PageView | None:
        return await self.page()


class Place:
    """An index, and what is asked of it; `complete` says whether it follows the topic."""

    def __init__(self, ladders: Ladders | None = None) -> None:
        self.index, self.complete = Index(), True
        ladders = ladders or any_ladder(DEFAULT_RATING)
        self.ask = Questions(
            self.index, ladders, lambda: self.complete, lambda: 0.0, self._computed, lambda: 0.0
        )

    async def _computed(self, work: Callable[[], Any]) -> Any:
        return work()


def sides(*names: str) -> list[SideQuestion]:
    return [SideQuestion(players=[each]) for each in names]


KNOWN: dict[str, Callable[[Questions], Any]] = {
    "ladders": lambda ask: ask.ladders(), "ladder": lambda ask: ask.ladder("l"),
    "player": lambda ask: ask.player("l", "ann"), "lookup": lambda ask: ask.lookup("l", ["ann"]),
    "history": lambda ask: ask.history("l", "ann", 5, None),
    "page": lambda ask: ask.leaderboard("l", 5, None, None),
    "around": lambda ask: ask.leaderboard("l", 5, None, "ann"),
}  # fmt: skip
"""Questions about who is there."""
UNKNOWN: dict[str, Callable[[Questions], Any]] = {
    "lookup": lambda ask: ask.lookup("l", ["ann", "eve"]),
    "predict": lambda ask: ask.predict("l", PredictQuestion(sides=sides("ann", "eve"))),
    "balance": lambda ask: ask.balance("l", BalanceQuestion(players=["ann", "eve"])),
}
"""Questions about somebody who is not there, too: a newcomer, or lost."""


def outcome(place: Place, question: Callable[[Questions], Any]) -> str:
    """The code of the problem, `incomplete`, or `answered`."""

    async def asked() -> str:
        try:
            await question(place.ask)
        except Refused as refused:
            return refused.problem.code
        except Incomplete:
            return "incomplete"
        return "answered"

    return asyncio.run(asked())


def test_rows_have_percentiles_where_the_listing_says_so() -> None:
    """As a player has it, on a page from the start and around somebody; else they are left out."""
    displays: dict[Any, list[Any]] = {"percentile": [87.5, 75.0], "rating": [msgspec.UNSET] * 2}
    rows = [RankedRow(1, "ann", 1520.0), RankedRow(2, "bob", 9.0)]
    for display, wanted in displays.items():
        ladder = Ladder(rating=DEFAULT_RATING, listing=Listing(display=display))
        place = Place(Ladders(ladders={"l": ladder}))
        place.index.board = PageView(rows, False, 8)
        for around in (None, "ann"):
            found = asyncio.run(place.ask.leaderboard("l", 5, None, around))
            assert [row.percentile for row in found.rows] == wanted
            assert (b"percentile" in msgspec.json.encode(found)) == (display == "percentile")
        one = asyncio.run(place.ask.player("l", "ann"))
        assert one.percentile == 0.0  # the only one who is listed
        assert asyncio.run(place.ask.ladder("l")).listing.display == display


def outcomes(place: Place, names: Iterable[str]) -> dict[str, str]:
    """The outcomes of these questions."""
    return {name: outcome(place, (KNOWN | UNKNOWN)[name]) for name in names}


def test_an_index_that_is_lost() -> None:
    """No question is answered, though the ladder was seen a moment ago."""
    place, names = Place(), KNOWN | UNKNOWN
    assert outcomes(place, names) == dict.fromkeys(names, "answered")
    place.index.lost = True
    assert outcomes(place, names) == dict.fromkeys(names, "incomplete")
    place.index.lost = False
    assert outcomes(place, names) == dict.fromkeys(names, "answered")


def test_a_ladder_that_is_gone() -> None:
    """If the whole index is known to be there, and the ladder is not in it, it is unknown, though
    it was seen a moment ago."""
    for name in (KNOWN | UNKNOWN).keys() - {"ladders"}:
        place = Place()
        assert outcomes(place, [name]) == {name: "answered"}
        place.index.absent = True
        assert outcomes(place, [name]) == {name: "unknown-ladder"}


def test_a_newcomer_while_the_topic_is_not_followed() -> None:
    """A player who is not in the index may have played since the topic was last followed."""
    place = Place()
    place.complete = False
    for name, question in UNKNOWN.items():
        assert outcome(place, question) == "incomplete", name
    for name, question in KNOWN.items():
        assert outcome(place, question) == "answered", name
    assert outcome(place, lambda ask: ask.player("l", "eve")) == "incomplete"
    assert outcome(place, lambda ask: ask.ladder("other")) == "incomplete"


def test_how_far_the_index_is_known_to_be() -> None:
    """First nothing is known. Then one position serves all ladders, and a ladder's own position
    includes what was read of it since."""
    known = ReadPositions()
    for ask in (known.of_all, lambda: known.of("l")):
        with pytest.raises(Incomplete, match="try again"):
            ask()
    known.all_read([5, 7])
    assert known.of_all() == known.of("l") == [5, 7]
    for offset in (6, 9, 8):
        known.event_read("l", 0, offset)
    known.event_read("m", 1, 3)
    assert (known.of("l"), known.of("m"), known.of("n")) == ([10, 7], [5, 7], [5, 7])
    assert known.of_all() == [5, 7]
    assert known.knows("l") and not known.knows("n")
    known.all_read([2, 3])  # what was followed is another topic by now
    assert known.of("l") == [2, 3] and not known.knows("l")
