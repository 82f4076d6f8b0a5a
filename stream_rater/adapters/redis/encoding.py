"""Encodes commands and arguments for a shard's players, hash by hash, to send them to Redis.

To read beliefs: one encoded HMGET for each hash. To write beliefs: the arguments of our Redis
Function, which are the key of each hash, and field and value of each belief, all of them as bulk
strings, and a byte for each hash with the number of its beliefs. One kernel call encodes thousands
of players. A key is that of `belief_key`.
"""

import zlib
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from stream_rater.columns.arrays import Bytes, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.columns.strings import put, put_number
from stream_rater.contract.events import escape

DIGITS = 10
"""The most digits of a bucket's number, which is a remainder of a crc32, and of a length."""
Crc = npt.NDArray[np.uint32]
COLON, STAR, DOLLAR = b":*$"
MOST_TOGETHER = 100
"""The most players in a command, or in one key's part of a call: Lua takes only some thousands of
arguments, and a byte holds the number."""

_CRC = np.array([zlib.crc32(bytes([i ^ 0xFF])) ^ 0xFF000000 for i in range(256)], np.uint32)
"""The usual table of crc32, from zlib's values for single bytes, which zlib inverts."""
_HMGET = np.frombuffer(b"$5\r\nHMGET\r\n", np.uint8).copy()
_END = np.frombuffer(b"\r\n", np.uint8).copy()


def position_key(shard: int) -> str:
    """The hash with a shard's position. The braces keep a shard's keys in one slot."""
    return f"{{{shard}}}:position"


def beliefs_prefix(shard: int) -> str:
    """The common prefix of the keys of a shard's belief hashes. The escaped ladder follows."""
    return f"{{{shard}}}:belief:"


def belief_key(shard: int, ladder: str, player: bytes, buckets: int) -> str:
    """The hash that holds a player's belief: one of the `buckets` hashes of a ladder in a shard."""
    return f"{beliefs_prefix(shard)}{escape(ladder)}:{zlib.crc32(player) % buckets}"


def ladder_of(key: str) -> str:
    """The ladder of a hash of beliefs."""
    return unquote(key.split(":")[2])


@kernel
def _crc32(data: Bytes, start: int, end: int, table: Crc) -> np.uint32:
    crc = np.uint32(0xFFFFFFFF)
    for i in range(start, end):
        crc = table[np.uint8(crc ^ np.uint32(data[i]))] ^ (crc >> np.uint32(8))
    return np.uint32(crc ^ np.uint32(0xFFFFFFFF))


@kernel
def _buckets(names: Bytes, starts: Ints, ends: Ints, buckets: int, table: Crc) -> Ints:
    """(n,) the bucket of each player."""
    found = np.empty(len(ends), np.int64)
    for i in range(len(ends)):
        found[i] = np.int64(_crc32(names, starts[i], ends[i], table)) % buckets
    return found


@kernel
def _group_ends(ladder: Ints, bucket: Ints) -> Ints:
    """The ends of groups of players, who are ordered by hash. The players of a group share a hash,
    and a group has at most MOST_TOGETHER players."""
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
    """The players of a shard, grouped by hash."""

    order: Ints  # (n,) the players' indices, in the order of the groups.
    ladder: Ints  # (n,) each player's ladder as in PlayerColumn, in that order.
    bucket: Ints  # (n,) each player's bucket, in that order.
    ends: Ints  # Where each group ends, in that order.


def _group(players: PlayerColumn, buckets: int) -> Grouped:
    names = players.names
    bucket = _buckets(names.data, names.starts, names.ends, buckets, _CRC)
    order = np.lexsort((bucket, players.ladder))
    ladder, bucket = players.ladder[order], bucket[order]
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
    """Write a RESP header: the number of arguments or bytes that follow."""
    out[at] = kind
    return put(out, put_number(out, at + 1, size), end, 0, len(end))


