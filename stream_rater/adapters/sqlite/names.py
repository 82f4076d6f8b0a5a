"""The names of a data file and of the files beside it, and the locks of the process that writes.

SQLite finds the write-ahead log of a file by the file's name. So a file has one name, and all other
names follow from it. A symbolic link is followed once, and a file with several hard links, or one
that is mounted without its folder, is refused. The lock is on the file itself, not on its name.

The log does not say which file it belongs to. So the writer sets a random *mark* in the file with
its first transaction, and notes it in `FILE.lock`. A copy has no mark.
"""

import fcntl
import glob
import os
import re
import shutil
import socket
import sqlite3
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from stream_rater.contract.errors import Denied, StoreTrouble, Unusable

MOUNTS = Path("/proc/self/mountinfo")
MARK = "mark"  # The name of the mark among the facts about a file.
COPY = ".stream-rater-"  # What stands in the name of a folder with a copy, behind the file's name.
NEW = f"{COPY}new"  # The end of the name of a file that is to take the place of another one.
OF_ANOTHER = "{path} is a file of another program: move it away, or rename it"
REPLACED = (
    "{path} was {deed} while it was in use: see that the right file is in its place, then start "
    "again"
)
LOG_ENDS = "-wal", "-shm"  # The ends of the names of a write-ahead log and of its index.


def real(path: Path, end: str = "") -> Path:
    """The file that a name leads to, or the one beside it whose name has this end more. Raises
    Unusable for SQLite's name of no file."""
    if str(path) == ":memory:":
        raise Unusable("':memory:' is no file: name one, such as ratings.db")
    return Path(os.path.realpath(os.path.realpath(path) + end))


def index_path(data: Path) -> Path:
    """The folder of the index of a data file."""
    return real(data, "-index")


def seasons_path(data: Path) -> Path:
    """The file of the standings of a data file."""
    return real(data, "-seasons")


def new_seasons_path(new: Path) -> Path:
    """The new file of standings of a data file that is to take the place of another one."""
    return real(seasons_path(new.with_suffix("")), NEW)


def settle(path: Path) -> None:
    """Put the new file of standings, if an erasure has left one, beside the data file to which it
    belongs: that has taken its place when it has no other name any more."""
    new = real(seasons_path(path), NEW)
    if new.exists() and not real(path, NEW).exists():
        new.replace(seasons_path(path))


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    with _descriptor(path) as descriptor:
        os.fsync(descriptor)


