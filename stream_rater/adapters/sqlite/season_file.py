"""The standings of past seasons of a data file, in a SQLite file of their own beside it.

They follow from the log in the data file, so the file can be made again with the command that wrote
it. Another process than that of the data file writes it, while that process may run and read it.
Each page is one transaction, with the mark that it is written. The file has a journal in place of a
write-ahead log: several processes may write, and each locks the whole file.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import groupby
from pathlib import Path

from stream_rater.adapters.sqlite.database import BUSY_S, opening
from stream_rater.adapters.sqlite.names import NEW, check_name, has_ours, real, seasons_path
from stream_rater.adapters.sqlite.schema import private_files
from stream_rater.contract import season_ended
from stream_rater.contract.errors import Unusable

FORMAT = 1

TABLES = f"""
CREATE TABLE of_data (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL);
CREATE TABLE pages (
    ladder TEXT NOT NULL, season INTEGER NOT NULL, page INTEGER NOT NULL, key BLOB NOT NULL,
    value BLOB NOT NULL, PRIMARY KEY (ladder, season, page)
) WITHOUT ROWID;
CREATE TABLE seasons (
    ladder TEXT NOT NULL, season INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (ladder, season)
) WITHOUT ROWID;
CREATE TABLE standings (
    ladder TEXT NOT NULL, season INTEGER NOT NULL, player TEXT NOT NULL, score REAL NOT NULL,
    key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (ladder, season, player)
) WITHOUT ROWID;
CREATE INDEX standings_in_order ON standings (ladder, season, score, player);
PRAGMA user_version = {FORMAT};
"""
"""`score` is minus the displayed rating, and `value` the record as in the topic `season-ended`.
`of_data` has the id of the data file."""


class SeasonFile:
    """Writes the standings of a season. The methods raise StoreTrouble, Denied or Unusable."""

    def __init__(self, path: Path, data_id: str, ladder: str, season: int) -> None:
        """Open the file, or create it. `data_id`: the id of its data file."""
        self._path, self._season = path, (ladder, season)
        self._connection = _opened(path, data_id)
        self.close = self._connection.close

    def begin(self) -> Mapping[int, season_ended.PageWritten]:
        """The marks of the pages that are written, by the number of the page."""
        sql = "SELECT key, value FROM pages WHERE ladder = ? AND season = ?"
        with opening(self._path):
            found = self._connection.execute(sql, self._season).fetchall()
        marks = (season_ended.record_of(*row) for row in found)
        return {each.page: each for each in marks if isinstance(each, season_ended.PageWritten)}

    def write(self, messages: Iterable[season_ended.Message], _: str) -> None:
        """Write a page in one transaction, unless it is there. It may have the season's summary."""
        with opening(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for each in messages:
                    self._write(each)
                self._connection.execute("COMMIT")
            except sqlite3.IntegrityError:  # another process has written it
                self._connection.execute("ROLLBACK")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def _write(self, message: season_ended.Message) -> None:
        table, own = "seasons", tuple[str | float, ...]()
        match season_ended.record_of(message.key, message.value):
            case season_ended.Standing(player=player, rating=rating):
                table, own = "standings", (player, -rating)
            case season_ended.PageWritten(page=page):
                table, own = "pages", (page,)
            case None:
                return
        row = *self._season, *own, message.key, message.value
        self._connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


class SeasonRows:
    """Reads the standings of past seasons. The methods raise StoreTrouble, Denied or Unusable."""

    def __init__(self, data: Path, data_id: str = "") -> None:
        """`data`: the data file. `data_id`: its id; another file's standings are then Unusable."""
        self._path, self._data_id = seasons_path(data), data_id

    def kept(self, ladder: str) -> list[season_ended.SeasonKept]:
        """The summaries of a ladder's seasons, in order."""
        found = self._records("seasons WHERE ladder = ? ORDER BY season", ladder)
        return [each for each in found if isinstance(each, season_ended.SeasonKept)]

    def _records(self, sql: str, *values: object) -> list[season_ended.SeasonRecord | None]:
        with self._reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(f"SELECT key, value FROM {sql}", values).fetchall()
        return [season_ended.record_of(*row) for row in rows]

    def count(self) -> int:
        """The number of seasons that are kept, of all ladders."""
        with self._reading() as connection:
            if connection is None:
                return 0
            return int(connection.execute("SELECT count(*) FROM seasons").fetchone()[0])

    def all_records(self, *, whole: bool = True) -> Iterator[tuple[season_ended.Message, str]]:
        """Yield the records of all seasons that are kept, with their times: of each season the
        standings first, then the marks of its pages, and the summary last. Raises Unusable if only
        a part of a season is written, unless `whole` is false."""
        with self._reading() as connection:
            if connection is None:
                return
            begun = "SELECT ladder, season FROM pages EXCEPT SELECT ladder, season FROM seasons"
            for season in connection.execute(begun).fetchall() if whole else ():
                raise Unusable(season_ended.unfinished(*season))
            for key, value in connection.execute("SELECT key, value FROM seasons").fetchall():
                summary = season_ended.record_of(key, value)
                assert isinstance(summary, season_ended.SeasonKept)
                season = summary.ladder, summary.season
                for table in ("standings", "pages", "seasons"):
                    sql = f"SELECT key, value FROM {table} WHERE ladder = ? AND season = ?"
                    for row in connection.execute(sql, season):
                        found = season_ended.record_of(*row)
                        assert found is not None
                        yield season_ended.message_of(found), summary.ended_at

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A connection that writes nothing of its own; None if there is no file yet. (It may have
        to take back what a process left half written that was killed.)"""
        if not self._path.is_file():
            yield None
            return
        check_name(self._path)
        uri = f"{self._path.absolute().as_uri()}?mode=rw"
        with opening(self._path), ExitStack() as stack:
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S)
            stack.enter_context(closing(connection))
            connection.execute("PRAGMA query_only = ON")
            if ours := has_ours(connection, self._path, "of_data"):
                _check_owner(connection, self._path, self._data_id)
            yield connection if ours else None


def write_new(
    data: Path, data_id: str, messages: Iterable[tuple[season_ended.Message, str]]
) -> None:
    """Write records of past seasons, if there are any, to a new file. `data`: the new data file,
    with this id, which is to replace another. `names.settle` then puts the standings in place."""
    path = real(seasons_path(data.with_suffix("")), NEW)

    def season_of(each: tuple[season_ended.Message, str]) -> tuple[str, int]:
        found = season_ended.record_of(each[0].key, each[0].value)
        assert found is not None, "it is of the topic"
        return found.ladder, found.season

    for (ladder, season), own in groupby(messages, season_of):
        with closing(SeasonFile(path, data_id, ladder, season)) as file:
            file.write((message for message, _ in own), "")


def _opened(path: Path, data_id: str) -> sqlite3.Connection:
    """A connection that writes. `data_id`: that of the data file; empty for any. Raises Unusable if
    the file belongs to another data file, or to another release."""
    check_name(path)
    with private_files(), opening(path), ExitStack() as undo:
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        undo.callback(connection.close)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        if not has_ours(connection, path, "of_data"):
            for statement in filter(str.strip, TABLES.split(";\n")):
                connection.execute(statement)
            connection.execute("INSERT INTO of_data VALUES (1, ?)", (data_id,))
        _check_owner(connection, path, data_id)
        connection.execute("COMMIT")
        undo.pop_all()
    return connection


def _check_owner(connection: sqlite3.Connection, path: Path, data_id: str) -> None:
    """Raise Unusable if the standings are of another release, or of another data file."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != FORMAT:
        raise Unusable(
            f"{path} has format {version}, and this release knows format {FORMAT}: use the release "
            "that wrote it, or delete it, and run `stream-rater season-standings` again"
        )
    (found,) = connection.execute("SELECT id FROM of_data").fetchone()
    if data_id and found != data_id:
        raise Unusable(
            f"{path} has the standings of another data file: delete it, and run `stream-rater "
            "season-standings` again"
        )
