"""Changes: what parts do to a shard, and the events that can be built again afterwards. Calls of
many rows, in which players repeat: `property/test_convoys.py`."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.contract.record import Trace
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.pipeline.parts.decoder import PartView
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import Position, StoredShard
from stream_rater.pipeline.updater import changes
from stream_rater.pipeline.updater.changes import Change, Disagreement
from stream_rater.pipeline.updater.rating_events import Events
from stream_rater.pipeline.updater.shard import QueuedPart, ShardBatch, distinct
from stream_rater.rating.record import HEADER_SIZE, UnknownRecord, read_headers
from tests.builders.cases import cases
from tests.builders.machines import NOWHERE, part


def queued(*of: Part, end: int) -> list[QueuedPart]:
    """Parts in the queue of a shard, the last one before the offset `end`."""
    return [QueuedPart(end - len(of) + i, 0, each) for i, each in enumerate(read(*of))]


def applied(stored: StoredShard, *of: Part, end: int) -> Change:
    """The change that parts make to the stored beliefs."""
    return changes.compute_changes(ShardBatch({3: queued(*of, end=end)}), {3: stored})[3]


def rebuilt(shard: int, of: Sequence[Part], stored: StoredShard, published: int) -> Events:
    """The events of a call that had these parts."""
    batch = ShardBatch({shard: queued(*of, end=len(of))})
    return changes.build_events_again(shard, batch, stored, published)


def read(*of: Part) -> list[PartView]:
    return [decoder.read(schema.encode(each)) for each in of]


def nothing(rows: int, position: Position = NOWHERE) -> StoredShard:
    return StoredShard(position, [None] * rows)


def after(change: Change, *players: str, ladder: str = "a") -> StoredShard:
    """The stored beliefs about players once a change is applied."""
    records = dict(change.beliefs)
    return StoredShard(change.position, [records.get((ladder, p)) for p in players])


def test_newcomers() -> None:
    """A record and an event for each row; the position says which call it was. An event has the
    values of the new record, the player's key and the shard."""
    change = applied(nothing(3), part((5, "ab"), (6, "c")), end=1)
    assert change.rows == change.fresh == 3
    assert change.position == Position(1, 0, b"\xe0", tail=0)
    assert [player for player, _ in change.beliefs] == [("a", p) for p in "abc"]
    header = read_headers(b"".join(data[:HEADER_SIZE] for _, data in change.beliefs))
    assert header["last"].tolist() == [5, 5, 6]
    assert header["rounds"].tolist() == [1, 1, 1]
    change = applied(nothing(2), part((5, "ab")), end=1)
    event = rating_changed_from_json(list(change.events)[1].value)
    record = read_headers(change.beliefs[1][1][:HEADER_SIZE])[0]
    assert (event.player, event.round_id, event.rank, event.rounds) == ("b", "r5", 2, 1)
    assert (event.mu, event.sigma) == (record["mu"], record["sigma"])
    assert (event.previous_mu, event.previous_sigma) == (1500.0, 350.0)
    assert event.provisional
    assert list(change.events)[1].key == b"a:b"
    assert {each.shard for each in change.events} == {3}


def test_an_event_carries_its_rounds_trace() -> None:
    """An event that is built again after a crash has the same trace. Its value does not depend on
    the trace."""
    unannounced = part((5, "a"), (6, "b"))
    traces = [Trace(f"00-{n:032x}-{n:016x}-01", "vendor=1") for n in (1, 2)]
    rounds = [
        msgspec.structs.replace(each, trace=trace)
        for each, trace in zip(unannounced.rounds, traces, strict=True)
    ]
    some = replace(unannounced, rounds=rounds)
    change, plain = applied(nothing(2), some, end=1), applied(nothing(2), unannounced, end=1)
    again = rebuilt(3, [some], after(change, "a", "b"), published=0)
    assert [each.trace for each in change.events] == traces
    assert list(again) == list(change.events)
    assert [msgspec.structs.replace(each, trace=None) for each in change.events] == list(
        plain.events
    )


def test_part_of_no_rows_moves_the_position_only() -> None:
    """As a foreign message does."""
    alone = ShardBatch({3: [QueuedPart(4, 0)]})
    foreign = changes.compute_changes(alone, {3: nothing(0, Position(4))})[3]
    for change in (foreign, applied(nothing(0, Position(4)), part((5, "")), end=5)):
        assert change.position == Position(5, 4, b"", tail=0)
        assert not change.beliefs
        assert not change.events


@cases("fresh", [b"", b"\xff\xff"])
def test_events_of_other_rows_than_the_log_has(fresh: bytes) -> None:
    """Store and log do not belong together: an error, no guess."""
    stored = StoredShard(Position(1, 0, fresh), [None, None])
    with pytest.raises(Disagreement):
        rebuilt(0, [part((5, "ab"))], stored, published=0)


def test_record_of_another_version() -> None:
    """Refused by both."""
    change = applied(nothing(1), part((5, "a")), end=1)
    other = b"\x63" + change.beliefs[0][1][1:]
    with pytest.raises(UnknownRecord, match="version 99"):
        applied(StoredShard(Position(1), [other]), part((6, "a")), end=2)
    with pytest.raises(UnknownRecord, match="version 99"):
        rebuilt(0, [part((5, "a"))], StoredShard(Position(1, 0, b"\x80"), [other]), 0)


def test_hashes_that_collide_make_nobody_repeat() -> None:
    """Only those of one name on one ladder are one player."""
    players = PlayerColumn.of([("x", "a"), ("y", "a"), ("x", "b"), ("x", "a")])
    first, which = distinct(players, np.zeros(4, np.uint64), np.zeros(4, np.int64))
    assert (first.tolist(), which.tolist()) == ([0, 1, 2], [0, 1, 2, 0])
    first, which = distinct(players, np.zeros(4, np.uint64), np.arange(4))
    assert first.tolist() == which.tolist() == [0, 1, 2, 3]
