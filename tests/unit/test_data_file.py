"""A data file: who may open it, what a transaction leaves behind, and what is lost (nothing)."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from stream_rater.adapters.local_driver import estimator_worker, updater_worker
from stream_rater.adapters.sqlite import database as module
from stream_rater.adapters.sqlite import schema
from stream_rater.adapters.sqlite.database import Database, connect_reader
from stream_rater.adapters.sqlite.events import read_events, restore
from stream_rater.adapters.sqlite.log import NewRound, SqliteLog, read_records
from stream_rater.adapters.sqlite.reading import data_file
from stream_rater.adapters.sqlite.store import SqliteStore, set_position
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.contract.errors import Denied, LogTrouble, Regrouped, Unrecoverable, Unusable
from stream_rater.pipeline import ladder_history, ports
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.pipeline.ports import Application, Apply, Event, Position
from tests.builders.cases import cases
from tests.waits import HANGS_S

ANN = ("duel", "ann")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The name of a data file that does not exist yet."""
    return tmp_path / "ratings.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with closing(Database.open(path, partitions=2)) as found:
        yield found


def values(path: Path) -> list[bytes | None]:
    """The values of the rounds in partition 0, as another process sees them."""
    with closing(connect_reader(path)) as reader:
        return [each.value for each in read_records(reader, "rounds", 0, 0, 1 << 40)]


def a_call(start: int, applied: int, record: bytes, absent: int | None = None) -> Application:
    return Application(Position(applied, start), BeliefColumn.of([(ANN, record)]), absent)


def test_a_file_keeps_its_partitions(path: Path) -> None:
    """Those of its first day, whatever is asked for later. So offsets never change."""
    Database.open(path, partitions=3).close()
    with closing(Database.open(path, partitions=16)) as database:
        assert (database.partitions, database.shards) == (3, 1)
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name, f"{path.name}.lock"]


def test_only_its_user_can_read_it(path: Path) -> None:
    """So it is with files beside it. Rights that were given later survive its replacement."""
    with closing(Database.open(path)) as database:
        database.connection.execute("INSERT INTO meta VALUES ('any', 'thing')")
        with data_file(str(path)) as file:
            file.copy_to(path.with_name("copy"))
            modes = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
    assert {*modes} > {path.name, f"{path.name}-wal", "copy"}
    assert {*modes.values()} == {0o600}
    path.chmod(0o640)
    with closing(Database.open(path)) as database:
        database.replace_by(path.with_name("copy"))
    assert path.stat().st_mode & 0o777 == 0o640


OPEN_IT = """
import sys
from pathlib import Path
from stream_rater.adapters.sqlite.database import Database
from stream_rater.contract.errors import Unrecoverable
try:
    Database.open(Path(sys.argv[1]))
except Unrecoverable as error:
    sys.exit(str(error))
"""


def opened_elsewhere(path: Path) -> "subprocess.CompletedProcess[str]":
    """What another process prints when it opens a data file."""
    words = [sys.executable, "-c", OPEN_IT, str(path)]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=HANGS_S)


def test_a_second_process_learns_who_has_the_file(database: Database, path: Path) -> None:
    """It gets one line with the process, the host and the time. Later it may open the file."""
    found = opened_elsewhere(path)
    assert found.returncode == 1
    holder = rf"process {os.getpid()} on \S+ since 20\S+"
    used = rf"{re.escape(str(path))} is in use by {holder}"
    assert re.fullmatch(rf"{used}: stop that process first, or use its HTTP API\n", found.stderr)
    with pytest.raises(Unusable, match=holder):
        Database.open(path)
    database.close()
    assert opened_elsewhere(path).returncode == 0


def test_files_that_are_not_ours(path: Path) -> None:
    """A newer format, another program's file, anything else: it is refused by name, and stays."""
    with pytest.raises(Unusable, match=r"ratings\.db: there is no such file"):
        connect_reader(path)
    assert not path.exists()
    with pytest.raises(Unusable, match=r"none/ratings\.db: no folder .*none"):
        Database.open(path.parent / "none" / path.name)
    Database.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {schema.FORMAT + 1}")
    before = path.read_bytes()
    for opened in (Database.open, connect_reader):
        with pytest.raises(Unusable, match=r"ratings\.db has format 2, .*formats up to 1: use"):
            opened(path)
    assert path.read_bytes() == before
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
        connection.commit()
    with pytest.raises(Unusable, match=r"ratings\.db is no data file of stream-rater"):
        Database.open(path)
    path.write_text("some notes of mine, longer than the header of a file of SQLite" * 100)
    before = path.read_bytes()
    for opened in (Database.open, connect_reader):
        with pytest.raises(Unusable, match="no file of SQLite: name another file"):
            opened(path)
    assert path.read_bytes() == before


