"""Depth is what a recursive walk over the decoded message counts."""

from itertools import product
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.rounds.depth import json_depth, msgpack_depth

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | st.text(max_size=300) | st.text('[]{}"\\', max_size=9),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=17),
    max_leaves=25,
)  # fmt: skip


def depth(value: Any) -> int:
    """Levels of non-empty lists and maps."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, inner)) if inner else 0


def with_empty(value: Any) -> int:
    """The same where an empty list or map is a level, too, as brackets count."""
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(with_empty, inner), default=0)


@given(values, st.integers(0, 20))
def test_json(value: Any, limit: int) -> None:
    """In JSON each pair of brackets outside strings is a level. Only whether the depth is above a
    limit must be exact."""
    text = msgspec.json.encode(value)
    exact = json_depth(text, 0)
    assert with_empty(value) == exact
    assert (json_depth(text, limit) <= limit) == (exact <= limit)


@given(values | st.binary(max_size=300).map(lambda data: [data, [1]]))
def test_msgpack(value: Any) -> None:
    """In MessagePack what holds something is a level, whatever types stand between."""
    assert min(depth(value), 65) == msgpack_depth(msgspec.msgpack.encode(value), 64)


EXTENSIONS = [b"\xd4\x05x", b"\xd8\x05" + b"x" * 16, b"\xc7\x03\x05xyz", b"\xc8\x00\x01\x05x"]
BINARIES = [b"\xc4\x02[[", b"\xc5\x00\x02[[", b"\xc6\x00\x00\x00\x02[["]
NUMBERS = [b"\xca" + bytes(4), b"\xcb" + bytes(8), b"\xcc\xff", b"\xcd\xff\xff", b"\xd3" + bytes(8)]
STRINGS = [b"\xd9\x02\x91\x91", b"\xda\x00\x02\x91\x91", b"\xdb\x00\x00\x00\x02\x91\x91"]


def test_by_hand() -> None:
    """[item, [[0]]] has three levels: the item's own bytes are skipped, to the byte. A million
    levels count as limit + 1; a list that claims 2^32 items costs nothing. Brackets in a string of
    JSON are text, whatever is escaped before them."""
    heads = b"\x92", b"\xdc\x00\x02", b"\xdd\x00\x00\x00\x02", b"\x81", b"\xde\x00\x01"
    items = [*EXTENSIONS, *BINARIES, *NUMBERS, *STRINGS, b"\xc0", b"\xe0"]
    for head, item in product((*heads, b"\xdf\x00\x00\x00\x01"), items):
        assert msgpack_depth(head + item + b"\x91\x91\x00", 16) == 3, (head, item)
    assert msgpack_depth(b"\x91" * 1_000_000, 16) == 17
    assert msgpack_depth(b"\xdd\xff\xff\xff\xff" * 20, 16) == 17
    assert msgpack_depth(b"\xdf\xff\xff\xff\xff", 16) == 1
    for text in (b'"[[["', b'"\\"[[["', b'"\\\\"', b'"\\\\\\"[["', b""):
        assert (json_depth(text, 0), json_depth(b"[" + text + b",[1]]", 0)) == (0, 2), text


@given(st.binary(max_size=100))
def test_any_bytes(data: bytes) -> None:
    """Whatever the bytes, the answer is a number in range."""
    assert 0 <= json_depth(data, 0) <= len(data)
    assert 0 <= msgpack_depth(data, 16) <= 17
