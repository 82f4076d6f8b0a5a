"""`stream-rater season-standings`: keeps the standings of the seasons of a ladder that have ended.

The standings of a season are those just before the record that starts the next season. The command
replays the log to there, as the corrections before that record edit it, and writes the listed
players in pages. What it writes depends only on the log and the ladders file. So it can be killed
at any moment and run again, also several times at once: each player of a season has one record.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from stream_rater import places
from stream_rater.config import errors
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract import season_ended
from stream_rater.contract.errors import Outdone, Trouble
from stream_rater.contract.events import parse_time, shown
from stream_rater.contract.record import Record, header
from stream_rater.operations.ladder_replay import LadderReplay
from stream_rater.pipeline.ports import pause_s
from stream_rater.places.port import Place, SeasonWriter
from stream_rater.replay.edits import StartedSeason
from stream_rater.replay.rating_changes import Standings
from stream_rater.runtime import selfcheck, startup
from stream_rater.runtime.progress import counted, track

MOST_TROUBLES = 20  # How often in a row a page may fail to be written before the command gives up.


class EndedSeason(NamedTuple):
    """A season that has ended."""

    number: int  # Its number; 0 for the time before the first season.
    start: int | None  # The offset of the record that starts it; None for number 0.
    end: int  # The offset of the record that starts the next one.


def season_standings(
    settings: Settings, ladder: str, number: int | None, wait_s: float
) -> Iterator[str]:
    """Keep the standings of a ladder's season; without a number, of all that have ended and are not
    kept. Yields a line about each. `wait_s`: how long to wait until what is in the log now is
    rated. Raises BadConfiguration or Failed."""
    ladders = places.ladders_of(settings)
    startup.configure()
    with errors.named_failures(), places.opened(settings) as place:
        selfcheck.check()
        place.check_rated(ladder, wait_s)
        replay = LadderReplay(place, ladders, place.ladder_log(), ladder, "nothing was written")
        found = ended_seasons(replay.seasons())
        kept = {each.season: each for each in place.kept_seasons(ladder)}
        asked = [each for each in found if number in (None, each.number)]
        if number is not None and not asked:
            ended = ", ".join(str(each.number) for each in found) or "none"
            raise errors.BadConfiguration(
                f"ladder {shown(ladder)!r}: season {number} has not ended; those that have: "
                f"{ended}: `stream-rater correct season` starts the next one, which ends it"
            )
        for season in asked:
            yield (
                _keep(place, ladders, replay, season, asked=number is not None)
                if season.number not in kept
                else f"{_label(ladder, season)}: kept before, "
                f"{counted(kept[season.number].listed, 'listed player')}"
            )
        if not found:
            yield f"ladder {shown(ladder)!r}: no season has ended"


def ended_seasons(started: Sequence[StartedSeason]) -> list[EndedSeason]:
    """The seasons that another one followed, in order, from the time before the first season on."""
    numbers = [season_ended.BEFORE_SEASONS, *(each.season.number for each in started)]
    offsets = [None, *(each.offset for each in started)]
    return [
        EndedSeason(number, start, end)
        for number, start, end in zip(numbers, offsets, offsets[1:], strict=False)
        if end is not None
    ]


def _keep(
    place: Place, ladders: Ladders, replay: LadderReplay, season: EndedSeason, *, asked: bool
) -> str:
    """Keep the standings of a season. Returns a line about it."""
    ladder, job = replay.ladder, replay.run(season.end)
    standings = Standings(
        ladder, season.number, job.replayed_pool, job.rule, ladders.views(ladder), season.end,
        job.latest_time_s,
    )  # fmt: skip
    if not standings.players and not asked:
        return f"{_label(ladder, season)}: nobody had played"
    start = None if season.start is None else time_of(replay.record(season.start))
    summary = standings.summary(season.end, start, time_of(replay.record(season.end)))
    with place.season_writer(ladder, season.number) as writer:
        write_standings(writer, standings, summary)
    of = f"{counted(len(standings), 'listed player')} of {standings.players:,}"
    return f"{_label(ladder, season)}: {of}, before offset {season.end}"


def _label(ladder: str, season: EndedSeason) -> str:
    return f"ladder {shown(ladder)!r}, season {season.number}"


def write_standings(
    writer: SeasonWriter, standings: Standings, summary: season_ended.SeasonKept
) -> None:
    """Write the missing pages, and with the last one the summary. Raises Failed."""
    troubles, written = 0, -1
    while True:
        try:
            marks = _written_pages(writer, summary)
            if len(marks) > written:
                troubles, written = 0, len(marks)
            if any(each.digest != standings.digest for each in marks.values()):  # they must not mix
                raise errors.Failed(
                    f"{counted(len(marks), 'page')} of season {standings.season} were written by "
                    "other parameters, listing or tiers, and the rest is missing: give the command "
                    "the ladders file that they were written with"
                )
            _write_missing(writer, standings, summary, marks)
        except Outdone:
            raise errors.Failed(
                f"another process writes the standings of season {standings.season} now: it "
                "continues where this one ended"
            ) from None
        except Trouble:
            troubles += 1
            if troubles > MOST_TROUBLES:
                raise
            time.sleep(pause_s(troubles))
        else:
            return


def _written_pages(
    writer: SeasonWriter, summary: season_ended.SeasonKept
) -> Mapping[int, season_ended.PageWritten]:
    """The marks of the season's pages that are written, by the number of the page."""
    season = summary.ladder, summary.season
    marks = map(season_ended.decoded, filter(season_ended.is_mark, writer.begin()))
    return {
        each.page: each for each in marks
        if isinstance(each, season_ended.PageWritten) and (each.ladder, each.season) == season
    }  # fmt: skip


def _write_missing(
    writer: SeasonWriter, standings: Standings, summary: season_ended.SeasonKept,
    marks: Mapping[int, season_ended.PageWritten],
) -> None:  # fmt: skip
    for page in track([each for each in range(standings.pages) if each not in marks], "pages"):
        last = [summary] if page == standings.pages - 1 else []
        whole = [*standings.page(page), *last]
        writer.write([season_ended.encoded(each, summary.ended_at) for each in whole])


def time_of(record: Record) -> str:
    """The time of a record (RFC 3339, UTC): as its sender says, else when the log received it."""
    try:
        found = float(parse_time(header(record.headers, "ce_time")))
    except ValueError:
        found = record.received_s
    try:
        return datetime.fromtimestamp(int(found), UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00Z"
