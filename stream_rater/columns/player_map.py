"""A hash map from players to numbers, which looks up thousands of players in one call.

The key of a player is a fingerprint of 64 bits: the shard, and as many bits of a hash of ladder and
id as fit beside it. Two players of a shard may have the same. So the map may store only numbers
that do no harm if they are read for the other player, too: at worst, a player waits needlessly.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stream_rater.columns.arrays import Bytes, Hashes, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.sharding import shard_of
from stream_rater.columns.siphash import Key, derived, hashed
from stream_rater.columns.strings import SECRET_KEY, StringColumn

Fingerprints = npt.NDArray[np.uint64]

SHARD_BITS = 20
"""The number of lowest bits of a fingerprint, which contain the shard. No topic has more shards."""
IN_SHARD = np.uint64((1 << SHARD_BITS) - 1)
TAKEN = np.uint64(1 << 63)  # The bit that is set in each fingerprint, so that none is 0.
NOTHING = -1
"""Stands for the absence of a number: stored numbers are never below 0."""

SPREAD = np.uint64(0x9E3779B97F4A7C15)
SMALLEST = 1024


@kernel
def _fingerprints(
    data: Bytes, starts: Ints, ends: Ints, ladders: Hashes, sizes: Ints, shards: int, key: Key
) -> Fingerprints:
    """(P,) the fingerprints of these players. They are ordered by ladder: sizes[k] of them are on
    the ladder whose hash is ladders[k]."""
    out = np.empty(len(ends), np.uint64)
    i = 0
    for k in range(len(sizes)):
        own = derived(key, ladders[k])
        for _ in range(sizes[k]):
            h = hashed(own, data, starts[i], ends[i])
            shard = np.uint64(shard_of(data, starts[i], ends[i], shards))
            out[i] = np.uint64(h << np.uint64(SHARD_BITS)) | shard | TAKEN
            i += 1
    return out


def fingerprints(
    names: StringColumn, ladders: Sequence[str], sizes: npt.ArrayLike, shards: int
) -> Fingerprints:
    """(P,) the fingerprints of these players. They are ordered by ladder: sizes[k] of them are on
    ladders[k]. Another process has other fingerprints."""
    hashes, counts = StringColumn.of(ladders).hashes, np.array(sizes, np.int64)
    return _fingerprints(names.data, names.starts, names.ends, hashes, counts, shards, SECRET_KEY)


def shards_in(players: Fingerprints) -> Ints:
    """(P,) each player's shard."""
    return (players & IN_SHARD).astype(np.int64)


@kernel
def _by_shard(players: Fingerprints) -> tuple[Ints, Ints]:
    """The players' indices, stably ordered by shard; and the end of each shard in this order."""
    ends = np.zeros(1 + np.int64((players & IN_SHARD).max()), np.int64)
    for player in players:
        ends[np.int64(player & IN_SHARD)] += 1
    ends = np.cumsum(ends)
    free = ends.copy()
    order = np.empty(len(players), np.int64)
    for i in range(len(players) - 1, -1, -1):
        shard = np.int64(players[i] & IN_SHARD)
        free[shard] -= 1
        order[free[shard]] = i
    return order, ends


def by_shard(players: Fingerprints) -> tuple[Ints, list[tuple[int, slice]]]:
    """The indices of the players ordered by shard, stable within a shard; and for each shard with
    players, (shard, the slice of its players in this order)."""
    order, ends = _by_shard(players)
    cuts, start = [], 0
    for shard, end in enumerate(ends.tolist()):
        if end > start:
            cuts.append((shard, slice(start, end)))
        start = end
    return order, cuts


@kernel
def _home(players: Fingerprints, player: np.uint64) -> int:
    """The slot where the search for a player begins. The size of the table is a power of two."""
    return int(np.int64((player * SPREAD) >> np.uint64(33)) & (len(players) - 1))


@kernel
def _place(players: Fingerprints, player: np.uint64) -> int:
    """The slot that a player has or would have."""
    i = _home(players, player)
    while players[i] != 0 and players[i] != player:
        i = (i + 1) & (len(players) - 1)
    return i


@kernel
def _put(table: Fingerprints, stored: Ints, players: Fingerprints, numbers: Ints) -> Ints:
    before = np.empty(len(players), np.int64)
    for k in range(len(players)):
        i = _place(table, players[k])
        before[k] = stored[i] if table[i] == players[k] else NOTHING
        table[i], stored[i] = players[k], numbers[k]
    return before


@kernel
def _find(table: Fingerprints, stored: Ints, players: Fingerprints) -> Ints:
    found = np.empty(len(players), np.int64)
    for k in range(len(players)):
        i = _place(table, players[k])
        found[k] = stored[i] if table[i] == players[k] else NOTHING
    return found


@kernel
def _forget(table: Fingerprints, stored: Ints, players: Fingerprints, numbers: Ints) -> int:
    """Remove the players whose stored number is the given one. Returns how many were removed."""
    forgotten = 0
    for k in range(len(players)):
        i = _place(table, players[k])
        if table[i] == players[k] and stored[i] == numbers[k]:
            _empty(table, stored, i)
            forgotten += 1
    return forgotten


@kernel
def _empty(table: Fingerprints, stored: Ints, i: int) -> None:
    """Free a slot. Players that stand behind it because it was taken move up."""
    last = len(table) - 1
    k = i
    while True:
        k = (k + 1) & last
        if table[k] == 0:
            break
        if (k - _home(table, table[k])) & last >= (k - i) & last:
            table[i], stored[i] = table[k], stored[k]
            i = k
    table[i] = 0


class PlayerMap:
    """A number for each player, in a table with open addressing that is at most half full."""

    def __init__(self) -> None:
        self._size = 0
        self._table: Fingerprints = np.zeros(SMALLEST, np.uint64)
        self._stored: Ints = np.zeros(SMALLEST, np.int64)

    def __len__(self) -> int:
        return self._size

    def put(self, players: Fingerprints, numbers: Ints) -> Ints:
        """Store a number for each player. Returns (n,) the number stored before, or NOTHING. If a
        player occurs twice, the last number counts."""
        while 2 * (self._size + len(players)) > len(self._table):
            self._grow()
        before = _put(self._table, self._stored, players, numbers)
        self._size += int(np.count_nonzero(before == NOTHING))
        return before

    def find(self, players: Fingerprints) -> Ints:
        """(n,) the number stored for each player, or NOTHING."""
        return _find(self._table, self._stored, players)

    def forget(self, players: Fingerprints, numbers: Ints) -> None:
        """Remove the players whose stored number is the given one."""
        self._size -= _forget(self._table, self._stored, players, numbers)

    def _grow(self) -> None:
        taken = np.flatnonzero(self._table)
        players, numbers = self._table[taken], self._stored[taken]
        self._table = np.zeros(2 * len(self._table), np.uint64)
        self._stored = np.zeros(len(self._table), np.int64)
        _put(self._table, self._stored, players, numbers)
