"""Opens a data file, and runs the transactions of the one connection that writes to it.

One process at a time may write to a file: it holds the locks (`names.Hold`). Its only writing
connection also checkpoints the write-ahead log. Other processes and threads use read-only
connections (`connect_reader`).

SQLite before 3.51.3 (and 3.50.7, 3.44.6) has a race between a write and a checkpoint of two
connections, after which the file may be corrupt. Here one connection does both, so the race cannot
happen. `warnings_of` says so for a foreign program that opens the file to write.
"""

import secrets
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stream_rater.adapters.sqlite import names, schema
from stream_rater.adapters.sqlite.names import LOG_ENDS, Hold, SameFiles
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.errors import Denied, LogTrouble, StoreTrouble, Trouble, Unusable

CACHE_KIB = 64 * 1024  # The size of the page cache of the connection that writes.
PAGE_BYTES = 16 * 1024  # The size of a page in a new file. Most of what is written is long.
CHECKPOINT_PAGES = 2000  # A commit checkpoints the write-ahead log once it has this many pages.
BUSY_S = 5.0  # How long a statement waits for a lock that a foreign program holds.
WAL_RACE_MENDED = ((3, 44, 6), (3, 45, 0)), ((3, 50, 7), (3, 51, 0)), ((3, 51, 3), (4, 0, 0))
"""The ranges of SQLite's versions without the race between a write and a checkpoint of two
connections. Versions before 3.7.0 have no write-ahead log."""


