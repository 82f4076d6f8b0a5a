"""Where beliefs are in Redis, packed as the functions there read it.

Strings one after the other, each behind its length in four bytes: key and field of each player,
and for a write the record. A key is `sharding.belief_key`'s; thousands are made in one call.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stream_rater.names import Bytes, LaidOut, lay_out, put, put_number
from stream_rater.pipeline.ports import Player
from stream_rater.pipeline.roster import Roster
from stream_rater.pipeline.sharding import beliefs_prefix
from stream_rater.rating.compiled import kernel
from stream_rater.rating.model import Ints

DIGITS = 10
"""Of a bucket's number, at most: it is a crc32's rest."""
LENGTH = 4
COLON = ord(":")

_CRC = np.array([zlib.crc32(bytes([i ^ 0xFF])) ^ 0xFF000000 for i in range(256)], np.uint32)
"""The usual table of crc32, from zlib's values for single bytes, which it inverts."""


@kernel
def _crc32(data: Bytes, start: int, end: int, table: npt.NDArray[np.uint32]) -> np.uint32:
    crc = np.uint32(0xFFFFFFFF)
    for i in range(start, end):
        crc = table[np.uint8(crc ^ np.uint32(data[i]))] ^ (crc >> np.uint32(8))
    return np.uint32(crc ^ np.uint32(0xFFFFFFFF))


@kernel
def _put_length(out: Bytes, at: int, size: int) -> int:
    for i in range(LENGTH):
        out[at + i] = (size >> (8 * i)) & 0xFF
    return at + LENGTH


@kernel
def _pack(
    prefix: Bytes, ladders: Bytes, ladder_starts: Ints, ladder_ends: Ints, ladder: Ints,
    names: Bytes, name_starts: Ints, name_ends: Ints, buckets: int,
    values: Bytes, value_starts: Ints, value_ends: Ints, table: npt.NDArray[np.uint32],
) -> Bytes:  # fmt: skip
    """What is told of each, one behind the other. Without values, `value_ends` is empty."""
    size = len(name_ends) * (len(prefix) + 1 + DIGITS + 3 * LENGTH)
    for i in range(len(name_ends)):
        size += ladder_ends[ladder[i]] - ladder_starts[ladder[i]] + name_ends[i] - name_starts[i]
    for i in range(len(value_ends)):
        size += value_ends[i] - value_starts[i]
    out = np.empty(size, np.uint8)
    at = 0
    for i in range(len(name_ends)):
        name, end, k = name_starts[i], name_ends[i], ladder[i]
        bucket = int(_crc32(names, name, end, table)) % buckets
        key = put(out, at + LENGTH, prefix, 0, len(prefix))
        key = put(out, key, ladders, ladder_starts[k], ladder_ends[k])
        out[key] = COLON
        key = put_number(out, key + 1, bucket)
        _put_length(out, at, key - at - LENGTH)
        at = put(out, _put_length(out, key, end - name), names, name, end)
        if len(value_ends):
            start, end = value_starts[i], value_ends[i]
            at = put(out, _put_length(out, at, end - start), values, start, end)
    return out[:at]


NO_VALUES = lay_out([])


def packed(
    shard: int, players: Sequence[Player], buckets: int, values: LaidOut = NO_VALUES
) -> bytes:
    """Key and field of each player's belief, and its value where there are any, for one shard."""
    roster = Roster.of(players)
    names, ladders = roster.names, roster.ladders.escaped
    prefix = np.frombuffer(beliefs_prefix(shard).encode(), np.uint8)
    return _pack(
        prefix, ladders.data, ladders.starts, ladders.ends, roster.ladder,
        names.data, names.starts, names.ends, buckets,
        values.data, values.starts, values.ends, _CRC,
    ).tobytes()  # fmt: skip
