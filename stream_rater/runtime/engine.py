"""Both state machines in one thread: the engine of a standalone process, which works on a data
file, and an engine in memory (`EmbeddedEngine`).

A *turn* takes the records that wait, appends them to the log, and lets the estimator and the
updater work until each waits for records. It is one transaction of the file, which ends with one
write to the disk. Only then the submitters get their answers, and only then subscribers see the
events. If the transaction fails, nothing of the turn has happened: the records wait for the next
turn, and both machines start over, as after a crash. So steps 12 to 14 of the protocol are one
transaction, and `applied` is the committed offset whenever the file is read.
"""

import asyncio
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from stream_rater.adapters.local_driver import LocalDriver, estimator_worker, updater_worker
from stream_rater.adapters.memory import Log, Store
from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.log import NewRound, SqliteLog
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble, Trouble
from stream_rater.contract.record import Appended, NewRecord, NotAppended, RecordPlace
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import Effect, Poll, Polled, Step, pause_s
from stream_rater.pipeline.updater.updater import Updater

MOST_WAITING = 20_000  # The most records that may wait for the disk.
MOST_WAITING_BYTES = 64 * 1024 * 1024  # The most bytes of waiting records; one call may have more.
MOST_TOGETHER = 5_000  # The most records that one turn appends.
TURN_S = 0.02  # The time after which a turn ends, although a machine has more to do.
IDLE_S = 1.0  # The longest time for which the engine waits without looking at its machines.


class Full(Exception):
    """Too many records wait. They must come again later."""