@kernel
def _put_word(out: Bytes, at: int, data: Bytes, start: int, stop: int, end: Bytes) -> int:
    """Write data[start:stop] as a bulk string."""
    at = put(out, _put_size(out, at, DOLLAR, stop - start, end), data, start, stop)
    return put(out, at, end, 0, len(end))


@kernel
def _size_bound(grouped: Grouped, prefix: Bytes, starts: Ints, ends: Ints, at_most: int) -> int:
    """An upper bound of the bytes of the groups' keys, each with `at_most` more bytes."""
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
    """Encode an HMGET for each group."""
    other_bytes = len(command) + 2 * (1 + DIGITS) + 3 * len(end)
    size = _size_bound(grouped, prefix, ladder_starts, ladder_ends, other_bytes)
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
) -> tuple[Bytes, Bytes, Bytes]:  # fmt: skip
    """Encode the key of each group, the number of its players, and the field and the value of each
    player."""
    around = 1 + DIGITS + 2 * len(end)
    bound, size = _size_bound(grouped, prefix, ladder_starts, ladder_ends, around), 0
    for i in range(len(name_ends)):
        size += 2 * around + name_ends[i] - name_starts[i] + value_ends[i] - value_starts[i]
    keys, key, out = np.empty(bound, np.uint8), np.empty(bound, np.uint8), np.empty(size, np.uint8)
    counts = np.empty(len(grouped.ends), np.uint8)
    keys_end = at = first = 0
    for group in range(len(grouped.ends)):
        group_end, k = grouped.ends[group], grouped.ladder[first]
        key_size = _put_key(
            key, 0, prefix, ladders, ladder_starts[k], ladder_ends[k], grouped.bucket[first]
        )
        keys_end = _put_word(keys, keys_end, key, 0, key_size, end)
        counts[group] = group_end - first
        for i in grouped.order[first:group_end]:
            at = _put_word(out, at, names, name_starts[i], name_ends[i], end)
            at = _put_word(out, at, values, value_starts[i], value_ends[i], end)
        first = group_end
    return keys[:keys_end], counts, out[:at]


class EncodedReads(NamedTuple):
    """Encoded commands that read beliefs."""

    data: bytes  # The commands, concatenated.
    commands: int
    order: Ints  # (n,) the index of the player of each value, command by command.


_NOTHING = EncodedReads(b"", 0, np.empty(0, np.int64))


def encode_reads(shard: int, players: PlayerColumn, buckets: int) -> EncodedReads:
    """The commands that read the beliefs of these players of one shard."""
    if not players:
        return _NOTHING
    names, ladders, grouped = players.names, players.ladders.escaped, _group(players, buckets)
    data = _read(
        grouped, _prefix(shard), ladders.data, ladders.starts, ladders.ends,
        names.data, names.starts, names.ends, _HMGET, _END,
    )  # fmt: skip
    return EncodedReads(data.tobytes(), len(grouped.ends), grouped.order)


class EncodedWrites(NamedTuple):
    """The arguments with which the Redis Function writes beliefs."""

    hashes: int  # The number of keys.
    keys: bytes  # The keys as bulk strings. A hash with many beliefs is listed several times.
    counts: bytes  # For each key, in their order, the number of its beliefs.
    beliefs: bytes  # Field and value of each belief as bulk strings, key by key.


def encode_writes(shard: int, beliefs: BeliefColumn, buckets: int) -> EncodedWrites:
    """The arguments that write these beliefs of one shard."""
    players, values = beliefs.players, beliefs.records
    names, ladders, grouped = players.names, players.ladders.escaped, _group(players, buckets)
    keys, counts, words = _write(
        grouped, _prefix(shard), ladders.data, ladders.starts, ladders.ends,
        names.data, names.starts, names.ends, values.data, values.starts, values.ends, _END,
    )  # fmt: skip
    return EncodedWrites(len(grouped.ends), keys.tobytes(), counts.tobytes(), words.tobytes())


def _prefix(shard: int) -> Bytes:
    return np.frombuffer(beliefs_prefix(shard).encode(), np.uint8)
