"""The folder of an index: who may use it, when it is trusted, and the process that fills it."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.contract.errors import StoreTrouble, Unrecoverable
from stream_rater.index import folder, tables
from stream_rater.index.folder import DATA, HEAD, LOCK, Hold, Store
from stream_rater.index.log import Watcher
from stream_rater.index.process import IndexProcess
from tests.builders.cases import cases
from tests.builders.indexes import LADDER, Index, an_event

Change = Callable[[Path], object]


def an_index(where: Path, *, killed: bool = False) -> Path:
    """Write an index with one event. Returns the folder of its environment."""
    index = Index(where)
    index.apply([an_event("ann", 1)])
    index.close(killed=killed)
    return index.store.path


def head(**changes: Any) -> Change:
    def change(path: Path) -> None:
        found = msgspec.json.decode((path / HEAD).read_bytes())
        (path / HEAD).write_bytes(msgspec.json.encode(found | changes))

    return change


def copied(path: Path) -> None:
    """The same bytes in another file, as in a copy or a snapshot of a volume."""
    shutil.copy(path / DATA, path / "other")
    (path / "other").replace(path / DATA)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    """It is refused in one line that names the setting (I1)."""
    one_line = r"in use by another process.*STREAM_RATER_INDEX"
    with closing(Hold(tmp_path / "index")), pytest.raises(Unrecoverable, match=one_line):
        Hold(tmp_path / "index")
    Hold(tmp_path / "index").close()


def test_the_process_that_writes_holds_a_lock(tmp_path: Path) -> None:
    """A follower may outlive the process that was killed: the next follower waits for its lock."""
    first = closing(folder.writer_lock(tmp_path))
    with first, pytest.raises(StoreTrouble, match="still writes"):
        folder.writer_lock(tmp_path)
    folder.writer_lock(tmp_path).close()


@pytest.mark.parametrize("name", ["notes.txt", "made-by-somebody"])
def test_a_foreign_folder_is_refused(tmp_path: Path, name: str) -> None:
    """Nothing in it is deleted, whatever its name. A volume's root may have lost+found."""
    (tmp_path / name).mkdir()
    with pytest.raises(Unrecoverable, match=r"of another program or user: move it away"):
        Hold(tmp_path)
    folder.discard(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    (tmp_path / name).rename(tmp_path / "lost+found")
    with closing(Hold(tmp_path)):
        assert (tmp_path / LOCK).exists()


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unrecoverable, match="STREAM_RATER_INDEX"):
        Hold(tmp_path / "file")


def test_only_its_user_can_read_it(tmp_path: Path) -> None:
    """The folder contains ids of players."""
    path = an_index(tmp_path / "index")
    modes = {each.stat().st_mode & 0o777 for each in (path / DATA, path, path.parent)}
    assert modes == {0o600, 0o700}


TRUSTED: dict[str, tuple[bool, Change]] = {
    "closed": (False, lambda path: None), "closed, then copied": (False, copied),
    "closed in another boot": (False, head(boot="another")), "killed": (True, lambda path: None),
}  # fmt: skip
UNTRUSTED: dict[str, tuple[bool, Change]] = {
    "killed in another boot": (True, head(boot="another")),
    "killed where boots have no id": (True, head(boot="")),
    "killed, then copied": (True, copied),
    "another format": (False, head(format=0)),
    "cut off": (False, lambda path: os.truncate(path / DATA, 8192)),
    "no head": (False, lambda path: (path / HEAD).unlink()),
    "half a head": (False, lambda path: (path / HEAD).write_bytes(b'{"format":')),
    "no data": (False, lambda path: (path / DATA).unlink()),
}


@cases("name", [*TRUSTED, *UNTRUSTED])
def test_when_an_index_is_trusted(tmp_path: Path, name: str) -> None:
    """If it is not, it is made again in another place, and deleted (I2)."""
    where = tmp_path / name
    killed, change = (TRUSTED | UNTRUSTED)[name]
    before = an_index(where, killed=killed)
    change(before)
    with closing(Index(where)) as index:
        assert (index.store.path == before) == (index.next == 1) == (name in TRUSTED)
        assert [*where.glob("made-*")] == [index.store.path]
        assert len(index.contents()["players"]) == (name in TRUSTED)


def test_without_an_id_of_the_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some sandboxes have none. Then an index is trusted only if it was closed."""
    monkeypatch.setattr(folder, "BOOT", tmp_path / "none")
    an_index(tmp_path / "index", killed=True)
    with closing(Index(tmp_path / "index")) as index:
        assert index.next == 0


def test_an_index_of_another_log_is_deleted(tmp_path: Path) -> None:
    """So is its file, because an erased id may be left in free pages."""
    where = tmp_path / "index"
    before = an_index(where)
    with closing(Index(where, log="other")) as index:
        assert index.next == 0 and not before.exists()


def test_the_head_says_open_before_the_first_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says closed only once everything is on the disk (I2)."""
    where, seen = tmp_path / "index", list[Any]()
    begin, sync = Store.begin, Store.sync

    def record(kind: str, store: Store) -> None:
        found = folder.head_of(store.path)
        seen.append((kind, found is not None and found.closed))

    def begun(self: Store, *, write: bool = False) -> Any:
        if write:
            record("commit", self)
        return begin(self, write=write)

    def synced(self: Store) -> None:
        record("sync", self)
        sync(self)

    monkeypatch.setattr(Store, "begin", begun)
    monkeypatch.setattr(Store, "sync", synced)
    for _ in range(2):
        an_index(where)
    assert {*seen} == {("commit", False), ("sync", False)} and seen[-1][0] == "sync"
    found = folder.trusted(where)
    assert found is not None and found[1].closed