def test_an_older_format_is_upgraded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step by step, each in a transaction of its own."""
    Database.open(path).close()
    monkeypatch.setattr(schema, "FORMAT", 3)
    steps = {1: "CREATE TABLE new (a)", 2: "INSERT INTO new VALUES (7)"}
    monkeypatch.setattr(schema, "UPGRADES", steps)
    for _ in range(2):
        with closing(Database.open(path)) as database:
            assert database.connection.execute("SELECT a FROM new").fetchall() == [(7,)]
            assert database.connection.execute("PRAGMA user_version").fetchone() == (3,)


def test_a_moved_file_never_opens_again(database: Database, path: Path) -> None:
    """So that no round is rated in two places."""
    database.mark_moved("kafka:9092")
    database.close()
    for opened in (Database.open, connect_reader):
        with pytest.raises(Unusable, match=r"was moved to kafka:9092 and is not used any more"):
            opened(path)


def test_commits_reach_the_disk(database: Database) -> None:
    """The write-ahead log is synchronised at each commit, and readers cannot write."""
    facts = {"journal_mode": "wal", "synchronous": 2, "application_id": 0x53524154}
    for name, value in facts.items():
        assert database.connection.execute(f"PRAGMA {name}").fetchone() == (value,)
    with closing(connect_reader(database.path)) as reader, pytest.raises(sqlite3.OperationalError):
        reader.execute("DELETE FROM rounds")


def test_versions_with_the_race() -> None:
    """Of write and checkpoint; SQLite mended it in three lines of versions."""
    bad = [(3, 40, 1), (3, 44, 5), (3, 45, 0), (3, 50, 6), (3, 51, 2)]
    good = [(3, 44, 6), (3, 44, 9), (3, 50, 7), (3, 51, 3), (3, 52, 0)]
    assert all("wal-reset" in module.warnings_of(version) for version in bad)
    assert not any(module.warnings_of(version) for version in good)


def test_beliefs_stay_if_the_group_changes_before_their_publish(database: Database) -> None:
    """No event of them is there, and no offset: they are published by what comes next."""
    log, store = SqliteLog(database), SqliteStore(database)
    worker, other = updater_worker(log, store), updater_worker(log, store)
    log.updaters.assign([worker])
    worker.perform(ports.Poll(0.0))
    worker.perform(Apply({0: a_call(0, 1, b"one")}))
    log.updaters.assign([worker, other])
    with pytest.raises(Regrouped):
        worker.perform(
            ports.Publish([Event(0, b"key", b"event", b"id", "2026-01-01T00:00:00Z")], {0: 1})
        )
    assert store.read(0, PlayerColumn.of([ANN])).records == [b"one"]
    assert (log.updaters.committed, log.changed_end(0)) == ({}, 0)


def test_parts_that_may_be_needed_again_stay(path: Path) -> None:
    """Those of the last call, and those whose events no transaction has published."""
    with closing(Database.open(path, shards=3)) as database:
        log = SqliteLog(database)
        for shard, start in enumerate((2, 4, 4)):
            for _ in range(6):
                log.append_part(shard, b"part")
            set_position(database.connection, shard, Position(5, start))
        for number, offsets in enumerate(({0: 4, 1: 3, 2: 4}, dict.fromkeys(range(3), 5))):
            log.transaction(log.updaters, number).offsets.update(offsets)
            log.commit(log.updaters, number)
        assert [log.parts.start(shard) for shard in range(3)] == [2, 3, 4]


def test_a_full_disk_takes_a_turn_back(database: Database, path: Path) -> None:
    """Nothing of the turn is there, whatever follows the failure. The next turn works."""
    log = SqliteLog(database)
    with database.turn():
        log.submit(0, b"before")
    (pages,) = database.connection.execute("PRAGMA page_count").fetchone()
    database.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    full = r"ratings\.db: database or disk is full"
    with pytest.raises(LogTrouble, match=full), database.turn():
        log.submit(0, b"small")
        with suppress(LogTrouble):
            log.submit(0, b"x" * 1_000_000)
        log.submit(0, b"after the failure")
    with pytest.raises(LogTrouble, match=full):
        log.submit_all([NewRound(0, b"small"), NewRound(0, b"x" * 1_000_000)])
    assert values(path) == [b"before"]
    database.connection.execute("PRAGMA max_page_count = 1000000")
    with database.turn():
        assert log.submit(0, b"next") == 1
    assert values(path) == [b"before", b"next"]


def test_an_effect_outside_of_a_turn_is_one_transaction(database: Database) -> None:
    """It is one however many writes it has."""
    statements = list[str]()
    worker = estimator_worker(SqliteLog(database), SqliteStore(database))
    database.connection.set_trace_callback(statements.append)
    assert worker.perform(ports.Scatter([(0, b"a"), (0, b"b")])) == [0, 1]
    assert statements.count("COMMIT") == 1


def test_ladder_events_are_read_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading thousands at each round would take too long. A rollback is forgotten, too."""
    log, read = SqliteLog(database), list[bytes]()
    of_log = LadderLog.read

    def reading(of: LadderLog, event: bytes) -> None:
        read.append(event)
        of_log(of, event)

    monkeypatch.setattr(LadderLog, "read", reading)
    first, taken_back, last = (
        ladder_history.encode_histories("noted", {name: ("0:x",)}) for name in "abc"
    )
    log.write(first)
    assert log.read().ladders == ["a"] == log.read().ladders
    assert read == first
    with pytest.raises(LogTrouble), database.turn():
        log.write(taken_back)
        assert log.read().ladders == ["a", "b"]
        raise LogTrouble("the disk is full")
    log.write(last)
    assert log.read().ladders == ["a", "c"] == SqliteLog(database).read().ladders


