"""Parts: what goes into a message comes out, and nothing is guessed."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_rater.pipeline import parts
from stream_rater.pipeline.parts import NotAPart, UnknownPart
from stream_rater.rating.compiled import KERNEL_VERSION
from tests.unit.machines import part

MESSAGE = parts.encode(part((7, "ab"), (9, "c")))


def changed(index: int, value: Any) -> bytes:
    """A message with one of its elements replaced."""
    elements = msgspec.msgpack.decode(MESSAGE)
    elements[index] = value
    return msgspec.msgpack.encode(elements)


def test_round_trip() -> None:
    """Every column comes back as it was, floats to the bit."""
    before = part((7, "ab"), (9, "cde"), performance=1 / 3)
    after = parts.decode(parts.encode(before))
    assert list(after.laws) == list(before.laws)
    assert list(after.rounds) == list(before.rounds)
    assert list(after.players) == list(before.players)
    for name in ("round_index", "place", "evidence"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


def test_slice_keeps_only_the_rounds_it_needs() -> None:
    """Rows in any order, with their own rounds."""
    some = part((7, "ab"), (9, "c"), (11, "d")).slice(np.array([3, 1]))
    assert some.players == ["d", "b"]
    assert [some.rounds[i].offset for i in some.round_index] == [11, 7]
    assert len(some.rounds) == 2


VERSION, LAWS, ROUNDS, ROUND_INDEX, PLACE, EVIDENCE, PLAYERS = range(7)


@pytest.mark.parametrize(
    "message",
    [
        changed(VERSION, 2),
        changed(VERSION, 100),
        changed(LAWS, []),
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
        parts.decode(message)


def test_part_of_another_kernel() -> None:
    """The message names both versions."""
    ours, older = KERNEL_VERSION, parts.OLDEST_KERNEL - 1
    with pytest.raises(UnknownPart, match=rf"version 77, this worker has {ours}: .* newer release"):
        parts.decode(by_kernel(77))
    with pytest.raises(UnknownPart, match=rf"version {older}, .* has {ours}: .* older release"):
        parts.decode(by_kernel(older))


def test_part_that_an_older_release_left() -> None:
    """It is applied, if its evidence means the same; a newer release's is left alone."""
    oldest = parts.OLDEST_KERNEL
    assert parts.decode(by_kernel(oldest), kernel=oldest + 2).laws[0].kernel == oldest
    assert parts.decode(by_kernel(oldest + 2), kernel=oldest + 2).laws[0].kernel == oldest + 2
    with pytest.raises(UnknownPart):
        parts.decode(by_kernel(oldest + 3), kernel=oldest + 2)


def by_kernel(version: int) -> bytes:
    """The message, of another kernel version."""
    laws = msgspec.msgpack.decode(MESSAGE)[LAWS]
    laws[0][1] = version
    return changed(LAWS, laws)


@pytest.mark.parametrize("message", [b"", b"{}", b"garbage", b"\x90", b"\x91\xa1x", b"\xdc\x00"])
def test_message_that_is_no_part(message: bytes) -> None:
    """What no release ever wrote is told apart from what another release may have written."""
    with pytest.raises(NotAPart):
        parts.decode(message)


@given(st.binary(max_size=200), st.integers(0, len(MESSAGE) - 1), st.booleans())
@example(b"\x97\x01", 0, False)
def test_no_bytes_raise_anything_else(noise: bytes, at: int, alone: bool) -> None:
    """Whatever stands in the topic, the updater knows what to make of it."""
    message = noise if alone else MESSAGE[:at] + noise + MESSAGE[at + len(noise) :]
    try:
        found = parts.decode(message)
    except (UnknownPart, NotAPart):
        return
    assert len(found.players) == len(found.place) == len(found.evidence)


def test_empty_part() -> None:
    """It has no rows."""
    assert len(parts.EMPTY.players) == len(parts.EMPTY.place) == len(parts.EMPTY.evidence) == 0