class Machine:
    """A state machine, its driver, and the effect that it asks for."""

    def __init__(
        self, name: str, driver: LocalDriver, step: Step[Any],
        on_effect: Callable[[str, str, float], None],
        on_polled: Callable[[Polled], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.name, self.driver = name, driver
        self._step: Generator[Effect[Any], Any, Any] = step
        self._on_effect, self._on_polled = on_effect, on_polled
        self._effect: Effect[Any] = next(step)
        self.due_s = 0.0  # When its poll ends without records, monotonic seconds.

    def advance(self, now_s: float) -> bool:
        """Perform effects up to the next poll; returns False if the machine waits. Raises
        Trouble."""
        effect = self._effect
        if isinstance(effect, Poll) and now_s < self.due_s and (
            effect.no_fetch or not self.driver.has_news(effect.paused)
        ):  # fmt: skip
            return False
        self.driver.now_s = now_s
        while True:
            self._perform()
            if isinstance(self._effect, Poll):
                self.due_s = now_s + self._effect.timeout_s
                return True

    def _perform(self) -> None:
        began_s, effect = time.perf_counter(), self._effect
        outcome = self.driver.perform(effect)
        self._on_effect(self.name, type(effect).__name__, time.perf_counter() - began_s)
        if isinstance(effect, Poll):
            self._on_polled(outcome)
        self._effect = self._step.send(outcome)

    def start_over(self, trouble: Trouble, now_s: float) -> None:
        """Let the machine forget what it knows and read everything again."""
        self._effect = self._step.throw(trouble)
        self.due_s = now_s
        if isinstance(self._effect, Poll):
            self.due_s += self._effect.timeout_s


class _Waiting(NamedTuple):
    records: Sequence[NewRecord]
    size: int  # The bytes of their values.
    answer: "Future[list[RecordPlace]]"


class Engine:
    """Runs both machines in the thread that opened the file. Other threads may use `append`,
    `end_of`, `waiting` and `stop`."""

    def __init__(
        self, database: Database, log: SqliteLog, machines: Sequence[Machine],
        on_events: Callable[[], None], on_trouble: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`on_events` is called when new events are on the disk, and `on_trouble` with the reason
        when a turn has failed. `clock` returns monotonic seconds."""
        self._database, self._log, self._machines = database, log, machines
        self._on_events, self._on_trouble, self._clock = on_events, on_trouble, clock
        self._queue: deque[_Waiting] = deque()
        self._waiting = self._waiting_bytes = 0
        """The number and the bytes of the records that are not on the disk yet."""
        self._changed = threading.Condition()
        self._stopping = False
        self._troubles = 0
        self._again_s = 0.0  # After a failed turn, when the next may begin (monotonic).
        self._end = log.changed_end(0)  # The end of the events for which `on_events` was called.
        self.last_turn_s = self._clock()  # When the last turn ended, monotonic seconds.
        self.trouble = ""  # Why the last turn failed; empty if it did not.

    # --- for other threads ---

    def append(self, records: Sequence[NewRecord]) -> "Future[list[RecordPlace]]":
        """Append records. The future has their places once they are on the disk. If it is
        cancelled, no later turn appends them. Raises Full if too many records wait."""
        answer: Future[list[RecordPlace]] = Future()
        size = sum(len(each.value) for each in records)
        with self._changed:
            most_bytes = max(MOST_WAITING_BYTES, size)
            full = self._waiting + len(records) > MOST_WAITING
            if self._stopping or full or self._waiting_bytes + size > most_bytes:
                raise Full
            self._queue.append(_Waiting(records, size, answer))
            self._waiting += len(records)
            self._waiting_bytes += size
            self._changed.notify()
        return answer

    def end_of(self, partition: int) -> int:
        """The end of a partition of `round-completed`. Records before it may not be on the disk."""
        return self._log.rounds.end(partition)

    @property
    def waiting(self) -> int:
        """The number of records that are not on the disk yet."""
        return self._waiting

    def stop(self) -> None:
        """End `run` after the turn in progress. Records that still wait are not appended."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    # --- the thread ---

    def run(self) -> None:
        """Take turns until `stop`. Raises Unrecoverable or Denied if the engine cannot go on."""
        try:
            while not self._stopping:
                if self._clock() >= self._again_s:
                    self.turn()
                self._wait()
        finally:
            self._give_up()

    def turn(self) -> None:
        """Take one turn."""
        taken = self._take()
        now_s = self._clock()
        try:
            with self._database.turn():
                places = iter(self._append(taken))
                self._work(now_s)
        except Trouble as trouble:
            self._start_over(taken, trouble, now_s)
            return
        except BaseException as error:
            for each in taken:
                _fail(each.answer, f"{error}: it may be written all the same")
            raise
        finally:
            self.last_turn_s = self._clock()
        self._troubles, self._again_s, self.trouble = 0, 0.0, ""
        self._forget(taken)
        for each in taken:
            found = [*itertools.islice(places, len(each.records))]
            with suppress(InvalidStateError):  # it was cancelled during the turn
                each.answer.set_result(found)
        if (end := self._log.changed_end(0)) != self._end:
            self._end = end
            self._on_events()

    def _start_over(self, taken: Sequence[_Waiting], trouble: Trouble, now_s: float) -> None:
        """After a turn of which nothing has happened: let everything wait for the next one."""
        with self._changed:
            self._queue.extendleft(reversed(taken))
        self._troubles += 1
        self._again_s = self._clock() + pause_s(self._troubles)
        self.trouble = str(trouble)
        self._on_trouble(self.trouble)
        for machine in self._machines:
            machine.start_over(trouble, now_s)

    def _take(self) -> list[_Waiting]:
        """Take records from the queue. Those of cancelled futures are dropped."""
        taken, count = [], 0
        with self._changed:
            while self._queue and count < MOST_TOGETHER:
                each = self._queue.popleft()
                if each.answer.cancelled():
                    self._forget([each])
                else:
                    taken.append(each)
                    count += len(each.records)
        return taken

    def _forget(self, some: Sequence[_Waiting]) -> None:
        """Count these records no longer."""
        with self._changed:
            self._waiting -= sum(len(each.records) for each in some)
            self._waiting_bytes -= sum(each.size for each in some)

    def _append(self, taken: Sequence[_Waiting]) -> list[RecordPlace]:
        received_s = time.time()
        rounds = [
            NewRound(record.partition, record.value, record.headers, received_s, record.key)
            for each in taken
            for record in each.records
        ]
        offsets = self._log.submit_all(rounds) if rounds else ()
        return [RecordPlace(each.partition, at) for each, at in zip(rounds, offsets, strict=True)]

    def _work(self, began_s: float) -> None:
        """Let the machines work until both wait, or the turn is over."""
        now_s = began_s
        while any([each.advance(now_s) for each in self._machines]):  # noqa: C419  # all of them
            now_s = self._clock()
            if now_s - began_s > TURN_S:
                break

    def _wait(self) -> None:
        """Wait until records come or a machine is due."""
        with self._changed:
            if self._troubles:
                pause = self._again_s - self._clock()
                self._changed.wait_for(lambda: self._stopping, max(pause, 0.0))
            elif not (self._queue or self._stopping):
                due_s = min(machine.due_s for machine in self._machines) - self._clock()
                self._changed.wait(min(max(due_s, 0.0), IDLE_S))

    def _give_up(self) -> None:
        """Answer those whose records still wait: they were not appended."""
        with self._changed:
            self._stopping = True
            left = [*self._queue]
            self._queue.clear()
        for waiting in left:
            _fail(waiting.answer, "the process ends: nothing was written")


def _fail(answer: "Future[Any]", why: str) -> None:
    with suppress(InvalidStateError):  # it was cancelled
        answer.set_exception(LogTrouble(why))


# --- in memory: nothing is durable ---------------------------------------------------------------

SHARDS = 4
CACHE_BYTES = 16 * 2**20  # The memory of the records that the updater need not read again.


class EmbeddedEngine:
    """Runs both state machines alternately on one log and store. Their clock is virtual: a poll
    that finds no record takes its time-out at once, and nothing else takes any time. So no caller
    waits for delayed work, such as the commit of offsets."""

    def __init__(
        self, ladders: Ladders = ANY_LADDER, *, estimating: Observer | None = None,
        updating: Observer | None = None,
    ) -> None:  # fmt: skip
        self.log, self.store = Log(1, SHARDS), Store()
        self._now_s = 0.0
        estimator = Estimator(ladders, SHARDS, 1, observer=estimating)
        updater = Updater(SHARDS, observer=updating, cache_bytes=CACHE_BYTES)
        self._machines: list[tuple[LocalDriver, Generator[Effect[Any], Any, Any]]] = [
            (estimator_worker(self.log, self.store), estimator.run()),
            (updater_worker(self.log, self.store), updater.run()),
        ]
        self._effects = [next(machine) for _, machine in self._machines]
        for worker, _ in self._machines:
            worker.group.assign([worker])

    def settle(self) -> None:
        """Run until every round is rated and published."""
        log = self.log
        while log.estimators.committed.get(0, 0) < len(log.rounds[0]) or any(
            log.updaters.committed.get(shard, 0) < len(parts)
            for shard, parts in enumerate(log.parts)
        ):
            for at, (worker, machine) in enumerate(self._machines):
                effect, worker.now_s = self._effects[at], self._now_s
                outcome = worker.perform(effect)
                if isinstance(effect, Poll) and not outcome.records:
                    self._now_s += effect.timeout_s
                self._effects[at] = machine.send(outcome)


# --- appending rounds that clients send, for the event loop of a process -------------------------

ACKNOWLEDGED_S = 10.0  # The time for a record to reach the disk. Then its outcome is unknown.


class RoundLog(Protocol):
    """Appends records to `round-completed`. All methods are for one event loop."""

    @property
    def partitions(self) -> int:
        """The number of partitions of `round-completed`. Raises LogTrouble while it is unknown."""

    @property
    def waiting(self) -> int:
        """The number of records whose outcome is not known yet."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connect. Outcomes go to this event loop."""

    def close(self) -> None:
        """End. Records that still wait are delivered, or fail, within seconds."""

    def end_of(self, partition: int) -> int:
        """The end of a partition, as far as it is known. The true end may be greater."""

    async def append(self, records: Sequence[NewRecord]) -> list[Appended]:
        """Append records, in this order. Returns their outcomes within a limited time."""


def round_log_of(settings: Settings, trouble: Callable[[str], None]) -> RoundLog:
    """The log on Kafka. `trouble` receives the reason why Kafka does not answer."""
    from stream_rater.adapters.kafka.round_log import KafkaRoundLog

    return KafkaRoundLog(settings, trouble)


class FileRoundLog:
    """Appends rounds to the log in a data file (`RoundLog`), by the engine's turns."""

    def __init__(self, engine: Engine, partitions: int) -> None:
        self._engine, self.partitions = engine, partitions
        self.end_of = engine.end_of

    @property
    def waiting(self) -> int:
        """The number of records that are not on the disk yet."""
        return self._engine.waiting

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing: the engine runs."""

    def close(self) -> None:
        """Nothing: the engine ends by itself."""

    async def append(self, records: Sequence[NewRecord]) -> list[Appended]:
        """Append records, in this order, in one turn."""
        try:
            future = self._engine.append(records)
        except Full:
            full = f"{self._engine.waiting:,} records wait for the disk: send it later"
            return [NotAppended("busy", full)] * len(records)
        try:
            async with asyncio.timeout(ACKNOWLEDGED_S):
                return [*await asyncio.wrap_future(future)]
        except TimeoutError:
            why = self._engine.trouble or "the disk is slow"
        except LogTrouble as trouble:
            why = str(trouble)
        return [NotAppended("unavailable", why)] * len(records)
