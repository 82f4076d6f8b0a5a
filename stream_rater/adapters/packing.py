"""Where beliefs are in Redis, packed as the functions there read it.

Strings one after the other, each behind its length in four bytes: key and field of each player,
and for a write the record. A key is `sharding.belief_key`'s; thousands are made in one call.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stream_rater.names import Bytes, put, put_number
from stream_rater.pipeline.ports import Player
from stream_rater.pipeline.roster import Roster
from stream_rater.pipeline.sharding import belief_prefix, columns
from stream_rater.rating.compiled import kernel
from stream_rater.rating.model import Ints

DIGITS = 10
"""Of a bucket's number, at most: it is a crc32's rest."""
LENGTH = 4

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
    names: Bytes, name_starts: Ints, name_ends: Ints,
    prefixes: Bytes, prefix_ends: Ints, prefix: Ints, buckets: int,
    values: Bytes, value_ends: Ints, table: npt.NDArray[np.uint32], out: Bytes,
) -> int:  # fmt: skip
    """The bytes written. Without values, `value_ends` is empty."""
    at = value = 0
    for i in range(len(name_ends)):
        name, end = name_starts[i], name_ends[i]
        bucket = int(_crc32(names, name, end, table)) % buckets
        first = 0 if prefix[i] == 0 else prefix_ends[prefix[i] - 1]
        key = put(out, at + LENGTH, prefixes, first, prefix_ends[prefix[i]])
        key = put_number(out, key, bucket)
        _put_length(out, at, key - at - LENGTH)
        at = put(out, _put_length(out, key, end - name), names, name, end)
        if len(value_ends):
            end = value_ends[i]
            at = put(out, _put_length(out, at, end - value), values, value, end)
            value = end
    return at


@kernel
def _renumbered(numbers: Ints, end: int) -> tuple[Ints, Ints]:
    """Those of the numbers before `end` that occur, and of each which of these it is."""
    found, which = np.empty(end, np.int64), np.empty(len(numbers), np.int64)
    count, seen = 0, np.full(end, -1)
    for i in range(len(numbers)):
        if seen[numbers[i]] < 0:
            seen[numbers[i]], found[count] = count, numbers[i]
            count += 1
        which[i] = seen[numbers[i]]
    return found[:count], which


def packed(
    shard: int, players: Sequence[Player], buckets: int, values: Sequence[bytes] = ()
) -> bytes:
    """Key and field of each player's belief, and its value where there are any, for one shard."""
    roster = Roster.of(players)
    names = roster.names
    numbers, prefix = _renumbered(roster.ladder, len(roster.ladders))
    prefixes = [belief_prefix(shard, roster.ladders[i]).encode() for i in numbers.tolist()]
    prefix_data, prefix_ends = columns(prefixes)
    value_data, value_ends = columns(values)
    longest = max(map(len, prefixes), default=0) + DIGITS + (3 if values else 2) * LENGTH
    size = int((names.ends - names.starts).sum())
    out = np.empty(size + len(value_data) + len(players) * longest, np.uint8)
    size = _pack(
        names.data, names.starts, names.ends, prefix_data, prefix_ends, prefix, buckets,
        value_data, value_ends, _CRC, out,
    )  # fmt: skip
    return out[:size].tobytes()
