"""The index in a SQLite file: equal to the newest events, however they come; ranks, ties, cursors
and around-me beside a plain table, while ratings move. The facts are those of the index in Redis
(`test_serve_index`)."""

import asyncio
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stream_rater.adapters.sqlite.names import Unusable
from stream_rater.contract.errors import StoreTrouble
from stream_rater.contract.events import RatingChanged
from stream_rater.index.entries import PlayerErased, bin_of, player_of
from stream_rater.serve.index import file_index
from stream_rater.serve.index.file_index import FileIndexReader, FileIndexWriter
from stream_rater.serve.index.reader import ReadPositions
from stream_rater.serve.questions import AbsentLadder, Incomplete
from tests.builders.cases import cases
from tests.contract.test_serve_index import LADDER, an_event, compare_pages, some_events

KEPT = 3


class Index:
    """A file with an index, and a reader with a connection of its own."""

    def __init__(self, file: Path, data: str = "one") -> None:
        self.writer = FileIndexWriter(file, KEPT)
        self.positions = ReadPositions()
        self.positions.all_read([0])
        self.reader = FileIndexReader(file, KEPT, self.positions)
        self.next = self.writer.begin(data, 100)
        self.reading = sqlite3.connect(file)

    def apply(self, events: Sequence[Any], end: int = 0) -> None:
        self.writer.apply(events, end)

    def ask(self, question: str, *given: Any) -> Any:
        return asyncio.run(getattr(self.reader, question)(*given))

    def contents(self) -> list[Any]:
        """All rows of all tables, without the position."""
        names = ("ladders", "players", "bins", "changes")
        found = {name: self.reading.execute(f"SELECT * FROM index_{name}") for name in names}
        rows = {name: rows.fetchall() for name, rows in found.items()}
        rows["bins"] = [each for each in rows["bins"] if each[2]]
        return [*rows.items()]

    def close(self) -> None:
        self.reading.close()
        self.writer.close()
        asyncio.run(self.reader.close())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ratings.db"


def test_pages_equal_a_plain_table(tmp_path: Path) -> None:
    """As those of the index in Redis."""
    for seed in range(4):
        with closing(Index(tmp_path / f"{seed}.db")) as index:
            compare_pages(seed, index.apply, index.ask)


@cases("seed", range(6))
def test_any_order_and_any_repetition(file: Path, seed: int) -> None:
    """Old events, repetitions and other batches lead to the same index."""
    file = file.with_name(f"{seed}.db")
    rng, events = random.Random(seed), some_events(seed)
    given = [*events, *rng.sample(events, 20)]
    rng.shuffle(given)
    newest = {each.player: each for each in sorted(events, key=lambda each: each.offset)}
    with closing(Index(file)) as index:
        for first in range(0, len(given), 7):
            index.apply(given[first : first + 7])
        names = sorted(newest)
        assert index.ask("players", LADDER, names) == [player_of(newest[name]) for name in names]
        view = index.ask("ladder", LADDER)
        listed = [each for each in newest.values() if each.rounds and not each.provisional]
        bins = [bin_of(each.rating) for each in listed]
        assert view.bins == {at: bins.count(at) for at in sorted(set(bins))}
        assert view.listed == len(listed)
        last = max(newest.values(), key=lambda each: each.offset)
        counting = sum(each.rounds > 0 for each in newest.values())
        assert (view.summary.players, view.summary.offset) == (counting, last.offset)
        for name in names:
            own = [each.offset for each in events if each.player == name][-KEPT:]
            assert [change.offset for change in index.ask("history", LADDER, name)] == own


def test_histories_are_cut_back(file: Path) -> None:
    """A history has the newest changes, and the file has at most twice as many."""
    with closing(Index(file)) as index:
        for number in range(1, 50):
            index.apply([an_event("ann", number, rounds=number)])
            history = index.ask("history", LADDER, "ann")
            assert [each.offset for each in history] == [*range(1, number + 1)][-KEPT:]
            assert len(dict(index.contents())["changes"]) < 2 * KEPT


def test_an_erased_player_leaves_no_trace(tmp_path: Path) -> None:
    """The index is what it would be without the player's events."""
    events: list[RatingChanged] = some_events(2)
    gone, last = events[0].player, an_event("somebody", 40)
    with closing(Index(tmp_path / "with")) as erased, closing(Index(tmp_path / "never")) as never:
        erased.apply(events)
        erased.apply([PlayerErased(LADDER, gone), PlayerErased(LADDER, "stranger"), last])
        never.apply([*(event for event in events if event.player != gone), last])
        assert erased.contents() == never.contents()


