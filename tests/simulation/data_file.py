"""The engine of a standalone process on a data file whose disk fails, and whose power is cut.

A power cut, or a kill, is simulated by a copy of the file, its write-ahead log and its lock, with
which another process goes on. It comes before or after any statement, or within a commit. There,
unsynchronized sectors of the write-ahead log (of the file, too, if pages move) are old or new, in
any mixture. Not simulated: a disk that loses what it has confirmed (`synchronous` is tested in
`tests/unit/test_data_file.py`), and sectors that are neither old nor new."""

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

from stream_rater.adapters import memory
from stream_rater.adapters.local_driver import estimator_worker, updater_worker
from stream_rater.adapters.sqlite.database import Database, connect_reader
from stream_rater.adapters.sqlite.events import read_events
from stream_rater.adapters.sqlite.log import SqliteLog, read_records, read_rejections
from stream_rater.adapters.sqlite.store import SqliteStore, all_beliefs
from stream_rater.config.ladders import Ladders
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from stream_rater.contract.record import NewRecord, RecordPlace
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.ports import Event
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.runtime.engine import Engine, Machine

SECTOR = 512
COMMIT_FAILS = 10.0  # how much more often a COMMIT fails than another statement
CACHE_BYTES = 100_000
EVERY = 1 << 40  # an offset that no log reaches


class Cut(BaseException):
    """The power is cut: nothing of this process goes on."""


def full() -> sqlite3.Error:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


class Clock:
    """A clock that goes on with every look at it."""

    def __init__(self, rng: random.Random, steps_s: Sequence[float] = (0.0, 0.005, 0.3)) -> None:
        """It goes on by one of `steps_s`."""
        self._rng, self._steps_s, self.now_s = rng, steps_s, 0.0

    def __call__(self) -> float:
        self.now_s += self._rng.choice(self._steps_s)
        return self.now_s


class Process:
    """The engine of one process, without threads: turns are taken by the test."""

    def __init__(
        self, path: Path, ladders: Ladders, window: int, *, engine: type[Engine] = Engine,
        log: type[SqliteLog] = SqliteLog, partitions: int = 2,
        on_events: Callable[[], None] = lambda: None, clock: "Clock | None" = None,
        **options: Any,
    ) -> None:  # fmt: skip
        """`options` are those of the estimator."""
        self.path = path
        self.database = Database.open(path, partitions=partitions)
        self.log = log(self.database)
        self.store = SqliteStore(self.database)
        estimator = Estimator(ladders, 1, partitions, window=window, commit_every_s=0.0, **options)
        updater = Updater(1, cache_bytes=CACHE_BYTES)
        self.troubles: list[str] = []
        self.engine = engine(
            self.database, self.log,
            [
                self._machine("estimator", estimator_worker(self.log, self.store), estimator),
                self._machine("updater", updater_worker(self.log, self.store), updater),
            ],
            on_events, self.troubles.append, clock or Clock(random.Random(0)),
        )  # fmt: skip

    def _machine(self, name: str, driver: Any, machine: Any) -> Machine:
        driver.group.assign([driver])
        return Machine(name, driver, machine.run(), lambda *_: None)

    def append(self, *records: NewRecord) -> "Future[list[RecordPlace]]":
        return self.engine.append(records)

    @property
    def finished(self) -> bool:
        """Whether everything that is in the log is rated and published."""
        rounds, parts = self.log.rounds, self.log.parts
        return all(
            group.committed.get(p, 0) == topic.end(p)
            for group, topic in ((self.log.estimators, rounds), (self.log.updaters, parts))
            for p in range(len(topic))
        )

    def close(self) -> None:
        self.database.close()