@contextmanager
def _descriptor(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def check_name(path: Path) -> None:
    """Raise Unusable if a file has several names, or is no regular file."""
    if not path.exists():
        return
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise Unusable(f"{path} is no regular file: move it away, or name another file")
    if found.st_nlink > 1:
        raise Unusable(
            f"{path} has {found.st_nlink} names (hard links), and each would have files of its own "
            "beside it: remove all but one; `stream-rater backup` makes a copy"
        )
    mounts = MOUNTS.read_bytes().splitlines() if MOUNTS.exists() else ()
    escaped = re.sub(rb"[ \t\n\\]", lambda found: b"\\%03o" % ord(found[0]), os.fsencode(path))
    if any(each.split()[4] == escaped for each in mounts):
        raise Unusable(f"{path} is mounted without the files beside it: mount its folder")


def has_ours(connection: sqlite3.Connection, path: Path, table: str) -> bool:
    """Whether a file beside a data file has our table. Raises Unusable for a foreign file."""
    found = connection.execute("SELECT name FROM sqlite_schema").fetchall()
    if found and (table,) not in found:
        raise Unusable(OF_ANOTHER.format(path=path))
    return bool(found)


def check_index(path: Path) -> None:
    """Raise Unusable if there is a file in the place of an index, and another program made it.
    Indexes of earlier releases were files."""
    if path.is_dir():
        return
    check_name(path)
    with suppress(OSError), path.open("rb") as file:
        if file.read(16).strip(b"\0") not in (b"", b"SQLite format 3"):  # zeros: after a power cut
            raise Unusable(OF_ANOTHER.format(path=path))
    uri = f"{path.as_uri()}?mode=ro"
    with suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as connection:
        has_ours(connection, path, "index_state")


def drop_old_index(path: Path) -> None:
    """Delete the index of an earlier release, which was a file. Raises Denied if that is not
    allowed, and Unusable if another program made the file."""
    check_index(path)
    if path.is_file():
        for each in (path, *(real(path, end) for end in LOG_ENDS)):
            try:
                each.unlink(missing_ok=True)
            except OSError as error:
                raise Denied(f"{each}: {error.strerror}: delete it") from None


def check_unread(path: Path) -> None:
    """Raise Unusable if a program has a file open: then SQLite keeps the files at LOG_ENDS."""
    if found := [each for end in LOG_ENDS if (each := real(path, end)).exists()]:
        raise Unusable(f"{found[0]}: another program reads {path.name}: end it, and run it again")


class SameFiles:
    """Notices that a name does not lead any more to the file that this process has open, or that
    another program has copied another file into it."""

    def __init__(self, *paths: Path, marks: Collection[str] = ()) -> None:
        """`paths`: a data file, others beside it. `marks`: those that it may have; empty: any."""
        self._path, self._seen = paths[0], {each: each.stat() for each in paths}
        self._marks = {"", *marks} if marks else None
        self.spoiled = False
        """Whether another program has changed what is in the data file."""

    def check(self) -> None:
        """Raise Unusable if a file was deleted or replaced, or the data file cut."""
        for path, before in self._seen.items():
            now: os.stat_result | None = None
            with suppress(OSError):
                now = path.stat()
            if now is None or not os.path.samestat(now, before):
                raise Unusable(REPLACED.format(path=path, deed="replaced" if now else "deleted"))
            if path == self._path and now.st_size < before.st_size:
                self.spoiled = True
                raise Unusable(f"{path} was cut to {now.st_size:,} bytes: restore a backup")
            written = path == self._path and now.st_mtime_ns != before.st_mtime_ns
            if written and self._marks and mark_of(path) not in self._marks:
                self.spoiled = True
                raise Unusable(REPLACED.format(path=path, deed="written over"))
            self._seen[path] = now


class Hold:
    """The locks of the process that writes to a file, for its life."""

    def __init__(self, path: Path) -> None:
        """Take them, and create the file if there is none. Raises Unusable or OSError."""
        check_name(path)
        self._name = real(path, ".lock")
        if not self._name.parent.is_dir():
            raise Unusable(f"{path}: no folder {self._name.parent}")
        with ExitStack() as undo:
            self._name.touch()
            self.text = undo.enter_context(self._name.open("r+", encoding="utf-8"))
            _lock(self.text, path)
            _, self.marks = _read(self.text)
            if self.marks and not path.exists():
                raise Unusable(
                    f"{path} is gone, but {self._name} is there: put the file, or a backup, in its "
                    f"place; to begin with a new one, remove {self._name}"
                )
            check_log(path, mine=True)
            self._file = undo.enter_context(path.open("ab"))
            _lock(self._file, path)
            with suppress(PermissionError):  # who may read the file may read its marks
                self._name.chmod(path.stat().st_mode & 0o777)
            self.note(*self.marks)
            undo.pop_all()

    def note(self, *marks: str) -> None:
        """Write who holds the file, and which marks it may have. Raises StoreTrouble."""
        self.marks = [*marks]
        since = datetime.now(UTC).isoformat(timespec="seconds")
        holder = f"process {os.getpid()} on {socket.gethostname()} since {since}"
        data, file = f"{holder}\n{' '.join(marks)}\n".encode(), self.text.fileno()
        try:
            os.pwrite(file, data, 0)
            os.truncate(file, len(data))
            os.fsync(file)
        except OSError as error:
            why = f"{self._name}: {error.strerror}: make room on its disk"
            raise StoreTrouble(why, "file") from None

    def close(self) -> None:
        """Release the locks. All connections to the file must be closed: with a file that is closed
        a process loses SQLite's locks on it, too."""
        self._file.close()
        self.text.close()


def _lock(file: IO[str] | IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = holder_of(path) or "another process"
        raise Unusable(
            f"{path} is in use by {holder}: stop that process first, or use its HTTP API"
        ) from None


def _read(lock: IO[str]) -> tuple[str, list[str]]:
    """The holder and the marks that a lock file names."""
    lock.seek(0)
    holder, marks, *_ = (lock.read(1000) + "\n").split("\n")  # behind: of a longer, older text
    return holder, marks.split()


def holder_of(path: Path) -> str:
    """The process that holds the lock of a file; empty if none does."""
    with suppress(FileNotFoundError), real(path, ".lock").open(encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return _read(lock)[0] or "another process"
    return ""


# --- the write-ahead log -------------------------------------------------------------------------


def mark_of(path: Path) -> str:
    """The mark in a file without its write-ahead log: "-" if it has none, and "" if it cannot be
    read, as after a kill amid a checkpoint."""
    uri, sql = f"{path.as_uri()}?immutable=1", "SELECT value FROM meta WHERE name = ?"
    with suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as connection:
        found = connection.execute(sql, (MARK,)).fetchone()
        return str(found[0]) if found else "-"
    return ""


def check_log(path: Path, *, mine: bool = False) -> None:
    """Raise Unusable if a file's write-ahead log is another file's. `mine`: we hold the file."""
    log, name = real(path, "-wal"), real(path, ".lock")
    if not (name.exists() and log.exists() and log.stat().st_size):
        return
    with name.open(encoding="utf-8") as lock:
        _, marks = _read(lock)
    if marks and mark_of(path) not in ("", *marks) and (mine or not holder_of(path)):
        raise Unusable(
            f"{log} is of another file than {path}: if that is a backup, remove {log} and "
            f"{path.name}-shm; if both were restored together, remove {name}; then start again"
        )


# --- copies that a command works on --------------------------------------------------------------


@contextmanager
def copying(path: Path) -> Iterator[Path]:
    """A name for a copy of a file, in a folder that is deleted at the end, or by `drop_copies`."""
    drop_copies(path)
    made = tempfile.TemporaryDirectory(prefix=f"{path.name}{COPY}", dir=path.parent)
    with made as folder, _descriptor(Path(folder)) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield Path(folder) / path.name


def drop_copies(path: Path) -> None:
    """Delete the copies that killed commands have left."""
    for each in path.parent.glob(f"{glob.escape(path.name)}{COPY}????????"):
        with suppress(OSError), _descriptor(each) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while a command runs
            shutil.rmtree(each)
