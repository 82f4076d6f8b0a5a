"""A bounded table of the newest belief records of many players.

A worker looks into it before it reads the store. The table may lose any entry at any time, and then
the record is read again. It never returns another player's record: a fingerprint only chooses where
to look, and the owner and the name are compared.

The table is a set-associative cache: a fingerprint belongs to one set of WAYS slots, and a new
entry takes the slot of its set that was not used for the longest time. All slots have the same
size. It grows with the longest entry, up to LONGEST bytes. The memory is reserved at once, and the
system provides it page by page as slots are used.
"""

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_rater.columns.arrays import Bytes, Flags, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.strings import StringColumn, put

WAYS = 8  # The number of slots of a set.
SHORTEST, LONGEST = 160, 1024
"""The bytes of name and record together for which a slot has room: at first, and at most. Entries
that are longer than LONGEST are not stored."""
ABOUT = 28  # The bytes that a slot takes in addition to its name and record.

SPREAD = np.uint64(0x9E3779B97F4A7C15)
HALF = np.uint64(32)
FREE = np.uint64(0)
NO_SLOT = -1

Counts = npt.NDArray[np.uint32]


@kernel
def _first_slot(fingerprint: np.uint64, slots: int) -> int:
    """The first slot of the set of a fingerprint."""
    spread = np.uint64(fingerprint * SPREAD) >> HALF
    return int((spread * np.uint64(slots // WAYS)) >> HALF) * WAYS


@kernel
def _is_at(
    slot: int, room: int, data: Bytes, sizes: Counts, names: Bytes, start: int, end: int
) -> bool:
    """Whether the slot's entry has this name."""
    size = end - start
    if sizes[slot, 0] != size:
        return False
    at, of, k = np.uint64(slot * room), np.uint64(start), np.uint64(0)
    while k < np.uint64(size) and data[at + k] == names[of + k]:
        k += np.uint64(1)
    return bool(k == np.uint64(size))


@kernel
def _slots_of(
    taken: Fingerprints, owner: Ints, sizes: Counts, used: Counts, data: Bytes, room: int,
    fingerprints: Fingerprints, owners: Ints, names: Bytes, starts: Ints, ends: Ints, now: int,
) -> tuple[Ints, Ints]:  # fmt: skip
    """(n,) the slot of each player's entry, or NO_SLOT, and (n,) the size of its record, or 0. The
    entries count as used at the time `now`."""
    slots, found = np.full(len(ends), NO_SLOT, np.int64), np.zeros(len(ends), np.int64)
    for i in range(len(ends)):
        first = _first_slot(fingerprints[i], len(taken))
        for slot in range(first, first + WAYS):
            if taken[slot] == fingerprints[i]:
                if owner[slot] == owners[i] and _is_at(
                    slot, room, data, sizes, names, starts[i], ends[i]
                ):
                    slots[i], found[i], used[slot] = slot, sizes[slot, 1], now
                break
    return slots, found


@kernel
def _copy(slots: Ints, sizes: Counts, data: Bytes, room: int, out: Bytes) -> None:
    """Write the records in these slots one after the other."""
    at = 0
    for slot in slots:
        if slot != NO_SLOT:
            start = slot * room + sizes[slot, 0]
            at = put(out, at, data, start, start + sizes[slot, 1])


@kernel
def _put(
    taken: Fingerprints, owner: Ints, sizes: Counts, used: Counts, data: Bytes, room: int,
    fingerprints: Fingerprints, owners: Ints, names: Bytes, starts: Ints, ends: Ints,
    records: Bytes, firsts: Ints, lasts: Ints, now: int,
) -> tuple[int, int]:  # fmt: skip
    """Store these entries. Returns by how many the table grew, and how many were evicted."""
    added = evicted = 0
    for i in range(len(ends)):
        first = _first_slot(fingerprints[i], len(taken))
        chosen = first
        for slot in range(first, first + WAYS):
            if taken[slot] == fingerprints[i]:
                chosen = slot
                break
            if taken[chosen] != FREE and (taken[slot] == FREE or used[slot] < used[chosen]):
                chosen = slot
        fits = ends[i] - starts[i] + lasts[i] - firsts[i] <= room
        if taken[chosen] == fingerprints[i]:
            added -= 1
        elif taken[chosen] != FREE and fits:
            added -= 1
            evicted += 1
        elif not fits:
            continue
        taken[chosen] = FREE
        if fits:
            added += 1
            taken[chosen], owner[chosen], used[chosen] = fingerprints[i], owners[i], now
            sizes[chosen, 0], sizes[chosen, 1] = ends[i] - starts[i], lasts[i] - firsts[i]
            at = put(data, chosen * room, names, starts[i], ends[i])
            put(data, at, records, firsts[i], lasts[i])
    return added, evicted


@kernel
def _are_taken(taken: Fingerprints, fingerprints: Fingerprints) -> Flags:
    """(n,) whether an entry has each fingerprint."""
    found = np.zeros(len(fingerprints), np.bool_)
    for i in range(len(fingerprints)):
        first = _first_slot(fingerprints[i], len(taken))
        for slot in range(first, first + WAYS):
            found[i] |= taken[slot] == fingerprints[i]
    return found


@kernel
def _forget(taken: Fingerprints, fingerprints: Fingerprints) -> int:
    """Free the slots of these fingerprints. Returns how many were freed."""
    freed = 0
    for fingerprint in fingerprints:
        first = _first_slot(fingerprint, len(taken))
        for slot in range(first, first + WAYS):
            if taken[slot] == fingerprint:
                taken[slot] = FREE
                freed += 1
    return freed


def _zeros(count: int, dtype: Any) -> Any:
    """(count,) zeros in memory of small pages. NumPy asks for huge pages. Since entries are spread
    over the table, the first few thousand of them would then occupy all of it, and wait until the
    system has filled it with zeros."""
    size = np.dtype(dtype).itemsize
    memory = mmap.mmap(-1, max(1, count * size))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype, count)


class RecordTable:
    """The newest records of players, by owner and name, in a bounded amount of memory. An owner is
    a number that the caller chooses, for example one for each ladder of each opened shard. Entries
    of another owner are not found. So a caller that takes a new number has dropped all entries of
    the old one, and their slots are taken by and by."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` bounds the memory. If it is less than one set takes, nothing is stored."""
        self._most_bytes = most_bytes
        self.evictions = 0  # The number of entries that gave way to others.
        self._reserve(SHORTEST)

    def _reserve(self, room: int) -> None:
        """Begin without entries, with slots of this room."""
        self._room = room
        slots = max(1, self._most_bytes // (WAYS * (room + ABOUT))) * WAYS
        self._size = self._now = 0
        self._taken: Fingerprints = _zeros(slots, np.uint64)
        self._owner: Ints = _zeros(slots, np.int64)
        self._sizes: Counts = _zeros(2 * slots, np.uint32).reshape(slots, 2)
        self._used: Counts = _zeros(slots, np.uint32)
        self._data: Bytes = _zeros(slots * room, np.uint8)

    @property
    def is_off(self) -> bool:
        """Whether there is too little memory for even one set."""
        return self._most_bytes < WAYS * (SHORTEST + ABOUT)

    def __len__(self) -> int:
        """The number of entries, those of former owners included."""
        return self._size

    @property
    def bytes_used(self) -> int:
        """The bytes of the slots that have entries."""
        return self._size * (self._room + ABOUT)

    def find(
        self, owners: Ints, names: StringColumn, fingerprints: Fingerprints
    ) -> tuple[Flags, StringColumn]:
        """(n,) whether each player's record is in the table, and (n,) copies of the records; an
        empty string stands for a record that is not there. `owners` (n,) and `names` (n,) say which
        players. `fingerprints` (n,) are any numbers but 0 that are the same at each call for a
        player, and differ between most players."""
        slots, sizes = _slots_of(
            *self._columns, fingerprints, owners, names.data, names.starts, names.ends, self._tick()
        )
        ends = np.cumsum(sizes)
        data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        _copy(slots, self._sizes, self._data, self._room, data)
        return slots != NO_SLOT, StringColumn(data, ends - sizes, ends)

    def may_contain(self, fingerprints: Fingerprints) -> Flags:
        """(n,) whether an entry has each fingerprint, whoever's it is. It does not count as
        used."""
        return _are_taken(self._taken, fingerprints)

    def put(
        self, owners: Ints, names: StringColumn, fingerprints: Fingerprints, records: StringColumn
    ) -> None:
        """Store these players' records, in place of older ones. Of players with the same
        fingerprint only the last one is stored."""
        if self.is_off or not len(names):
            return
        longest = int((names.ends - names.starts + records.ends - records.starts).max())
        room = min(LONGEST, max(longest, 2 * self._room))
        if self._room < longest <= room and WAYS * (room + ABOUT) <= self._most_bytes:
            self._reserve(room)
        added, evicted = _put(
            *self._columns, fingerprints, owners, names.data, names.starts, names.ends,
            records.data, records.starts, records.ends, self._tick(),
        )  # fmt: skip
        self._size += added
        self.evictions += evicted

    def forget(self, fingerprints: Fingerprints) -> None:
        """Drop the entries with these fingerprints, whoever's they are."""
        self._size -= _forget(self._taken, fingerprints)

    def forget_owner(self, owner: int) -> None:
        """Drop all entries of this owner, which takes a look at each slot."""
        mine = (self._owner == owner) & (self._taken != FREE)
        self._taken[mine] = FREE
        self._size -= int(np.count_nonzero(mine))

    def clear(self) -> None:
        """Drop all entries."""
        self._taken[:] = FREE
        self._size = 0

    @property
    def _columns(self) -> tuple[Fingerprints, Ints, Counts, Counts, Bytes, int]:
        return self._taken, self._owner, self._sizes, self._used, self._data, self._room

    def _tick(self) -> int:
        """The number of calls. Before it exceeds 32 bits, all entries become equally old."""
        self._now += 1
        if self._now == 2**32:
            self._used[:] = 0
            self._now = 1
        return self._now