@cases(("code", "kind", "text"), [
    (sqlite3.SQLITE_FULL, LogTrouble, "sqlite: a.db: why"),
    (sqlite3.SQLITE_BUSY, LogTrouble, "sqlite: a.db: why"),
    (sqlite3.SQLITE_IOERR_SHMSIZE, LogTrouble, "sqlite: a.db: why: make room on its disk"),
    (sqlite3.SQLITE_IOERR | 4 << 8, Unrecoverable, "a.db: why: the disk failed: check it"),
    (sqlite3.SQLITE_CORRUPT, Unrecoverable, "a.db: why: the file is damaged: restore"),
    (sqlite3.SQLITE_READONLY | 1 << 8, Denied, "a.db: why"),
])  # fmt: skip
def test_which_errors_end_the_process(code: int, kind: type[Exception], text: str) -> None:
    """After a failed fsync nobody knows what is on the disk. A full disk may have room again."""
    error = sqlite3.OperationalError("why")
    error.sqlite_errorcode = code
    found = module.error_of(error, Path("a.db"), LogTrouble)
    assert isinstance(found, kind) and str(found).startswith(text)


def test_an_old_reader_does_not_block_the_writer(database: Database, path: Path) -> None:
    """It sees the file as it was when its transaction began."""
    log = SqliteLog(database)
    log.submit(0, b"before")
    with closing(connect_reader(path)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM rounds").fetchone() == (1,)
        for number in range(50):
            with database.turn():
                log.submit(0, b"%d" % number * 10_000)
        assert reader.execute("SELECT count(*) FROM rounds").fetchone() == (1,)
        reader.execute("COMMIT")
        assert reader.execute("SELECT count(*) FROM rounds").fetchone() == (51,)


def test_beliefs_that_a_foreign_program_deletes_are_missed(database: Database, path: Path) -> None:
    """Although they are in memory: by the next call that had read them before."""
    store = SqliteStore(database)
    assert store.apply(0, a_call(0, 1, b"one"))
    assert store.read(0, PlayerColumn.of([ANN])).records == [b"one"]
    with closing(sqlite3.connect(path)) as foreign:
        foreign.execute("DELETE FROM recent")
        foreign.commit()
    assert not store.apply(0, a_call(1, 2, b"two", absent=0))


KEEP_ON = """
import sys
from pathlib import Path
from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.log import SqliteLog
database = Database.open(Path(sys.argv[1]))
log = SqliteLog(database)
for number in range(1_000_000):
    with database.turn():
        log.submit(0, b"%d first" % number)
        if number == 300:
            database.connection.execute("PRAGMA cache_spill = 1")
            for _ in range(3000):
                log.submit(0, b"never" * 10_000)
            print("open", flush=True)
            sys.stdin.read()
        log.submit(0, b"%d second" % number)
    print(number, flush=True)
"""


def test_a_killed_process_loses_nothing(path: Path) -> None:
    """It is killed in a transaction that is partly in the log. All that was committed is there."""
    child = subprocess.Popen(
        [sys.executable, "-c", KEEP_ON, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    with child:
        said = list(iter(child.stdout.readline, "open\n"))
        child.send_signal(signal.SIGKILL)
    assert len(said) == 300
    expected = [b"%d %b" % (n, which) for n in range(300) for which in (b"first", b"second")]
    with closing(Database.open(path)) as database:
        log = SqliteLog(database)
        assert log.rounds.end(0) == 600
        assert [each.value for each in log.rounds.read(0, 0, 1000)] == expected
        assert log.submit(0, b"next") == 600


def test_events_are_restored_to_their_offsets(database: Database, path: Path) -> None:
    """Those that are kept of older ones, too, which leave gaps."""
    found = [
        (n, Event(0, b"k%d" % n, b"v%d" % n, b"i%d" % n, "2026-11-20T20:15:05Z"))
        for n in (2, 5, 7, 8, 9)
    ]
    with database.write(LogTrouble) as connection:
        restore(connection, 0, found, 7)
    with closing(connect_reader(path)) as reader:
        assert list(read_events(reader, 0)) == found
        assert list(read_events(reader, 0, 6)) == found[2:]
    assert SqliteLog(database).changed_end(0) == 10
