"""The events of `rating-changed` in a data file: those of a call in one row."""

import sqlite3
from collections.abc import Collection, Iterator, Sequence

import msgspec
import numpy as np

from stream_rater.adapters.sqlite.schema import offset_of, place
from stream_rater.contract.record import Trace
from stream_rater.pipeline.ports import Event
from stream_rater.pipeline.updater.rating_events import Events, ShardEvents


class _Call(msgspec.Struct, array_like=True, gc=False):
    """`ShardEvents` as bytes: the index in `data` where each key, event id and value ends, and of
    each event the index of its time."""

    data: bytes
    ends: bytes
    times: list[tuple[str, Trace | None]]
    time: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Call).decode


def by_call(batches: Sequence[Collection[Event]]) -> Iterator[ShardEvents]:
    """The events of these batches, by call and shard."""
    for batch in batches:
        if isinstance(batch, Events):
            yield from batch.runs
            continue
        by_shard: dict[int, list[Event]] = {}
        for each in batch:
            by_shard.setdefault(each.shard, []).append(each)
        for shard, some in by_shard.items():
            yield from Events.of(shard, some).runs


def add(connection: sqlite3.Connection, first: int, run: ShardEvents) -> int:
    """Append events to their shard, whose next offset is `first`. Returns the next one."""
    count = len(run.time)
    if count:
        end = int(run.ends[-1])
        call = _Call(
            run.data[run.start : end],
            (run.ends - run.start).astype("<i4").tobytes(),
            list(run.times),
            run.time.astype("<i4").tobytes(),
        )
        row = place(run.shard, first), count, _encode(call)
        connection.execute("INSERT INTO changed VALUES (?, ?, ?)", row)
    return first + count


def decode(shard: int, data: bytes) -> Iterator[Event]:
    """The events in a row."""
    call = _decode(data)
    ends, time = (np.frombuffer(each, "<i4").astype(np.int64) for each in (call.ends, call.time))
    return ShardEvents(shard, call.data, 0, ends, call.times, time).events()


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
    events, only the last one of each player is there."""
    sql = "SELECT offset, event FROM last_changed WHERE shard = ? AND offset >= ? ORDER BY offset"
    for offset, event in connection.execute(sql, (shard, first)):
        yield from ((offset, each) for each in decode(shard, event))
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
