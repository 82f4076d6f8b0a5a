"""The follower of a data file's events: it misses none while old ones are pruned, and leaves no
transaction open."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from unittest.mock import Mock, call

import msgspec
import pytest

from stream_rater.adapters.local_driver import updater_worker
from stream_rater.adapters.sqlite import events
from stream_rater.adapters.sqlite.database import Database, connect_reader
from stream_rater.adapters.sqlite.log import SqliteLog
from stream_rater.adapters.sqlite.names import index_path
from stream_rater.adapters.sqlite.reading import data_file
from stream_rater.adapters.sqlite.store import SqliteStore
from stream_rater.config.ladders import ANY_LADDER, DEFAULT_RATING, TEMPLATE, Ladder, Ladders
from stream_rater.config.settings import Settings
from stream_rater.config.views import DAY_S, Listing, Tier
from stream_rater.contract.events import parse_time
from stream_rater.contract.record import Record, checksum
from stream_rater.pipeline.ports import Event, Poll, Publish
from stream_rater.serve.index import file_follower, file_index
from stream_rater.serve.index.file_follower import FileFollower
from stream_rater.serve.index.follower import Follower, NewEvent, Watcher
from stream_rater.serve.index.writer import Tail
from tests.contract.test_serve_index import an_event

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
    """What the follower reports. `at_read` is called with each report of events."""

    def __init__(self, at_read: Callable[[], None]) -> None:
        self._at_read, self.values = at_read, list[bytes]()
        self.follower: FileFollower | None = None

    def read(self, found: Sequence[NewEvent]) -> None:
        self.values += [each.value for each in found]
        self._at_read()

    def polled(self, caught_up: bool, lag: int) -> None:
        """Nothing is left: end."""
        assert caught_up and not lag and self.follower is not None
        self.follower.stop()


def follow(
    written: Written, at_read: Callable[[], None] = lambda: None, ladder: Ladder = ANY
) -> list[bytes]:
    """Follow until all is read. Returns the values for the feed."""
    seen = Seen(at_read)
    seen.follower = FileFollower(written.path, 5, seen, Ladders(ladders={TEMPLATE: ladder}))
    seen.follower.run()
    return seen.values


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    """A file that keeps few events, and followers that read few at once."""
    monkeypatch.setattr(events, "KEPT", 4)
    monkeypatch.setattr(events, "PRUNED_TOGETHER", 4)
    monkeypatch.setattr(events, "LEAST_PRUNED", 2)
    monkeypatch.setattr(events, "PRUNE_FACTOR", 2)
    monkeypatch.setattr(file_follower, "READ_TOGETHER", 3)
    monkeypatch.setattr(file_follower, "AT_ONCE", 2)
    found = Written(tmp_path / "ratings.db")
    with closing(found.database):
        yield found


def in_index(written: Written) -> set[str]:
    with closing(sqlite3.connect(index_path(written.path))) as index:
        return {player for (player,) in index.execute("SELECT player FROM index_players")}


def test_nothing_is_missed_while_old_events_are_pruned(written: Written) -> None:
    """The index is made again while events move to the table of last events."""
    written.publish(*(f"p{number}" for number in range(40)))

    def more() -> None:
        if written.count < 80:
            written.publish(*(f"p{written.count}" for _ in range(3)), *["q"] * 3)

    follow(written, more)
    expected = {f"p{number}" for number in range(40)} | {"q"}
    assert expected <= in_index(written)
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
    """On a ladder with tiers the feed gets each event as it was published, with the tier and the
    one before. What the index has already is sent without."""
    tiers = Tier(name="low"), Tier(name="high", from_rating=1200.0)
    sent = list[bytes]()
    for rating in (1100.0, 1300.0):
        value = msgspec.json.encode(an_event("ann", written.count, rating))
        written.publish_value("ann", value)
        sent += follow(written, ladder=Ladder(rating=DEFAULT_RATING, tiers=tiers))
    assert sent[-1] == value.removesuffix(b"}") + b',"tier":"high","previous_tier":"low"}'
    assert [b"tier" in each for each in sent] == [True, False, True]
    assert msgspec.json.decode(sent[0])["previous_tier"] is None


def test_players_leave_without_an_event(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower takes them off the list, although it has nothing to read."""
    clock = [parse_time(an_event("ann", 0).completed_at)]
    writer = partial(file_index.FileIndexWriter, now=lambda: clock[0])
    monkeypatch.setattr(file_index, "FileIndexWriter", writer)
    ladder = Ladder(rating=DEFAULT_RATING, listing=Listing(idle_days=1.0))
    written.publish("ann")
    scores = list[object]()
    for _ in range(2):
        follow(written, ladder=ladder)
        with closing(sqlite3.connect(index_path(written.path))) as index:
            scores += index.execute("SELECT score FROM index_players").fetchone()
        clock[0] += 2 * DAY_S
    assert scores == [-1500.0, None]


def test_the_last_records_are_stored_before_positions() -> None:
    """Else a topic of the same length, with other records, would be taken for this one."""
    writer, last = Mock(), {0: Record(0, 4, b"event")}
    Follower(Settings(), Watcher())._checkpoint(writer, [5, 0], last)
    assert writer.mock_calls == [
        call.store_tails({0: Tail(4, checksum(b"event"))}), call.checkpoint([5, 0])
    ]  # fmt: skip
    assert last == {}


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
    """Also while old events are in both tables. The table of last events, which has a row for each
    player, is only read for offsets that are no longer in the other one."""
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
