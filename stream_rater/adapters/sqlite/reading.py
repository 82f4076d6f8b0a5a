"""Reads a data file for a command, while the process that writes to the file may run. The
connection is read-only. Its transactions are short, because the write-ahead log cannot be cut while
one is open. Only `snapshot` keeps one open."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from stream_rater.adapters.sqlite import database, log, names, store
from stream_rater.adapters.sqlite.events import decode, end_of_changed, read_events
from stream_rater.adapters.sqlite.schema import OFFSET_BITS, offset_of, place, private_files
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from stream_rater.contract.record import Player, Record
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.pipeline.ports import REBUILT, Event, Rejection, StoredShard

T = TypeVar("T")
AT_ONCE = 10_000  # The number of records, rejections or beliefs that one transaction reads.
BATCH_BYTES = 2**21  # The number of bytes of rounds that are read together.
EVENTS_AT_ONCE = 100_000  # The number of events that one transaction reads.
LARGE = 1_000_000  # With more rating changes, a long read uses a copy of the file.
LOOK_S = 0.02  # The time between two looks at the file, to see whether it has changed.


class DataFile:
    """The log and the store in a data file. The methods raise LogTrouble, Denied or Unusable."""

    partitions = shards = 0
    """The numbers of partitions of `round-completed` and of the topics by player."""

    def __init__(self, path: Path) -> None:
        self.path = names.real(path)
        self._connection = database.connect_reader(self.path)
        self._same = names.SameFiles(self.path)
        self._recent: Mapping[int, dict[Player, bytes]] = {}
        """By shard, the beliefs that are not merged yet, during a snapshot."""
        self.partitions = int(self.meta("partitions"))
        self.shards = int(self.meta("shards"))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def meta(self, name: str) -> Any:
        """A fact about the file; None if it was never set."""
        found = self._rows("SELECT value FROM meta WHERE name = ?", name)
        return found[0][0] if found else None

    def _rows(self, sql: str, *values: object) -> list[Any]:
        with self._failing():
            return self._connection.execute(sql, values).fetchall()

    def _of(self, read: Callable[..., T], *given: object) -> T:
        """Call a function with this connection, and return its result."""
        with self._failing():
            return read(self._connection, *given)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise database.error_of(error, self.path, LogTrouble) from None

    @contextmanager
    def _together(self) -> Iterator[None]:
        """A context manager that reads in one transaction. It may lie within another such block."""
        begins = not self._connection.in_transaction
        with self._failing():
            if begins:
                self._connection.execute("BEGIN")
            try:
                yield
            finally:
                if begins:
                    self._connection.execute("COMMIT")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Within the block, log and store are read as they were at one instant."""
        with self._together():
            try:
                yield
            finally:
                self._recent = {}

    def copy_to(self, path: Path) -> None:
        """Write the file as it is at one instant to a new one, without its writer's mark. The
        writer may go on. The copy is on the disk when this returns."""
        with private_files():
            self._rows("VACUUM INTO ?", str(path))
        with self._failing(), closing(sqlite3.connect(path)) as copy, copy:
            copy.execute("DELETE FROM meta WHERE name = ?", (names.MARK,))
        for each in (path, path.parent):
            names.sync(each)

    def faults(self) -> list[str]:
        """What SQLite finds to be wrong with the file's structure."""
        return [text for (text,) in self._rows("PRAGMA quick_check") if text != "ok"]

    def await_change(self, wait_s: float) -> None:
        """Return once the file has changed since the last call, or after `wait_s`. Raises Unusable
        if there is another file in its place."""
        self._same.check()
        end_s, before = time.monotonic() + wait_s, self._version()
        while self._version() == before and time.monotonic() < end_s:
            time.sleep(LOOK_S)

    def _version(self) -> int:
        return int(self._rows("PRAGMA data_version")[0][0])

    def starts(self) -> list[int]:
        """The first offset of each partition of `round-completed`."""
        return self._of(log.starts_of, "rounds", self.partitions)

    def ends(self) -> list[int]:
        """The end offset of each partition of `round-completed`."""
        return self._of(log.ends_of, "rounds", self.partitions)

    def part_ends(self) -> list[int]:
        """The end offset of each shard's parts."""
        return self._of(log.ends_of, "parts", self.shards)

    def part_starts(self) -> list[int]:
        """The first offset of each shard's parts that is kept."""
        return self._of(log.starts_of, "parts", self.shards)

    def committed(self, group: str, count: int) -> list[int]:
        """The committed offset of each partition; 0 where nothing was committed."""
        found = dict(self._rows("SELECT partition, next FROM committed WHERE consumers = ?", group))
        return [found.get(partition, 0) for partition in range(count)]

    def behind(self) -> tuple[int, int]:
        """The number of records that are not rated, and of parts that are not applied."""
        with self._together():
            rounds = sum(self.ends()) - sum(self.committed(ESTIMATORS, self.partitions))
            return rounds, sum(self.part_ends()) - sum(self.committed(UPDATERS, self.shards))

    def records_of(self, partition: int, end: int, first: int = 0) -> Iterator[Record]:
        """Yield the records of a partition of `round-completed` from `first` to before `end`."""
        while first < end:
            with self._failing():
                found = log.read_records(self._connection, "rounds", partition, first, end)
                some, found = list(islice(found, AT_ONCE)), iter(())  # ends the transaction
            if not some:
                return
            yield from some
            first = some[-1].offset + 1

    def round_batches(self, ends: Mapping[int, int]) -> Iterator[Sequence[Record]]:
        """Yield the records of the rounds up to these ends, in batches of some BATCH_BYTES."""
        for partition, end in ends.items():
            first = 0
            while first < end:
                some = self._of(log.read_together, partition, first, end, BATCH_BYTES)
                if not some:
                    break
                yield some
                first = some[-1].offset + 1

    def ladder_events(self) -> list[bytes]:
        """All ladder events, in order."""
        return [event for (event,) in self._rows("SELECT event FROM ladder_events ORDER BY id")]

    def ladder_log(self) -> LadderLog:
        """The ladder events that exist now, combined."""
        ladder_log = LadderLog()
        for event in self.ladder_events():
            ladder_log.read(event)
        return ladder_log

    def parts_of(self, shard: int) -> list[Record]:
        """The parts of a shard that are kept. Those before its last call were pruned."""
        with self._failing():
            return list(log.read_records(self._connection, "parts", shard, 0, 1 << OFFSET_BITS))

    def changed_ends(self) -> list[int]:
        """The offset of each shard's next event."""
        return [self._of(end_of_changed, shard) for shard in range(self.shards)]

    def changed_starts(self) -> list[int]:
        """The offset of each shard's first event after those that were pruned."""
        sql = "SELECT min(place) FROM changed WHERE place >= ? AND place < ?"
        bounds = [(place(shard, 0), place(shard + 1, 0)) for shard in range(self.shards)]
        found = [self._rows(sql, *each)[0][0] for each in bounds]
        return [0 if first is None else offset_of(first) for first in found]

    def events_from(
        self, shard: int, first: int, most: int = EVENTS_AT_ONCE
    ) -> list[tuple[int, Event]]:
        """Offset and content of the events of a shard from offset `first` on, at most `most`."""
        with self._together(), self._failing():
            return list(islice(read_events(self._connection, shard, first), most))

    def all_events(self, shard: int) -> Iterator[tuple[int, Event]]:
        """Yield offset and content of all events of a shard that are kept, in order."""
        first = 0
        while some := self.events_from(shard, first):
            yield from some
            first = some[-1][0] + 1

    def last_events(
        self, shard: int, key: bytes, count: int, within_s: float
    ) -> tuple[list[bytes | None], int]:
        """The values of the last events with this key that are kept, at most `count`, oldest first.
        Also the offset down to which they were searched: the search ends early after `within_s`."""
        end_s, before = time.monotonic() + within_s, place(shard + 1, 0)
        found: list[bytes | None] = []
        sql = (
            "SELECT place, events FROM changed WHERE place >= ? AND place < ?"
            " ORDER BY place DESC LIMIT 100"
        )
        while len(found) < count and time.monotonic() < end_s:
            rows = self._rows(sql, place(shard, 0), before)
            for _, events in rows:
                found[:0] = [each.value for each in decode(shard, events) if each.key == key]
            if not rows:
                return [*self._last_pruned(shard, key), *found][-count:], 0
            before = rows[-1][0]
        return found[-count:], offset_of(before) if found else 0

    def _last_pruned(self, shard: int, key: bytes) -> list[bytes | None]:
        """The value of the event with this key that was kept when older ones were pruned."""
        sql = "SELECT offset FROM last_changed WHERE shard = ? AND key = ?"
        found = [self.events_from(shard, at, 1) for (at,) in self._rows(sql, shard, key)]
        return [event.value for some in found for _, event in some]

    def last_rejection(self) -> int:
        """The number of the last rejection; 0 if there is none."""
        return int(self._rows("SELECT coalesce(max(id), 0) FROM rejected")[0][0])

    def rejections(self, after: int) -> list[tuple[int, Rejection]]:
        """Number and content of the next rejections with numbers greater than `after`."""
        with self._failing():
            return list(islice(log.read_rejections(self._connection, after), AT_ONCE))

    def read(self, players: Mapping[int, PlayerColumn]) -> dict[int, StoredShard]:
        """The position and the records of each shard, at one instant."""
        snapshot, found = self._connection.in_transaction, {}
        for shard, wanted in players.items():
            with self._together():
                position = store.position_of(self._connection, shard)
                if (recent := self._recent.get(shard)) is None:
                    recent = store.recent_beliefs(self._connection, shard)
                stored = store.look_up(self._connection, shard, list(wanted))
            if snapshot:
                self._recent = {**self._recent, shard: recent}
            records = [recent.get(p, old) for p, old in zip(wanted, stored, strict=True)]
            found[shard] = StoredShard(position, records)
        return found

    def beliefs(self) -> Iterator[list[tuple[Player, bytes]]]:
        """Yield every belief in batches, each once."""
        with self._failing():
            for shard in range(self.shards):
                found = store.all_beliefs(self._connection, shard)
                real = (each for each in found if each[0] != REBUILT)  # the mark of a rebuild
                while batch := list(islice(real, AT_ONCE)):
                    yield batch


def data_file(path: str) -> closing[DataFile]:
    """An open data file, as a context manager that closes it. Raises Unusable or Denied."""
    return closing(DataFile(Path(path)))


def rounds_in(path: Path, ends: Mapping[int, int]) -> Iterator[Sequence[Record]]:
    """Yield the records of these partitions, as `DataFile.round_batches` does."""
    with data_file(str(path)) as file:
        yield from file.round_batches(ends)
