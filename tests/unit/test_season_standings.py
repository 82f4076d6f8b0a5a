"""The standings of past seasons, kept beside a data file: equal to a replay by hand, once, final,
and the same bytes whoever writes them."""

import json
import random
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.season_file import SeasonFile, SeasonRows, seasons_path
from stream_rater.adapters.sqlite.submitter import FileSubmitter
from stream_rater.config import views
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.views import Listing, Tier, Views
from stream_rater.contract import season_ended
from stream_rater.contract.season_ended import Message, SeasonKept, Standing
from stream_rater.operations import season_standings as module
from stream_rater.rating import seasons
from stream_rater.replay import standings
from stream_rater.replay.corrected import verdicts_of_log
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.sequential import Replay
from tests.builders.cases import cases
from tests.builders.commands import done, failed
from tests.builders.rated_data_files import WINDOW, rate
from tests.edited_by_hand import LADDER, Editor, Line, a_log

PROVISIONAL = 5
"""The rounds before which a player is not listed, by default."""

PAGE = 3
"""The players of a page, here."""


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of few players."""
    monkeypatch.setattr(standings, "PLAYERS_PER_PAGE", PAGE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ratings.db"


def submit(path: Path, lines: Iterable[Line]) -> None:
    """Append lines to the log of a data file, and rate them."""
    with closing(Database.open(path, partitions=1)) as database:
        submitter = FileSubmitter(database)
        for line in lines:
            if kind := line.get("event_type", ""):
                submitter.correct(LADDER, kind, json.dumps(line).encode(), "")
            else:
                value = json.dumps(line).encode()
                submitter.submit(LADDER, line["round_id"], line["completed_at"], value)
        submitter.flush()
    rate(path, partitions=1)


def kept(path: Path, season: int) -> tuple[SeasonKept, list[Standing]]:
    rows = SeasonRows(path)
    (summary,) = [each for each in rows.kept(LADDER) if each.season == season]
    return summary, rows.after(LADDER, season, None, 1000)


def by_hand(lines: Sequence[Line]) -> list[tuple[str, float, float, float, int]]:
    """Player, rating, mu, sigma and rounds of all players after these lines, in order. An editor
    that shares no code with ours applies the corrections; the seasons are left."""
    editor = Editor()
    for place, line in enumerate(lines):
        editor.feed(place, line)
    left = [b"{}" if each is None else json.dumps(each).encode() for each in
            editor.edited(len(lines))]  # fmt: skip
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
    starts, last = [], 0
    for place, line in enumerate(lines):
        if line.get("event_type") == "season-started" and line["season"] > last:
            starts.append(place)
            last = line["season"]
    numbers = [0, *(lines[place]["season"] for place in starts)]
    return list(zip(numbers, starts, strict=False))


@cases("seed", range(5))
def test_standings_equal_a_replay_by_hand(tmp_path: Path, seed: int) -> None:
    """Of every season of a random log with all kinds of corrections: who was there, in order, with
    the same bits; ranks and percentiles by counting."""
    path, lines = tmp_path / f"{seed}.db", a_log(random.Random(seed), 60)
    lines[20:20] = [{"event_type": "season-started", "ladder": LADDER, "season": 1,
                     "keep": 0.5, "sigma": 100.0}]  # fmt: skip
    lines.append({"event_type": "season-started", "ladder": LADDER, "season": 1000})
    submit(path, lines)
    done("season-standings", LADDER, "--data", path)
    ended = ends_of(lines)
    assert len(ended) >= 2
    for number, end in ended:
        expected = by_hand(lines[:end])
        if not expected:
            continue
        summary, found = kept(path, number)
        assert (summary.offset, summary.players) == (end, len(expected))
        expected = [each for each in expected if each[4] >= PROVISIONAL]
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
    return [
        {
            "round_id": f"s{i}", "ladder": LADDER, "completed_at": f"2026-10-{1 + i:02}T00:00:00Z",
            "standings": [
                {"player": f"p{player}", "rank": rank}
                for rank, player in enumerate(rng.sample(range(8), 4), 1)
            ],
        }
        for i in range(24)
    ]  # fmt: skip


def test_players_of_equal_rating_share_a_rank(path: Path) -> None:
    """They are in order of their ids, and not worse than each other."""
    tied = [
        {
            "round_id": f"t{i}", "ladder": LADDER, "completed_at": f"2026-10-{1 + i:02}T00:00:00Z",
            "standings": [
                {"player": "last", "rank": 9}, *({"player": each, "rank": 1} for each in "bac"),
            ],
        }
        for i in range(6)
    ]  # fmt: skip
    submit(path, [*tied, begins(1)])
    done("season-standings", LADDER, "--data", path)
    found = kept(path, 0)[1]
    assert [(each.player, each.rank, each.percentile) for each in found] == [
        ("a", 1, 75.0), ("b", 1, 75.0), ("c", 1, 75.0), ("last", 4, 0.0)
    ]  # fmt: skip


def begins(number: int) -> Line:
    return {"event_type": "season-started", "ladder": LADDER, "season": number, "keep": 0.5}


def rows_of(path: Path) -> list[Any]:
    """Everything in the file of standings but the id of its data file."""
    with closing(sqlite3.connect(seasons_path(path))) as connection:
        return [
            connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall()
            for table in ("standings", "pages", "seasons")
        ]


def test_later_corrections_do_not_change_them(path: Path) -> None:
    """Neither what is written, nor what is written for the first time after them. And no page of
    the file has an id any more that was erased."""
    submit(path, [*some_season(), begins(1)])
    done("season-standings", LADDER, "0", "--data", path)
    before = rows_of(path)
    submit(path, [
        {"event_type": "player-removed", "ladder": LADDER, "player": "p1"},
        {"event_type": "round-voided", "ladder": LADDER, "round_id": "s3"},
    ])  # fmt: skip
    assert "kept before, 8 listed players" in done("season-standings", LADDER, "0", "--data", path)
    assert rows_of(path) == before
    seasons_path(path).unlink()
    done("season-standings", LADDER, "0", "--data", path)
    assert rows_of(path) == before


def test_a_correction_that_waits_does_not_count_yet(path: Path) -> None:
    """A deferred correction counts from `corrections-applied` on."""
    waits = {"event_type": "player-removed", "ladder": LADDER, "player": "p1", "batched": True}
    applied = {"event_type": "corrections-applied", "ladder": LADDER}
    submit(path, [*some_season(), waits, begins(1), applied, begins(2)])
    done("season-standings", LADDER, "--data", path)
    assert "p1" in [each.player for each in kept(path, 0)[1]]
    assert "p1" not in [each.player for each in kept(path, 1)[1]]


def test_what_n_means(path: Path) -> None:
    """0 is the time before the first season. A season that runs has no standings, and the line says
    which have."""
    submit(path, [begins(3), *some_season(), begins(7)])
    assert failed("season-standings", LADDER, "7", "--data", path) == (
        f"ladder {LADDER!r}: season 7 has not ended; those that have: 0, 3: `stream-rater correct "
        "season` starts the next one, which ends it"
    )
    printed = done("season-standings", LADDER, "--data", path).splitlines()
    assert printed == [
        f"ladder {LADDER!r}, season 0: nobody had played",
        f"ladder {LADDER!r}, season 3: 8 listed players of 8, before offset 25",
    ]
    assert done("season-standings", LADDER, "0", "--data", path) == (
        f"ladder {LADDER!r}, season 0: 0 listed players of 0, before offset 0\n"
    )
    assert [each.season for each in SeasonRows(path).kept(LADDER)] == [0, 3]
    summary = SeasonRows(path).kept(LADDER)[1]
    assert summary.started_at is not None and summary.started_at <= summary.ended_at


def test_a_ladder_that_has_no_ended_season(path: Path) -> None:
    """Nothing is written. A ladder without rounds is refused. A date, in UTC, can name a season; a
    text that is no number is refused. One that is in the log and not rated yet is not kept."""
    submit(path, some_season())
    assert done("season-standings", LADDER, "--data", path) == (
        f"ladder {LADDER!r}: no season has ended\n"
    )
    assert "ladder 'nowhere' has no rounds" in failed("season-standings", "nowhere", "--data", path)
    assert "season-started: round-completed" in done(
        "correct", "season", LADDER, "%Y%m", "--data", path
    )
    assert failed("season-standings", LADDER, "--wait", "0.1", "--data", path).startswith(
        "the workers are 1 record behind: nothing was written"
    )
    assert "give a whole number, or a form of the date" in failed(
        "correct", "season", LADDER, "autumn", "--data", path
    )
    assert not seasons_path(path).exists()


class Killed(BaseException):
    """The process ends here."""


@cases("calls", range(1, 4))
def test_killed_between_pages(tmp_path: Path, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever it ends, the next run writes the rest, and the file is the same, row by row, as that
    of one run."""
    path = tmp_path / f"{calls}.db"
    submit(path, [*some_season(), begins(1)])
    done("season-standings", LADDER, "--data", path)
    whole = rows_of(path)
    assert [len(each) for each in whole] == [8, 3, 1]
    seasons_path(path).unlink()
    write = SeasonFile.write

    def killed(self: SeasonFile, messages: Sequence[Message], time_: str) -> None:
        nonlocal calls
        calls -= 1
        if not calls:
            raise Killed
        write(self, messages, time_)

    with monkeypatch.context() as patch:
        patch.setattr(SeasonFile, "write", killed)
        with pytest.raises(Killed):
            done("season-standings", LADDER, "--data", path)
    assert SeasonRows(path).kept(LADDER) == [], "none of it is shown before all of it is there"
    done("season-standings", LADDER, "--data", path)
    assert rows_of(path) == whole


