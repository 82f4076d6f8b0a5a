"""A standalone process whose disk fails and whose power is cut. In the end, the file has all
acknowledged records, and each result once, as replayed. A seed notices each mutant."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stream_rater.adapters.local_driver import Group, Transaction
from stream_rater.adapters.sqlite import events
from stream_rater.adapters.sqlite import store as tables
from stream_rater.adapters.sqlite.log import SqliteLog
from stream_rater.contract.errors import LogTrouble, RoundsLost
from stream_rater.contract.record import NewRecord, RecordPlace
from stream_rater.runtime.engine import Engine

from . import oracle
from .data_file import Clock, Cut, Disk, Gap, Process, Subscriber, as_in_memory, unacknowledged
from .game import LADDERS, Weather, submissions

WINDOW = 12
MOST_TURNS = 400  # the turns within which the rest must be finished once nothing fails any more


@dataclass(frozen=True)
class Rules:
    engine: type[Engine] = Engine
    log: type[SqliteLog] = SqliteLog
    prepared: Callable[[Process], None] = lambda _: None


class Life:
    def __init__(self, seed: int, folder: Path, rules: Rules) -> None:
        self.rng, self.rules = random.Random(seed), rules
        self.disk = Disk(self.rng, folder)
        self.weather = Weather(self.rng)
        self.to_send = submissions(self.rng, self.weather)[::-1]
        self.subscriber = Subscriber()
        self.acknowledged: list[tuple[NewRecord, RecordPlace]] = []
        self.waiting: list[tuple[Sequence[NewRecord], Future[list[RecordPlace]]]] = []
        self.path = self.disk.new_file()
        self.process = self._started()

    def _started(self) -> Process:
        process = Process(
            self.path, LADDERS, WINDOW, engine=self.rules.engine, log=self.rules.log,
            on_events=self._look, clock=Clock(self.rng), wave_players=self.weather.wave_players,
            rows_per_part=self.weather.rows_per_part,
            checkpoint_every=self.weather.checkpoint_every, rejects_per_second=0.0,
        )  # fmt: skip
        process.engine.life = self  # type: ignore[attr-defined]
        self.rules.prepared(process)
        self.disk.under(process)
        return process

    def _look(self) -> None:
        process = self.process
        real = process.database.connection._real  # type: ignore[attr-defined]
        self.subscriber.look(real, process.log.changed_end(0))

    def play(self) -> list[str]:
        """Send everything, with faults, and then finish. Returns what is wrong."""
        factor = self.rng.choice([0.0, 1.0, 1.0, 4.0])
        self.disk.fails, self.disk.cuts = 0.004 * factor, 0.002 * factor
        self.disk.tears = 0.04 * factor
        while self.to_send or self.waiting:
            self._send_some()
            self._turn()
        self.disk.fails = self.disk.cuts = self.disk.tears = 0.0
        for _ in range(MOST_TURNS):
            if self.process.finished:
                break
            self._turn()
        else:
            self.process.close()
            return [f"not finished: {self.process.troubles[-1:]}"]
        self._look()
        self.process.close()
        try:
            log, store = as_in_memory(self.process.path, self.subscriber.events)
        except Gap as gap:
            return [str(gap)]
        found = oracle.violations(log, store, LADDERS, WINDOW, 1, rebuilt=False)
        return [*self.subscriber.wrong, *found, *self._lost()]

    def _send_some(self) -> None:
        while self.to_send and self.rng.random() < 0.6:
            some = []
            for _ in range(min(len(self.to_send), self.rng.choice([1, 1, 3]))):
                each = self.to_send.pop()
                some.append(NewRecord(each.partition, b"k", each.value, each.headers))
            self.waiting.append((some, self.process.append(*some)))

    def _turn(self) -> None:
        try:
            self.process.engine.turn()
        except Cut:
            self._go_on_elsewhere()
            return
        for records, answer in self.waiting:
            if answer.done():
                self.acknowledged += zip(records, answer.result(), strict=True)
        self.waiting = [each for each in self.waiting if not each[1].done()]

    def _go_on_elsewhere(self) -> None:
        """Another process opens what is left, and clients repeat what was not acknowledged."""
        unkind: Any = self.process.database.connection
        self.process.database.connection = unkind._real
        self.process.close()
        assert self.disk.left is not None
        self.path = self.disk.left
        again, self.waiting = self.waiting, []
        self.process = self._started()
        self.subscriber.wrong += self._lost()
        self._look()
        self.waiting = [(records, self.process.append(*records)) for records, _ in again]

    def _lost(self) -> list[str]:
        return [*unacknowledged(self.path, self.acknowledged)][:3]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beliefs are merged and events pruned early, but the subscriber still sees all events."""
    monkeypatch.setattr(tables, "RECENT", 12)
    monkeypatch.setattr(tables, "LEAST_MERGED", 2)
    monkeypatch.setattr(events, "KEPT", 50)
    monkeypatch.setattr(events, "PRUNED_TOGETHER", 10)
    monkeypatch.setattr(events, "LEAST_PRUNED", 2)


