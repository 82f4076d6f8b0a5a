"""A shard's parts: where reading begins, what a batch holds, and what stops it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from stream_rater.contract.record import Record, Trace
from stream_rater.pipeline.observer import Published
from stream_rater.pipeline.parts.schema import NotAPart, Part, mark
from stream_rater.pipeline.ports import Position
from stream_rater.pipeline.updater.shard import QueuedPart, Shard, ShardBatch, published
from tests.builders.cases import cases
from tests.builders.machines import NOWHERE, names, part, record


def shard_with(*players: str, position: Position = NOWHERE, committed: int = 0) -> Shard:
    """A shard that has read a part for each string of players, from where it reads."""
    shard = Shard.at(position, committed, 1)
    first = shard.next_offset
    for i, some in enumerate(players):
        shard.read(record(first + i, part((100 + i, some))))
    return shard


def cut(shard: Shard, most_rows: int = 1000) -> tuple[int, str] | None:
    return taken(shard.cut(most_rows))


def taken(parts: Sequence[QueuedPart]) -> tuple[int, str] | None:
    if not parts:
        return None
    batch = ShardBatch({0: parts})
    return batch.ends[0], names(batch.players[0])


def test_where_reading_begins() -> None:
    """At the store's position, or at the call to be settled. A seek drops what came before it."""
    assert Shard.at(Position(7, 5), 7, 1).next_offset == 7
    assert Shard.at(Position(7, 5), 9, 1).next_offset == 7
    assert Shard.at(Position(7, 5), 5, 1).next_offset == 5
    assert Shard.at(Position(7, 4), 5, 1).next_offset == 4
    shard = shard_with("ab", position=Position(5), committed=5)
    shard.read(record(5, part((100, "xy"))))
    assert [item.offset for item in shard.queue] == [5]
    assert shard.next_offset == 6


HERE, ELSEWHERE = "fg", "ab"  # Players of shard 0 among three, and of others.


def among_three(*parts: Part) -> Shard:
    """Shard 0 of three, which has read these parts."""
    shard = Shard.at(NOWHERE, 0, 3)
    for offset, each in enumerate(parts):
        shard.read(record(offset, each))
    return shard


@cases("shards", [0, 3])
def test_part_with_players_of_another_shard(shards: int) -> None:
    """Nobody is rated in a shard that is not theirs, be the part of an older release or of ours."""
    shard = among_three(
        part((100, HERE), shards=shards), part((101, HERE + ELSEWHERE), shards=shards)
    )
    assert cut(shard) == (1, HERE)
    assert "offset 1: its players are elsewhere among 3 shards" in shard.barrier
    assert shard.barrier.endswith("rebuild --replace`")


def test_part_cut_for_more_shards() -> None:
    """It is this worker that knows too few. (Parts cut for fewer: `cut-unchecked`.)"""
    shard = among_three(part((100, HERE), shards=3), part((101, HERE), shards=4))
    assert cut(shard) == (1, HERE)
    assert "cut for 4 shards" in shard.barrier
    assert shard.is_stopped


def test_what_precedes_a_fault_is_applied() -> None:
    """Then the shard stops: at a gap, at an undecodable part, at a player who is there twice."""
    shard = shard_with("ab")
    shard.read(record(3, part((103, "cd"))))
    assert "[1, 3) are not in the log" in shard.barrier
    assert not shard.is_stopped
    assert cut(shard) == (1, "ab")
    assert shard.is_stopped
    shard = shard_with("ab")
    shard.read(Record(0, 1, None, unreadable="batch not decompressed: bad data"))
    shard.read(record(2, part((102, "cd"))))
    assert shard.barrier == "offset 1: batch not decompressed: bad data"
    assert cut(shard) == (1, "ab")
    assert shard.is_stopped
    shard = shard_with("aba")
    assert "a player stands in it twice" in shard.barrier


def test_a_batch_holds_whole_parts() -> None:
    """It ends once it has its rows. A call to be settled does not count, as it is read whole."""
    shard = shard_with("ab", "cd", "eb", "f")
    assert cut(shard) == (4, "abcdef")
    assert cut(shard) is None
    shard = shard_with("ab", "cd", "ef")
    assert cut(shard, most_rows=3) == (2, "abcd")
    assert cut(shard, most_rows=1) == (3, "ef")
    assert shard_with("ab", "cde").rows == 5
    assert shard_with("ab", position=Position(2, 0), committed=0).rows == 0


def test_a_mark_inside_the_last_call_is_passed() -> None:
    """The store includes that rebuild. (Other marks: `marks-overlooked`.)"""
    shard = Shard.at(Position(3, 0), 0, 1)
    values: list[Part | bytes] = [part((100, "ab")), mark(7, b"", 0), part((102, "cd"))]
    for offset, value in enumerate(values):
        shard.read(record(offset, value))
    assert taken(shard.last_call()) == (3, "abcd")


@cases("message", [None, b"", b'{"round_id": "r-1"}'])
def test_foreign_message(message: bytes | None) -> None:
    """It is no part. It is reported and passed over."""
    shard = shard_with("ab")
    with pytest.raises(NotAPart):
        shard.read(record(1, message))
    shard.read(record(2, part((102, "cd"))))
    assert not shard.barrier
    assert cut(shard) == (3, "abcd")


@cases("repeated", [0, 1, 2, 3, 6])
def test_events_count_from_their_rounds_arrival(repeated: int) -> None:
    """Rows that were applied before are those of the first parts. Other records and parts of older
    releases have no arrival. The first part brings its trace."""
    shard, trace = Shard.at(NOWHERE, 0, 1), Trace(f"00-{7:032x}-{7:016x}-01")
    for offset, (players, arrived_s) in enumerate([("ab", 3.25), ("cde", 7.5), ("f", 0.0)]):
        own = part((100 + offset, players))
        shard.read(record(offset, replace(own, arrived_s=arrived_s, trace=[trace])))
    first, second = max(0, 2 - repeated), min(3, max(0, 5 - repeated))
    expected = Published(3.25, first, trace.id), Published(7.5, second)
    found = [*published(shard.cut(9), 6 - repeated)]
    assert found == [each for each in expected if each.events]