class Database:
    """The one connection that writes to a data file. One thread at a time may use it."""

    def __init__(self, path: Path, connection: sqlite3.Connection, hold: Hold) -> None:
        self.path, self.connection, self._hold = path, connection, hold
        self._same: SameFiles | None = None
        """The files, once this file has the mark of this process (`names`)."""
        self.on_rollback: list[Callable[[], None]] = []
        """What is called after a rollback: what is known of the file must be read again."""
        self.in_turn = False
        self._spoiled: sqlite3.Error | None = None
        self._stale = False
        """Whether what is known of the file could not be read again after a rollback."""
        self.known_id = self.meta("id") if self.meta(names.MARK) in hold.marks else ""
        """The id of a file that was written under this name before; empty for a backup."""
        self.partitions = int(self.meta("partitions") or 0)
        self.shards = int(self.meta("shards") or 0)

    @classmethod
    def open(cls, path: Path, *, partitions: int = 16, shards: int = 1) -> "Database":
        """Open a file to write to it; create it if there is none. An existing file keeps its
        numbers of partitions and shards. Raises Unusable if another process has the file open, if
        the file is of a newer release, was moved to Kafka, or is no data file, and Denied if it may
        not be read or written."""
        path = names.real(path)
        with schema.private_files(), opening(path), ExitStack() as undo:
            hold = undo.enter_context(closing(Hold(path)))
            names.drop_copies(path)
            names.settle(path)
            connection = sqlite3.connect(
                path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            undo.callback(connection.close)
            _prepare(connection, path, partitions, shards)
            database = cls(path, connection, hold)
            undo.pop_all()
        return database

    @classmethod
    def open_existing(cls, path: Path) -> "Database":
        """Open a file as `open` does, but create none. Raises Unusable, too, if there is none."""
        if not names.real(path).is_file():
            raise Unusable(f"{path}: there is no such file: `stream-rater standalone` makes one")
        return cls.open(path)

    @classmethod
    def open_unread(cls, path: Path) -> "Database":
        """Open a file to replace it. Raises Unusable, too, if another program reads it."""
        cls.open_existing(path).close()
        names.check_unread(names.real(path))
        return cls.open_existing(path)

    def close(self) -> None:
        """Roll back, move the write-ahead log into the file, release the lock. May be repeated."""
        if self._hold.text.closed:
            return
        with ExitStack() as reader:
            with suppress(sqlite3.Error):  # the write-ahead log is read at the next start
                self.connection.rollback()
                if self._is_spoiled:  # while it has a reader, the log is not moved into it
                    uri = f"{self.path.as_uri()}?mode=ro"
                    other = reader.enter_context(closing(sqlite3.connect(uri, uri=True)))
                    other.execute("SELECT 1 FROM meta").fetchone()
                else:
                    self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.connection.close()
        self._hold.close()

    def replace_by(self, path: Path) -> None:
        """Put another file, which no process has open, in the place of this one, and release the
        lock. Raises Unusable if another program has this file open; then nothing has changed.

        The write-ahead log is emptied before: one that is left behind would be played into the new
        file.
        """
        self._roll_back()
        with self.guarded(StoreTrouble):
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self.connection.close()
        try:
            names.check_unread(self.path)
            path.chmod(self.path.stat().st_mode & 0o777)
            path.replace(self.path)
            names.sync(self.path.parent)
            names.settle(self.path)
        finally:
            self._hold.close()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One transaction for all that both machines and the submissions do in it. It is on the
        disk when the block is left. If a statement or the commit fails, nothing of the block has
        happened, and a Trouble is raised: both machines must start over. Raises Unrecoverable if
        the disk or the file is broken: then the process must end."""
        if self._stale:
            self._load_again()
        with self.guarded(LogTrouble):
            if self._same is None:
                self._mark()
            self.connection.execute("BEGIN IMMEDIATE")
        self.in_turn = True
        try:
            yield
            with self.guarded(LogTrouble):
                self._check_open()
                self.connection.execute("COMMIT")
            self._check_files()
        except BaseException:
            self._roll_back()
            raise
        finally:
            self.in_turn, self._spoiled = False, None

    @contextmanager
    def write(self, trouble: type[Trouble]) -> Iterator[sqlite3.Connection]:
        """A block in one transaction: the turn's, or one of its own. Raises as `guarded` does."""
        with nullcontext() if self.in_turn else self.turn(), self.guarded(trouble) as connection:
            self._check_open()
            yield connection

    def _check_open(self) -> None:
        """Raise the error that ended the transaction: a statement would begin another one."""
        if self._spoiled is not None:
            raise self._spoiled
        if not self.connection.in_transaction:
            raise sqlite3.OperationalError("the transaction was rolled back")

    @property
    def _is_spoiled(self) -> bool:
        return self._same is not None and self._same.spoiled

    def _check_files(self) -> None:
        """Raise Unusable if what was written is in a file that nobody finds any more."""
        if self._same is not None:
            self._same.check()

    def _mark(self) -> None:
        """Set the mark by which this file's write-ahead log is known (`names`)."""
        new, connection = secrets.token_hex(8), self.connection
        # Until its log is moved into it, the file has an old one.
        self._hold.note(*self._hold.marks[-9:], names.mark_of(self.path) or "-", new)
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (names.MARK, new))
        _, pages, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages == moved:  # no reader needs what was there before
            self._hold.note(new)
        beside = (names.real(self.path, end) for end in LOG_ENDS)
        self._same = SameFiles(self.path, *beside, marks=self._hold.marks)

    def _roll_back(self) -> None:
        self._spoiled, self._stale = None, True
        if self.connection.in_transaction:
            with self.guarded(LogTrouble):
                self.connection.execute("ROLLBACK")
        if not self._is_spoiled:
            self._load_again()

    def _load_again(self) -> None:
        """Read again what is known of the file."""
        for each in self.on_rollback:
            each()
        self._stale = False

    @contextmanager
    def guarded(self, trouble: type[Trouble]) -> Iterator[sqlite3.Connection]:
        """A block that raises SQLite's errors by `error_of`. A turn that had one is rolled back."""
        try:
            yield self.connection
        except sqlite3.Error as error:
            if self.in_turn:
                self._spoiled = error
            self._check_files()
            raise error_of(error, self.path, trouble) from None

    def meta(self, name: str) -> Any:
        """A fact about the file; None if it was never set."""
        sql = "SELECT value FROM meta WHERE name = ?"
        with self.guarded(LogTrouble) as connection:
            found = connection.execute(sql, (name,)).fetchone()
        return found and found[0]

    def set_meta(self, name: str, value: str | int | bytes | None) -> None:
        """Set a fact about the file."""
        with self.write(LogTrouble) as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def mark_moved(self, where: str) -> None:
        """Note that the data was moved: the file never opens again."""
        self.set_meta("moved", where)

    @property
    def data_version(self) -> int:
        """A number that changes whenever another connection has changed the file."""
        with self.guarded(LogTrouble) as connection:
            return int(connection.execute("PRAGMA data_version").fetchone()[0])


# --- opening -------------------------------------------------------------------------------------


def check_window(path: Path, stored: int | None, settings: Settings) -> None:
    """Raise BadConfiguration if a file was begun with another duplicate window, `stored`."""
    window = settings.duplicate_window
    if stored not in (None, window):
        raise BadConfiguration(
            f"{path}: it was begun with duplicate_window = {stored}, here it is {window}: set "
            f"{PREFIX}DUPLICATE_WINDOW={stored}"
        )


