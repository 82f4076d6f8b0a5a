"""The format of seed parts, and how they are sent."""

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.events import MOST_BYTES
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import RESET
from stream_rater.pipeline.corrections.correction_work import (
    PartOptions,
    QueuedSeed,
    SeedWork,
    by_turn,
)
from stream_rater.pipeline.parts import belief_parts, decoder, schema
from stream_rater.pipeline.parts.belief_parts import SeedPart
from stream_rater.pipeline.parts.schema import NotAPart, UnknownPart
from stream_rater.pipeline.ports import Scatter
from stream_rater.rating.parameters import Season
from stream_rater.rating.stages import RatingRule, rule_of
from tests.builders.cases import cases
from tests.builders.machines import CONFIG, RULE, part
from tests.builders.seeding import TIME, read, resetting_record, seed_part, seeding_record

KIND, LADDER, RECORDS, RECORD, MU, PLAYERS = 3, 4, 6, 7, 8, 11
"""The indices of some elements of a message."""


def same(one: SeedPart, other: SeedPart) -> bool:
    fields = "kind", "ladder", "rule", "shards", "kernel"
    columns = "record", "mu", "sigma", "rounds"
    return (
        all(getattr(one, name) == getattr(other, name) for name in fields)
        and all(np.array_equal(getattr(one, c), getattr(other, c), equal_nan=True) for c in columns)
        and one.names.texts() == other.names.texts()
        and list(one.records) == list(other.records)
    )


@cases("given", [
    seed_part((7, "ab"), (9, "cüd")), seed_part((7, ["x"]), kind=RESET, mu=np.nan, shards=64),
    seed_part((2**39 - 1, [f"p{i}" for i in range(5000)]), ladder="l:1"),
])  # fmt: skip
def test_it_is_decoded_as_it_was_encoded(given: SeedPart) -> None:
    """Records, rows and numbers, NaN among them."""
    message = belief_parts.encode_seeds(given)
    assert belief_parts.is_seeded(message)
    assert same(belief_parts.decode_seeds(message), given)


def test_rows_that_are_taken_keep_their_records() -> None:
    """Records without a row are left out. Rows have the columns that events are encoded from."""
    found = seed_part((7, "ab"), (8, "c"), (9, "de")).take(np.array([4, 1]))
    assert [*found.view.decoded.players] == [("a", "e"), ("a", "b")]
    assert found.view.decoded.offset.tolist() == [9, 7]
    assert [each.offset for each in found.records] == [7, 9]
    rows = seed_part((7, "ab"), (9, "cüd"), ladder="l:1").view.decoded
    assert [*rows.players] == [("l:1", each) for each in "abcüd"]
    assert rows.offset.tolist() == [7, 7, 9, 9, 9]
    assert rows.time.tolist() == [7000, 7000, 9000, 9000, 9000]
    assert rows.round_ids.texts() == ["r7", "r9"]
    times, time = rows.completed_at
    assert (times.texts(), time.tolist()) == ([TIME], [0, 0])
    assert rows.place.tolist() == [0] * 5


def test_who_takes_which_messages() -> None:
    """Releases that do not know seed parts refuse them, by their version. A part of rounds, a mark,
    and litter are none. Parts of a newer kernel wait, as all parts do."""
    message = belief_parts.encode_seeds(seed_part((7, "ab")))
    assert not belief_parts.is_correction(message)
    assert decoder.read_all([message]) == [None]
    with pytest.raises(UnknownPart):
        decoder.read(message)
    with pytest.raises(UnknownPart):
        schema.decode(message)
    for message in (schema.encode(part((7, "ab"))), schema.mark(3), b"", b"litter"):
        assert not belief_parts.is_seeded(message)
        with pytest.raises(NotAPart):
            belief_parts.decode_seeds(message)
    message = belief_parts.encode_seeds(seed_part((7, "ab")))
    elements = msgspec.msgpack.decode(message)
    elements[1] += 1
    newer = msgspec.msgpack.encode(elements)
    with pytest.raises(UnknownPart, match="newer release"):
        belief_parts.decode_seeds(newer)
    assert belief_parts.decode_seeds(newer, elements[1]).kernel == elements[1]


