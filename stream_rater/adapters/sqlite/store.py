"""The store in a data file: positions, beliefs and checkpoints.

The beliefs are those of the last calls as they were written, and a table of the others. A call is
appended as one row of `recent`, whatever players it has. To write each belief into a page of its
own, between those of other players, would cost many times as much. From time to time the recent
beliefs are *merged* into the table `beliefs`, in the order of their keys, some with every call.
Until then they are also in memory, and are read from there.
"""

import sqlite3
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import add

import msgspec
import numpy as np

from stream_rater.adapters.local_driver import LocalStore
from stream_rater.adapters.sqlite.database import Database
from stream_rater.columns import player_column
from stream_rater.columns.player_map import Fingerprints, PlayerMap
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.errors import StoreTrouble
from stream_rater.contract.record import Player
from stream_rater.pipeline.ports import VANISHED, Application, Position, StoredShard
from stream_rater.pipeline.updater.record_cache import RecordCache, fingerprints_of

RECENT = 400_000
"""After this many beliefs were written, those of the calls so far begin to be merged."""

MERGE_FACTOR, LEAST_MERGED = 2, 16
"""Each call merges MERGE_FACTOR times as many beliefs as it writes, at least LEAST_MERGED. So a
merge has ended before the next one begins."""

KNOWN_BYTES = 64 * 2**20  # The memory of the records that were read or written lately.
TOGETHER = 1000
"""Calls in memory with fewer beliefs are joined, since a column takes a kilobyte besides them."""
AT_ONCE = 200  # The number of players that one statement looks up.

_LOOK_UP = (
    "WITH asked(i, ladder, player) AS (VALUES "
    + ",".join(f"({i}, ?, ?)" for i in range(AT_ONCE))
    + ") SELECT record FROM asked LEFT JOIN beliefs ON shard = ?"
    " AND beliefs.ladder = asked.ladder AND beliefs.player = asked.player ORDER BY i"
)


class _BeliefCall(msgspec.Struct, array_like=True, gc=False):
    """The beliefs of a call as columns: the ladders' ids, and of each belief the index of its
    ladder, its player and its record, with the index where each text ends."""

    ladders: list[str]
    ladder: bytes
    names: bytes
    name_ends: bytes
    records: bytes
    record_ends: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_BeliefCall).decode