def connect_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection for another process or thread, which may read while the owner writes.
    A transaction of it should end within a second: as long as it lasts, the write-ahead log grows.
    Raises Unusable if there is no such file, or if it is no data file of this release, and Denied
    if it may not be read."""
    path = names.real(path)
    with opening(path):
        if not path.is_file():
            raise Unusable(f"{path}: there is no such file")
        names.check_name(path)
        names.check_log(path)
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", timeout=BUSY_S, isolation_level=None, uri=True,
            check_same_thread=False,
        )  # fmt: skip
        with ExitStack() as undo:
            undo.callback(connection.close)
            _check(connection, path)
            undo.pop_all()
        return connection


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Raise the errors of SQLite and of the disk as ours."""
    try:
        yield
    except OSError as error:
        raise Denied(f"{error.filename or path}: {error.strerror}") from None
    except sqlite3.Error as error:
        raise error_of(error, path, StoreTrouble) from None


def _prepare(connection: sqlite3.Connection, path: Path, partitions: int, shards: int) -> None:
    """Set the connection up, and create or upgrade the tables."""
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if objects:
        _check(connection, path)
    for name, value in {
        "page_size": PAGE_BYTES,
        "journal_mode": "WAL", "synchronous": "FULL", "cache_size": -CACHE_KIB,
        "wal_autocheckpoint": CHECKPOINT_PAGES, "temp_store": "MEMORY",
        **({"fullfsync": "ON", "checkpoint_fullfsync": "ON"} if sys.platform == "darwin" else {}),
    }.items():  # fmt: skip
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
    if not objects:
        _create(connection, partitions, shards)
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    while found < schema.FORMAT:
        statements = schema.UPGRADES[found]
        found += 1
        connection.executescript(
            f"BEGIN IMMEDIATE; {statements}; PRAGMA user_version = {found}; COMMIT"
        )


def _create(connection: sqlite3.Connection, partitions: int, shards: int) -> None:
    """Create the tables, all or none."""
    created_at = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"partitions": partitions, "shards": shards, "created_at": created_at,
             "id": secrets.token_hex(8)}  # fmt: skip
    rows = ",".join(f"('{name}', '{value}')" for name, value in facts.items())
    connection.executescript(
        f"BEGIN IMMEDIATE; {schema.CREATE}; INSERT INTO meta VALUES {rows}; COMMIT"
    )


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise Unusable if a file is not a data file of this release or an older one."""
    (kind,) = connection.execute("PRAGMA application_id").fetchone()
    if kind != schema.APPLICATION_ID:
        raise Unusable(f"{path} is no data file of stream-rater: name another file")
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found > schema.FORMAT:
        raise Unusable(
            f"{path} has format {found}, and this release knows formats up to {schema.FORMAT}: "
            "use the release that wrote it, or a newer one"
        )
    if any(each not in schema.UPGRADES for each in range(found, schema.FORMAT)):
        raise Unusable(f"{path} has format {found}, which no release wrote: restore a backup")
    moved = connection.execute("SELECT value FROM meta WHERE name = 'moved'").fetchone()
    if moved:
        raise Unusable(
            f"{path} was moved to {moved[0]} and is not used any more: rounds go there now"
        )


# --- errors --------------------------------------------------------------------------------------

BROKEN = {
    sqlite3.SQLITE_IOERR: "the disk failed: check it, then start again",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore a backup",
    sqlite3.SQLITE_NOTADB: "it is no file of SQLite: name another file",
    sqlite3.SQLITE_FORMAT: "the file is damaged: restore a backup",
}
"""The errors after which nothing is known of the file, and the remedy."""

FULL = sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE
"""The errors of a full disk. The second one is that of the index of the write-ahead log."""

DENYING = (
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH,
)  # fmt: skip


def error_of(error: sqlite3.Error, path: Path, trouble: type[Trouble]) -> Exception:
    """The error that a machine gets for an error of SQLite: `trouble` if it may go away, as that of
    a full disk may, Denied for missing rights, and Unusable if the process must end."""
    extended = getattr(error, "sqlite_errorcode", 0)
    code, text = extended & 0xFF, f"{path}: {error}"
    if extended in FULL:
        return trouble(f"sqlite: {text}: make room on its disk", "file")
    if code in BROKEN:
        return Unusable(f"{text}: {BROKEN[code]}")
    return Denied(text) if code in DENYING else trouble(f"sqlite: {text}", "file")


def warnings_of(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> Mapping[str, str]:
    """What an operator should know of this version of SQLite, by the name of the flaw."""
    if any(first <= version < last for first, last in WAL_RACE_MENDED):
        return {}
    name = ".".join(map(str, version))
    return {
        "wal-reset": "let no other program write to the data file while this process runs: SQLite "
        f"{name} may damage a file if two write at once"
    }
