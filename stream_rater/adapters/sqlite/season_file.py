"""The standings of past seasons of a data file, in a SQLite file of their own beside it.

They follow from the log in the data file, so the file can be made again with the command that wrote
it. Another process than that of the data file writes it, while that process may run and read it.
Each page is one transaction, with the mark that it is written. The file has a journal in place of a
write-ahead log: several processes may write, and each locks the whole file.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path

from stream_rater.adapters.sqlite.database import BUSY_S, opening
from stream_rater.adapters.sqlite.names import check_name, has_ours
from stream_rater.adapters.sqlite.schema import private_files
from stream_rater.contract import season_ended
from stream_rater.contract.errors import Unusable
from stream_rater.contract.record import ANY_OFFSET, Record

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


BEGUN = (
    "SELECT DISTINCT pages.ladder, pages.season, seasons.key, seasons.value"
    " FROM pages LEFT JOIN seasons USING (ladder, season) ORDER BY 1, 2"
)
"""The seasons of which a page is written, with their summaries; null if they have none yet."""


class SeasonFile:
    """The standings in a file (`places.port.SeasonWriter`). The methods raise StoreTrouble, Denied
    or Unusable."""

    def __init__(self, path: Path, data_id: str = "") -> None:
        """`data_id`: the id of the data file; another file's standings are then Unusable."""
        self._path, self._data_id = path, data_id

    def records(self, *, marks: bool = False) -> Iterator[Record]:
        """Yield all records, season by season: its standings, then the marks of its pages, and the
        summary last. `marks`: without the standings. A season whose summary is yielded is there as
        a whole."""
        tables = ("pages",) if marks else ("standings", "pages")
        with self._reading() as connection:
            if connection is None:
                return
            for *season, key, value in connection.execute(BEGUN).fetchall():
                summary = season_ended.decoded(Record(0, ANY_OFFSET, value, key=key))
                kept = summary if isinstance(summary, season_ended.SeasonKept) else None
                ended_at = kept.ended_at if kept else ""
                for table in tables:
                    sql = f"SELECT key, value FROM {table} WHERE ladder = ? AND season = ?"
                    for own_key, own in connection.execute(sql, season):
                        yield season_ended.stored(own_key, own, ended_at)
                if kept:
                    yield season_ended.stored(key, value, ended_at)

    def begin(self) -> Iterator[Record]:
        """The marks that are there. The lock of the file keeps other writers away."""
        return self.records(marks=True)

    def write(self, records: Iterable[Record]) -> None:
        """Write records in one transaction, unless another process has written one of them."""
        connection = self._writing
        with opening(self._path), suppress(sqlite3.IntegrityError), connection:
            connection.execute("BEGIN IMMEDIATE")
            for each in records:
                _insert(connection, each)

    def close(self) -> None:
        """Close the connection that writes."""
        if "_writing" in self.__dict__:
            self._writing.close()

    @cached_property
    def _writing(self) -> sqlite3.Connection:
        """A connection that writes. It creates the file if there is none."""
        check_name(self._path)
        with private_files(), opening(self._path), ExitStack() as undo:
            connection = undo.enter_context(closing(self._connected("rwc")))
            connection.execute("PRAGMA synchronous = FULL")
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                if not has_ours(connection, self._path, "of_data"):
                    for statement in filter(str.strip, TABLES.split(";\n")):
                        connection.execute(statement)
                    connection.execute("INSERT INTO of_data VALUES (1, ?)", (self._data_id,))
                _check_owner(connection, self._path, self._data_id)
            undo.pop_all()
        return connection

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A connection that writes nothing of its own; None if there is no file yet. (It may have
        to take back what a process left half written that was killed.)"""
        if not self._path.is_file():
            yield None
            return
        check_name(self._path)
        with opening(self._path), closing(self._connected("rw")) as connection:
            connection.execute("PRAGMA query_only = ON")
            if ours := has_ours(connection, self._path, "of_data"):
                _check_owner(connection, self._path, self._data_id)
            yield connection if ours else None

    def _connected(self, mode: str) -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?mode={mode}"
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S)


def _insert(connection: sqlite3.Connection, record: Record) -> None:
    found = season_ended.decoded(record)
    assert found is not None, "it is of the topic"
    table, own = "seasons", tuple[str | float, ...]()
    match found:
        case season_ended.Standing(player=player, rating=rating):
            table, own = "standings", (player, -rating)
        case season_ended.PageWritten(page=page):
            table, own = "pages", (page,)
    row = found.ladder, found.season, *own, record.key, record.value
    connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


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