class ShardBeliefs:
    """The beliefs of one shard, as the writing connection knows them."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self._recent = _Calls()
        """What was written since the last merge began."""
        self._merging: _Calls | None = None
        """What the merge in progress writes, or has written, to the table."""
        self._to_merge = player_column.BeliefColumn.of(())
        """The newest of these beliefs, in the order of their keys."""
        self._merged = 0
        """How many of them are written."""
        self._merging_until = 0
        """The greatest id of a row in `recent` whose beliefs are being merged."""
        self._known = RecordCache(KNOWN_BYTES)
        """Records that were read or written lately. An empty one says that the player has none."""
        self._opening = self._known.opening()
        self.loaded = False

    def _load(self, connection: sqlite3.Connection) -> None:
        if not self.loaded:
            self.loaded = True
            for call in recent_calls(connection, self.shard):
                self._recent.add(call)

    def read(
        self, connection: sqlite3.Connection, players: player_column.PlayerColumn
    ) -> player_column.RecordColumn:
        """The players' records; None where there is none."""
        self._load(connection)
        found = self._known.find(np.full(len(players), self._opening), players)
        unread = np.flatnonzero(~found.is_present)
        if len(unread):
            found = found.replaced(unread, self._find(connection, players.take(unread)))
        records = found.strings
        return player_column.RecordColumn(records, records.ends > records.starts)

    def _find(
        self, connection: sqlite3.Connection, players: player_column.PlayerColumn
    ) -> player_column.RecordColumn:
        """Find the records of players that are not known. An empty one says that there is none."""
        wanted, fingerprints = list(players), fingerprints_of(players)
        found: list[bytes | None] = [None] * len(wanted)
        for calls in filter(None, (self._recent, self._merging)):
            newer = calls.find(wanted, fingerprints)
            found = [own or other for own, other in zip(found, newer, strict=True)]
        unread = [i for i, record in enumerate(found) if record is None]
        records = look_up(connection, self.shard, [wanted[i] for i in unread])
        for i, record in zip(unread, records, strict=True):
            found[i] = record
        column = StringColumn.of_bytes([record or b"" for record in found])
        self._known.put(self._opening, player_column.BeliefColumn(players, column))
        return player_column.RecordColumn(column, np.ones(len(column), np.bool_))

    def write(
        self, connection: sqlite3.Connection, beliefs: player_column.BeliefColumn, *, count: bool
    ) -> int | None:
        """Write the beliefs of a call, and merge some others. Returns how many of these players had
        no record, if it is to `count` them."""
        self._load(connection)
        absent = self.read(connection, beliefs.players).absent if count else None
        if len(beliefs):
            own = _compact([beliefs])
            connection.execute(
                "INSERT INTO recent (shard, beliefs) VALUES (?, ?)", (self.shard, encode(own))
            )
            self._recent.add(own)
            self._known.put(self._opening, own)
        self._merge(connection, max(LEAST_MERGED, MERGE_FACTOR * len(beliefs)))
        return absent

    def _merge(self, connection: sqlite3.Connection, count: int) -> None:
        """Merge this many beliefs. Begin a merge if none is in progress and there are enough."""
        if self._merging is None:
            if len(self._recent) < RECENT:
                return
            self._begin_to_merge(connection)
        some = self._to_merge[self._merged : self._merged + count]
        players = some.players
        ladders = map(players.ladders.texts.__getitem__, players.ladder.tolist())
        rows = zip(repeat(self.shard), ladders, players.names.texts(), some.records.strings())
        connection.executemany("INSERT OR REPLACE INTO beliefs VALUES (?, ?, ?, ?)", rows)
        self._merged += len(some)
        if len(some) < count:
            connection.execute(
                "DELETE FROM recent WHERE shard = ? AND id <= ?", (self.shard, self._merging_until)
            )
            self._merging, self._to_merge = None, player_column.BeliefColumn.of(())

    def _begin_to_merge(self, connection: sqlite3.Connection) -> None:
        (self._merging_until,) = connection.execute(
            "SELECT coalesce(max(id), 0) FROM recent WHERE shard = ?", (self.shard,)
        ).fetchone()
        self._merging, self._recent = self._recent, _Calls()
        self._to_merge, self._merged = self._merging.newest(), 0


