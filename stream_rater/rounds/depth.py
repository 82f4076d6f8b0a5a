"""Measures how deeply a message is nested, in one pass before it is decoded."""

import numpy as np

from stream_rater.columns.arrays import Bytes
from stream_rater.columns.kernels import kernel

QUOTE, BACKSLASH, OPEN_LIST, CLOSE_LIST, OPEN_MAP, CLOSE_MAP = 34, 92, 91, 93, 123, 125


@kernel
def _json_depth(data: Bytes) -> int:
    deepest = depth = 0
    quoted = escaped = False
    for c in data:
        if quoted:
            if escaped:
                escaped = False
            elif c == BACKSLASH:
                escaped = True
            elif c == QUOTE:
                quoted = False
        elif c == QUOTE:
            quoted = True
        elif c in (OPEN_LIST, OPEN_MAP):
            depth += 1
            deepest = max(deepest, depth)
        elif c in (CLOSE_LIST, CLOSE_MAP):
            depth -= 1
    return deepest


@kernel
def _big_endian(data: Bytes, start: int, size: int) -> int:
    value = 0
    for i in range(start, min(start + size, len(data))):
        value = value * 256 + (data[i] & 0xFF)  # & 0xFF makes it signed, else numba uses floats
    return value


@kernel
def _msgpack_item(data: Bytes, i: int) -> tuple[int, int]:
    """The number of bytes that the item at i takes without the items in it, and their number."""
    c = data[i]
    if c <= 0x7F or c >= 0xE0 or 0xC0 <= c <= 0xC3:
        return 1, 0
    if c <= 0x8F:
        return 1, 2 * (c & 0x0F)
    if c <= 0x9F:
        return 1, c & 0x0F
    if c <= 0xBF:
        return 1 + (c & 0x1F), 0
    if c <= 0xC6:  # bin
        size = 1 << (c - 0xC4)
        return 1 + size + _big_endian(data, i + 1, size), 0
    if c <= 0xC9:  # ext
        size = 1 << (c - 0xC7)
        return 2 + size + _big_endian(data, i + 1, size), 0
    if c <= 0xCB:  # float
        return 5 if c == 0xCA else 9, 0
    if c <= 0xD3:  # integers
        return 1 + (1 << ((c - 0xCC) & 3)), 0
    if c <= 0xD8:  # fixext
        return 2 + (1 << (c - 0xD4)), 0
    if c <= 0xDB:  # str
        size = 1 << (c - 0xD9)
        return 1 + size + _big_endian(data, i + 1, size), 0
    size = 2 if c in (0xDC, 0xDE) else 4
    items = _big_endian(data, i + 1, size)
    return 1 + size, items * (2 if c >= 0xDE else 1)


@kernel
def _msgpack_depth(data: Bytes, limit: int) -> int:
    waiting = np.zeros(limit + 2, np.int64)  # items that are still to come, by depth
    depth = deepest = i = 0
    waiting[0] = 1
    while i < len(data):
        while depth > 0 and waiting[depth] == 0:
            depth -= 1
        if waiting[depth] == 0:
            break  # the decoder checks trailing bytes
        waiting[depth] -= 1
        size, items = _msgpack_item(data, i)
        i += size
        if items > 0:
            depth += 1
            deepest = max(deepest, depth)
            if depth > limit:
                break
            waiting[depth] = items
    return deepest


def json_depth(data: bytes, limit: int) -> int:
    """The depth of lists and objects in a JSON text, which need not be valid. The result may be
    larger than the depth, but then it is not over the limit."""
    opened = data.count(b"[") + data.count(b"{")
    if opened <= limit:
        return opened
    return int(_json_depth(np.frombuffer(data, np.uint8)))


def msgpack_depth(data: bytes, limit: int) -> int:
    """The depth of lists and maps in a MessagePack message, counted up to limit + 1."""
    return int(_msgpack_depth(np.frombuffer(data, np.uint8), limit))
