"""What Redis is sent for a shard's players: where their beliefs are, hash by hash.

To read: commands as the protocol has them, an HMGET for each hash. To write: what our function
there takes, the key of each hash as a word of the command, and beliefs as strings one after the
other, each behind its length in four bytes. Thousands of either are made in one call; a key is
`sharding.belief_key`'s.
"""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_rater.adapters.store_keys import beliefs_prefix
from stream_rater.columns.arrays import Bytes, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_column import Entries, Roster
from stream_rater.columns.strings import put, put_number
from stream_rater.contract.record import Player

DIGITS = 10
"""Of a bucket's number, at most: it is a crc32's rest; and of a length."""
LENGTH = 4
Crc = npt.NDArray[np.uint32]
COLON, STAR, DOLLAR = b":*$"
MOST_TOGETHER = 100
"""Players in a command, or a call of the function: Lua takes some thousands of arguments."""

_CRC = np.array([zlib.crc32(bytes([i ^ 0xFF])) ^ 0xFF000000 for i in range(256)], np.uint32)
"""The usual table of crc32, from zlib's values for single bytes, which it inverts."""
_HMGET = np.frombuffer(b"$5\r\nHMGET\r\n", np.uint8).copy()
_END = np.frombuffer(b"\r\n", np.uint8).copy()


@kernel
def _crc32(data: Bytes, start: int, end: int, table: Crc) -> np.uint32:
    crc = np.uint32(0xFFFFFFFF)
    for i in range(start, end):
        crc = table[np.uint8(crc ^ np.uint32(data[i]))] ^ (crc >> np.uint32(8))
    return np.uint32(crc ^ np.uint32(0xFFFFFFFF))


@kernel
def _buckets(names: Bytes, starts: Ints, ends: Ints, buckets: int, table: Crc) -> Ints:
    """(n,) each player's."""
    found = np.empty(len(ends), np.int64)
    for i in range(len(ends)):
        found[i] = np.int64(_crc32(names, starts[i], ends[i], table)) % buckets
    return found


@kernel
def _group_ends(ladder: Ints, bucket: Ints) -> Ints:
    """Where those of one hash end, of players who stand hash by hash, or enough of them."""
    ends = np.empty(len(bucket), np.int64)
    groups = first = 0
    for i in range(1, len(bucket) + 1):
        if (
            i == len(bucket) or i - first == MOST_TOGETHER
            or bucket[i] != bucket[first] or ladder[i] != ladder[first]
        ):  # fmt: skip
            ends[groups] = first = i
            groups += 1
    return ends[:groups]


class Grouped(NamedTuple):
    """Players of a shard, hash by hash."""

    order: Ints
    """(n,) which one of them stands where."""
    ladder: Ints
    """(n,) in that order, as in Roster."""
    bucket: Ints
    """(n,)"""
    ends: Ints
    """Of the groups."""


def _grouped(roster: Roster, buckets: int) -> Grouped:
    names = roster.names
    bucket = _buckets(names.data, names.starts, names.ends, buckets, _CRC)
    order = np.lexsort((bucket, roster.ladder))
    ladder, bucket = roster.ladder[order], bucket[order]
    return Grouped(order, ladder, bucket, _group_ends(ladder, bucket))


@kernel
def _put_key(
    out: Bytes, at: int, prefix: Bytes, ladders: Bytes, start: int, end: int, bucket: int
) -> int:
    at = put(out, put(out, at, prefix, 0, len(prefix)), ladders, start, end)
    out[at] = COLON
    return put_number(out, at + 1, bucket)


@kernel
def _put_size(out: Bytes, at: int, kind: int, size: int, end: Bytes) -> int:
    """How many arguments follow, or how many bytes."""
    out[at] = kind
    return put(out, put_number(out, at + 1, size), end, 0, len(end))


@kernel
def _put_word(out: Bytes, at: int, data: Bytes, start: int, stop: int, end: Bytes) -> int:
    """data[start:stop] as a word of a command."""
    at = put(out, _put_size(out, at, DOLLAR, stop - start, end), data, start, stop)
    return put(out, at, end, 0, len(end))


@kernel
def _put_length(out: Bytes, at: int, size: int) -> int:
    for i in range(LENGTH):
        out[at + i] = (size >> (8 * i)) & 0xFF
    return at + LENGTH


@kernel
def _room(grouped: Grouped, prefix: Bytes, starts: Ints, ends: Ints, at_most: int) -> int:
    """Bytes that suffice for the groups' keys, at most so many beside each."""
    size = len(grouped.ends) * (len(prefix) + 1 + DIGITS + at_most)
    first = 0
    for group_end in grouped.ends:
        k = grouped.ladder[first]
        size += ends[k] - starts[k]
        first = group_end
    return size