class _Calls:
    """The beliefs of some calls, as they were written, and where each player's newest one is."""

    def __init__(self) -> None:
        self._calls: list[player_column.BeliefColumn] = []
        self._starts: list[int] = []
        """The number of beliefs before each call."""
        self._newest = PlayerMap()
        """The number of the newest belief with each fingerprint."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, call: player_column.BeliefColumn) -> None:
        """Add the beliefs of a call."""
        self._calls.append(call)
        self._starts.append(self._count)
        self._newest.put(
            fingerprints_of(call.players), np.arange(self._count, self._count + len(call))
        )
        self._count += len(call)
        while len(self._calls) > 1 and len(self._calls[-2]) <= len(self._calls[-1]) < TOGETHER:
            self._calls[-2:] = [_compact(self._calls[-2:])]
            self._starts.pop()

    def find(self, players: Sequence[Player], fingerprints: Fingerprints) -> list[bytes | None]:
        """The newest record of each of these players; None where there is none."""
        found: list[bytes | None] = [None] * len(players)
        for i, number in enumerate(self._newest.find(fingerprints).tolist()):
            if number >= 0:
                call = bisect_right(self._starts, number) - 1
                player, record = self._calls[call][number - self._starts[call]]
                found[i] = record if player == players[i] else self._search(players[i])
        return found

    def _search(self, player: Player) -> bytes | None:
        """The newest record of a player who shares a fingerprint with another one."""
        each = (dict(call).get(player) for call in reversed(self._calls))
        return next(filter(None, each), None)

    def newest(self) -> player_column.BeliefColumn:
        """The newest belief of each player, in the order of their keys."""
        beliefs = _compact(self._calls)
        keys = keys_of(beliefs.players)
        newest = dict(zip(keys, range(len(keys)), strict=True))
        rows = map(newest.__getitem__, sorted(newest))
        return beliefs.take(np.fromiter(rows, np.int64, len(newest)))


def _compact(calls: Sequence[player_column.BeliefColumn]) -> player_column.BeliefColumn:
    """The beliefs of these calls, with copies of their bytes and no others."""
    numbers: dict[str, int] = {}
    ladder = []
    for players in (call.players for call in calls):
        own = [numbers.setdefault(each, len(numbers)) for each in players.ladders.texts]
        ladder.append(np.array(own, np.int64)[players.ladder])
    ladders = player_column.LadderColumn(StringColumn.of(list(numbers)))
    names = StringColumn.concat([call.players.names for call in calls])
    records = StringColumn.concat([call.records for call in calls])
    return player_column.BeliefColumn(
        player_column.PlayerColumn(ladders, np.concatenate(ladder), names), records
    )


def keys_of(players: player_column.PlayerColumn) -> list[str]:
    """Each player as one text: the length of the ladder's id, a colon, and both ids. Unlike tuples,
    texts are not visited by the search for cycles."""
    heads = [f"{len(ladder)}:{ladder}" for ladder in players.ladders.texts]
    return list(map(add, [heads[i] for i in players.ladder.tolist()], players.names.texts()))


def encode(beliefs: player_column.BeliefColumn) -> bytes:
    """The beliefs of a call as a row of `recent`. Nothing separates the texts of a column."""
    players, names, records = beliefs.players, beliefs.players.names, beliefs.records
    ladder, ends = players.ladder.astype("<i4"), names.ends.astype("<i8")
    columns = ladder, names.data, ends, records.data, records.ends.astype("<i8")
    return _encode(_BeliefCall(players.ladders.texts, *[each.tobytes() for each in columns]))


def decode(data: bytes) -> player_column.BeliefColumn:
    """The beliefs of a call from a row of `recent`."""
    call = _decode(data)
    ladder = np.frombuffer(call.ladder, "<i4").astype(np.int64)
    names = _column(call.names, call.name_ends)
    players = player_column.PlayerColumn(
        player_column.LadderColumn(StringColumn.of(call.ladders)), ladder, names
    )
    return player_column.BeliefColumn(players, _column(call.records, call.record_ends))


def _column(data: bytes, ends: bytes) -> StringColumn:
    found = np.frombuffer(ends, "<i8").astype(np.int64)
    return StringColumn(np.frombuffer(data, np.uint8).copy(), np.append(0, found)[:-1], found)


class SqliteStore(LocalStore):
    """The position and the beliefs of each shard, and the ladders' checkpoints, in a data file."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._beliefs: dict[int, ShardBeliefs] = {}
        self._data_version = database.data_version
        database.on_rollback.append(self.forget)

    def forget(self) -> None:
        """Forget what is known of the file, and read it again when it is needed."""
        self._beliefs = {}

    def _of(self, shard: int) -> ShardBeliefs:
        """The beliefs of a shard, read again if a foreign program has changed the file."""
        version = self.database.data_version
        if version != self._data_version:
            self._data_version = version
            self.forget()
        return self._beliefs.setdefault(shard, ShardBeliefs(shard))

    def read(self, shard: int, players: player_column.PlayerColumn) -> StoredShard:
        with self.database.guarded(StoreTrouble) as connection:
            position = position_of(connection, shard)
            return StoredShard(position, self._of(shard).read(connection, players))

    def apply(self, shard: int, application: Application) -> bool:
        position, written = application.position, application.beliefs
        with self.database.write(StoreTrouble) as connection:
            stored = position_of(connection, shard)
            if (stored.applied, stored.epoch) != (position.start, position.epoch):
                return False
            counts = application.absent is not None
            absent = self._of(shard).write(connection, written, count=counts)
            vanished = absent != application.absent
            if vanished:
                position = Position(VANISHED, VANISHED, epoch=position.epoch)
            set_position(connection, shard, position)
        return not vanished

    def heads(self, ladder: str) -> dict[str, bytes]:
        sql = "SELECT name, head FROM checkpoints WHERE ladder = ?"
        with self.database.guarded(StoreTrouble) as connection:
            return dict(connection.execute(sql, (ladder,)))

    def read_piece(self, ladder: str, name: str, number: int) -> bytes | None:
        sql = "SELECT data FROM pieces WHERE ladder = ? AND name = ? AND number = ?"
        with self.database.guarded(StoreTrouble) as connection:
            found = connection.execute(sql, (ladder, name, number)).fetchone()
        return found and bytes(found[0])

    def write_piece(self, ladder: str, name: str, number: int, data: bytes) -> None:
        self._execute(
            "INSERT OR REPLACE INTO pieces VALUES (?, ?, ?, ?)", ladder, name, number, data
        )

    def keep_head(self, ladder: str, name: str, head: bytes) -> None:
        self._execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", ladder, name, head)

    def drop_piece(self, ladder: str, name: str, number: int) -> None:
        where = "ladder = ? AND name = ? AND number = ?"
        self._execute(f"DELETE FROM pieces WHERE {where}", ladder, name, number)

    def drop_head(self, ladder: str, name: str) -> None:
        self._execute("DELETE FROM checkpoints WHERE ladder = ? AND name = ?", ladder, name)

    def _execute(self, sql: str, *values: str | int | bytes) -> None:
        with self.database.write(StoreTrouble) as connection:
            connection.execute(sql, values)


