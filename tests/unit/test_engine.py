"""The engine of a standalone process on a data file: one commit a turn, and what failures leave."""

import random
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.adapters.sqlite.database import connect_reader
from stream_rater.adapters.sqlite.events import end_of_changed
from stream_rater.adapters.sqlite.store import position_of
from stream_rater.config.ladders import DEFAULT_RATING, Ladder, Ladders
from stream_rater.contract.errors import LogTrouble, Unrecoverable
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.contract.record import NewRecord, RecordPlace
from stream_rater.runtime import engine
from stream_rater.runtime.engine import Full
from tests.builders.lines import a_round
from tests.data_files import committed_of, ends_of
from tests.rounds import day
from tests.simulation import oracle
from tests.simulation.data_file import Clock, Disk, Process, Subscriber, as_in_memory, full
from tests.waits import STILL_S

LADDERS, WINDOW = Ladders(ladders={"duel": Ladder(rating=DEFAULT_RATING)}), 100


def new_round(number: int) -> NewRecord:
    """Rounds of two. Some players are in many."""
    line = a_round(number, f"q{number % 100}", f"p{number}", ladder="duel", completed_at=day(1))
    return NewRecord(0, b"duel", msgspec.json.encode(line), ())


class Started:
    """A process on a new file whose partition 0 has the ladder, and what it reports."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.reports = Disk(random.Random(0), folder), 0
        self.path, self.clock = self.disk.new_file(), Clock(random.Random(0), [0.0001])
        self.process = Process(
            self.path, LADDERS, WINDOW, partitions=1, on_events=self._report,
            clock=self.clock, rejects_per_second=0.0,
        )  # fmt: skip
        self.engine = self.process.engine

    def _report(self) -> None:
        self.reports += 1

    def submit(self, *numbers: int) -> "Future[list[RecordPlace]]":
        return self.process.append(*map(new_round, numbers))

    def turns(self) -> None:
        """Take turns until all is rated and nothing waits."""
        for _ in range(1000):
            self.clock.now_s += 1.0
            self.engine.turn()
            if self.process.finished and not self.engine.waiting:
                return
        pytest.fail(f"not finished: {self.process.troubles}")

    def shown(self) -> tuple[int, int, int]:
        """As another process sees it: the records, those that are rated, and the events."""
        with closing(connect_reader(self.path)) as reader:
            return ends_of(reader)[0], committed_of(reader).get(0, 0), end_of_changed(reader, 0)

    def check(self) -> None:
        """The file equals a sequential replay of its log, and keeps only the last call's parts."""
        subscriber, parts = Subscriber(), self.process.log.parts
        with closing(connect_reader(self.path)) as reader:
            subscriber.look(reader, end_of_changed(reader, 0))
            (kept,) = reader.execute("SELECT count(*) FROM parts").fetchone()
            assert kept == parts.end(0) - parts.start(0) < 10
            assert parts.start(0) <= position_of(reader, 0).start
        log, store = as_in_memory(self.path, subscriber.events)
        assert oracle.violations(log, store, LADDERS, WINDOW, 1, rebuilt=False) == []
        names = [rating_changed_from_json(each.value).round_id for each in subscriber.events]
        assert len(names) == 2 * len(set(names))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    found = Started(tmp_path)
    yield found
    found.process.close()


