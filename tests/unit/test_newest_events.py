"""A player's newest event is that with the greatest `offset`, in `move`, `erase` and `inspect`."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from stream_rater.adapters.kafka.envelopes import event_of
from stream_rater.columns.sharding import shards_of
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.events import (
    RATING_CHANGED,
    cloud_event_headers,
    joined,
    offset_of,
    to_json,
)
from stream_rater.contract.record import Record
from stream_rater.operations.inspect import LAST_ROUNDS, _last_events
from stream_rater.operations.migrate import Migration
from stream_rater.operations.rewriting import Mentions, Pseudonym
from stream_rater.pipeline.ports import Event
from stream_rater.places.port import Place
from tests.builders.cases import cases
from tests.builders.machines import a_belief
from tests.builders.memory_place import MemoryPlace
from tests.builders.memory_places import an_empty_place
from tests.unit.test_event_contract import CHANGED

LADDER = "l:1"
SHARDS = 7


def an_event(
    partition: int, place: int, offset: int | None, *, player: str = "ann", **more: Any
) -> Record:
    """An event at a place, about a record at an offset; None: no value, as of who was erased."""
    key, value = joined(LADDER, player), None
    if offset is not None:
        about = {"event_id": joined(LADDER, f"r{offset}", player), "ladder": LADDER}
        event = msgspec.structs.replace(CHANGED, **about, player=player, offset=offset, **more)
        value = to_json(event)
    headers = cloud_event_headers(key, RATING_CHANGED, CHANGED.completed_at)
    return Record(partition, place, value, headers, key=key.encode())


def read_in_any_order(records: Sequence[Record]) -> Iterator[list[Record]]:
    """The records as they may be read: each partition's in order."""
    partitions = [
        [each for each in records if each.partition == p] for p in {e.partition for e in records}
    ]
    for order in itertools.permutations(partitions):
        yield [each for partition in order for each in partition]
        yield [e for group in itertools.zip_longest(*order) for e in group if e is not None]


# --- move ----------------------------------------------------------------------------------------

# Events of one player in several partitions, which are in order, and the greatest offset. Records
# without a value say nothing: the log has the player's rounds.
EVENTS: list[tuple[list[Record], int]] = [
    ([an_event(0, 9, 3), an_event(0, 10, 20), an_event(5, 0, 41), an_event(2, 3, 30)], 41),
    ([an_event(5, 0, 41), an_event(6, 0, 5)], 41),
    ([an_event(1, 0, 7), an_event(1, 1, None), an_event(1, 2, 9), an_event(0, 0, 2)], 9),
    ([an_event(1, 0, 30), an_event(1, 1, None), an_event(0, 4, 20)], 30),
]
BOB = an_event(3, 0, 99, player="bob", mu=1234.5)


def a_place(events: Sequence[Record]) -> MemoryPlace:
    """A place with these events."""
    place = an_empty_place(shards=SHARDS)
    place.name = "the old place"
    for each in events:
        place.log.changed[each.partition].append(event_of(each))
    return place


def migrated(
    events: Sequence[Record], to: Pseudonym | None = None
) -> tuple[Migration, MemoryPlace]:
    """A migration after copying events that are read in this order, and the new place."""
    source, target = a_place(()), an_empty_place(shards=SHARDS)
    source.events = lambda: iter(events)  # type: ignore[method-assign]
    work = Migration(source, target, ANY_LADDER, to, "nothing was moved")
    work.check()
    work.copy(Mentions(None))
    return work, target


def events_in(place: Place) -> list[tuple[int, bytes | None, bytes | None]]:
    """Partition, key and value of the events of a place."""
    return [(each.partition, each.key, each.value) for each in place.events()]


@cases("events, newest", EVENTS)
def test_a_move_takes_the_event_with_the_greatest_offset(events: list[Record], newest: int) -> None:
    """Once, to the partition of its player in the new topic, with all of it."""
    homes = {name: int(shards_of([name], SHARDS)[0]) for name in ("ann", "bob")}
    (whole,) = (each for each in events if offset_of(each.value) == newest)
    expected = [(homes["ann"], whole.key, whole.value), (homes["bob"], BOB.key, BOB.value)]
    for records in read_in_any_order([*events, BOB]):
        _, target = migrated(records)
        assert sorted(events_in(target)) == sorted(expected)


