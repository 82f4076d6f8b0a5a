"""A data file has one name while it is in use, and the files beside it belong to it."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from stream_rater.adapters.sqlite import names
from stream_rater.adapters.sqlite.database import Database, connect_reader
from stream_rater.adapters.sqlite.log import SqliteLog
from stream_rater.adapters.sqlite.names import index_path, seasons_path
from stream_rater.adapters.sqlite.reading import DataFile
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Unusable
from stream_rater.index.log import Watcher
from stream_rater.runtime import log
from stream_rater.serve.http.metrics import ApiMetrics
from stream_rater.serve.standalone import Standalone
from tests.builders.cases import cases
from tests.builders.indexes import Index, an_event
from tests.unit.test_data_file import opened_elsewhere

OPENED = Database.open, connect_reader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A data file with one record."""
    path = tmp_path / "my disk" / "ratings.db"
    path.parent.mkdir()
    with closing(Database.open(path)) as database:
        SqliteLog(database).submit(0, b"first")
    return path


def rounds(path: Path) -> int:
    with closing(connect_reader(path)) as reader:
        (count,) = reader.execute("SELECT count(*) FROM rounds").fetchone()
    return int(count)


def test_a_link_is_another_word_for_the_file(path: Path, tmp_path: Path) -> None:
    """The locks, the index and the standings are those of the file it leads to."""
    link = tmp_path / "link.db"
    link.symlink_to("my disk/ratings.db")
    assert index_path(link) == index_path(path) == path.with_name("ratings.db-index")
    assert seasons_path(link) == seasons_path(path)
    with closing(Database.open(path)) as database:
        with pytest.raises(Unusable, match=r"disk/ratings\.db is in use by process "):
            Database.open(link)
        SqliteLog(database).submit(0, b"second")
        assert rounds(link) == 2
    with closing(Database.open(link)) as database:
        assert database.path == path
    assert [each.name for each in tmp_path.iterdir() if each != path.parent] == ["link.db"]
    seasons_path(path).symlink_to(tmp_path / "elsewhere")
    assert seasons_path(link) == tmp_path / "elsewhere"


@cases("opened", OPENED)
def test_a_file_with_two_names_is_refused(path: Path, opened: Callable[[Path], object]) -> None:
    """By both: each would have a write-ahead log of its own. So is a file that is mounted."""
    other = path.with_name("other.db")
    other.hardlink_to(path)
    for each in (path, other):
        with pytest.raises(Unusable, match=r"has 2 names \(hard links\).*: remove all but one"):
            opened(each)
    other.unlink()
    mounts, name = path.with_name("mounts"), str(path).replace(" ", r"\040")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(names, "MOUNTS", mounts)
        mounts.write_text(f"30 1 0:2 /a {path.parent} rw - ext4\n31 1 0:2 /a {name} rw - ext4\n")
        with pytest.raises(Unusable, match="mounted without the files beside it: mount its folder"):
            opened(path)
        mounts.write_text(f"30 1 0:2 /a {path.parent} rw - ext4\n")
        opened(path).close()  # type: ignore[attr-defined]


@cases("opened", OPENED)
def test_names_of_no_file(tmp_path: Path, opened: Callable[[Path], object]) -> None:
    """Nothing is created, and nothing waits for somebody at the other end of a pipe."""
    with pytest.raises(Unusable, match="':memory:' is no file: name one"):
        opened(Path(":memory:"))
    os.mkfifo(tmp_path / opened.__name__)
    with pytest.raises(Unusable, match=r"no regular file: move it away|there is no such file"):
        opened(tmp_path / opened.__name__)


def test_the_lock_is_on_the_file_itself(path: Path) -> None:
    """Whoever deletes the lock file lets no second process in."""
    with closing(Database.open(path)):
        path.with_name("ratings.db.lock").unlink()
        found = opened_elsewhere(path)
    assert found.returncode == 1
    assert found.stderr.startswith(f"{path} is in use by another process: stop that process")


DEEDS: dict[str, Callable[[Path], object]] = {
    r"ratings\.db was deleted while it was in use: see that": Path.unlink,
    r"ratings\.db was replaced while it was in use": (
        lambda path: path.with_name("copy").replace(path)
    ),
    r"ratings\.db was cut to 16,384 bytes: restore a backup": (
        lambda path: os.truncate(path, 16_384)
    ),
    r"ratings\.db was written over while it was in use": (
        lambda path: shutil.copyfile(path.with_name("copy"), path)
    ),
    r"ratings\.db-wal was deleted": lambda path: path.with_name("ratings.db-wal").unlink(),
    r"ratings\.db-shm was deleted": lambda path: path.with_name("ratings.db-shm").unlink(),
}