@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 60), marks=pytest.mark.slow)], ids=str
)
def test_nothing_is_lost_and_nothing_doubled(tmp_path: Path, seeds: range) -> None:
    """By many seeds. Each kind of fault happens."""
    happened: Counter[str] = Counter()
    for seed in seeds:
        life = lived(seed, tmp_path, Rules())
        assert (seed, life.play()) == (seed, [])
        happened += life.disk.happened
    assert set(happened) == {"cut", "full", "full at COMMIT", "torn"}, happened


def lived(seed: int, folder: Path, rules: Rules) -> Life:
    """The beginning of the life with this seed."""
    own = folder / str(seed)
    own.mkdir()
    return Life(seed, own, rules)


# --- mutants -------------------------------------------------------------------------------------


class ShownBefore(Engine):
    """Shows events before they are committed."""

    def _work(self, began_s: float) -> None:
        super()._work(began_s)
        self._on_events()


class AnsweredBefore(Engine):
    """Answers before the commit."""

    def _append(self, taken: Any) -> list[RecordPlace]:
        places = super()._append(taken)
        records = [record for each in taken for record in each.records]
        self.life.acknowledged += zip(records, places, strict=True)  # type: ignore[attr-defined]
        return places


class PrunedBefore(SqliteLog):
    """Deletes parts once the estimator has committed, whether their events are published or not."""

    def save(self, group: Group, transaction: Transaction) -> None:
        super().save(group, transaction)
        if group is self.estimators:
            with self.database.write(LogTrouble) as connection:
                self.parts.cut(connection, 0, self.parts.end(0))


def loads_once(process: Process) -> None:
    """What could not be read again after a rollback is not read later either."""
    database = process.database
    load = database._load_again

    def once() -> None:
        try:
            load()
        finally:
            database._stale = False

    database._load_again = once  # type: ignore[method-assign]


MUTANTS = {
    "events shown before the commit": Rules(engine=ShownBefore),
    "answered before the commit": Rules(engine=AnsweredBefore),
    "parts pruned before they are published": Rules(log=PrunedBefore),
    "beliefs kept over a rollback": Rules(
        prepared=lambda one: one.database.on_rollback.remove(one.store.forget)
    ),
    "offsets kept over a rollback": Rules(
        prepared=lambda one: one.database.on_rollback.remove(one.log._load)
    ),
    "half read after a rollback": Rules(prepared=loads_once),
}


def is_noticed(life: Life) -> bool:
    """Whether a life ends in a violation, or in a log that cannot be compared."""
    try:
        return bool(life.play())
    except (AssertionError, RoundsLost):
        return True


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str, tmp_path: Path) -> None:
    """Without the rule, some seed ends in a violation."""
    assert any(is_noticed(lived(seed, tmp_path, MUTANTS[name])) for seed in range(60))
