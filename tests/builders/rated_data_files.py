"""Rate what was submitted to a data file, as a standalone process does, but without its API."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from stream_rater.adapters.local_driver import estimator_worker, updater_worker
from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.log import SqliteLog
from stream_rater.adapters.sqlite.store import SqliteStore, recent_beliefs
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.files import read_ladders
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.runtime.engine import Engine, Machine
from stream_rater.runtime.startup import check_ladders

WINDOW = 100_000


def rate(path: Path, ladders_file: Path | None = None, partitions: int = 3) -> None:
    """Rate all records that wait in a data file; create the file if it does not exist."""
    with rating(path, ladders_file, partitions) as turn:
        turn()


@contextmanager
def rating(
    path: Path, ladders_file: Path | None = None, partitions: int = 3
) -> Iterator[Callable[[], None]]:
    """Open a data file as a standalone process does. Yields a function that rates all records."""
    ladders = read_ladders(ladders_file) if ladders_file else ANY_LADDER
    with closing(Database.open(path, partitions=partitions)) as database:
        log, store = SqliteLog(database), SqliteStore(database)
        with database.turn():
            database.set_meta("duplicate_window", WINDOW)
            database.set_meta("kernel", KERNEL_VERSION)
            ends = [log.rounds.end(p) for p in range(partitions)]
            check_ladders(ladders, log, lambda: ends, lambda: log.estimators.committed)
        machines = [_machine(role, ladders, log, store) for role in ("estimator", "updater")]
        engine = Engine(database, log, machines, lambda: None, _fail)

        def turn() -> None:
            while True:
                for each in machines:
                    each.due_s = 0.0
                engine.turn()
                done, applied = log.estimators.committed, log.updaters.committed
                behind = [log.rounds.end(p) - done.get(p, 0) for p in range(len(log.rounds))]
                if not any(behind) and log.parts.end(0) == applied.get(0, 0):
                    return

        yield turn


def estimate(path: Path, ladders_file: Path) -> None:
    """Rate all records that wait, and leave their parts to the next start."""
    ladders = read_ladders(ladders_file)
    with closing(Database.open(path)) as database:
        log, store = SqliteLog(database), SqliteStore(database)
        machine = _machine("estimator", ladders, log, store)
        engine = Engine(database, log, [machine], lambda: None, _fail)
        while any(log.rounds.end(p) > log.estimators.committed.get(p, 0) for p in range(3)):
            machine.due_s = 0.0
            engine.turn()
        assert log.parts.end(0) > log.updaters.committed[0]


def _fail(trouble: str) -> None:
    raise AssertionError(trouble)


def _machine(role: str, ladders: Ladders, log: SqliteLog, store: SqliteStore) -> Machine:
    shards, partitions = len(log.parts), len(log.rounds)
    step: Any
    if role == "estimator":
        driver, step = estimator_worker(log, store), Estimator(
            ladders, shards, partitions, window=WINDOW
        ).run()  # fmt: skip
    else:
        driver, step = updater_worker(log, store), Updater(shards).run()
    driver.group.assign([driver])
    return Machine(role, driver, step, lambda *_: None)


def merged(path: Path) -> None:
    """Move recent beliefs to the table `beliefs`, where a foreign program can edit each one."""
    with closing(Database.open(path)) as database, database.turn():
        for (ladder, player), data in recent_beliefs(database.connection, 0).items():
            database.connection.execute(
                "INSERT OR REPLACE INTO beliefs VALUES (0, ?, ?, ?)", (ladder, player, data)
            )
        database.connection.execute("DELETE FROM recent")
