"""What a data file keeps after rollbacks, too: merged beliefs, and each player's last event."""

import random
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest

from stream_rater.adapters import memory
from stream_rater.adapters.sqlite import events
from stream_rater.adapters.sqlite import store as tables
from stream_rater.adapters.sqlite.database import Database, connect_reader
from stream_rater.adapters.sqlite.events import read_events
from stream_rater.adapters.sqlite.log import SqliteLog
from stream_rater.adapters.sqlite.reading import DataFile
from stream_rater.adapters.sqlite.store import SqliteStore
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.contract.record import Player
from stream_rater.pipeline.ports import Application, Event, Position
from stream_rater.pipeline.updater import record_cache
from tests.builders.cases import cases

PLAYERS: list[Player] = [(f"l{n % 3}", f"p{n}") for n in range(40)]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge and prune after a few calls, some rows at a time, and remember few records."""
    for module, constants in (
        (tables, {"RECENT": 30, "LEAST_MERGED": 2, "MERGE_FACTOR": 1, "KNOWN_BYTES": 1600,
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
    """They equal those of a store in memory, after rollbacks and restarts, for readers, too."""
    whole = record_cache.fingerprints_of
    with pytest.MonkeyPatch.context() as patch:
        for module in (tables, record_cache) if collide else ():
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
    with database.turn(), closing(DataFile(path)) as file:
        (stored,) = file.beliefs()
        assert dict(stored) == expected.beliefs[0]
        asked = PlayerColumn.of(PLAYERS)
        assert file.read({0: asked})[0].records == expected.read(0, asked).records
    assert merged > 20
    (left,) = database.connection.execute("SELECT count(*) FROM recent").fetchone()
    assert left < 60, "what is merged is deleted"
    database.close()


@pytest.mark.usefixtures("hurried")
def test_merged_calls_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the merge began with, and none that came in the meantime."""
    monkeypatch.setattr(tables, "RECENT", 3)
    sizes = list[int]()
    with closing(Database.open(tmp_path / "ratings.db")) as database:
        store = SqliteStore(database)
        for n in range(5):
            one = BeliefColumn.of([(PLAYERS[n], b"x")])
            assert store.apply(0, Application(Position(n + 1, n), one))
            sizes += database.connection.execute("SELECT count(*) FROM recent").fetchone()
    assert sizes == [1, 2, 3, 1, 2]


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
