"""The log in a data file: the tables of rounds, parts, events, rejections and ladder events."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stream_rater.adapters.kafka.envelopes import Sender
from stream_rater.adapters.local_driver import Group, LocalLog, Topic, Transaction
from stream_rater.adapters.sqlite import events
from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.schema import offset_of, partition_of, place
from stream_rater.columns import sharding
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from stream_rater.contract.record import Headers, Record
from stream_rater.pipeline import ladder_history, ports
from stream_rater.pipeline.corrections import ladder_checkpoints
from stream_rater.pipeline.updater.rating_events import ShardEvents
from stream_rater.rounds.lines import Arrivals, PlainRecords

FETCHED = 100  # The number of rounds that are fetched at a time.

_encode = msgspec.msgpack.Encoder().encode
_headers = msgspec.msgpack.Decoder(list[tuple[str, bytes | None]]).decode

WRITES = (
    ports.Apply, ports.Scatter, ports.CommitSource, ports.Publish,
    ports.NoteCorrections, ladder_checkpoints.WritePiece, ladder_checkpoints.KeepCheckpoint,
    ladder_checkpoints.DropCheckpoint,
)  # fmt: skip
"""The effects that write, except Agree, which writes one message."""


class NewRound(NamedTuple):
    """A record to append to `round-completed`."""

    partition: int
    value: bytes | None
    headers: Headers = ()
    received_s: float = 0.0
    key: bytes | None = None


class SqliteTopic(Topic):
    """The partitions of `round-completed` or `performance-estimated`."""

    _starts: list[int]
    _ends: list[int]

    def __init__(self, database: Database, table: str, partitions: int) -> None:
        self._database, self._table = database, table
        self.load(partitions)

    def load(self, partitions: int) -> None:
        """Read again where the partitions start and end."""
        with self._database.guarded(LogTrouble) as connection:
            self._starts = starts_of(connection, self._table, partitions)
            self._ends = ends_of(connection, self._table, partitions)

    def __len__(self) -> int:
        return len(self._ends)

    def start(self, partition: int) -> int:
        return self._starts[partition]

    def end(self, partition: int) -> int:
        return self._ends[partition]

    def read(self, partition: int, first: int, end: int) -> Sequence[Record]:
        with self._database.guarded(LogTrouble) as connection:
            return list(read_records(connection, self._table, partition, first, end))

    def take_offset(self, partition: int) -> int:
        """The offset of a record that is about to be appended."""
        self._ends[partition] += 1
        return self._ends[partition] - 1

    def cut(self, connection: sqlite3.Connection, partition: int, offset: int) -> None:
        """Delete the records before an offset."""
        if offset <= self._starts[partition]:
            return
        connection.execute(
            f"DELETE FROM {self._table} WHERE place >= ? AND place < ?",
            (place(partition, 0), place(partition, offset)),
        )
        connection.execute(
            "INSERT OR REPLACE INTO starts VALUES (?, ?, ?)", (self._table, partition, offset)
        )
        self._starts[partition] = offset


class SqliteLog(LocalLog):
    """The topics, the two consumer groups, and the ladder events, in a data file."""

    rounds: SqliteTopic
    parts: SqliteTopic
    poll_records = ports.POLL_RECORDS
    pieces = 1  # nobody sees the events before the transaction ends

    def __init__(self, database: Database) -> None:
        super().__init__(database.partitions, database.shards)
        self.database = database
        self.rounds = SqliteTopic(database, "rounds", database.partitions)
        self.parts = SqliteTopic(database, "parts", database.shards)
        self._groups = {ESTIMATORS: self.estimators, UPDATERS: self.updaters}
        self._changed_ends: list[int] = []
        self._pruning: dict[int, events.Pruning] = {}
        self._load()
        database.on_rollback.append(self._load)

    def _load(self) -> None:
        """Read again what is known of the file."""
        self._pruning = {}
        self._ladder_log, self._ladder_events = ladder_history.LadderLog(), 0
        self.rounds.load(len(self.rounds))
        self.parts.load(len(self.parts))
        with self.database.guarded(LogTrouble) as connection:
            self._changed_ends = [
                events.end_of_changed(connection, shard) for shard in range(len(self.parts))
            ]
            for name, group in self._groups.items():
                rows = connection.execute(
                    "SELECT partition, next FROM committed WHERE consumers = ?", (name,)
                )
                group.committed, group.tails = dict(rows), {}  # they are not in the file

    def add_shards(self, count: int) -> None:
        """Add shards. Running workers do not notice them."""
        shards = len(self.parts) + count
        self.database.set_meta("shards", shards)
        self.database.shards = self.updaters.partitions = shards
        self.parts.load(shards)
        self._changed_ends += [0] * count

    def submit(self, *fields: Any, **named: Any) -> int:
        """Append a `NewRound` with these fields to `round-completed`, and return its offset."""
        return self.submit_all([NewRound(*fields, **named)])[0]

    def submit_all(self, rounds: Sequence[NewRound]) -> list[int]:
        """Append records to `round-completed`, and return their offsets. They are on the disk once
        the turn has ended; without a turn, once this returns."""
        with self.database.write(LogTrouble) as connection:
            offsets = [self.rounds.take_offset(each.partition) for each in rounds]
            rows = (
                (place(partition, at), key, value, _encode(head) if head else None, received_s)
                for at, (partition, value, head, received_s, key) in zip(
                    offsets, rounds, strict=True
                )
            )
            connection.executemany("INSERT INTO rounds VALUES (?, ?, ?, ?, ?)", rows)
        return offsets

    def performing(self, effect: ports.Effect[Any]) -> AbstractContextManager[None]:
        """Within `Database.turn` all effects of all machines belong to the transaction of the turn.
        Outside of it each effect that writes is a transaction of its own."""
        alone = isinstance(effect, WRITES) and not self.database.in_turn
        return self.database.turn() if alone else nullcontext()

    def append_part(self, shard: int, value: bytes) -> int:
        with self.database.write(LogTrouble) as connection:
            offset = self.parts.take_offset(shard)
            connection.execute("INSERT INTO parts VALUES (?, ?)", (place(shard, offset), value))
        return offset

    def read(self) -> ladder_history.LadderLog:
        # Only this process writes events, so those that were read before are not read again.
        new = "SELECT event, id FROM ladder_events WHERE id > ? ORDER BY id"
        with self.database.guarded(LogTrouble) as connection:
            for event, number in connection.execute(new, (self._ladder_events,)):
                self._ladder_log.read(event)
                self._ladder_events = number
        return self._ladder_log

    def write(self, messages: Sequence[bytes]) -> None:
        with self.database.write(LogTrouble) as connection:
            rows = [(each,) for each in messages]
            connection.executemany("INSERT INTO ladder_events (event) VALUES (?)", rows)

    def after_rejected(self) -> Iterable[tuple[int, int]]:
        # Not `next_offset`, which is not in the file: nothing deletes a file's committed offsets.
        with self.database.guarded(LogTrouble) as connection:
            ends = ends_of(connection, "rejected", len(self.rounds))
            return [each for each in enumerate(ends) if each[1]]

    def save(self, group: Group, transaction: Transaction) -> None:
        name = ESTIMATORS if group is self.estimators else UPDATERS
        with self.database.write(LogTrouble) as connection:
            for run in events.by_call(transaction.batches):
                self._add_events(connection, run)
            if transaction.rejections:
                connection.executemany(
                    "INSERT INTO rejected (place, code, message, ladder, round_id, unreadable)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    map(_rejected_row, transaction.rejections),
                )
            connection.executemany(
                "INSERT OR REPLACE INTO committed VALUES (?, ?, ?)",
                [(name, partition, next_) for partition, next_ in transaction.offsets.items()],
            )
            if group is self.updaters:
                self._prune_parts(connection, transaction.offsets)
            group.committed.update(transaction.offsets)
            group.tails.update(transaction.tails)

    def _add_events(self, connection: sqlite3.Connection, run: ShardEvents) -> None:
        """Append events to their shard, and prune some old ones."""
        first = self._changed_ends[run.shard]
        end = self._changed_ends[run.shard] = events.add(connection, first, run)
        pruning = self._pruning.setdefault(run.shard, events.Pruning(run.shard))
        pruning.go_on(connection, end, end - first)

    def _prune_parts(self, connection: sqlite3.Connection, offsets: Iterable[int]) -> None:
        """Delete the parts before each shard's last call. The last call may be needed again: its
        events, and the checksum of its last part."""
        for shard in offsets:
            found = connection.execute(
                "SELECT min(start, applied) FROM positions WHERE shard = ?", (shard,)
            ).fetchone()
            if found is not None:
                until = min(found[0], self.updaters.committed.get(shard, 0))
                self.parts.cut(connection, shard, until)

    def changed_end(self, shard: int) -> int:
        """The offset of the shard's next event in `rating-changed`."""
        return self._changed_ends[shard]


