"""The follower of a data file's log: it misses nothing, keeps nothing open, and begins again."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
import pytest

from stream_rater.adapters.local_driver import updater_worker
from stream_rater.adapters.sqlite import events, followed
from stream_rater.adapters.sqlite.database import Database, connect_reader
from stream_rater.adapters.sqlite.followed import FileLog
from stream_rater.adapters.sqlite.log import SqliteLog
from stream_rater.adapters.sqlite.names import index_path
from stream_rater.adapters.sqlite.reading import data_file
from stream_rater.adapters.sqlite.store import SqliteStore
from stream_rater.config.ladders import ANY_LADDER, DEFAULT_RATING, TEMPLATE, Ladder, Ladders
from stream_rater.config.views import DAY_S, Listing, Tier
from stream_rater.contract.events import parse_time
from stream_rater.contract.record import Record
from stream_rater.index import folder, follower
from stream_rater.index.follower import Follower
from stream_rater.index.log import NewEvent, Watcher
from stream_rater.index.tables import Tables
from stream_rater.pipeline.ports import Event, Poll, Publish
from tests.builders.indexes import an_event

ANY = ANY_LADDER.ladders[TEMPLATE]


class Written:
    """A data file to which events are published, one in a transaction."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        self.database = Database.open(path, partitions=1)
        log = SqliteLog(self.database)
        self._driver = updater_worker(log, SqliteStore(self.database))
        log.updaters.assign([self._driver])
        self._driver.perform(Poll(0.0))

    def publish(self, *players: str) -> None:
        for player in players:
            self.publish_value(player, msgspec.json.encode(an_event(player, self.count)))

    def publish_value(self, player: str, value: bytes) -> None:
        self._driver.perform(Publish([Event(0, player.encode(), value, b"id", "")], {}))
        self.count += 1


class Seen(Watcher):
    """Records what a follower reports. `at_read` is called with each report of events."""

    def __init__(self, at_read: Callable[[], None]) -> None:
        self._at_read, self.values = at_read, list[bytes]()
        self.follower: Follower | None = None
        self.troubles: list[str] = []

    def trouble(self, why: str) -> None:
        self.troubles.append(why)

    def read(self, found: Sequence[NewEvent]) -> None:
        self.values += [each.value for each in found]
        self._at_read()

    def polled(self, caught_up: bool, lag: int, _: float) -> None:
        """Nothing is left: end."""
        if caught_up and not lag:
            assert self.follower is not None
            self.follower.stop()


def follow(
    written: Written, at_read: Callable[[], None] = lambda: None, ladder: Ladder = ANY,
    now: Callable[[], float] = time.time,
) -> Seen:  # fmt: skip
    """Follow a file until everything is read. Returns what was reported."""
    seen, where = Seen(at_read), index_path(written.path)
    folder.Hold(where).close()
    seen.follower = Follower(
        where, partial(FileLog, written.path), 5, seen, Ladders(ladders={TEMPLATE: ladder}), now=now
    )
    seen.follower.run()
    return seen


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    """A file that keeps few events, for followers that read few events at once."""
    monkeypatch.setattr(events, "KEPT", 4)
    monkeypatch.setattr(events, "PRUNED_TOGETHER", 4)
    monkeypatch.setattr(events, "LEAST_PRUNED", 2)
    monkeypatch.setattr(events, "PRUNE_FACTOR", 2)
    monkeypatch.setattr(followed, "READ_TOGETHER", 3)
    monkeypatch.setattr(follower, "AT_ONCE", 2)
    found = Written(tmp_path / "ratings.db")
    with closing(found.database):
        yield found


def rows_of(written: Written, table: str) -> list[bytes]:
    """The keys of a table of the index, without the number of the only ladder."""
    found = folder.trusted(index_path(written.path))
    assert found is not None
    store = folder.opened(found[0])
    with store.begin() as t:
        keys = list(t.cursor(getattr(store.tables, table)).iternext(values=False))
    folder.closed(store)
    return [key[4:] for key in keys]


def in_index(written: Written) -> set[str]:
    return {key.decode() for key in rows_of(written, "players")}


