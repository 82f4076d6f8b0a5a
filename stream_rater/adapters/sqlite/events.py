"""The events of `rating-changed` in a data file: those of a call in one row. The newest KEPT events
of a shard are there. Of older ones, only the last event of each player is kept, in a table with one
row for each player."""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count, islice

import msgspec
import numpy as np

from stream_rater.adapters.sqlite.schema import offset_of, place
from stream_rater.contract.record import Trace
from stream_rater.pipeline.ports import Event
from stream_rater.pipeline.updater.rating_events import Events, ShardEvents

KEPT = 100_000  # The number of events that stay for subscribers.
PRUNED_TOGETHER = 400_000
"""Once there are so many more, the older ones are pruned. Of a player's events among them, only the
last one is written again. So to prune more at a time is cheaper."""

RESTORED_TOGETHER = 1000  # The number of events in a row that `restore` writes.

PRUNE_FACTOR, LEAST_PRUNED = 4, 64
"""A transaction prunes PRUNE_FACTOR times as many events as it adds, at least LEAST_PRUNED."""


class _Call(msgspec.Struct, array_like=True, gc=False):
    """`ShardEvents` as bytes: the index in `data` where each key, event id and value ends, and of
    each event the index of its time."""

    data: bytes
    ends: bytes
    times: list[tuple[str, Trace | None]]
    time: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Call).decode
_decode_one = msgspec.msgpack.Decoder(tuple[bytes, bytes, str, Trace | None]).decode


def by_call(batches: Sequence[Collection[Event]]) -> Iterator[ShardEvents]:
    """The events of these batches, by call and shard."""
    for batch in batches:
        yield from Events.encoded(batch).runs


def add(connection: sqlite3.Connection, first: int, run: ShardEvents) -> int:
    """Append events to their shard, whose next offset is `first`. Returns the next one."""
    count = len(run.time)
    if count:
        end = int(run.ends[-1])
        ends, time = ((run.ends - run.start).astype("<i4"), run.time.astype("<i4"))
        call = _Call(run.data[run.start : end], ends.tobytes(), list(run.times), time.tobytes())
        row = place(run.shard, first), count, _encode(call)
        connection.execute("INSERT INTO changed VALUES (?, ?, ?)", row)
    return first + count


def decode(shard: int, data: bytes) -> Iterator[Event]:
    """The events in a row."""
    call = _decode(data)
    ends, time = (np.frombuffer(each, "<i4").astype(np.int64) for each in (call.ends, call.time))
    return ShardEvents(shard, call.data, 0, ends, call.times, time).events()


class _Kept(msgspec.Struct, frozen=True, gc=False):
    """The last event of a player, still encoded."""

    offset: int
    texts: bytes  # Its id and its value.
    id_size: int
    time: tuple[str, Trace | None]

    def row(self) -> bytes:
        """What a row of `last_changed` has of it."""
        return _encode((self.texts[self.id_size :], self.texts[: self.id_size], *self.time))


def _last_events(first: int, data: bytes) -> Iterator[tuple[bytes, _Kept]]:
    """The key of each event in a row whose first event has the offset `first`, and the event."""
    call = _decode(data)
    start, end = 0, iter(np.frombuffer(call.ends, "<i4").tolist())
    times = zip(count(first), np.frombuffer(call.time, "<i4").tolist(), strict=False)
    texts, of = call.data, call.times
    for (offset, time), key, event_id, value in zip(times, end, end, end, strict=True):
        yield texts[start:key], _Kept(offset, texts[key:value], event_id - key, of[time])
        start = value


def restore(
    connection: sqlite3.Connection, shard: int, found: Iterable[tuple[int, Event]], pruned: int
) -> None:
    """Write the events of a shard to a new file, each with its offset. Of those before `pruned`,
    only the last one of each player is among them."""
    left, first = iter(found), pruned
    while some := list(islice(left, RESTORED_TOGETHER)):
        rows = [
            (shard, e.key, at, _encode((e.value, e.event_id, e.time, e.trace)))
            for at, e in some if at < pruned
        ]  # fmt: skip
        connection.executemany("INSERT INTO last_changed VALUES (?, ?, ?, ?)", rows)
        for run in Events.of(shard, [event for at, event in some if at >= pruned]).runs:
            first = add(connection, first, run)


