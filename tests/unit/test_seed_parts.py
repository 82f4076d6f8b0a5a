"""The format of seed parts."""

import msgspec
import numpy as np
import pytest

from stream_rater.contract.seeds import RESET
from stream_rater.pipeline.parts import correction_parts, decoder, schema, seed_parts
from stream_rater.pipeline.parts.schema import NotAPart, UnknownPart
from stream_rater.pipeline.parts.seed_parts import SeedPart
from tests.builders.cases import cases
from tests.builders.machines import part
from tests.builders.seeding import TIME, seed_part

KIND, LADDER, RULE, RECORDS, RECORD, MU, PLAYERS = 3, 4, 5, 6, 7, 8, 11
"""The indices of some elements of a message."""


def same(one: SeedPart, other: SeedPart) -> bool:
    """Whether two parts have the same content."""
    fields = "kind", "ladder", "rule", "shards", "kernel"
    columns = "offset", "time", "mu", "sigma", "rounds"
    return (
        all(getattr(one, name) == getattr(other, name) for name in fields)
        and all(np.array_equal(getattr(one, c), getattr(other, c), equal_nan=True) for c in columns)
        and [*one.column] == [*other.column]
        and list(one.records) == list(other.records)
    )


@cases(
    "given",
    [
        seed_part((7, "ab"), (9, "cüd")),
        seed_part((7, ["x"]), kind=RESET, mu=np.nan, shards=64),
        seed_part((2**39 - 1, [f"p{i}" for i in range(5000)]), ladder="l:1"),
    ],
)
def test_it_is_decoded_as_it_was_encoded(given: SeedPart) -> None:
    """Records, rows and numbers, NaN among them."""
    message = seed_parts.encode(given)
    assert seed_parts.is_seeded(message)
    assert same(seed_parts.decode(message), given)


def test_rows_that_are_taken_keep_their_records() -> None:
    """Records without a row are left out. As rows of rounds they have the columns that events are
    encoded from."""
    found = seed_part((7, "ab"), (8, "c"), (9, "de")).take(np.array([4, 1]))
    assert [*found.column] == [("a", "e"), ("a", "b")]
    assert found.offset.tolist() == [9, 7]
    assert [each.offset for each in found.records] == [7, 9]
    rows = seed_part((7, "ab"), (9, "cüd"), ladder="l:1").as_rows
    assert [*rows.players] == [("l:1", each) for each in "abcüd"]
    assert rows.offset.tolist() == [7, 7, 9, 9, 9]
    assert rows.time.tolist() == [7000, 7000, 9000, 9000, 9000]
    assert rows.round_ids.texts() == ["r7", "r9"]
    times, time = rows.completed_at
    assert (times.texts(), time.tolist()) == ([TIME], [0, 0])
    assert rows.place.tolist() == [0] * 5


def test_who_takes_which_messages() -> None:
    """Releases that do not know seed parts refuse them: they begin as a part does, with a version
    that no part of rounds has. A part of rounds, a mark, and litter are none."""
    message = seed_parts.encode(seed_part((7, "ab")))
    assert not correction_parts.is_correction(message)
    assert decoder.read_all([message]) == [None]
    with pytest.raises(UnknownPart):
        decoder.read(message)
    with pytest.raises(UnknownPart):
        schema.decode(message)
    for message in (schema.encode(part((7, "ab"))), schema.mark(3), b"", b"litter"):
        assert not seed_parts.is_seeded(message)
        with pytest.raises(NotAPart):
            seed_parts.decode(message)


@cases(
    ("element", "value", "reason"),
    [
        (KIND, "round-voided", "of kind"),
        (LADDER, 7, "Expected `str`"),
        (MU, b"1234", "columns differ"),
        (RECORD, np.array([0, 1], "<i4").tobytes(), "a row of no record"),
        (RECORD, np.array([0, -1], "<i4").tobytes(), "a row of no record"),
        (RECORDS, [[7]], "seed part: "),
        (PLAYERS, ["a", "a"], "stands in it twice"),
    ],
)
def test_a_damaged_part_is_refused(element: int, value: object, reason: str) -> None:
    """With a reason."""
    elements = msgspec.msgpack.decode(seed_parts.encode(seed_part((7, "ab"))))
    elements[element] = value
    with pytest.raises(UnknownPart, match=reason):
        seed_parts.decode(msgspec.msgpack.encode(elements))
    with pytest.raises(UnknownPart, match="seed part"):
        seed_parts.decode(msgspec.msgpack.encode(elements)[:-1])


def test_parts_of_a_newer_kernel_wait() -> None:
    """As all parts do."""
    message = seed_parts.encode(seed_part((7, "ab")))
    elements = msgspec.msgpack.decode(message)
    elements[1] += 1
    newer = msgspec.msgpack.encode(elements)
    with pytest.raises(UnknownPart, match="newer release"):
        seed_parts.decode(newer)
    assert seed_parts.decode(newer, elements[1]).kernel == elements[1]
