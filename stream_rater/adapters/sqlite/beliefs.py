"""The beliefs in a data file: those of the last calls as they were written, and a table of the
others.

A call is appended as one row of `recent`, whatever players it has. To write each belief into a page
of its own, between those of other players, would cost many times as much. From time to time the
recent beliefs are *merged* into the table `beliefs`, in the order of their keys, some with every
call. Until then they are also in memory, and are read from there.
"""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import add

import msgspec
import numpy as np

from stream_rater.columns.player_column import BeliefColumn, LadderColumn, PlayerColumn
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.record import Player

RECENT = 400_000
"""After this many beliefs were written, those of the calls so far begin to be merged."""

MERGE_FACTOR, LEAST_MERGED = 2, 16
"""Each call merges MERGE_FACTOR times as many beliefs as it writes, at least LEAST_MERGED. So a
merge has ended before the next one begins."""

REMEMBERED = 300_000
"""The number of beliefs that stay in memory to be read."""

AT_ONCE = 200
"""The number of players that one statement looks up."""

_LOOK_UP = (
    "WITH asked(i, ladder, player) AS (VALUES "
    + ",".join(f"({i}, ?, ?)" for i in range(AT_ONCE))
    + ") SELECT record FROM asked LEFT JOIN beliefs ON shard = ?"
    " AND beliefs.ladder = asked.ladder AND beliefs.player = asked.player ORDER BY i"
)


Key = str
"""A player as one text: the length of the ladder's id, a colon, and both ids. Unlike a tuple, it
is not visited by the search for cycles."""


class _Call(msgspec.Struct, array_like=True, gc=False):
    """The beliefs of a call as columns: the ladders' ids, and of each belief the index of its
    ladder, its player and its record, with the index where each text ends."""

    ladders: list[str]
    ladder: bytes
    names: bytes
    name_ends: bytes
    records: bytes
    record_ends: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Call).decode


class Beliefs:
    """The beliefs of one shard, as the writing connection knows them."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self._recent: dict[Key, bytes] = {}
        """What was written since the last merge began."""
        self._written = 0
        """The number of beliefs that the calls since then wrote, repeats included."""
        self._merging: dict[Key, bytes] = {}
        """What the merge in progress writes, or has written, to the table."""
        self._to_merge: Iterator[Key] = iter(())
        self._merging_until = 0
        """The greatest id of a row in `recent` whose beliefs are being merged."""
        self._known: dict[Key, bytes] = {}
        """Records that were read or written lately."""
        self._absent: set[Key] = set()
        """Players who have no record."""
        self.loaded = False

    def _load(self, connection: sqlite3.Connection) -> None:
        if not self.loaded:
            self.loaded = True
            self._recent = _recent(connection, self.shard)
            self._written = len(self._recent)

    def read(self, connection: sqlite3.Connection, players: PlayerColumn) -> list[bytes | None]:
        """The players' records; None where there is none."""
        return self._read(connection, keys_of(players))

    def _read(self, connection: sqlite3.Connection, keys: Sequence[Key]) -> list[bytes | None]:
        self._load(connection)
        known = self._known
        found: list[bytes | None] = list(map(known.get, keys))
        if not all(found):
            unread = [key for key, r in zip(keys, found, strict=True) if r is None]
            if len(known) > REMEMBERED:
                known.clear()
            self._find(connection, dict.fromkeys(unread))
            missing = map(known.get, unread)
            found = [next(missing) if each is None else each for each in found]
        return found

    def _find(self, connection: sqlite3.Connection, keys: Collection[Key]) -> None:
        """Find the records of players that are not known."""
        to_look_up = []
        for key in keys:
            record = self._recent.get(key) or self._merging.get(key)
            if record is not None:
                self._known[key] = record
            elif key not in self._absent:
                to_look_up.append(key)
        if len(self._absent) > REMEMBERED:
            self._absent.clear()
        records = look_up(connection, self.shard, [*map(player_of, to_look_up)])
        for key, record in zip(to_look_up, records, strict=True):
            if record is None:
                self._absent.add(key)
            else:
                self._known[key] = record

    def write(
        self, connection: sqlite3.Connection, beliefs: BeliefColumn, *, count: bool
    ) -> int | None:
        """Write the beliefs of a call, and merge some others. Returns how many of these players had
        no record, if it is to `count` them."""
        self._load(connection)
        keys = keys_of(beliefs.players)
        absent = None
        if count:
            absent = len(keys) - sum(map(self._known.__contains__, keys))
            absent = absent and self._read(connection, keys).count(None)
        if len(beliefs):
            connection.execute(
                "INSERT INTO recent (shard, beliefs) VALUES (?, ?)", (self.shard, encode(beliefs))
            )
            written = dict(zip(keys, beliefs.records.strings(), strict=True))
            self._recent.update(written)
            self._written += len(beliefs)
            self._known.update(written)
            self._absent.difference_update(written)
        self._merge(connection, max(LEAST_MERGED, MERGE_FACTOR * len(beliefs)))
        return absent

    def _merge(self, connection: sqlite3.Connection, count: int) -> None:
        """Merge this many beliefs. Begin a merge if none is in progress and there are enough."""
        if not self._merging:
            if self._written < RECENT:
                return
            self._begin_to_merge(connection)
        merging, shard = self._merging, self.shard
        rows = [(shard, *player_of(key), merging[key]) for key in islice(self._to_merge, count)]
        connection.executemany("INSERT OR REPLACE INTO beliefs VALUES (?, ?, ?, ?)", rows)
        if len(rows) < count:
            connection.execute(
                "DELETE FROM recent WHERE shard = ? AND id <= ?", (self.shard, self._merging_until)
            )
            self._merging = {}

    def _begin_to_merge(self, connection: sqlite3.Connection) -> None:
        (self._merging_until,) = connection.execute(
            "SELECT coalesce(max(id), 0) FROM recent WHERE shard = ?", (self.shard,)
        ).fetchone()
        self._merging, self._recent, self._written = self._recent, {}, 0
        self._to_merge = iter(sorted(self._merging))


