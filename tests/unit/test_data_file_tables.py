"""What a data file keeps: beliefs that are merged later, the last event of each player, the last
call's parts; and that the machines reach the same on it as in memory, whatever is rolled back."""

import random
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_rater.adapters import local_driver, memory
from stream_rater.adapters.sqlite import beliefs, driver, events
from stream_rater.adapters.sqlite.beliefs import all_beliefs, read_beliefs
from stream_rater.adapters.sqlite.database import Database, connect_reader
from stream_rater.adapters.sqlite.events import read_events
from stream_rater.adapters.sqlite.log import SqliteLog, read_rejections
from stream_rater.adapters.sqlite.store import SqliteStore, position_of
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import Player
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.ports import Application, Event, Poll, Position
from stream_rater.pipeline.updater import record_cache
from stream_rater.pipeline.updater.updater import Updater
from tests.builders.cases import cases
from tests.rounds import as_json, ranked

PLAYERS: list[Player] = [(f"l{n % 3}", f"p{n}") for n in range(40)]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge and prune after a few calls, some rows at a time, and remember few records."""
    for module, constants in (
        (beliefs, {"RECENT": 30, "LEAST_MERGED": 2, "MERGE_FACTOR": 1, "KNOWN_BYTES": 1600,
                   "TOGETHER": 8}),
        (events, {"KEPT": 40, "PRUNED_TOGETHER": 20, "LEAST_PRUNED": 3, "PRUNE_FACTOR": 4}),
    ):  # fmt: skip
        for name, value in constants.items():
            monkeypatch.setattr(module, name, value)


class Turned(Exception):
    """A turn is taken back."""


@pytest.mark.usefixtures("hurried")
@cases("seed, collide", [(0, False), (1, True), (2, False), (3, True)])
def test_beliefs_that_are_merged(tmp_path: Path, seed: int, collide: bool) -> None:
    """They are what a store in memory has, also after turns that were taken back, after a restart,
    and for readers; and if players share fingerprints."""
    whole = record_cache.fingerprints_of
    with pytest.MonkeyPatch.context() as patch:
        for module in (beliefs, record_cache) if collide else ():
            patch.setattr(module, "fingerprints_of", lambda players: whole(players) | ~np.uint64(7))
        merge_beliefs(tmp_path / f"{seed}.db", seed)


def merge_beliefs(path: Path, seed: int) -> None:
    rng = random.Random(seed)
    expected, merged = memory.Store(), 0
    database = Database.open(path)
    store = SqliteStore(database)
    for turn in range(120):
        start = expected.read(0, PlayerColumn.of([])).position.applied
        chosen = rng.sample(PLAYERS, rng.randint(0, 6))
        written = [(player, b"%d %d" % (turn, n)) for n, player in enumerate(chosen)]
        absent = expected.read(0, PlayerColumn.of(chosen)).records.count(None)
        call = Application(Position(start + 1, start), BeliefColumn.of(written), absent)
        fails = rng.random() < 0.1
        with suppress(Turned), database.turn():
            store.read(0, PlayerColumn.of(chosen))
            assert store.apply(0, call)
            if fails:
                raise Turned
        if not fails:
            expected.apply(0, call)
        if rng.random() < 0.05:
            database.close()
            database = Database.open(path)
            store = SqliteStore(database)
        if rng.random() < 0.2:
            asked = PlayerColumn.of(rng.sample(PLAYERS, 20))
            assert store.read(0, asked) == expected.read(0, asked)
        rows = database.connection.execute("SELECT count(*) FROM beliefs").fetchone()
        merged = max(merged, rows[0])
    with database.turn(), closing(connect_reader(path)) as reader:
        assert dict(all_beliefs(reader, 0)) == expected.beliefs[0]
        asked = PlayerColumn.of(PLAYERS)
        found = read_beliefs(reader, 0, PLAYERS)
        assert [found[player] for player in PLAYERS] == expected.read(0, asked).records
    assert merged > 20
    (left,) = database.connection.execute("SELECT count(*) FROM recent").fetchone()
    assert left < 60, "what is merged is deleted"
    database.close()


@pytest.mark.usefixtures("hurried")
def test_the_last_event_of_each_player_is_never_pruned(tmp_path: Path) -> None:
    """Of the older ones the newest stay, too, and a subscriber can begin at any of them."""
    rng, path = random.Random(1), tmp_path / "ratings.db"
    published: list[Event] = []
    with closing(Database.open(path)) as database:
        log = SqliteLog(database)
        for turn in range(200):
            fails = rng.random() < 0.05
            some = [
                Event(0, b"player %d" % rng.randrange(4 + turn // 5), b"%d" % n, b"e", "now")
                for n in range(rng.randint(0, 5))
            ]
            with suppress(Turned), database.turn():
                log.transaction(log.updaters, 0).batches.append(some)
                log.commit(log.updaters, 0)
                if fails:
                    raise Turned
            published += [] if fails else some
            (first,) = database.connection.execute("SELECT min(place) FROM changed").fetchone()
            assert (first or 0) <= max(0, len(published) - events.KEPT)
        (rows,) = database.connection.execute("SELECT sum(count) FROM changed").fetchone()
    with closing(connect_reader(path)) as reader:
        found = list(read_events(reader, 0))
        offsets = [offset for offset, _ in found]
        assert all(published[offset] == each for offset, each in found)
        assert offsets == sorted(offsets)
        last = {each.key: offset for offset, each in enumerate(published)}
        assert set(last.values()) <= set(offsets)
        assert set(range(len(published) - events.KEPT, len(published))) <= set(offsets)
        assert rows < len(published) - 100
        for first in offsets[::7]:
            assert list(read_events(reader, 0, first)) == [e for e in found if e[0] >= first]


# --- the machines ---


class Process:
    """Both machines on a log and a store, in turns."""

    def __init__(self, log: Any, store: Any, workers: Any) -> None:
        self.log = log
        machines = Estimator(ANY_LADDER, 1, 1).run(), Updater(1).run()
        self.runs = []
        for machine, worker in zip(machines, workers, strict=True):
            self.runs.append([worker(log, store), machine, next(machine)])
        for group, run in zip((log.estimators, log.updaters), self.runs, strict=True):
            group.assign([run[0]])
        self.now_s = 0.0

    def step(self) -> None:
        """Perform one effect of each machine."""
        for run in self.runs:
            run[0].now_s = self.now_s
            outcome = run[0].perform(run[2])
            if isinstance(run[2], Poll) and not outcome.records:
                self.now_s += run[2].timeout_s
            run[2] = run[1].send(outcome)

    def fail(self) -> None:
        """Let the effects of both machines fail."""
        for run in self.runs:
            run[2] = run[1].throw(LogTrouble("the turn was taken back"))

    def is_idle(self) -> bool:
        """Whether all rounds are rated and published."""
        log = self.log
        return bool(
            log.estimators.committed.get(0, 0) == log.rounds.end(0)
            and log.updaters.committed.get(0, 0) == log.parts.end(0)
        )


def in_order(published: Iterable[Event]) -> list[Event]:
    """The events of each player in the order in which they came. Waves may differ."""
    return sorted(published, key=lambda each: each.key)


def rated_in_memory(rounds: list[bytes]) -> tuple[list[Event], dict[Player, bytes], list[str]]:
    """The events, the beliefs and the codes of the rejections, in memory."""
    log, store = memory.Log(1, 1), memory.Store()
    workers = local_driver.estimator_worker, local_driver.updater_worker
    process = Process(log, store, workers)
    for each in rounds:
        log.submit(0, each, received_s=2e9)
        process.step()
    while not process.is_idle():
        process.step()
    return log.changed[0], store.beliefs[0], [each.code for each in log.rejected]


@pytest.mark.usefixtures("hurried")
@cases("seed", range(3))
def test_the_machines_reach_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """As in memory: beliefs, events and rejections, bit for bit and each once, although turns are
    taken back and the process starts again. Parts that are not needed any more are gone."""
    monkeypatch.setattr(events, "KEPT", 10_000)
    path = tmp_path / f"{seed}.db"
    rounds = [
        as_json(
            *ranked((1, 2, 2), random.Random(n).sample("abcdefgh", 3)), round_id=f"r{n - n % 7 % 2}"
        )
        for n in range(60)
    ]
    expected, stored, codes = rated_in_memory(rounds)
    rng = random.Random(seed)
    workers = driver.estimator_worker, driver.updater_worker
    database = Database.open(path, partitions=1)
    process = Process(log := SqliteLog(database), SqliteStore(database), workers)
    left = list(reversed(rounds))
    while left or not process.is_idle():
        some = [left.pop() for _ in range(min(len(left), rng.randint(0, 4)))]
        try:
            with database.turn():
                for each in some:
                    log.submit(0, each, received_s=2e9)
                for _ in range(rng.choice((1, 2, 5, 30))):
                    process.step()
                if rng.random() < 0.2:
                    raise Turned
        except Turned:
            left += reversed(some)
            process.fail()
        if rng.random() < 0.1:
            database.close()
            database = Database.open(path)
            process = Process(log := SqliteLog(database), SqliteStore(database), workers)
    with closing(connect_reader(path)) as reader:
        assert in_order(each for _, each in read_events(reader, 0)) == in_order(expected)
        found = dict(all_beliefs(reader, 0))
        found.pop(("", "rebuilt"), None)
        assert found == stored
        assert [each.code for _, each in read_rejections(reader)] == codes
        assert "duplicate-round" in codes
        # The last call may be needed again, and with it the checksum of the part before `applied`.
        assert 0 < log.parts.start(0) <= position_of(reader, 0).start
    (parts,) = database.connection.execute("SELECT count(*) FROM parts").fetchone()
    assert parts == log.parts.end(0) - log.parts.start(0) < 10
    database.close()