def test_other_terms_do_not_mix(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a part is written by one listing, another one writes no rest."""
    submit(path, [*some_season(), begins(1)])
    write = module._write_missing

    def first_page(store: Any, found: Any, summary: Any, marks: Any) -> None:
        store.write([*found.page(0)], summary.ended_at)
        raise Killed

    monkeypatch.setattr(module, "_write_missing", first_page)
    with pytest.raises(Killed):
        done("season-standings", LADDER, "--data", path)
    monkeypatch.setattr(module, "_write_missing", write)
    monkeypatch.setattr(module, "views_of", lambda *_: Views(tiers=(Tier(name="all"),)))
    assert "1 page of season 0 were written by other parameters, listing or tiers" in failed(
        "season-standings", LADDER, "--data", path
    )
    monkeypatch.undo()
    monkeypatch.setattr(standings, "PLAYERS_PER_PAGE", PAGE)
    done("season-standings", LADDER, "--data", path)
    assert all(each.tier is None for each in kept(path, 0)[1])


def test_listing_and_tiers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are among the listed. Tiers go by the displayed rating. Idle days count to the last
    round of the ladder."""
    late = {
        "round_id": "late", "ladder": LADDER, "completed_at": "2026-11-20T00:00:00Z",
        "standings": [{"player": "p1", "rank": 1}, {"player": "p2", "rank": 2}],
    }  # fmt: skip
    submit(path, [*some_season(), late, begins(1)])
    listing = Views(
        Listing(idle_days=5.0), (Tier(name="bronze"), Tier(name="gold", from_rating=1000.0))
    )
    monkeypatch.setattr(module, "views_of", lambda *_: listing)
    done("season-standings", LADDER, "--data", path)
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
    done("season-standings", LADDER, "--data", other)
    seasons_path(other).rename(seasons_path(path))
    assert failed("season-standings", LADDER, "--data", path) == (
        f"{seasons_path(path)} has the standings of another data file: delete it, and run "
        "`stream-rater season-standings` again"
    )


def test_erased_players_have_the_pseudonym_there_too(path: Path) -> None:
    """And no page of the file has the id any more."""
    submit(path, [*some_season(), begins(1)])
    done("season-standings", LADDER, "--data", path)
    before = kept(path, 0)[1]
    assert b"p1" in seasons_path(path).read_bytes()
    done("erase", "p1", "--pseudonym", "somebody", "--data", path)
    after = kept(path, 0)[1]
    assert {each.player for each in after} == {e.player for e in before} - {"p1"} | {"somebody"}
    assert b"p1" not in seasons_path(path).read_bytes()
    assert "kept before" in done("season-standings", LADDER, "--data", path)


@cases("record", [
    Standing(ladder="a:b", season=1, player="p%", rank=1, listed=1, percentile=0.0, tier=None,
             rating=1.0, mu=1.0, sigma=1.0, rounds=1),
    season_ended.PageWritten(ladder="a:b", season=1, page=0, pages=1, digest="d"),
    SeasonKept(ladder="a:b", season=1, started_at=None, ended_at="t", offset=1, players=1,
               listed=1, pages=1),
])  # fmt: skip
def test_records_are_read_as_they_were_written(record: season_ended.SeasonRecord) -> None:
    """The key says what a record is, whatever ids are in it."""
    message = season_ended.message_of(record)
    assert season_ended.record_of(message.key, message.value) == record
    assert season_ended.record_of(message.key, None) is None
    assert season_ended.record_of(message.key, b"no JSON") is None
    assert season_ended.record_of(b"one", message.value) is None