def keys_of(players: PlayerColumn) -> list[Key]:
    """The key of each player."""
    heads = [f"{len(ladder)}:{ladder}" for ladder in players.ladders.texts]
    return list(map(add, [heads[i] for i in players.ladder.tolist()], players.names.texts()))


def player_of(key: Key) -> Player:
    """The player with a key."""
    length, _, rest = key.partition(":")
    return rest[: int(length)], rest[int(length) :]


def encode(beliefs: BeliefColumn) -> bytes:
    """The beliefs of a call as a row of `recent` has them."""
    players = beliefs.players
    names, records = StringColumn.concat([players.names]), StringColumn.concat([beliefs.records])
    return _encode(
        _Call(
            players.ladders.texts,
            players.ladder.astype("<i4").tobytes(),
            names.data.tobytes(),
            names.ends.astype("<i8").tobytes(),
            records.data.tobytes(),
            records.ends.astype("<i8").tobytes(),
        )
    )


def decode(data: bytes) -> BeliefColumn:
    """The beliefs of a call from a row of `recent`."""
    call = _decode(data)
    ladder = np.frombuffer(call.ladder, "<i4").astype(np.int64)
    names = _column(call.names, call.name_ends)
    players = PlayerColumn(LadderColumn(StringColumn.of(call.ladders)), ladder, names)
    return BeliefColumn(players, _column(call.records, call.record_ends))


def _column(data: bytes, ends: bytes) -> StringColumn:
    found = np.frombuffer(ends, "<i8").astype(np.int64)
    return StringColumn(np.frombuffer(data, np.uint8).copy(), np.append(0, found)[:-1], found)


# --- what any connection can read ----------------------------------------------------------------


def _recent(connection: sqlite3.Connection, shard: int) -> dict[Key, bytes]:
    found: dict[Key, bytes] = {}
    sql = "SELECT beliefs FROM recent WHERE shard = ? ORDER BY id"
    for (data,) in connection.execute(sql, (shard,)):
        beliefs = decode(data)
        found.update(zip(keys_of(beliefs.players), beliefs.records.strings(), strict=True))
    return found


def recent_beliefs(connection: sqlite3.Connection, shard: int) -> dict[Player, bytes]:
    """The beliefs of the calls that are not merged yet."""
    return {player_of(key): record for key, record in _recent(connection, shard).items()}


def newest_of(rows: Iterable[bytes]) -> dict[Player, bytes]:
    """The newest record of each player in rows of `recent`."""
    found: dict[Player, bytes] = {}
    for row in rows:
        found.update(decode(row))
    return found


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


def read_beliefs(
    connection: sqlite3.Connection, shard: int, players: Sequence[Player]
) -> Mapping[Player, bytes | None]:
    """The records of some players. Read them in one transaction."""
    recent = recent_beliefs(connection, shard)
    looked = dict(zip(players, look_up(connection, shard, players), strict=True))
    return {player: recent.get(player, looked[player]) for player in players}