def test_positions_that_it_had(tmp_path: Path) -> None:
    """Those of the same log are read from the head, also if the index is not trusted any more."""
    where = tmp_path / "index"
    assert folder.positions(where, "one") == []
    path = an_index(where, killed=True)
    assert (folder.positions(where, "one"), folder.positions(where, "other")) == ([1], [])
    head(boot="another", reached=[1])(path)
    assert (folder.positions(where, "one"), folder.positions(where, "other")) == ([1], [])


def test_one_environment_a_process(tmp_path: Path) -> None:
    """Opening the folder again gives the same object (I5), until the last user closes it."""
    path = an_index(tmp_path / "index")
    first, second = folder.opened(path), folder.opened(path)
    assert first is second
    folder.closed(first)
    with second.begin() as t:
        assert t.get(tables.STATE, db=second.tables.state)
    folder.closed(second)
    again = folder.opened(path)
    assert again is not first
    folder.closed(again)


def test_a_full_map_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction fails as a whole, as on a full disk, and readers go on (I3)."""
    monkeypatch.setattr(folder, "MAP_BYTES", 1 << 20)
    with closing(Index(tmp_path / "index")) as index:
        index.apply([an_event("ann", 1)])
        many = [((0, i), an_event(f"p{i}", i)) for i in range(1, 9_000)]
        with pytest.raises(StoreTrouble, match=r"index: .*MDB_MAP_FULL"):
            index.writer.apply(many, [9_000])
        assert index.writer.positions(1) == [1]
        assert index.ask("player", LADDER, "ann").rank == 1
        index.apply([an_event("bob", 2)])
        assert index.ask("ladder", LADDER).listed == 2


FILL = """
import resource, sys
from pathlib import Path
from stream_rater.contract.errors import StoreTrouble
from tests.builders.indexes import LADDER, Index, an_event
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
index = Index(Path(sys.argv[1]))
index.apply([an_event("ann", 1)])
try:
    index.writer.apply([((0, i), an_event(f"p{i}", i)) for i in range(1, 9_000)], [9_000])
except StoreTrouble as trouble:
    assert "index: " in str(trouble), trouble
else:
    sys.exit("it was written")
assert index.ask("player", LADDER, "ann").rank == 1 and index.writer.positions(1) == [1]
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
index.apply([an_event("bob", 2)])
assert index.ask("ladder", LADDER).listed == 2
"""


def test_a_file_that_cannot_grow(tmp_path: Path) -> None:
    """A full disk is an error and no signal, since no page is written through the map (I3)."""
    subprocess.run([sys.executable, "-c", FILL, str(tmp_path / "index")], check=True)


def test_readers_that_read_for_long_are_reported(tmp_path: Path) -> None:
    """Those that have ended are forgotten (I4)."""
    with closing(Index(tmp_path / "index")) as index:
        assert index.store.oldest_reader_s(10.0) == 0.0
        transaction = index.store.begin()
        assert index.store.oldest_reader_s(20.0) == 0.0
        assert index.store.oldest_reader_s(25.0) == 5.0
        transaction.abort()
        assert index.store.oldest_reader_s(30.0) == 0.0
        asyncio.run(index.reader.check_complete())


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes at different addresses have different folders, and so have different users."""
    here, there = folder.default_path("127.0.0.1:9109"), folder.default_path("[::1]:9109")
    assert here != there and here.parent == there.parent
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    assert folder.default_path("127.0.0.1:9109").name == "stream-rater-index-7-127.0.0.1-9109"


def test_a_process_that_lags_is_not_ready(tmp_path: Path) -> None:
    """It is not ready from a lag above the bound on, until it is at most half of that."""
    nothing: Any = None
    process = IndexProcess(tmp_path / "index", nothing, Watcher(), 10)
    found = []
    for lag in (0, 10, 11, 6, 5, 10, 11):
        process.lag = lag
        found.append(bool(process.unready()))
    assert found == [False, False, True, True, False, False, True]
    assert process.unready() == ["the index is 11 events behind"]
    process.end()
    process = IndexProcess(tmp_path / "index", nothing, Watcher())
    process.lag = 1_000_000
    assert process.unready() == []
    process.end()


def killed_by(number: int, _: Watcher) -> Any:
    """Takes the place of what makes a follower: the process ends by this signal."""
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGBUS, signal.SIGSEGV, signal.SIGKILL])
def test_the_signal_of_a_damaged_map(tmp_path: Path, number: int) -> None:
    """The index is made again after it. After a kill, a first reading can continue instead."""
    where = tmp_path / "index"
    with closing(Index(where)) as index:
        index.apply([an_event("ann", 1)])
    process = IndexProcess(where, partial(killed_by, number), Watcher())
    with pytest.raises(Unrecoverable, match=f"ended with exit code -{number.numerator}"):
        process.listen()
    process.end()
    assert (folder.trusted(where) is None) == (number != signal.SIGKILL)
