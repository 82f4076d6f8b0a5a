"""The folder of an index: who may use it, when its contents are trusted, and what is deleted.

- I1: Only one process, and the follower that it starts, use a folder: the process has a lock on a
  file of ours (`Hold`). LMDB's own lock uses process ids, which may be the same in two containers.
- I2: Whether an environment is trusted is decided before LMDB opens it, by the head beside it: with
  a damaged map, LMDB ends the process by a signal. An environment is trusted if it was closed, or
  if it was written since this boot of the machine, and in the same file: what a killed process has
  written is then in the memory of the machine. The head says that the environment is open before
  the first commit, and that it is closed once everything is on the disk after the last one.
- I3: WRITEMAP is not used, so that a full disk is an error and not a signal. The map is large from
  the start and never grows. A commit does not wait for the disk.
- I4: A transaction that reads ends soon: as long as it is open, the file grows.
- I5: A process has one environment of a folder (`Store`), opened in the process itself.
- I6: An index is made again if its topic may have forgotten that a player was erased.

An index is made again in a new folder below this one, and never in place. So nothing that was
erased is left in free pages, and readers of the old index are not disturbed. Only files with our
names are deleted, and only in a folder with our lock.
"""

import fcntl
import os
import re
import secrets
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import IO, Any

import lmdb
import msgspec

from stream_rater.contract.errors import StoreTrouble, Unrecoverable
from stream_rater.index import tables

MAP_BYTES = 256 << 30  # The most address space for an environment. It takes no memory.
LOCK, WRITER = "stream-rater-index.lock", "stream-rater-index.writer"
HEAD, DATA = "head.json", "data.mdb"
MADE = "made-"  # The prefix of the names of folders with an environment.
FILES = HEAD, f"{HEAD}.new", DATA, "lock.mdb"
FOREIGN = frozenset({"lost+found"})  # Allowed in an empty folder: a volume's root has it.
CRASHES = frozenset({-signal.SIGBUS, -signal.SIGSEGV})  # Exit codes after a damaged map.
BOOT = Path("/proc/sys/kernel/random/boot_id")


class Damaged(StoreTrouble):
    """The environment is damaged."""


class Head(msgspec.Struct):
    """A file beside an environment which says whether the environment can be trusted (I2)."""

    format: int
    log: str  # The id of the log from which the index was made.
    boot: str  # The id of the machine's boot when this was written; empty if unknown.
    device: int
    inode: int  # The environment's file: its device and inode.
    size: int  # Its size in bytes, which never falls.
    closed: bool  # Whether the environment was closed, with everything on the disk.
    reached: list[int]  # Positions that the index had when the head was written.


_decode_head = msgspec.json.Decoder(Head).decode


def default_path(address: str) -> Path:
    """The index folder of a process that listens at this address, if the settings name none. It is
    on the disk, because /tmp may be memory, and outlives the process."""
    name = re.sub(r"[^\w.-]", "-", address)
    base = Path("/var/tmp")
    base = base if base.is_dir() else Path(tempfile.gettempdir())
    return base / f"stream-rater-index-{os.geteuid()}-{name}"


class Hold:
    """The lock of a folder, for the life of the process that answers."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Creates the folder if there is none. Raises Unrecoverable."""
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            others = {each.name for each in path.iterdir()} - FOREIGN
            if (others and LOCK not in others) or path.stat().st_uid != os.geteuid():
                raise Unrecoverable(
                    f"{path} is of another program or user: move it away, or name another folder "
                    "by STREAM_RATER_INDEX"
                )
            file = _locked(path / LOCK)
        except OSError as error:
            raise Unrecoverable(
                f"{path}: {error.strerror}: name a folder for the index by STREAM_RATER_INDEX"
            ) from None
        if file is None:
            raise Unrecoverable(
                f"{path} is in use by another process: name another folder by STREAM_RATER_INDEX"
            )
        self._file = file

    def close(self) -> None:
        """Release the lock."""
        self._file.close()


def _locked(path: Path) -> IO[str] | None:
    """Open and lock a file; None if another process has the lock. Raises OSError."""
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def writer_lock(folder: Path) -> IO[str]:
    """Take the lock for writing. Raises StoreTrouble while the last process has not ended yet."""
    with failures():
        file = _locked(folder / WRITER)
    if file is None:
        raise StoreTrouble(f"{folder}: the last process still writes to it", "file")
    return file


class Store:
    """An environment that is open."""

    def __init__(self, path: Path, *, write: bool) -> None:
        """`path`: the folder of the environment. Raises Damaged or StoreTrouble."""
        self.path, self.users = path, 1
        names = [name.encode() for name in tables.Tables._fields]
        with failures():
            self._env = lmdb.open(
                str(path), map_size=MAP_BYTES, max_dbs=len(names), mode=0o600,
                readonly=not write, create=write, sync=False, metasync=False, writemap=False,
                meminit=False, readahead=False,
            )  # fmt: skip
            self.tables = tables.Tables(*[self._env.open_db(name, create=write) for name in names])
        self._oldest: tuple[str, float] = "", 0.0

    def begin(self, *, write: bool = False) -> Any:
        """Begin a transaction. A transaction that reads must begin and end in one function, without
        an `await` (I4): as long as it is open, LMDB reuses no page that it may read."""
        return self._env.begin(write=write)

    def oldest_reader_s(self, now_s: float) -> float:
        """Remove ended processes' readers (I4). Returns how long the oldest other one has read."""
        with failures():
            self._env.reader_check()
            lines = self._env.readers().splitlines()[1:]
        busy = [line for line in lines if not line.rstrip().endswith("-")]
        oldest = min(busy, key=lambda line: int(line.split()[-1]), default="")
        if oldest != self._oldest[0] or not oldest:
            self._oldest = oldest, now_s
        return now_s - self._oldest[1]

    def sync(self) -> None:
        """Wait until everything is on the disk."""
        with failures():
            self._env.sync(True)