def test_a_move_compares_the_newest_events() -> None:
    """As the beliefs: none may be missing, another one, or one too many."""
    older, altered = an_event(0, 9, 30), an_event(0, 9, 41, mu=1.5)
    sent = [each for each in EVENTS[0][0] if offset_of(each.value) == 41] + [BOB]
    for who, others in (
        ("ann", sent[1:]), ("ann", [older, *sent[1:]]), ("ann", [altered, *sent[1:]]),
        ("ann", [*sent, an_event(4, 0, 42)]), ("cy", [*sent, an_event(2, 0, 1, player="cy")]),
    ):  # fmt: skip
        work, target = migrated([*EVENTS[0][0], BOB])
        target.log.changed = a_place(others).log.changed
        with pytest.raises(Failed, match=f"player '{who}' is not that in the old place: does"):
            work.rebuild()
    work, target = migrated([*EVENTS[0][0], BOB])
    target.log.changed = a_place([older, *sent]).log.changed
    assert work.rebuild() == 0


# --- erase ---------------------------------------------------------------------------------------


def test_an_erasure_leaves_the_newest_event_last() -> None:
    """It is in the pseudonym's partition, and compaction keeps the last. Others stay in order."""
    ann = [an_event(0, 9, 3), an_event(0, 11, 20), an_event(5, 0, 41), an_event(5, 2, 57)]
    bob = [an_event(0, 10, 4, player="bob"), an_event(5, 1, 50, player="bob")]
    home = int(shards_of(["x-1"], SHARDS)[0])
    for records in read_in_any_order(sorted([*ann, *bob], key=lambda e: (e.partition, e.offset))):
        work, target = migrated(records, Pseudonym("ann", "x-1"))
        sent = events_in(target)
        renamed = [(p, offset_of(value)) for p, key, value in sent if key == b"l%3A1:x-1"]
        offsets = [offset for _, offset in renamed]
        assert {partition for partition, _ in renamed} == {home}
        assert sorted(offsets) == [3, 20, 41, 57] and offsets[-1] == 57
        assert {partition for partition, _ in work.keys} == {0, 5}
        for partition in (0, 5):
            kept = [value for p, key, value in sent if (p, key) == (partition, bob[0].key)]
            assert kept == [e.value for e in bob if e.partition == partition]


# --- inspect -------------------------------------------------------------------------------------

HOME = 4


CHAIN: list[Any] = [
    {"mu": 1500.0 + n, "previous_mu": 1499.0 + n, "offset": 10 * n} for n in range(9)
]  # Of events of which each goes on from the one before.
# What partitions have, the rounds of the belief, the numbers of the events that are shown, and
# whether others than the player's own were searched.
PLACES: list[tuple[dict[int, list[int]], int, list[int], bool]] = [
    ({HOME: [*range(9)]}, 9, [4, 5, 6, 7, 8], False),
    ({HOME: [7, 8], 2: [*range(7)]}, 9, [4, 5, 6, 7, 8], True),
    ({2: [*range(9)]}, 9, [4, 5, 6, 7, 8], True),
    ({HOME: [0, 1, 2, 3, 4], 5: [5, 6], 0: [7, 8]}, 9, [4, 5, 6, 7, 8], True),
    ({HOME: [0, 1, 2, 3, 8], 5: [5, 6, 7, 4]}, 9, [4, 5, 6, 7, 8], True),
    ({HOME: [8]}, 9, [8], True), ({0: [8]}, 0, [8], True), ({}, 1, [], True),
]  # fmt: skip


@cases("places, rounds, shown, searched", PLACES)
def test_inspect_finds_events_outside_of_the_players_partition(
    places: dict[int, list[int]], rounds: int, shown: list[int], searched: bool
) -> None:
    """The last ones, in order of `offset`. If the player's partition has all, no other is read."""
    place, asked = an_empty_place(shards=SHARDS), list[int]()
    for shard, numbers in places.items():
        for each in numbers:
            value = to_json(msgspec.structs.replace(CHANGED, **CHAIN[each]))
            place.log.changed[shard].append(Event(shard, b"key", value, b"", ""))
    read = place.last_events

    def asking(shard: int, key: bytes, count: int, within_s: float) -> Any:
        asked.append(shard)
        return read(shard, key, count, within_s)

    place.last_events = asking  # type: ignore[method-assign]
    found, _ = _last_events(place, b"key", HOME, a_belief(CHAIN[8]["mu"], rounds=rounds))
    assert [*map(offset_of, found)] == [
        CHAIN[n]["offset"] for n in shown[-max(1, min(LAST_ROUNDS, rounds)) :]
    ]
    assert (len(asked) > 1, asked[0]) == (searched, HOME)
