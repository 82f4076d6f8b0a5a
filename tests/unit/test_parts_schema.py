"""Parts: what goes into a message comes out, and nothing is guessed."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.record import Trace
from stream_rater.pipeline.parts import schema
from stream_rater.pipeline.parts.schema import NotAPart, RebuildMark, UnknownPart
from tests.builders.cases import cases
from tests.builders.last_parts import as_last
from tests.builders.machines import part

MESSAGE = schema.encode(part((7, "ab"), (9, "c")))
VALID = f"00-{1:032x}-{2:016x}-01"

VERSION, RULES, ROUNDS, ROUND_INDEX, PLACE, EVIDENCE, PLAYERS = range(7)


def changed(index: int, value: Any) -> bytes:
    elements = msgspec.msgpack.decode(MESSAGE)
    elements[index] = value
    return msgspec.msgpack.encode(elements)


def test_round_trip() -> None:
    """Every column comes back as it was, floats to the bit. Rows that are taken, in any order, keep
    the rounds that they need."""
    before = part((7, "ab"), (9, "cde"), performance=1 / 3)
    after = schema.decode(schema.encode(before))
    assert list(after.rules) == list(before.rules)
    assert list(after.rounds) == list(before.rounds)
    assert list(after.players) == list(before.players)
    for name in ("round_index", "place", "evidence"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    some = part((7, "ab"), (9, "c"), (11, "d")).take(np.array([3, 1]))
    assert some.players == ["d", "b"]
    assert [some.rounds[i].offset for i in some.round_index] == [11, 7]
    assert len(some.rounds) == 2


@given(st.lists(st.sampled_from([0, 1, 31, 32, 255, 256, 70_000]), max_size=40), st.booleans())
@example(sizes=[1] * 70_000, laid_out=True)
def test_names_are_written_as_the_encoder_would(sizes: list[int], laid_out: bool) -> None:
    """Of any length and number, be they texts or bytes."""
    players = [str(i % 10) * size for i, size in enumerate(sizes)]
    before = replace(part((7, "a" * len(sizes))), names=StringColumn.of(players))
    if laid_out:
        before = replace(
            before, names=StringColumn.of(["x", *players, "y"]).slice(1, len(players) + 1)
        )
    elements = msgspec.msgpack.decode(schema.encode(before))
    assert elements[PLAYERS] == players
    assert msgspec.msgpack.encode(elements[PLAYERS]) in schema.encode(before)


@cases("size", [1, 10, 11, 63, 64, 16_383, 16_384])
def test_columns_are_written_as_the_encoder_would(size: int) -> None:
    """Of any length, and each piece of the rows, in any order, as if it were a part of its own."""
    whole = part((7, "a" * size), (9, "b" * size), (11, "c"))
    rows = np.array([2 * size, *range(2 * size - 1, -1, -1)])
    messages = schema.encode_pieces(whole, rows, [1, size + 1, 2 * size + 1])
    pieces = rows[:1], rows[1 : size + 1], rows[size + 1 :]
    for message, own in zip(messages, pieces, strict=True):
        assert message == msgspec.msgpack.encode(msgspec.msgpack.decode(message))
        found, wanted = schema.decode(message), whole.take(own)
        assert (found.rounds, found.players) == (tuple(wanted.rounds), wanted.players)
        for name in ("round_index", "place", "evidence"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


def test_the_last_release_and_this_one_read_each_other() -> None:
    """Its parts carry no trace; of ours it reads all but that."""
    plain = part((7, "ab"), (9, "c"))
    traced = [
        msgspec.structs.replace(plain.rounds[0], trace=Trace(f"00-{1:032x}-{2:016x}-00", "a=b")),
        plain.rounds[1],
    ]
    ours = schema.encode(replace(plain, rounds=traced))
    theirs = as_last(ours)
    assert theirs != ours
    assert list(schema.decode(ours).rounds) == traced
    found = schema.decode(theirs)
    assert list(found.rounds) == list(plain.rounds)
    assert schema.encode(found) == schema.encode(plain)


@cases("trace", [["00-x", ""], ["0" * 55, "a=b"], [1, ""], "text", [VALID, "\n"]])
def test_a_damaged_trace(trace: Any) -> None:
    """Refused as any damage is."""
    rounds = msgspec.msgpack.decode(MESSAGE)[ROUNDS]
    assert rounds[0].pop() is None
    rounds[0].append([VALID, ""])
    assert schema.decode(changed(ROUNDS, rounds)).rounds[0].trace == Trace(VALID)
    rounds[0][-1] = trace
    with pytest.raises(UnknownPart):
        schema.decode(changed(ROUNDS, rounds))


@cases(
    "message",
    [
        changed(VERSION, 2),
        changed(VERSION, 100),
        changed(RULES, []),
        changed(ROUNDS, []),
        changed(ROUND_INDEX, np.array([0, 0, 2], "<i4").tobytes()),
        changed(ROUND_INDEX, np.array([0, -1, 1], "<i4").tobytes()),
        changed(ROUND_INDEX, b"123"),
        changed(PLACE, b""),
        changed(EVIDENCE, b"\0" * 71),
        changed(PLAYERS, ["a", "b"]),
        changed(PLAYERS, "abc"),
        MESSAGE[:-1],
        MESSAGE[:20],
        b"\x91\x01",
        b"\xdd\x00\x00\x00\x01\x02",
    ],
)
def test_part_that_is_not_understood(message: bytes) -> None:
    """Another version, or damaged: refused, never guessed."""
    with pytest.raises(UnknownPart):
        schema.decode(message)


def test_part_of_another_kernel() -> None:
    """The message names both versions. One that an older release left is applied, if its evidence
    means the same."""
    ours, older = KERNEL_VERSION, schema.OLDEST_KERNEL - 1
    with pytest.raises(UnknownPart, match=rf"version 77, this worker has {ours}: .* newer release"):
        schema.decode(by_kernel(77))
    with pytest.raises(UnknownPart, match=rf"version {older}, .* has {ours}: .* older release"):
        schema.decode(by_kernel(older))
    oldest = schema.OLDEST_KERNEL
    assert schema.decode(by_kernel(oldest), kernel=oldest + 2).rules[0].kernel == oldest
    assert schema.decode(by_kernel(oldest + 2), kernel=oldest + 2).rules[0].kernel == oldest + 2
    with pytest.raises(UnknownPart):
        schema.decode(by_kernel(oldest + 3), kernel=oldest + 2)


def by_kernel(version: int) -> bytes:
    rules = msgspec.msgpack.decode(MESSAGE)[RULES]
    rules[0][1] = version
    return changed(RULES, rules)


@cases("message", [b"", b"{}", b"garbage", b"\x90", b"\x91\xa1x", b"\xdc\x00"])
def test_message_that_is_no_part(message: bytes) -> None:
    """What no release ever wrote is distinguished from what another one may have written."""
    with pytest.raises(NotAPart):
        schema.decode(message)


@given(st.binary(max_size=200), st.integers(0, len(MESSAGE) - 1), st.booleans())
@example(b"\x97\x01", 0, False)
def test_no_bytes_raise_anything_else(noise: bytes, at: int, alone: bool) -> None:
    """Whatever stands in the topic, the updater knows what to make of it."""
    message = noise if alone else MESSAGE[:at] + noise + MESSAGE[at + len(noise) :]
    try:
        found = schema.decode(message)
    except (UnknownPart, NotAPart):
        return
    assert len(found.players) == len(found.place) == len(found.evidence)


def test_mark_of_a_rebuild() -> None:
    """It says for how many shards. Whoever knows no marks takes it for a part of a version to come;
    so do we with one that says more than we know."""
    with pytest.raises(RebuildMark) as found:
        schema.decode(schema.mark(700))
    assert found.value.shards == 700
    assert schema._looks_like_part(schema.mark(1))
    with pytest.raises(msgspec.ValidationError):
        schema._decode(schema.mark(1))
    for unknown in ([schema.MARK, 7, 1], [schema.MARK, "7"], [schema.MARK]):
        with pytest.raises(UnknownPart):
            schema.decode(msgspec.msgpack.encode(unknown))