_stores: dict[Path, Store] = {}
_guard = Lock()


def opened(path: Path, *, write: bool = False) -> Store:
    """Open the environment in a folder; `closed` ends that. Raises Damaged or StoreTrouble."""
    with _guard:
        if (store := _stores.get(path)) is not None:
            store.users += 1
        else:
            store = _stores[path] = Store(path, write=write)
        return store


def closed(store: Store) -> None:
    """Close the environment, unless another part of this process uses it."""
    with _guard:
        store.users -= 1
        if store.users == 0:
            del _stores[store.path]
            store._env.close()


# --- which environment of a folder ---------------------------------------------------------------


def trusted(folder: Path, log: str | None = None) -> tuple[Path, Head] | None:
    """The environment of a folder that may be opened, with its head; None if there is none, or if
    it is of another log than `log`."""
    for path in _made(folder):
        head = head_of(path)
        if head is not None and log in (None, head.log) and _is_trusted(path, head):
            return path, head
    return None


def head_of(path: Path) -> Head | None:
    """The head beside an environment; None if it cannot be read."""
    with suppress(OSError, msgspec.DecodeError):
        return _decode_head((path / HEAD).read_bytes())
    return None


def _is_trusted(path: Path, head: Head) -> bool:
    try:
        found = (path / DATA).stat()
    except OSError:
        return False
    same = head.boot == _boot() != "" and (head.device, head.inode) == (found.st_dev, found.st_ino)
    whole = head.format == tables.FORMAT and found.st_size >= head.size
    return whole and (head.closed or same)


def begin(folder: Path, log: str, now_s: float) -> Store:
    """Open the index of a log for writing. If it is not trusted, or is of another log, a new one is
    made. Raises StoreTrouble or Damaged."""
    found = trusted(folder, log)
    for path in _made(folder):
        if found is None or path != found[0]:
            _delete(path)
    if found is not None:
        _write_head(found[0], log, found[1].reached, closed=False)
        return opened(found[0], write=True)
    path = folder / f"{MADE}{secrets.token_hex(8)}"
    with failures():
        path.mkdir(mode=0o700)
        store = opened(path, write=True)
        _write_head(path, log, [], closed=False)
        state = tables.State(log, now_s, [], {}, "", [])
        with store.begin(write=True) as t:
            t.put(tables.STATE, tables.encode_entry(state), db=store.tables.state)
    return store


def end(store: Store, log: str, reached: Sequence[int]) -> None:
    """Close an index, so that it is trusted even after a reboot."""
    with failures():
        store.sync()
        _write_head(store.path, log, reached, closed=True)
    closed(store)


def positions(folder: Path, log: str) -> list[int]:
    """The positions that the index of this log had at least. Raises StoreTrouble or Damaged."""
    if (found := trusted(folder, log)) is not None:
        store = opened(found[0])
        try:
            with failures(), store.begin() as t:
                state = t.get(tables.STATE, db=store.tables.state)
                return [] if state is None else tables.decode_state(state).positions
        finally:
            closed(store)
    heads = map(head_of, _made(folder))
    return next((head.reached for head in heads if head and head.log == log), [])


def discard(folder: Path) -> list[Path]:
    """Delete all environments of a folder, so that the index is made again. Returns those that
    could not be deleted."""
    for path in _made(folder):
        _delete(path)
    return _made(folder)


def _made(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{MADE}*")) if (folder / LOCK).is_file() else []


def _delete(path: Path) -> None:
    """Delete an environment. The head goes first: without it, the rest is not trusted."""
    with suppress(OSError):
        for name in FILES:
            (path / name).unlink(missing_ok=True)
        path.rmdir()


def _write_head(path: Path, log: str, reached: Sequence[int], *, closed: bool) -> None:
    """Replace the head, and wait until it is on the disk."""
    found = (path / DATA).stat()
    head = Head(
        tables.FORMAT, log, _boot(), found.st_dev, found.st_ino, found.st_size, closed=closed,
        reached=[*reached],
    )  # fmt: skip
    new = path / f"{HEAD}.new"
    with new.open("wb") as file:
        file.write(msgspec.json.encode(head))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path / HEAD)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _boot() -> str:
    with suppress(OSError):
        return BOOT.read_text().strip()
    return ""


BROKEN = (
    lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.PanicError,
    lmdb.VersionMismatchError, lmdb.IncompatibleError,
)  # fmt: skip


@contextmanager
def failures() -> Iterator[None]:
    """Convert the exceptions of LMDB, and of files, to StoreTrouble and Damaged."""
    try:
        yield
    except BROKEN as error:
        raise Damaged(f"index: {error}", "file") from None
    except (lmdb.Error, OSError) as error:
        raise StoreTrouble(f"index: {error}", "file") from None
