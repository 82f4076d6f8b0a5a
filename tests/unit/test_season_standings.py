"""Standings of past seasons beside a data file: equal to those by hand, once, final, same bytes."""

import json
import random
import re
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec import structs

from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.followed import FileLog
from stream_rater.adapters.sqlite.log import FileSubmitter
from stream_rater.adapters.sqlite.names import index_path, seasons_path
from stream_rater.adapters.sqlite.reading import DataFile
from stream_rater.adapters.sqlite.season_file import SeasonFile
from stream_rater.config import views
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.config.settings import Settings
from stream_rater.config.views import Listing, Tier, Views
from stream_rater.contract import season_ended
from stream_rater.contract.season_ended import SeasonKept, Standing, decoded, encoded
from stream_rater.operations import season_standings as module
from stream_rater.operations.migrate import Migration
from stream_rater.operations.rewriting import Mentions, Pseudonym
from stream_rater.places import opened
from stream_rater.rating import seasons
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.ledger import verdicts_of_log
from stream_rater.replay.sequential import Replay
from tests.builders.cases import cases
from tests.builders.commands import done, failed
from tests.builders.lines import a_correction, a_round
from tests.builders.memory_places import an_empty_place
from tests.builders.rated_data_files import WINDOW, rate
from tests.edited_by_hand import LADDER, Editor, Line, a_log
from tests.rounds import ranked


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(season_ended, "PLAYERS_PER_PAGE", 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ratings.db"


def submit(path: Path, lines: Iterable[Line]) -> None:
    with closing(Database.open(path, partitions=1)) as database:
        submitter = FileSubmitter(database)
        for line in lines:
            value = json.dumps(line).encode()
            if kind := line.get("event_type", ""):
                submitter.correct(LADDER, kind, value, "")
            else:
                submitter.submit(LADDER, line["round_id"], line["completed_at"], value)
        submitter.flush()
    rate(path, partitions=1)


def keep(path: Path, *words: str) -> str:
    """The output of the command that keeps the standings."""
    return done("season-standings", LADDER, *words, "--data", path)


def refused(path: Path, *words: str) -> str:
    """The one line of the same if it fails."""
    return failed("season-standings", LADDER, *words, "--data", path)


def kept(path: Path, season: int) -> tuple[SeasonKept, list[Standing]]:
    (summary,) = [each for each in summaries(path) if each.season == season]
    records = [*map(decoded, SeasonFile(seasons_path(path)).records())]
    standings = [e for e in records if isinstance(e, Standing) and e.season == season]
    return summary, sorted(standings, key=lambda each: (each.rank, each.player.encode()))


def summaries(path: Path) -> Sequence[SeasonKept]:
    with opened(Settings(data=str(path))) as place:
        return place.kept_seasons(LADDER)


def by_hand(lines: Sequence[Line]) -> list[tuple[str, float, float, float, int]]:
    """All players after these lines, in order, by an editor of the log that shares no code."""
    editor = Editor()
    for place, line in enumerate(lines):
        editor.feed(place, line)
    left = [json.dumps(each or {}).encode() for each in editor.edited(len(lines))]
    verdicts = verdicts_of_log(lambda: records_of(left), ANY_LADDER, WINDOW)
    replay = Replay(ANY_LADDER, WINDOW, verdicts=verdicts)
    for _ in replay.run(records_of(left)):
        pass
    pool = replay.pools.get(LADDER)
    if pool is None:
        return []
    names, rows = pool.names.texts(), pool.played()
    header = pool.headers(rows)
    mu, sigma = seasons.seen(pool.rule, header)
    found = [
        (names[row], float(pool.rule.rating(float(m), float(s))), float(m), float(s), int(rounds))
        for row, m, s, rounds in zip(rows.tolist(), mu, sigma, header["rounds"], strict=True)
    ]
    return sorted(found, key=lambda each: (-each[1], each[0]))


def ends_of(lines: Sequence[Line]) -> list[tuple[int, int]]:
    """Number and end of each season that has ended, by the accepted records that start seasons."""
    ends, last = [], 0
    for place, line in enumerate(lines):
        if line.get("event_type") == "season-started" and line["season"] > last:
            ends.append((last, place))
            last = line["season"]
    return ends


@cases("seed", range(5))
def test_standings_equal_a_replay_by_hand(tmp_path: Path, seed: int) -> None:
    """In every season of a random log: who was there, in order, with the same bits and ranks."""
    path, lines = tmp_path / f"{seed}.db", a_log(random.Random(seed), 60)
    lines[20:20] = [{**begins(1), "sigma": 100.0}]
    lines.append(a_correction("season-started", ladder=LADDER, season=1000))
    submit(path, lines)
    keep(path)
    ended = ends_of(lines)
    assert len(ended) >= 2
    for number, end in ended:
        expected = by_hand(lines[:end])
        if not expected:
            continue
        summary, found = kept(path, number)
        assert (summary.offset, summary.players) == (end, len(expected))
        expected = [each for each in expected if each[4] >= 5]  # who played less is not listed
        assert summary.listed == len(found) == len(expected)
        assert [(e.player, e.rating, e.mu, e.sigma, e.rounds) for e in found] == expected
        ratings = [each.rating for each in found]
        for each in found:
            assert each.rank == 1 + sum(rating > each.rating for rating in ratings)
            assert each.percentile == 100.0 * (len(found) - each.rank) / len(found)
            assert (each.ladder, each.season, each.listed) == (LADDER, number, len(found))


def some_season() -> list[Line]:
    """Rounds of eight players, each of whom plays often enough to be listed."""
    rng = random.Random(7)
    names = [f"p{player}" for player in range(8)]
    return [a_round(i, *rng.sample(names, 4), ladder=LADDER) for i in range(24)]


def test_players_of_equal_rating_share_a_rank(path: Path) -> None:
    """They are in order of their ids, and not worse than each other."""
    standings = ranked([9, 1, 1, 1], ["last", "b", "a", "c"])
    tied = [a_round(i, ladder=LADDER, standings=standings) for i in range(6)]
    submit(path, [*tied, begins(1)])
    keep(path)
    assert [(each.player, each.rank, each.percentile) for each in kept(path, 0)[1]] == [
        ("a", 1, 75.0), ("b", 1, 75.0), ("c", 1, 75.0), ("last", 4, 0.0)
    ]  # fmt: skip


def begins(number: int) -> Line:
    return a_correction("season-started", ladder=LADDER, season=number, keep=0.5)


def rows_of(path: Path) -> list[Any]:
    """Everything in the file of standings but the id of its data file."""
    with closing(sqlite3.connect(seasons_path(path))) as connection:
        return [
            connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall()
            for table in ("standings", "pages", "seasons")
        ]


def test_later_corrections_do_not_change_them(path: Path) -> None:
    """Neither what is written, nor what is written for the first time after them."""
    submit(path, [*some_season(), begins(1)])
    keep(path, "0")
    before = rows_of(path)
    voided = a_correction("round-voided", ladder=LADDER, round_id="r3")
    submit(path, [a_correction("player-removed", ladder=LADDER, player="p1"), voided])
    assert "kept before, 8 listed players" in keep(path, "0")
    assert rows_of(path) == before
    seasons_path(path).unlink()
    keep(path, "0")
    assert rows_of(path) == before


def test_a_correction_that_waits_does_not_count_yet(path: Path) -> None:
    """A deferred correction counts from `corrections-applied` on."""
    waits = a_correction("player-removed", ladder=LADDER, player="p1", batched=True)
    applied = a_correction("corrections-applied", ladder=LADDER)
    submit(path, [*some_season(), waits, begins(1), applied, begins(2)])
    keep(path)
    assert "p1" in [each.player for each in kept(path, 0)[1]]
    assert "p1" not in [each.player for each in kept(path, 1)[1]]


def test_what_n_means(path: Path) -> None:
    """0 is the time before the first season. A season that runs has no standings."""
    submit(path, [begins(3), *some_season(), begins(7)])
    assert refused(path, "7") == (
        f"ladder {LADDER!r}: season 7 has not ended; those that have: 0, 3: `stream-rater correct "
        "season` starts the next one, which ends it"
    )
    assert keep(path).splitlines() == [
        f"ladder {LADDER!r}, season 0: nobody had played",
        f"ladder {LADDER!r}, season 3: 8 listed players of 8, before offset 25",
    ]
    kept_before = keep(path, "0")
    assert kept_before == f"ladder {LADDER!r}, season 0: 0 listed players of 0, before offset 0\n"
    assert [each.season for each in summaries(path)] == [0, 3]
    summary = summaries(path)[1]
    assert summary.started_at is not None and summary.started_at <= summary.ended_at


def test_a_ladder_that_has_no_ended_season(path: Path) -> None:
    """Nothing is written. A season may be named by a date; one that is not rated is not kept."""
    submit(path, some_season())
    none = f"ladder {LADDER!r}: no season has ended\n"
    assert keep(path) == none
    assert "ladder 'nowhere' has no rounds" in failed("season-standings", "nowhere", "--data", path)
    start = "correct", "season", LADDER
    assert "season-started: round-completed" in done(*start, "%Y%m", "--data", path)
    behind = "the workers are 1 record behind: nothing was written"
    assert refused(path, "--wait", "0.1").startswith(behind)
    assert "give a whole number, or a form of the date" in failed(*start, "autumn", "--data", path)
    assert not seasons_path(path).exists()


class Killed(BaseException):
    """The process ends here."""


def keep_one_page(path: Path) -> None:
    """Write standings in a process that ends when it has written their first page."""

    def first_page(store: Any, found: Any, summary: Any, marks: Any) -> None:
        store.write([encoded(each, summary.ended_at) for each in found.page(0)])
        raise Killed

    with patch.object(module, "_write_missing", first_page), pytest.raises(Killed):
        keep(path)


def test_killed_between_pages(path: Path) -> None:
    """The next run writes the rest, and the file is the same as that of one run."""
    submit(path, [*some_season(), begins(1)])
    keep(path)
    whole, write = rows_of(path), SeasonFile.write
    assert [len(each) for each in whole] == [8, 3, 1]

    def killed(*given: Any) -> None:
        if not left:
            raise Killed
        left.pop()(*given)

    for calls in range(3):
        left = [write] * calls
        seasons_path(path).unlink()
        with patch.object(SeasonFile, "write", killed), pytest.raises(Killed):
            keep(path)
        assert summaries(path) == [], "none of it is shown before all of it is there"
        keep(path)
        assert rows_of(path) == whole


def test_a_season_that_is_being_written_hides_no_other(path: Path) -> None:
    """An index reads what there is. The season appears once its summary does."""
    submit(path, [*some_season(), begins(1), a_round(50, "p1", "p2", ladder=LADDER), begins(2)])
    keep(path, "0")
    keep_one_page(path)
    with closing(FileLog(path)) as log:
        topic = log.standings()
        topic.start_at({0: 0})
        found = [*map(decoded, topic.gather(0.0))]
        assert [each.season for each in found if isinstance(each, SeasonKept)] == [0]
        assert {each.season for each in found if isinstance(each, Standing)} == {0, 1}
        assert topic.ends == {0: 1} and topic.end_offsets() == [1]


def test_other_terms_do_not_mix(path: Path) -> None:
    """If a part is written by one listing, another one writes no rest."""
    submit(path, [*some_season(), begins(1)])
    keep_one_page(path)
    with patch.object(Ladders, "views", lambda *_: Views(tiers=(Tier(name="all"),))):
        why = refused(path)
    assert "1 page of season 0 were written by other parameters, listing or tiers" in why
    keep(path)
    assert all(each.tier is None for each in kept(path, 0)[1])


def test_listing_and_tiers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are among the listed. Idle days count to the last round of the ladder."""
    submit(path, [*some_season(), a_round(50, "p1", "p2", ladder=LADDER), begins(1)])
    tiers = Tier(name="bronze"), Tier(name="gold", from_rating=1000.0)
    listing = Views(Listing(idle_days=5.0), tiers)
    monkeypatch.setattr(Ladders, "views", lambda *_: listing)
    keep(path)
    summary, found = kept(path, 0)
    assert (summary.players, summary.listed) == (8, 2)
    assert sorted(each.player for each in found) == ["p1", "p2"]
    assert [each.rank for each in found] == [1, 2]
    for each in found:
        assert each.tier == views.tier_of(listing, each.rating)


def test_a_file_of_another_data_file_is_refused(path: Path, tmp_path: Path) -> None:
    """Its standings are of another log."""
    other = tmp_path / "other.db"
    for each in (path, other):
        submit(each, [*some_season(), begins(1)])
    keep(other)
    seasons_path(other).rename(seasons_path(path))
    assert refused(path) == (
        f"{seasons_path(path)} has the standings of another data file: delete it, and run "
        "`stream-rater season-standings` again"
    )


def test_erased_players_have_the_pseudonym_there_too(path: Path) -> None:
    """And no page of the file has the id any more."""
    submit(path, [*some_season(), begins(1)])
    keep(path)
    before = kept(path, 0)[1]
    assert b"p1" in seasons_path(path).read_bytes()
    done("erase", "p1", "--pseudonym", "somebody", "--data", path)
    after = kept(path, 0)[1]
    assert {each.player for each in after} == {e.player for e in before} - {"p1"} | {"somebody"}
    assert b"p1" not in seasons_path(path).read_bytes()
    assert "kept before" in keep(path)


def test_erase_waits_for_a_season_that_is_written_in_part(path: Path) -> None:
    """With another name in it, nobody could write the rest. Nothing has changed then."""
    submit(path, [*some_season(), begins(1)])
    erase = "erase", "p1", "--pseudonym", "somebody", "--data", path
    keep_one_page(path)
    before = rows_of(path)
    assert failed(*erase) == (
        f"ladder {LADDER!r}, season 0: only a part of its standings is written: run "
        f"`stream-rater season-standings {LADDER} 0` to its end, then this again"
    )
    assert rows_of(path) == before
    keep(path, "0")
    done(*erase)
    assert b"p1" not in seasons_path(path).read_bytes()
    assert "kept before" in keep(path)


@cases("pseudonym", [None, Pseudonym("p1", "x")])
def test_standings_that_are_written_in_part_are_not_copied(
    path: Path, pseudonym: Pseudonym | None
) -> None:
    """Nor are those that were begun after the check. Complete ones are copied entirely."""
    submit(path, [*some_season(), begins(1)])
    keep(path)
    source, target = an_empty_place(), an_empty_place()
    source.past = [*SeasonFile(seasons_path(path)).records()]
    work = Migration(source, target, ANY_LADDER, pseudonym, "nothing was moved")
    work.check()
    work.copy(Mentions(None))
    assert len(target.past) == len(source.past) == 12
    records = map(decoded, target.past)
    names = {each.player for each in records if isinstance(each, Standing)}
    assert {"p1", "x"} & names == {"x" if pseudonym else "p1"}
    source.past.pop()  # the summary
    for copy in (work.check, lambda: work.copy(Mentions(None))):
        with pytest.raises(Failed, match=rf"ladder {LADDER!r}, season 0: only a part of its"):
            copy()


def test_an_erasure_that_fails_changes_no_standings(path: Path) -> None:
    """Nor the index, if a program reads the file. The next one has one pseudonym for all files."""
    submit(path, [*some_season(), begins(1)])
    keep(path)
    index = index_path(path)
    index.write_bytes(bytes(5))  # as after a power cut
    before = seasons_path(path).read_bytes()
    with closing(DataFile(path)) as file:
        file.ends()
        assert "another program reads" in failed("erase", "p1", "--data", path)
    assert (seasons_path(path).read_bytes(), index.read_bytes()) == (before, bytes(5))
    assert "kept before" in keep(path) and not [*path.parent.glob("*.stream-rater-*")]
    done("erase", "p1", "--data", path)
    pseudonym = re.compile(b"erased-[0-9a-f]{16}").findall
    names = [set(pseudonym(each.read_bytes())) for each in (path, seasons_path(path))]
    assert names[0] == names[1] and len(names[0]) == 1 and not index.exists()


def test_an_erasure_that_stops_before_the_standings_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it does when the file is opened to be written, and by `season-standings`."""
    submit(path, [*some_season(), begins(1)])
    keep(path)
    rename = Path.replace

    def stop(new: Path, place: Path) -> Path:
        if place == seasons_path(path):
            raise OSError("stopped")
        return rename(new, place)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", stop)
        assert failed("erase", "p1", "--pseudonym", "me", "--data", path) == "stopped"
    new = path.with_name("ratings.db-seasons.stream-rater-new")
    left = new.read_bytes()
    for puts in (lambda: Database.open(path).close(), lambda: keep(path)):
        new.write_bytes(left)
        puts()
        assert "me" in {each.player for each in kept(path, 0)[1]}
        assert b'"p1"' not in seasons_path(path).read_bytes() + path.read_bytes()
        assert not [*path.parent.glob("*.stream-rater-*")]


@cases("record", [
    Standing(ladder="a:b", season=1, player="p%", rank=1, listed=1, percentile=0.0, tier=None,
             rating=1.0, mu=1.0, sigma=1.0, rounds=1),
    season_ended.PageWritten(ladder="a:b", season=1, page=0, pages=1, digest="d"),
    SeasonKept(ladder="a:b", season=1, started_at=None, ended_at="t", offset=1, players=1,
               listed=1, pages=1),
])  # fmt: skip
def test_records_are_read_as_they_were_written(record: season_ended.SeasonRecord) -> None:
    """The key says what a record is, whatever ids are in it."""
    message = encoded(record, "t")
    assert decoded(message) == record
    for other in ({"value": None}, {"value": b"no JSON"}, {"key": b"one"}, {"key": None}):
        assert decoded(structs.replace(message, **other)) is None