def test_events_that_are_there_wait_for_no_others(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a read that brings events, the next one does not wait: then they are written."""
    written.publish("ann")
    monkeypatch.setattr(follower, "AT_ONCE", 100)
    gather, waits, brought = followed.FileEvents.gather, list[float](), [False]

    def watched(self: followed.FileEvents, wait_s: float) -> Sequence[Record]:
        if brought.pop():
            waits.append(wait_s)
        some = gather(self, wait_s)
        brought.append(bool(some))
        return some

    monkeypatch.setattr(followed.FileEvents, "gather", watched)
    follow(written)
    assert waits == [0.0]


def test_nothing_is_missed_while_old_events_are_pruned(written: Written) -> None:
    """The index is made again while events move to the table of last events."""
    written.publish(*(f"p{number}" for number in range(40)))

    def more() -> None:
        if written.count < 80:
            written.publish(*(f"p{written.count}" for _ in range(3)), *["q"] * 3)

    follow(written, more)
    assert {f"p{number}" for number in range(40)} | {"q"} <= in_index(written)
    with closing(connect_reader(written.path)) as reader:
        keys = {event.key.decode() for _, event in events.read_events(reader, 0, 0)}
    assert keys == in_index(written)


def test_a_restored_backup_is_noticed(written: Written, tmp_path: Path) -> None:
    """Also if it has grown past the index by then: the index has nothing of what the file lost."""
    written.publish("a", "b", "c")
    follow(written)
    backup = tmp_path / "backup"
    with data_file(str(written.path)) as file:
        file.copy_to(backup)
    written.publish("lost", "lost")
    follow(written)
    assert in_index(written) == {"a", "b", "c", "lost"}
    written.database.close()
    for each in written.path.parent.glob("ratings.db*"):
        if each != index_path(written.path):
            each.unlink()
    backup.rename(written.path)
    restored = Written(written.path)
    with closing(restored.database):
        restored.count = 3
        restored.publish("d", "d", "e")
        follow(restored)
    assert in_index(restored) == {"a", "b", "c", "d", "e"}


def test_events_have_tiers(written: Written) -> None:
    """The feed gets events with their tier and the one before; of old events only the newest."""
    tiers = Tier(name="low"), Tier(name="high", from_rating=1200.0)
    sent = list[bytes]()
    for rating in (1100.0, 1300.0):
        value = msgspec.json.encode(an_event("ann", written.count, rating))
        written.publish_value("ann", value)
        sent += follow(written, ladder=Ladder(rating=DEFAULT_RATING, tiers=tiers)).values
    assert sent[2] == value.removesuffix(b"}") + b',"tier":"high","previous_tier":"low"}'
    sent += follow(written, ladder=Ladder(rating=DEFAULT_RATING, tiers=tiers)).values
    assert [b"tier" in each for each in sent] == [True, True, True, False, True]
    assert sent[2] == sent[-1]
    assert msgspec.json.decode(sent[0])["previous_tier"] is None


def test_players_leave_without_an_event(written: Written) -> None:
    """The follower takes them off the list, although it has nothing to read."""
    clock = [parse_time(an_event("ann", 0).completed_at)]
    ladder = Ladder(rating=DEFAULT_RATING, listing=Listing(idle_days=1.0))
    written.publish("ann")
    listed = list[int]()
    for _ in range(2):
        follow(written, ladder=ladder, now=lambda: clock[0])
        listed.append(len(rows_of(written, "ranks")))
        clock[0] += 2 * DAY_S
    assert listed == [1, 0]


def test_a_first_reading_sends_only_the_newest_events(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed keeps no more of them. All are in the index."""
    monkeypatch.setattr(follower, "FEED_SIZE", 2)
    written.publish(*"abcde")
    assert len(follow(written).values) == 2 and len(in_index(written)) == 5
    assert [msgspec.json.decode(each)["player"] for each in follow(written).values] == ["d", "e"]


def test_what_is_no_event_is_skipped(written: Written) -> None:
    """So is an event whose ids are too long."""
    written.publish("ann")
    written.publish_value("bob", b"{}")
    written.publish_value("long", msgspec.json.encode(an_event("x" * 600, 2)))
    written.publish("cy")
    assert len(follow(written).values) == 2 and in_index(written) == {"ann", "cy"}


@pytest.mark.parametrize("age_s", [99.0, 101.0])
def test_an_index_that_may_have_missed_an_erasure(
    written: Written, monkeypatch: pytest.MonkeyPatch, age_s: float
) -> None:
    """It is made again if it is older than half of the time for which tombstones are kept (I6)."""
    monkeypatch.setattr(followed.FileEvents, "forgets_s", 200.0)
    written.publish("ann")
    follow(written, now=lambda: 1000.0)
    before = folder.trusted(index_path(written.path))
    troubles = follow(written, now=lambda: 1000.0 + age_s).troubles
    assert (before == folder.trusted(index_path(written.path))) == (troubles == []) == (age_s < 100)


def test_a_first_reading_that_takes_too_long(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tombstone may vanish before it is read, so reading begins again and reports this (I6)."""
    monkeypatch.setattr(followed.FileEvents, "forgets_s", 200.0)
    monkeypatch.setattr(follower, "pause_s", lambda _: 0.0)
    written.publish("ann")
    clock = [1000.0]

    def slow() -> None:
        clock[0] += 300.0 if clock[0] == 1000.0 else 0.0

    troubles = follow(written, slow, now=lambda: clock[0]).troubles
    assert ["took longer" in each for each in troubles] == [True, False]
    assert "is made again: it may have missed" in troubles[1]


def test_a_damaged_index_is_made_again(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is, as far as LMDB finds the damage."""
    monkeypatch.setattr(follower, "pause_s", lambda _: 0.0)
    written.publish("ann")
    follow(written)
    found = folder.trusted(index_path(written.path))
    assert found is not None
    data = found[0] / folder.DATA
    data.write_bytes(b"x" * data.stat().st_size)
    assert "MDB_INVALID" in follow(written).troubles[0]
    assert in_index(written) == {"ann"}


KILL = """
import os, sys
from functools import partial
from pathlib import Path
from stream_rater.adapters.sqlite import followed
from stream_rater.adapters.sqlite.followed import FileLog
from stream_rater.index import follower
from stream_rater.index.follower import Follower, Watcher
follower.AT_ONCE = followed.READ_TOGETHER = 2
class Killed(Watcher):
    count = 0
    def read(self, events):
        self.count += len(events)
        if self.count > int(sys.argv[3]):
            os._exit(9)
Follower(Path(sys.argv[2]), partial(FileLog, Path(sys.argv[1])), 5, Killed()).run()
"""


def test_a_killed_follower(written: Written) -> None:
    """The next one continues where it was. The index is that of one that was never killed."""
    where = index_path(written.path)
    written.publish(*"abcabdeafb")
    folder.Hold(where).close()
    for count in (2, 5):
        words = [sys.executable, "-c", KILL, str(written.path), str(where), str(count)]
        assert subprocess.run(words, check=False).returncode == 9
    assert 2 < folder.positions(where, str(written.database.meta("id")))[0] < 10
    follow(written)
    after = {name: rows_of(written, name) for name in Tables._fields}
    folder.discard(where)
    follow(written)
    assert after == {name: rows_of(written, name) for name in Tables._fields}


def test_no_transaction_stays_open(written: Written) -> None:
    """While events are added to the index, the writer can empty the write-ahead log."""
    written.publish(*(f"p{number}" for number in range(20)))
    found: list[object] = []

    def checkpoint() -> None:
        sql = "PRAGMA wal_checkpoint(TRUNCATE)"
        found.append(written.database.connection.execute(sql).fetchone()[0])

    follow(written, checkpoint)
    assert len(found) > 3 and set(found) == {0}


def test_events_are_read_once_in_order_and_cheaply(written: Written) -> None:
    """From both tables. The one of last events is read only for offsets that the other lacks."""
    written.publish(*(f"p{number}" for number in range(40)))
    with closing(connect_reader(written.path)) as reader:
        asked: list[str] = []
        reader.set_trace_callback(asked.append)
        (last,) = events.read_events(reader, 0, 39)
        assert last[0] == 39 and not any("last_changed" in each for each in asked)
        assert [*events.read_events(reader, 0, 0)][-1] == last
        assert any("last_changed" in each for each in asked)
        assert not [*events.read_events(reader, 0, 40)]
    with closing(connect_reader(written.path)) as reader:
        for number in range(60):
            written.publish(f"p{number % 25}")
            for first in (0, number + 38):
                found = [offset for offset, _ in events.read_events(reader, 0, max(first, 0))]
                assert found == sorted(set(found)) and found[-1] == number + 40