def _rejected_row(each: ports.Rejection) -> tuple[int | str, ...]:
    """A row of `rejected`, with question marks in the place of what UTF-8 cannot encode."""
    texts = each.code, each.message, each.ladder, each.round_id, each.record.unreadable
    at = place(each.record.partition, each.record.offset)
    return at, *(text.encode("utf-8", "replace").decode() for text in texts)


# --- what any connection can read ----------------------------------------------------------------


def starts_of(connection: sqlite3.Connection, table: str, partitions: int) -> list[int]:
    """The first offset of each partition that can be read."""
    sql = "SELECT partition, start FROM starts WHERE topic = ?"
    found = dict(connection.execute(sql, (table,)))
    return [found.get(partition, 0) for partition in range(partitions)]


def ends_of(connection: sqlite3.Connection, table: str, partitions: int) -> list[int]:
    """The offset of each partition's next record."""
    found, sql = [], f"SELECT max(place) FROM {table} WHERE place >= ? AND place < ?"
    for partition, start in enumerate(starts_of(connection, table, partitions)):
        bounds = place(partition, 0), place(partition + 1, 0)
        (last,) = connection.execute(sql, bounds).fetchone()
        found.append(start if last is None else offset_of(last) + 1)
    return found


def read_records(
    connection: sqlite3.Connection, table: str, partition: int, first: int, end: int
) -> Iterator[Record]:
    """The records of `rounds` or `parts` with offsets in [first, end)."""
    bounds = place(partition, max(first, 0)), place(partition, end)
    if table == "parts":
        sql = "SELECT place, value FROM parts WHERE place >= ? AND place < ? ORDER BY place"
        for at, value in connection.execute(sql, bounds):
            yield Record(partition, offset_of(at), value)
        return
    for row in connection.execute(_ROUNDS, bounds):
        yield _record_of(partition, *row)


