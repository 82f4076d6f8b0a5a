"""Who is who: players' names to rows, for whole rounds at once.

A dict would do, but for millions of results its look-ups take longer than the rating: each chases
three pointers to far memory, one after the other. Here a kernel runs through a round's names, laid
end to end, with open addressing into one table of 8 bytes a slot, so that the processor waits for
several names at once. Names are compared as bytes: equal hashes never mix up two players.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stream_rater.rating.compiled import kernel
from stream_rater.rating.model import Ints

Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]

T = TypeVar("T", bound=np.generic)

OFFSET, PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)
"""Of FNV-1a, 64 bits."""
HALF, ROW = np.uint64(32), np.uint64(0xFFFFFFFF)
EMPTY = np.uint64(0)


@kernel
def _hash(data: Bytes, first: int, end: int) -> np.uint64:
    h = OFFSET
    for i in range(first, end):
        h = (h ^ np.uint64(data[i])) * PRIME
    return h ^ (h >> HALF)


@kernel
def _same(a: Bytes, first: int, end: int, b: Bytes, at: int, until: int) -> bool:
    if end - first != until - at:
        return False
    i = 0
    while i < end - first and a[first + i] == b[at + i]:
        i += 1
    return i == end - first


@kernel
def _enter(slots: Hashes, h: np.uint64, row: int) -> None:
    """Put a row where its hash leads; a slot is the hash's upper half and the row, from 1."""
    mask = np.uint64(len(slots) - 1)
    slot = h & mask
    while slots[slot] != EMPTY:
        slot = (slot + np.uint64(1)) & mask
    slots[slot] = (h >> HALF << HALF) | np.uint64(row + 1)


@kernel
def _rows(
    data: Bytes, ends: Ints, slots: Hashes, names: Bytes, name_ends: Ints, hashes: Hashes,
    known: int, out: Ints,
) -> int:  # fmt: skip
    """Rows of the names in `data` into `out`, new ones entered; returns how many are known now.

    There must be room for all of them to be new.
    """
    mask = np.uint64(len(slots) - 1)
    first = 0
    for i in range(len(ends)):
        end = ends[i]
        h = _hash(data, first, end)
        slot = h & mask
        row = -1
        while slots[slot] != EMPTY and row < 0:
            if slots[slot] >> HALF == h >> HALF:
                found = int(slots[slot] & ROW) - 1
                at = name_ends[found - 1] if found > 0 else 0
                if _same(data, first, end, names, at, name_ends[found]):
                    row = found
            slot = (slot + np.uint64(1)) & mask
        if row < 0:
            row = known
            at = name_ends[row - 1] if row > 0 else 0
            names[at : at + end - first] = data[first:end]
            name_ends[row] = at + end - first
            hashes[row] = h
            _enter(slots, h, row)
            known += 1
        out[i] = row
        first = end
    return known


@kernel
def _enter_all(slots: Hashes, hashes: Hashes) -> None:
    for row in range(len(hashes)):
        _enter(slots, hashes[row], row)


class Roll:
    """The players seen so far; each has the row of its first appearance."""

    def __init__(self) -> None:
        self._known = 0
        self._slots = np.zeros(1024, np.uint64)
        self._names = np.empty(4096, np.uint8)
        self._ends = np.empty(0, np.int64)
        self._hashes = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return self._known

    def rows(self, names: Sequence[str]) -> Ints:
        """Row of each name, new ones entered."""
        text = "".join(names)
        if text.isascii():
            data, lengths = text.encode(), map(len, names)
        else:
            parts = [name.encode("utf-8", "surrogatepass") for name in names]
            data, lengths = b"".join(parts), map(len, parts)
        ends = np.cumsum(np.fromiter(lengths, np.int64, len(names)))
        self._make_room(len(names), len(data))
        out = np.empty(len(names), np.int64)
        self._known = _rows(
            np.frombuffer(data, np.uint8), ends, self._slots, self._names, self._ends,
            self._hashes, self._known, out,
        )  # fmt: skip
        return out

    def find(self, name: str) -> int | None:
        """The row of a name, if it is known."""
        known = self._known
        row = int(self.rows([name])[0])
        if row < known:
            return row
        self._known = known
        self._fill_slots(len(self._slots))
        return None

    def _make_room(self, names: int, size: int) -> None:
        used = int(self._ends[self._known - 1]) if self._known else 0
        self._names = _grown(self._names, used, used + size)
        self._ends = _grown(self._ends, self._known, self._known + names)
        self._hashes = _grown(self._hashes, self._known, self._known + names)
        if 2 * (self._known + names) > len(self._slots):
            self._fill_slots(1 << (4 * (self._known + names)).bit_length())

    def _fill_slots(self, size: int) -> None:
        self._slots = np.zeros(size, np.uint64)
        _enter_all(self._slots, self._hashes[: self._known])


def _grown(array: npt.NDArray[T], used: int, needed: int) -> npt.NDArray[T]:
    """The array with room for `needed`, its first `used` elements kept."""
    if needed <= len(array):
        return array
    larger = np.empty(max(needed, 2 * len(array)), array.dtype)
    larger[:used] = array[:used]
    return larger
