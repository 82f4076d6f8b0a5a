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
        self._recent: dict[Player, bytes] = {}
        """What was written since the last merge began."""
        self._written = 0
        """The number of beliefs that the calls since then wrote, repeats included."""
        self._merging: dict[Player, bytes] = {}
        """What the merge in progress writes, or has written, to the table."""
        self._to_merge: Iterator[tuple[Player, bytes]] = iter(())
        self._merging_until = 0
        """The greatest id of a row in `recent` whose beliefs are being merged."""
        self._known: dict[Player, bytes] = {}
        """Records that were read or written lately."""
        self._absent: set[Player] = set()
        """Players who have no record."""
        self.loaded = False

    def forget(self) -> None:
        """Forget everything: the file has changed in another way than this object knows."""
        self.__init__(self.shard)  # type: ignore[misc]

    def _load(self, connection: sqlite3.Connection) -> None:
        if not self.loaded:
            self.loaded = True
            self._recent = recent_beliefs(connection, self.shard)
            self._written = len(self._recent)

    def read(self, connection: sqlite3.Connection, players: Sequence[Player]) -> list[bytes | None]:
        """The players' records; None where there is none."""
        self._load(connection)
        known = self._known
        found: list[bytes | None] = list(map(known.get, players))
        if None in found:
            unread = [p for p, r in zip(players, found, strict=True) if r is None]
            if len(known) > REMEMBERED:
                known.clear()
            self._find(connection, dict.fromkeys(unread))
            missing = map(known.get, unread)
            found = [next(missing) if each is None else each for each in found]
        return found

    def _find(self, connection: sqlite3.Connection, players: Collection[Player]) -> None:
        """Find the records of players that are not known."""
        to_look_up = []
        for player in players:
            record = self._recent.get(player) or self._merging.get(player)
            if record is not None:
                self._known[player] = record
            elif player not in self._absent:
                to_look_up.append(player)
        if len(self._absent) > REMEMBERED:
            self._absent.clear()
        records = look_up(connection, self.shard, to_look_up)
        for player, record in zip(to_look_up, records, strict=True):
            if record is None:
                self._absent.add(player)
            else:
                self._known[player] = record

    def count_absent(self, connection: sqlite3.Connection, players: Sequence[Player]) -> int:
        """The number of these players without a record."""
        unknown = len(players) - sum(map(self._known.__contains__, players))
        return unknown and self.read(connection, players).count(None)

    def write(self, connection: sqlite3.Connection, beliefs: BeliefColumn) -> None:
        """Write the beliefs of a call, and merge some others."""
        self._load(connection)
        if len(beliefs):
            connection.execute(
                "INSERT INTO recent (shard, beliefs) VALUES (?, ?)", (self.shard, encode(beliefs))
            )
            written = dict(beliefs)
            self._recent.update(written)
            self._written += len(beliefs)
            self._known.update(written)
            self._absent.difference_update(written)
        self._merge(connection, max(LEAST_MERGED, MERGE_FACTOR * len(beliefs)))

    def _merge(self, connection: sqlite3.Connection, count: int) -> None:
        """Merge this many beliefs. Begin a merge if none is in progress and there are enough."""
        if not self._merging:
            if self._written < RECENT:
                return
            self._begin_to_merge(connection)
        rows = [(self.shard, *player, record) for player, record in islice(self._to_merge, count)]
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
        self._to_merge = iter(sorted(self._merging.items()))


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


def recent_beliefs(connection: sqlite3.Connection, shard: int) -> dict[Player, bytes]:
    """The beliefs of the calls that are not merged yet."""
    sql = "SELECT beliefs FROM recent WHERE shard = ? ORDER BY id"
    return newest_of(row for (row,) in connection.execute(sql, (shard,)))


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