@pytest.mark.parametrize("says", DEEDS)
def test_what_others_do_to_a_file_in_use_ends_the_process(path: Path, says: str) -> None:
    """At the next commit, which is not acknowledged: nobody would find it."""
    shutil.copy(path, path.with_name("copy"))
    with closing(Database.open(path)) as database:
        SqliteLog(database).submit(0, b"second")
        DEEDS[says](path)
        with pytest.raises(Unusable, match=says), database.turn():
            pass
        left = path.read_bytes() if path.exists() else b""
    if "db was" in says:
        assert left == (path.read_bytes() if path.exists() else b""), "nothing is written into it"


def test_a_reader_does_not_wait_for_a_file_that_is_gone(path: Path) -> None:
    """Another one took its place."""
    shutil.copy(path, path.with_name("copy"))
    with closing(DataFile(path)) as file:
        file.await_change(0.0)
        path.with_name("copy").replace(path)
        with pytest.raises(Unusable, match="was replaced while it was in use"):
            file.await_change(0.0)


def killed(path: Path) -> Path:
    """What a process leaves that is killed after another record: in a folder of its own."""
    folder = path.parent.with_name("killed")
    folder.mkdir()
    with closing(Database.open(path)) as database:
        SqliteLog(database).submit(0, b"second")
        for each in path.parent.glob("ratings.db*"):
            if not each.name.endswith("-shm"):
                shutil.copy(each, folder)
    return folder / path.name


def test_what_an_interruption_leaves_in_the_lock_file(path: Path) -> None:
    """The end of a longer text, which a shorter one was written over, is no part of the mark."""
    left = killed(path)
    with left.with_name("ratings.db.lock").open("a", encoding="utf-8") as lock:
        lock.write("0123")
    assert rounds(left) == 2
    Database.open(left).close()


def test_a_log_that_was_deleted(path: Path) -> None:
    """The index knows of later events, so nothing is written before the log is put back."""
    copy = path.with_name("copy")
    with closing(DataFile(path)) as file:
        file.copy_to(copy)
    left = killed(path)
    with closing(connect_reader(left)) as reader:
        data_id = reader.execute("SELECT value FROM meta WHERE name = 'id'").fetchone()[0]
    with closing(Index(index_path(left), log=data_id)) as index:
        index.apply([an_event("ann", 1)])
    log = left.with_name("ratings.db-wal")
    log.rename(left.with_name("kept"))
    for _ in range(2):
        with pytest.raises(Unusable, match=r"ratings\.db has lost rounds that "):
            standalone(left)
    left.with_name("kept").rename(log)
    assert rounds(left) == 2
    left.unlink()
    log.unlink()
    copy.rename(left)
    standalone(left).end()


def standalone(path: Path) -> Standalone:
    return Standalone(Settings(), ANY_LADDER, path, Watcher(), ApiMetrics(log.logger("serve")))


@pytest.mark.parametrize("kind", ["backup", "plain copy"])
def test_an_old_log_is_not_played_into_a_restored_file(path: Path, kind: str) -> None:
    """A copy of the database is not opened beside it. The file that it belongs to has all."""
    copy = path.with_name("copy")
    if kind == "plain copy":
        shutil.copy(path, copy)
    left = killed(path)
    if kind == "backup":
        with closing(DataFile(path)) as file:
            file.copy_to(copy)
    assert rounds(left) == 2
    whole = left.read_bytes()
    shutil.copy(copy, left)
    for opened in (*OPENED, Database.open):
        with pytest.raises(Unusable, match=r"ratings\.db-wal is of another file than .*: if that"):
            opened(left)
    left.write_bytes(whole)
    Database.open(left).close()
    assert rounds(left) == 2
    shutil.copy(copy, left)
    with closing(Database.open(left)) as database:
        assert SqliteLog(database).submit(0, b"next") == (1 if kind == "plain copy" else 2)


def test_a_file_that_is_gone_is_not_begun_again(path: Path) -> None:
    """Unless the lock file is removed, too."""
    path.unlink()
    with pytest.raises(Unusable, match=r"ratings\.db is gone, but .*ratings\.db\.lock is there: p"):
        Database.open(path)
    path.with_name("ratings.db.lock").unlink()
    Database.open(path).close()


@cases(("version", "opened"), [(v, opened) for v in (0, -1, -(2**31)) for opened in OPENED])
def test_formats_that_no_release_wrote(
    path: Path, version: int, opened: Callable[[Path], object]
) -> None:
    """They are refused, as newer ones are."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(Unusable, match=f"has format {version}, which no release wrote: restore a"):
        opened(path)


def test_copies_do_not_stay(path: Path) -> None:
    """Whoever opens the file deletes copies that killed commands left, but none in use."""
    with closing(DataFile(path)) as file, names.copying(path) as copy:
        file.copy_to(copy)
        left = path.with_name("ratings.db.stream-rater-abcdefgh")
        shutil.copytree(copy.parent, left)
        theirs = path.with_name("ratings.db.stream-rater-of-mine")
        theirs.mkdir()
        Database.open(path).close()
        assert not left.exists() and theirs.exists() and copy.exists()
    assert not copy.parent.exists()