class Statements:
    """Takes the place of the connection: sees each statement, and may let a COMMIT fail."""

    def __init__(self, started: Started, failure: sqlite3.Error | None = None) -> None:
        self._real = started.process.database.connection
        self.failure: sqlite3.Error | None = failure
        self.at_commit: Callable[[], object] = lambda: None
        self.seen: list[str] = []
        connection: Any = self
        started.process.database.connection = connection

    def execute(self, sql: str, *given: Any) -> Any:
        self.seen.append(sql.split(maxsplit=1)[0])
        if sql == "COMMIT":
            self.at_commit()
            if self.failure is not None:
                raise self.failure
        return self._real.execute(sql, *given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_too_many_records_are_refused(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused until those that wait have had their turn."""
    monkeypatch.setattr(engine, "MOST_WAITING", 3)
    started.submit(1, 2)
    with pytest.raises(Full):
        started.submit(3, 4)
    assert started.engine.waiting == 2
    started.turns()
    monkeypatch.setattr(engine, "MOST_WAITING_BYTES", 1)
    started.submit(3, 4)  # by themselves they may be large
    with pytest.raises(Full):
        started.submit(5)
    started.turns()
    assert (started.engine.waiting, started.engine._waiting_bytes) == (0, 0)


def test_cancelled_records_are_dropped(started: Started) -> None:
    """Clients send them again, so they must not stay. A turn that has ended is not undone."""
    statements = Statements(started, full())
    first, second, third = (started.submit(number) for number in (1, 2, 3))
    statements.at_commit = second.cancel
    started.engine.turn()
    assert first.cancel()
    statements.failure, statements.at_commit = None, lambda: None
    started.turns()
    assert third.result(0) == [(0, 0)] and not third.cancel() and started.shown()[0] == 1
    fourth = started.submit(4)
    statements.at_commit = fourth.cancel
    started.turns()
    assert fourth.cancelled() and started.shown()[0] == 2 and not started.engine.waiting


def test_after_a_failure_it_waits(started: Started) -> None:
    """Records that come before the pause is over do not begin a turn."""
    Statements(started, full())
    started.submit(1)
    run = running(started)
    try:
        for _ in range(200):
            started.submit(2)
        assert len(started.process.troubles) < 50
    finally:
        stop(started, run)


def running(started: Started) -> "Future[None]":
    """Runs the engine in a thread until it stops or fails. Its failure is the outcome."""
    return ThreadPoolExecutor(1).submit(started.engine.run)


def stop(started: Started, run: "Future[None]") -> None:
    started.engine.stop()
    assert run.exception(STILL_S) is None


def test_it_runs_until_it_is_stopped(started: Started) -> None:
    """What is sent before is answered; later everything is refused."""
    run = running(started)
    assert started.submit(1).result(STILL_S) == [(0, 0)]
    stop(started, run)
    with pytest.raises(Full):
        started.submit(2)


def test_what_waits_at_the_end_is_answered(started: Started) -> None:
    """With an error: nothing was written. So nobody waits for ever."""
    answer = started.submit(1)
    started.engine.stop()
    assert running(started).exception(STILL_S) is None
    with pytest.raises(LogTrouble, match="nothing was written"):
        answer.result(0)
    assert started.shown() == (0, 0, 0)


def test_a_broken_disk_ends_it(started: Started) -> None:
    """Whether its records are written is unknown, as the answer says. Later ones are not."""
    unconfirmed = sqlite3.OperationalError("disk I/O error")
    unconfirmed.sqlite_errorcode = sqlite3.SQLITE_IOERR
    statements = Statements(started, unconfirmed)
    answer = started.submit(1)
    later: list[Future[list[RecordPlace]]] = []
    statements.at_commit = lambda: later.append(started.submit(2))
    assert isinstance(running(started).exception(STILL_S), Unrecoverable)
    with pytest.raises(LogTrouble, match="it may be written all the same"):
        answer.result(0)
    with pytest.raises(LogTrouble, match="nothing was written"):
        later[0].result(0)


def test_answers_are_those_of_their_records(started: Started) -> None:
    """However many come at once, from whatever thread."""
    run = running(started)
    found: dict[int, Sequence[RecordPlace]] = {}

    def send(first: int) -> None:
        for number in range(first, first + 25):
            found[number] = started.submit(number).result(STILL_S)

    senders = [threading.Thread(target=send, args=(100 * each,)) for each in range(4)]
    for each in senders:
        each.start()
    for each in senders:
        each.join(STILL_S)
    stop(started, run)
    started.engine._stopping = False
    started.turns()
    for number, ((partition, offset),) in found.items():
        (record,) = started.process.log.rounds.read(partition, offset, offset + 1)
        assert record.value == new_round(number).value
    assert len({place for (place,) in found.values()}) == 100
    started.check()