def test_what_is_missing(file: Path) -> None:
    """A ladder without events, a player without events, a file that cannot be read."""
    with closing(Index(file)) as index:
        assert index.ask("ladder", LADDER) is None
        assert index.ask("ladders") == []
        with pytest.raises(AbsentLadder):
            index.ask("players", LADDER, ["ann"])
        index.apply([an_event("ann", 1)])
        assert index.ask("ladders") == [LADDER]
        assert index.ask("player", LADDER, "bob") is None
        assert index.ask("history", LADDER, "bob") == ()
        index.ask("close")
        with pytest.raises(StoreTrouble, match="sqlite"):
            index.ask("ladders")


def test_an_index_that_lacks_events_does_not_answer(file: Path) -> None:
    with closing(Index(file)) as index:
        index.apply([an_event("ann", 1)], 7)
        index.positions.all_read([7])
        assert index.ask("ladders") == [LADDER]
        index.positions.all_read([8])
        for question in (["ladders"], ["ladder", LADDER], ["players", LADDER, ["ann"]]):
            with pytest.raises(Incomplete):
                index.ask(*question)


def test_it_goes_on_where_it_was(file: Path) -> None:
    """Reading begins at the stored position. It begins at the start for another data file, for a
    file that has fewer events, and if the format is another."""
    with closing(Index(file)) as index:
        assert index.next == 0
        index.apply([an_event("ann", 1)], 7)
    with closing(Index(file)) as index:
        assert index.next == 7
        assert index.writer.begin("one", 7) == 7
        for data, end in (("other", 7), ("other", 6)):
            index.apply([an_event("ann", 1)], 7)
            assert index.writer.begin(data, end) == 0
            assert dict(index.contents())["players"] == []
        index.reading.execute("UPDATE index_state SET format = 0, next = 3")
        index.reading.commit()
        assert index.writer.begin("other", 7) == 0


@cases("kind", ["zeros", "older", "other tables", "this format"])
def test_what_is_no_index_of_this_format_is_deleted(file: Path, kind: str) -> None:
    """What a power cut leaves of a new one, and an index whose tables an older release has made.
    Its write-ahead log goes with it. One of this format stays."""
    file.unlink(missing_ok=True)
    with closing(Index(file)) as index:
        index.apply([an_event("ann", 1)], 7)
    with closing(sqlite3.connect(file)) as changed:
        if kind == "older":
            changed.execute("UPDATE index_state SET format = 0")
        elif kind == "other tables":
            changed.execute("ALTER TABLE index_state DROP COLUMN format")
        changed.commit()
    if kind == "zeros":
        file.write_bytes(bytes(4096))
    file_index.make_room(file)
    left = [each.name for each in file.parent.iterdir()]
    assert left == ([file.name] if kind == "this format" else [])
    with closing(Index(file)) as index:
        assert index.next == (7 if kind == "this format" else 0)


def test_a_file_of_somebody_else_is_not_deleted(tmp_path: Path) -> None:
    """One of SQLite with other tables, and a text: the error names it."""
    theirs = tmp_path / "ratings.db-index"
    theirs.write_text("a list of mine")
    with pytest.raises(Unusable, match="is a file of another program: move it away"):
        file_index.make_room(theirs)
    assert theirs.read_text() == "a list of mine"
    theirs.unlink()
    with closing(sqlite3.connect(theirs)) as connection:
        connection.execute("CREATE TABLE precious (x)")
    with pytest.raises(Unusable, match="is a file of another program: move it away"):
        file_index.make_room(theirs)
    with closing(sqlite3.connect(theirs)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("precious",)]


def test_events_that_the_data_file_has_lost(file: Path) -> None:
    """Its index shows that they were there. One of another data file shows nothing."""
    file_index.make_room(file, "one", 0)
    assert not file.exists()
    with closing(Index(file, "one")) as index:
        index.apply([an_event("ann", 1)], 7)
    file_index.make_room(file, "one", 7)
    file_index.make_room(file, "other", 6)
    with pytest.raises(Unusable, match=r"has lost rounds .* put back ratings\.db-wal or a backup"):
        file_index.make_room(file, "one", 6)


def test_a_power_cut_does_not_damage_it(file: Path) -> None:
    """What moves from the write-ahead log into the file is synchronized before the log begins
    again. Without that, the file may have old and new pages, which nothing shows."""
    with closing(Index(file)) as index:
        assert index.writer._do.execute("PRAGMA synchronous").fetchone() == (1,)
        assert index.writer._do.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_damaged_index_is_found(file: Path) -> None:
    """By its pages, or because it is no file of SQLite."""
    with closing(Index(file)) as index:
        for number in range(400):
            index.apply([an_event(f"p{number}", number)], number + 1)
    assert not file_index.is_damaged(file)
    whole = file.read_bytes()
    file.write_bytes(whole[:20_000] + b"x" * 4096 + whole[24_096:])
    assert file_index.is_damaged(file)
    file.write_bytes(b"x" * 8192)
    assert file_index.is_damaged(file)
