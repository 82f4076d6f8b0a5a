"""Reads the standings of past seasons from the file beside a data file, as `seasons.SeasonIndex`
describes.

A thread reads them: while the command writes a page, the file is locked, and other requests do not
wait for it.
"""

from asyncio import to_thread
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stream_rater.adapters.sqlite.season_file import SeasonRows
from stream_rater.contract.errors import StoreTrouble, Unrecoverable
from stream_rater.contract.season_ended import SeasonKept, Standing
from stream_rater.serve.bodies import SeasonRow
from stream_rater.serve.cursors import AfterRow
from stream_rater.serve.seasons import StandingsPage


class FileSeasons:
    """The standings of a data file."""

    def __init__(self, data: Path, data_id: str = "") -> None:
        """`data_id`: the id of the data file; standings of another one are refused."""
        self._rows = SeasonRows(data, data_id)

    async def kept(self, ladder: str) -> Sequence[SeasonKept]:
        """The seasons of a ladder whose standings are kept, in order."""
        with _failing():
            return await to_thread(self._rows.kept, ladder)

    async def page(self, season: SeasonKept, after: AfterRow | None, limit: int) -> StandingsPage:
        """At most `limit` standings after a place, or the first ones."""
        place = None if after is None else (after.rating, after.player)
        with _failing():
            found = await to_thread(
                self._rows.after, season.ladder, season.season, place, limit + 1
            )
        return _page(found, limit)

    async def around(self, season: SeasonKept, player: str, limit: int) -> StandingsPage | None:
        """At most `limit` standings with the player in the middle; None if the player is not
        listed."""
        with _failing():
            found = await to_thread(self._rows.around, season.ladder, season.season, player, limit)
        return _page(found, limit) if found else None


@contextmanager
def _failing() -> Iterator[None]:
    """Raise StoreTrouble for a file that cannot be used: the process goes on without it."""
    try:
        yield
    except Unrecoverable as error:
        raise StoreTrouble(str(error)) from None


def _page(found: Sequence[Standing], limit: int) -> StandingsPage:
    return StandingsPage([row_of(each) for each in found[:limit]], len(found) > limit)


def row_of(standing: Standing) -> SeasonRow:
    """A standing as a row of an answer."""
    return SeasonRow(
        rank=standing.rank, player=standing.player, rating=standing.rating,
        percentile=standing.percentile, tier=standing.tier, rounds=standing.rounds,
    )  # fmt: skip