_ROUNDS = (
    "SELECT place, value, headers, received_s, key FROM rounds"
    " WHERE place >= ? AND place < ? ORDER BY place"
)


def _record_of(
    partition: int, at: int, value: bytes | None, headers: bytes | None, received_s: float,
    key: bytes | None, unreadable: str = "",
) -> Record:  # fmt: skip
    found = _headers(headers) if headers else ()
    return Record(partition, offset_of(at), value, found, received_s, key, unreadable)


def read_together(
    connection: sqlite3.Connection, partition: int, first: int, end: int, most_bytes: int
) -> Sequence[Record]:
    """The next records of `rounds` with offsets in [first, end): so many that they have about this
    many bytes, and at least one if there is any."""
    cursor = connection.execute(_ROUNDS, (place(partition, max(first, 0)), place(partition, end)))
    rows, size = list[Any](), 0
    while size < most_bytes and (some := cursor.fetchmany(FETCHED)):
        rows += some
        size += sum(len(row[1] or b"") for row in some)
    cursor.close()  # ends the transaction
    if not rows:
        return ()
    places, values, headers, received_s, _ = zip(*rows, strict=True)
    if any(headers) or None in values:
        return [_record_of(partition, *row) for row in rows]
    offset = np.array(places, np.int64) - place(partition, 0)
    arrivals = Arrivals(np.full(len(rows), partition), offset, np.array(received_s, np.float64))
    return PlainRecords(values, arrivals)


def read_rejections(
    connection: sqlite3.Connection, after: int = 0
) -> Iterator[tuple[int, ports.Rejection]]:
    """Number and content of the rejections with numbers greater than `after`."""
    sql = (
        "SELECT id, r.place, code, message, ladder, round_id, unreadable,"
        " value, headers, received_s, key"
        " FROM rejected r LEFT JOIN rounds s ON s.place = r.place WHERE id > ? ORDER BY id"
    )
    for row in connection.execute(sql, (after,)):
        number, at, code, message, ladder, round_id, unreadable = row[:7]
        value, headers, received_s, key = row[7:]
        found = _record_of(partition_of(at), at, value, headers, received_s or 0.0, key, unreadable)
        yield number, ports.Rejection(found, code, message, ladder, round_id)


# --- appending for `submit` -----------------------------------------------------------------------

TOGETHER = 1000  # The most records that one transaction appends.
TOGETHER_BYTES = 16 * 2**20  # The bytes of records from which on a transaction appends them.


class FileSubmitter(Sender):
    """Appends records to the log in a data file that no process has open. They are rated once
    `standalone` opens the file. The methods raise LogTrouble, Denied or Unusable."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._log = SqliteLog(database)
        self._waiting: list[tuple[NewRound, bool]] = []
        """Records, and whether each is a correction."""
        self._bytes = 0
        """The bytes of these records."""

    def _send(
        self, name: str, ladder: str, value: bytes, headers: Headers, *, corrects: bool
    ) -> None:
        partition = sharding.partition_of(ladder, len(self._log.rounds))
        now_s = datetime.now(UTC).timestamp()
        self._waiting.append(
            (NewRound(partition, value, headers, now_s, ladder.encode()), corrects)
        )
        self._bytes += len(value)
        if len(self._waiting) >= TOGETHER or self._bytes >= TOGETHER_BYTES:
            self.flush()

    def flush(self) -> None:
        records = [record for record, _ in self._waiting]
        offsets = self._log.submit_all(records) if records else []
        both = zip(self._waiting, offsets, strict=True)
        self.corrections += [(each.partition, at) for (each, corrects), at in both if corrects]
        self._waiting, self._bytes = [], 0
