"""Answers questions about the past seasons of a ladder, from the standings that `season-standings`
keeps. The standings are final: a later correction does not change them."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from stream_rater.contract.season_ended import SeasonKept
from stream_rater.index.reader import IndexReader, StandingsPage
from stream_rater.serve import routes
from stream_rater.serve.bodies import SeasonAnswer, SeasonList, SeasonPageAnswer, SeasonRow
from stream_rater.serve.problems import Refused
from stream_rater.serve.questions import Questions

MOST_DIGITS = 18


class PastSeasons:
    """Answers questions. Raises Refused, and what the index raises."""

    def __init__(
        self, index: IndexReader, questions: Questions,
        started: Callable[[str], Awaitable[Sequence[int]]],
    ) -> None:  # fmt: skip
        """`started`: the numbers of a ladder's started seasons, in order; none if unknown."""
        self._index, self._questions, self._started = index, questions, started

    async def list(self, ladder: str) -> SeasonList:
        """The seasons of a ladder, and whether their standings are kept."""
        present = await self._questions.present_season(ladder)
        kept = {each.season: each for each in await self._index.kept(ladder)}
        started = list(await self._started(ladder))
        if not started and present is not None and present not in kept:
            started = [present]
        numbers = sorted({*kept, *started})
        if any(each not in kept for each in numbers[:-1]):
            self._questions.check_complete()  # one may be kept, and not be read yet
        return SeasonList(
            ladder=ladder,
            seasons=[
                _kept(kept[number]) if number in kept
                else _not_kept(number, runs=number == numbers[-1])
                for number in numbers
            ],
        )  # fmt: skip

    async def leaderboard(
        self, ladder: str, number: str, limit: int, cursor: str | None, around: str | None
    ) -> SeasonPageAnswer:
        """A page of the standings of a season: at a cursor, around a player, or the first."""
        routes.check_page(cursor, around)
        season = await self._season(ladder, number)
        if around is not None:
            found = await self._index.standings_around(season, around, limit)
            if found is None:
                raise Refused(
                    "not-listed", f"{around!r} was not listed when season {season.season} ended: "
                    "leave `around` out", "query.around",
                )  # fmt: skip
            return _page(season, found)
        place = routes.decode_cursor(cursor)
        return _page(season, await self._index.standings(season, place, limit))

    async def _season(self, ladder: str, number: str) -> SeasonKept:
        """The season with this number. Raises Refused if its standings are not kept."""
        if not (number.isascii() and number.isdecimal() and len(number) <= MOST_DIGITS):
            raise Refused("bad-request", "give the number of a season", "path.season")
        await self._questions.check_ladder(ladder)
        for each in await self._index.kept(ladder):
            if each.season == int(number):
                return each
        self._questions.check_complete()
        raise Refused(
            "unknown-season", f"no standings of season {number} of ladder {ladder!r} are kept: "
            f"/v1/ladders/{ladder}/seasons lists those there are", "path.season",
        )  # fmt: skip


def _kept(season: SeasonKept) -> SeasonAnswer:
    return SeasonAnswer(
        season=season.season, started_at=season.started_at, ended_at=season.ended_at,
        players=season.players, listed=season.listed, standings="kept",
    )  # fmt: skip


def _not_kept(number: int, *, runs: bool) -> SeasonAnswer:
    return SeasonAnswer(
        season=number, started_at=None, ended_at=None, players=None, listed=None,
        standings="season-runs" if runs else "not-written",
    )  # fmt: skip


def _page(season: SeasonKept, found: StandingsPage) -> SeasonPageAnswer:
    return SeasonPageAnswer(
        season=season.season, ended_at=season.ended_at, listed=season.listed,
        rows=[SeasonRow(**msgspec.structs.asdict(each)) for each in found.rows],
        next=routes.next_cursor(found.rows, found.more),
    )  # fmt: skip
