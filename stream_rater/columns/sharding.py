"""Computes the shard of a player and the partition of a ladder.

A shard is `murmur2(player id) mod S`, the hash of Kafka's default partitioner. So any client in any
language finds a player's partition of `rating-changed`.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from stream_rater.columns.arrays import Bytes, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.columns.strings import StringColumn

MULTIPLIER = np.uint32(0x5BD1E995)
SEED = np.uint32(0x9747B28C)


@kernel
def murmur2(data: Bytes, start: int, end: int) -> np.uint32:
    """The hash of data[start:end] by Austin Appleby's MurmurHash2 with Kafka's seed."""
    size = end - start
    h = np.uint32(SEED ^ np.uint32(size))
    i = start
    while i + 4 <= end:
        k = np.uint32(data[i])
        k |= np.uint32(data[i + 1]) << np.uint32(8)
        k |= np.uint32(data[i + 2]) << np.uint32(16)
        k |= np.uint32(data[i + 3]) << np.uint32(24)
        k = np.uint32(k * MULTIPLIER)
        k = np.uint32(np.uint32(k ^ (k >> np.uint32(24))) * MULTIPLIER)
        h = np.uint32(np.uint32(h * MULTIPLIER) ^ k)
        i += 4
    rest = end - i
    if rest >= 3:
        h = np.uint32(h ^ (np.uint32(data[i + 2]) << np.uint32(16)))
    if rest >= 2:
        h = np.uint32(h ^ (np.uint32(data[i + 1]) << np.uint32(8)))
    if rest >= 1:
        h = np.uint32(np.uint32(h ^ np.uint32(data[i])) * MULTIPLIER)
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * MULTIPLIER)
    return np.uint32(h ^ (h >> np.uint32(15)))


@inlined
def shard_of(data: Bytes, start: int, end: int, shards: int) -> int:
    """The shard of the player id data[start:end] among `shards` shards."""
    return int((np.int64(murmur2(data, start, end)) & 0x7FFFFFFF) % shards)


@kernel
def _shards(data: Bytes, starts: Ints, ends: Ints, shards: int) -> Ints:
    out = np.empty(len(ends), np.int64)
    for i in range(len(ends)):
        out[i] = shard_of(data, starts[i], ends[i], shards)
    return out


def shards_of(players: Sequence[str], shards: int) -> Ints:
    """(P,) shard of each player id."""
    return shards_of_names(StringColumn.of(players), shards)


ANYWHERE = 0
"""The number of partitions of a log whose records may be in any partition, as in a file."""


@lru_cache(10_000)
def partition_of(ladder: str, partitions: int) -> int:
    """The partition of `round-completed`, which has `partitions` partitions, that contains a
    ladder's rounds. Kafka's default partitioner puts a record with the ladder as its key there."""
    return int(shards_of([ladder], partitions)[0])


def shards_of_names(names: StringColumn, shards: int) -> Ints:
    """(P,) shard of each player id."""
    found: Ints = _shards(names.data, names.starts, names.ends, shards)
    return found