@cases("element, value, reason", [
    (KIND, "round-voided", "of kind"), (LADDER, 7, "Expected `str`"),
    (MU, b"1234", "columns differ"),
    (RECORD, np.array([0, 1], "<i4").tobytes(), "a row of no record"),
    (RECORD, np.array([0, -1], "<i4").tobytes(), "a row of no record"),
    (RECORDS, [[7]], "seed part: "),
    (PLAYERS, ["a", "a"], "stands in it twice"),
])  # fmt: skip
def test_a_damaged_part_is_refused(element: int, value: object, reason: str) -> None:
    elements = msgspec.msgpack.decode(belief_parts.encode_seeds(seed_part((7, "ab"))))
    elements[element] = value
    with pytest.raises(UnknownPart, match=reason):
        belief_parts.decode_seeds(msgspec.msgpack.encode(elements))
    with pytest.raises(UnknownPart, match="seed part"):
        belief_parts.decode_seeds(msgspec.msgpack.encode(elements)[:-1])


# --- how seeds and resets are sent ----------------------------------------------------------------

SHARDS = 3


def sent_of(
    *records: Record, rows: int = 5000, shards: int = SHARDS, rule: RatingRule = RULE
) -> tuple[list[tuple[int, SeedPart]], dict[int, Fingerprints]]:
    """The parts of these records, each with its shard, and the players that are pending then."""
    seeds = [read(each) for each in records]
    work = SeedWork([QueuedSeed(each) for each in seeds], seeds, rule, PartOptions(shards, rows))
    found: list[dict[int, Fingerprints]] = []
    step = work.step(lambda ends, players: found.append(dict(players)))
    effect = next(step)
    assert isinstance(effect, Scatter)
    assert max(len(message) for _, message in effect.parts) <= MOST_BYTES
    with pytest.raises(StopIteration) as done:
        step.send(list(range(len(effect.parts))))
    assert done.value.value is True
    (given,) = found
    return [(s, belief_parts.decode_seeds(message)) for s, message in effect.parts], given


def rows_of(parts: list[tuple[int, SeedPart]]) -> Iterator[tuple[int, str, int, float]]:
    for shard, each in parts:
        columns = each.names.texts(), each.view.decoded.offset.tolist(), each.mu.tolist()
        yield from ((shard, *row) for row in zip(*columns, strict=True))


@cases("kind", ["seed", "reset"])
def test_a_player_in_several_records(kind: str) -> None:
    """Has one row in each part, in the order of the records."""

    def record(offset: int, *names: str) -> Record:
        return (
            seeding_record(offset, *names) if kind == "seed" else resetting_record(offset, *names)
        )

    parts, players = sent_of(
        record(1, "a"), record(2, "b"), record(3, "a"), record(4, "a"), shards=1
    )
    found = [[(name, at) for _, name, at, _ in rows_of([each])] for each in parts]
    assert found == [[("a", 1), ("b", 2)], [("a", 3)], [("a", 4)]]
    assert len(np.unique(players[0])) == 2


def test_parts_are_cut_by_rows_and_bytes() -> None:
    """In order; also those of a ladder with thousands of seasons, and of the longest ids."""
    parts, _ = sent_of(seeding_record(1, *"abcde"), rows=2, shards=1)
    assert ["".join(part.names.texts()) for _, part in parts] == ["ab", "cd", "e"]
    rule = rule_of(CONFIG, tuple(Season(n, 0.5, 100.0) for n in range(1, 30_000)))
    names = [f"{i:0128}" for i in range(5000)]
    parts, _ = sent_of(seeding_record(1, *names), shards=1, rule=rule)
    assert [name for _, part in parts for name in part.names.texts()] == names
    assert len(parts) > 2


def test_nothing_is_sent_where_nobody_is_left() -> None:
    """Corrections may have edited all rows away. Names have turns, each once in a turn."""
    seed = read(seeding_record(1, "a"))
    work = SeedWork([QueuedSeed(seed)], [], RULE, PartOptions(SHARDS, 10))
    with pytest.raises(StopIteration) as done:
        next(work.step(lambda ends, players: pytest.fail("nothing is pending")))
    assert done.value.value is True
    found = by_turn(StringColumn.of(["a", "b", "a", "c", "a", "b"]))
    assert [each.tolist() for each in found] == [[0, 1, 3], [2, 5], [4]]
    assert [each.tolist() for each in by_turn(StringColumn.of(["a", "b"]))] == [[0, 1]]
