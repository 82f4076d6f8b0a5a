"""What a question is answered with from the index, and that it cannot be answered."""

from collections.abc import Sequence
from typing import NamedTuple

from stream_rater.index.entries import IndexedPlayer, LadderSummary
from stream_rater.index.tables import IndexedStanding


class Incomplete(Exception):
    """The index is not known to be complete, so nothing is answered from it."""

    def __init__(self, why: str = "the index is still being made") -> None:
        super().__init__(f"{why}: try again")


class AbsentLadder(Incomplete):
    """The index has nothing of the ladder."""


class AfterRow(NamedTuple):
    """The place on the leaderboard after the row of this player with this rating. Greater ratings
    come first. Players of equal rating are in order of the bytes of their ids."""

    rating: float
    player: str


class RankedRow(NamedTuple):
    """A row of the leaderboard."""

    rank: int  # 1 plus the number of players with a greater rating.
    player: str
    rating: float


class LadderView(NamedTuple):
    """The data about a ladder in the index."""

    summary: LadderSummary
    listed: int  # The number of players on the leaderboard.
    bins: dict[int, int]
    """The number of listed players in each bin of the histogram, by the bin's lower end. A bin that
    is absent has none."""


class PlayerView(NamedTuple):
    """The data about a player in the index."""

    player: IndexedPlayer
    rank: int | None  # The player's rank on the leaderboard; None if the player is not listed.
    listed: int  # The number of players on the leaderboard.


class PageView(NamedTuple):
    """A page of the leaderboard."""

    rows: list[RankedRow]
    more: bool  # Whether another page follows.
    listed: int
    players: Sequence[IndexedPlayer | None] = ()
    """The players of the rows, if the ladder has tiers."""


class StandingsPage(NamedTuple):
    """A page of the standings of a season."""

    rows: list[IndexedStanding]
    more: bool  # Whether another page follows.