# --- what any connection can read ----------------------------------------------------------------


def recent_beliefs(connection: sqlite3.Connection, shard: int) -> dict[Player, bytes]:
    """The beliefs of the calls that are not merged yet."""
    found: dict[Player, bytes] = {}
    for call in recent_calls(connection, shard):
        found.update(call)
    return found


def recent_calls(
    connection: sqlite3.Connection, shard: int
) -> Iterator[player_column.BeliefColumn]:
    """Yield the beliefs of each call that is not merged yet, in order."""
    sql = "SELECT beliefs FROM recent WHERE shard = ? ORDER BY id"
    return (decode(data) for (data,) in connection.execute(sql, (shard,)))


def look_up(
    connection: sqlite3.Connection, shard: int, players: Sequence[Player]
) -> list[bytes | None]:
    """The records of players in the table `beliefs`."""
    found: list[bytes | None] = []
    for first in range(0, len(players), AT_ONCE):
        some = players[first : first + AT_ONCE]
        values = [text for player in some for text in player]
        values += [None] * (2 * (AT_ONCE - len(some)))  # type: ignore[list-item]
        rows = connection.execute(_LOOK_UP, (*values, shard)).fetchall()
        found += [record for (record,) in rows[: len(some)]]
    return found


def all_beliefs(connection: sqlite3.Connection, shard: int) -> Iterator[tuple[Player, bytes]]:
    """All beliefs of a shard, in any order. Read them in one transaction."""
    recent = recent_beliefs(connection, shard)
    sql = "SELECT ladder, player, record FROM beliefs WHERE shard = ?"
    for ladder, player, record in connection.execute(sql, (shard,)):
        yield (ladder, player), recent.pop((ladder, player), record)
    yield from recent.items()


def position_of(connection: sqlite3.Connection, shard: int) -> Position:
    sql = "SELECT applied, start, fresh, epoch, tail FROM positions WHERE shard = ?"
    found = connection.execute(sql, (shard,)).fetchone()
    return Position() if found is None else Position(*found)


def set_position(connection: sqlite3.Connection, shard: int, position: Position) -> None:
    """Write the position of a shard."""
    connection.execute(
        "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?, ?)",
        (shard, position.applied, position.start, position.fresh, position.epoch, position.tail),
    )