@kernel
def _read(
    grouped: Grouped, prefix: Bytes, ladders: Bytes, ladder_starts: Ints, ladder_ends: Ints,
    names: Bytes, name_starts: Ints, name_ends: Ints, command: Bytes, end: Bytes,
) -> Bytes:  # fmt: skip
    """An HMGET for each group."""
    beside = len(command) + 2 * (1 + DIGITS) + 3 * len(end)
    size = _room(grouped, prefix, ladder_starts, ladder_ends, beside)
    for i in range(len(name_ends)):
        size += 1 + DIGITS + 2 * len(end) + name_ends[i] - name_starts[i]
    out, key = np.empty(size, np.uint8), np.empty(size, np.uint8)
    at = first = 0
    for group_end in grouped.ends:
        k = grouped.ladder[first]
        key_size = _put_key(
            key, 0, prefix, ladders, ladder_starts[k], ladder_ends[k], grouped.bucket[first]
        )
        at = _put_size(out, at, STAR, 2 + group_end - first, end)
        at = put(out, at, command, 0, len(command))
        at = _put_word(out, at, key, 0, key_size, end)
        for i in grouped.order[first:group_end]:
            at = _put_word(out, at, names, name_starts[i], name_ends[i], end)
        first = group_end
    return out[:at]


@kernel
def _write(
    grouped: Grouped, prefix: Bytes, ladders: Bytes, ladder_starts: Ints, ladder_ends: Ints,
    names: Bytes, name_starts: Ints, name_ends: Ints,
    values: Bytes, value_starts: Ints, value_ends: Ints, end: Bytes,
) -> tuple[Bytes, Bytes]:  # fmt: skip
    """The key of each group; and for each group how many it has, and field and value of each."""
    room = _room(grouped, prefix, ladder_starts, ladder_ends, 1 + DIGITS + 2 * len(end))
    size = LENGTH * len(grouped.ends)
    for i in range(len(name_ends)):
        size += 2 * LENGTH + name_ends[i] - name_starts[i] + value_ends[i] - value_starts[i]
    keys, key, out = np.empty(room, np.uint8), np.empty(room, np.uint8), np.empty(size, np.uint8)
    keys_end = at = first = 0
    for group_end in grouped.ends:
        k = grouped.ladder[first]
        key_size = _put_key(
            key, 0, prefix, ladders, ladder_starts[k], ladder_ends[k], grouped.bucket[first]
        )
        keys_end = _put_word(keys, keys_end, key, 0, key_size, end)
        at = _put_length(out, at, group_end - first)
        for i in grouped.order[first:group_end]:
            at = _put_length(out, at, name_ends[i] - name_starts[i])
            at = put(out, at, names, name_starts[i], name_ends[i])
            at = _put_length(out, at, value_ends[i] - value_starts[i])
            at = put(out, at, values, value_starts[i], value_ends[i])
        first = group_end
    return keys[:keys_end], out[:at]


class Reads(NamedTuple):
    """Commands that read beliefs."""

    data: bytes
    """One after the other."""
    commands: int
    order: Ints
    """(n,) which player each value is of, command by command."""


_NOTHING = Reads(b"", 0, np.empty(0, np.int64))


def reads(shard: int, players: Sequence[Player], buckets: int) -> Reads:
    """Of these players of one shard."""
    if not players:
        return _NOTHING
    roster = Roster.of(players)
    names, ladders, grouped = roster.names, roster.ladders.escaped, _grouped(roster, buckets)
    data = _read(
        grouped, _prefix(shard), ladders.data, ladders.starts, ladders.ends,
        names.data, names.starts, names.ends, _HMGET, _END,
    )  # fmt: skip
    return Reads(data.tobytes(), len(grouped.ends), grouped.order)


class Writes(NamedTuple):
    """What the function is given to write beliefs."""

    hashes: int
    """How many keys."""
    keys: bytes
    """A word each; a hash with many beliefs comes several times."""
    beliefs: bytes
    """Those of each key, in the keys' order."""


def writes(shard: int, beliefs: Sequence[tuple[Player, bytes]], buckets: int) -> Writes:
    """Of these beliefs of one shard."""
    entries = Entries.of(beliefs)
    roster, values = entries.players, entries.records
    names, ladders, grouped = roster.names, roster.ladders.escaped, _grouped(roster, buckets)
    keys, packed = _write(
        grouped, _prefix(shard), ladders.data, ladders.starts, ladders.ends,
        names.data, names.starts, names.ends, values.data, values.starts, values.ends, _END,
    )  # fmt: skip
    return Writes(len(grouped.ends), keys.tobytes(), packed.tobytes())


def _prefix(shard: int) -> Bytes:
    return np.frombuffer(beliefs_prefix(shard).encode(), np.uint8)