class Pruning:
    """Deletes the old events of a shard, some with every transaction."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self._until = 0
        """The place before which events are being pruned; 0: none are."""
        self._read_until = 0
        """The place before which they were collected."""
        self._last: dict[bytes, _Kept] = {}
        """The last event of each player among those collected, by the event's key."""
        self._to_keep: Iterator[tuple[bytes, _Kept]] | None = None

    def go_on(self, connection: sqlite3.Connection, end: int, added: int) -> None:
        """Prune some events, after `added` ones were added. `end`: the shard's next offset."""
        most = max(LEAST_PRUNED, PRUNE_FACTOR * added)
        if self._until == 0:
            self._begin(connection, end)
        elif self._to_keep is None:
            self._collect(connection, most)
        else:
            self._keep(connection, self._to_keep, most)

    def _begin(self, connection: sqlite3.Connection, end: int) -> None:
        """Begin to prune if there are enough events."""
        (first,) = connection.execute(
            "SELECT min(place) FROM changed WHERE place >= ?", (place(self.shard, 0),)
        ).fetchone()
        if first is None or end - offset_of(first) < KEPT + PRUNED_TOGETHER:
            return
        # The row that has this offset stays.
        (self._until,) = connection.execute(
            "SELECT max(place) FROM changed WHERE place >= ? AND place <= ?",
            (first, place(self.shard, min(end - KEPT, offset_of(first) + PRUNED_TOGETHER))),
        ).fetchone()
        self._read_until = first

    def _collect(self, connection: sqlite3.Connection, left: int) -> None:
        """Collect the last events among the next `left`, or a few more."""
        sql = (
            "SELECT place, count, events FROM changed WHERE place >= ? AND place < ? ORDER BY place"
        )
        for at, size, events in connection.execute(sql, (self._read_until, self._until)):
            self._last.update(_last_events(offset_of(at), events))
            left -= size
            self._read_until = at + size
            if left <= 0:
                return
        self._to_keep = iter(sorted(self._last.items()))

    def _keep(
        self, connection: sqlite3.Connection, to_keep: Iterator[tuple[bytes, _Kept]], most: int
    ) -> None:
        """Write `most` of the last events. After them, delete all that were collected."""
        rows = [(self.shard, key, each.offset, each.row()) for key, each in islice(to_keep, most)]
        connection.executemany("INSERT OR REPLACE INTO last_changed VALUES (?, ?, ?, ?)", rows)
        if len(rows) < most:
            connection.execute(
                "DELETE FROM changed WHERE place >= ? AND place < ?",
                (place(self.shard, 0), self._until),
            )
            self._until, self._last, self._to_keep = 0, {}, None


# --- what any connection can read ----------------------------------------------------------------


def end_of_changed(connection: sqlite3.Connection, shard: int) -> int:
    """The offset of a shard's next event."""
    found = connection.execute(
        "SELECT place + count FROM changed WHERE place >= ? AND place < ?"
        " ORDER BY place DESC LIMIT 1",
        (place(shard, 0), place(shard + 1, 0)),
    ).fetchone()
    return 0 if found is None else offset_of(found[0])


def read_events(
    connection: sqlite3.Connection, shard: int, first: int = 0
) -> Iterator[tuple[int, Event]]:
    """Offset and content of the events of a shard from an offset on, in order. Of the oldest
    events, only the last one of each player is there. Read them in one transaction."""
    (oldest,) = connection.execute(
        "SELECT min(place) FROM changed WHERE place >= ? AND place < ?",
        (place(shard, 0), place(shard + 1, 0)),
    ).fetchone()
    if oldest is not None and first < offset_of(oldest):  # some are in both while they are pruned
        sql = (
            "SELECT offset, key, event FROM last_changed"
            " WHERE shard = ? AND offset >= ? AND offset < ? ORDER BY offset"
        )
        for offset, key, event in connection.execute(sql, (shard, first, offset_of(oldest))):
            yield offset, Event(shard, key, *_decode_one(event))
    (begin,) = connection.execute(
        "SELECT max(place) FROM changed WHERE place >= ? AND place <= ?",
        (place(shard, 0), place(shard, first)),
    ).fetchone()
    begin = place(shard, first) if begin is None else begin
    sql = "SELECT place, events FROM changed WHERE place >= ? AND place < ? ORDER BY place"
    for at, events in connection.execute(sql, (begin, place(shard + 1, 0))):
        for offset, event in enumerate(decode(shard, events), offset_of(at)):
            if offset >= first:
                yield offset, event