class Disk:
    """Decides when statements fail and the power is cut, and has what is left then."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self._folder = rng, folder
        self.fails = self.cuts = self.tears = 0.0  # Probabilities: failure, cut, torn commit.
        self.happened: Counter[str] = Counter()
        self._copies = 0
        self.left: Path | None = None  # what another process finds after a cut

    def new_file(self) -> Path:
        self._copies += 1
        folder = self._folder / str(self._copies)
        folder.mkdir()
        return folder / "ratings.db"

    def under(self, process: Process) -> None:
        process.database.connection = UnkindConnection(self, process)  # type: ignore[assignment]


class UnkindConnection:
    """A connection whose statements may fail. The power may be cut before and within them."""

    def __init__(self, disk: Disk, process: Process) -> None:
        self._real: Any = process.database.connection
        self._disk, self._process = disk, process

    def execute(self, sql: str, *given: Any) -> Any:
        self._before(sql)
        disk, path = self._disk, self._process.path
        if sql != "COMMIT" or disk.rng.random() >= disk.tears:
            return self._real.execute(sql, *given)
        disk.happened["torn"] += 1
        old = contents(path)
        self._real.execute(sql)
        disk.left = torn(disk.rng, old, contents(path), disk.new_file())
        shutil.copyfile(beside(path, ".lock"), beside(disk.left, ".lock"))
        raise Cut

    def executemany(self, sql: str, *given: Any) -> Any:
        self._before(sql)
        return self._real.executemany(sql, *given)

    def _before(self, sql: str) -> None:
        disk, process = self._disk, self._process
        if disk.rng.random() < disk.cuts:
            disk.happened["cut"] += 1
            disk.left = copied(process.path, disk.new_file())
            raise Cut
        chance = disk.fails * (COMMIT_FAILS if sql == "COMMIT" else 1.0)
        if sql != "ROLLBACK" and process.database.in_turn and disk.rng.random() < chance:
            disk.happened["full at COMMIT" if sql == "COMMIT" else "full"] += 1
            raise full()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def copied(path: Path, to: Path) -> Path:
    for end in ("", "-wal", ".lock"):
        if beside(path, end).exists():
            shutil.copyfile(beside(path, end), beside(to, end))
    return to


def beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def contents(path: Path) -> tuple[bytes, bytes]:
    wal = beside(path, "-wal")
    return path.read_bytes(), wal.read_bytes() if wal.exists() else b""


def torn(rng: random.Random, old: tuple[bytes, bytes], new: tuple[bytes, bytes], to: Path) -> Path:
    """The file as a cut within a commit may leave it. Its log is synchronized before pages move."""
    moved = old[0] != new[0] and rng.random() < 0.5
    to.write_bytes(mixed(rng, old[0], new[0]) if moved else old[0])
    beside(to, "-wal").write_bytes(new[1] if moved else mixed(rng, old[1], new[1]))
    return to


def mixed(rng: random.Random, old: bytes, new: bytes) -> bytes:
    """Each sector is the old or the new one; the file may have any length in between."""
    if rng.random() < 0.5:  # they were written in order
        at = rng.randrange(len(new) + 1)
        return new[:at] + old[at:]
    size = rng.randint(min(len(old), len(new)), max(len(old), len(new)))
    pieces = []
    for at in range(0, size, SECTOR):
        source = new if rng.random() < 0.5 else old
        pieces.append(source[at : at + SECTOR].ljust(SECTOR, b"\0"))
    return b"".join(pieces)[:size]


class Subscriber:
    """A subscriber, which collects the events in the order in which it sees them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.wrong: list[str] = []

    def look(self, connection: Any, end: int) -> None:
        """Read the new events. `end` is the offset of the next one."""
        if end < len(self.events):
            self.wrong.append(f"{len(self.events)} events were shown, of which {end} are there")
            del self.events[end:]
        for offset, event in read_events(connection, 0, len(self.events)):
            if offset != len(self.events):
                self.wrong.append(f"event {len(self.events)} is missing")
                return
            self.events.append(event)


class Gap(Exception):
    """Offsets of a log have a gap."""


def as_in_memory(path: Path, events: Sequence[Event]) -> tuple[memory.Log, memory.Store]:
    """A data file's log with these events, and its beliefs, for the oracle. Raises Gap."""
    with closing(connect_reader(path)) as reader:
        (partitions,) = reader.execute("SELECT value FROM meta WHERE name='partitions'").fetchone()
        log, store = memory.Log(int(partitions), 1), memory.Store()
        for partition in range(int(partitions)):
            for each in read_records(reader, "rounds", partition, 0, EVERY):
                at = log.submit(partition, each.value, each.headers, each.received_s, each.key)
                if at != each.offset:
                    raise Gap(f"partition {partition}: offset {at} is not there")
        log.changed[0] = list(events)
        log.rejected = [each for _, each in read_rejections(reader)]
        for group, name in ((log.estimators, ESTIMATORS), (log.updaters, UPDATERS)):
            sql = "SELECT partition, next FROM committed WHERE consumers = ?"
            group.committed = dict(reader.execute(sql, (name,)).fetchall())
        store.beliefs[0] = dict(all_beliefs(reader, 0))
        return log, store


def unacknowledged(
    path: Path, acknowledged: Sequence[tuple[NewRecord, RecordPlace]]
) -> Iterator[str]:
    """Lines for records that are not where they were acknowledged."""
    with closing(connect_reader(path)) as reader:
        for record, (partition, offset) in acknowledged:
            found = [*read_records(reader, "rounds", partition, offset, offset + 1)]
            if [each.value for each in found] != [record.value]:
                yield f"what was acknowledged at {partition}/{offset} is not there"
