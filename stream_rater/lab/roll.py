"""Who is who: players' names to rows, for whole rounds at once.

A dict would do, but for millions of results its look-ups take longer than the rating: each chases
three pointers to far memory, one after the other. Here a kernel runs through a round's names, laid
end to end, with open addressing into one table of 8 bytes a slot. It first fetches, for all names,
the slots they hash to and what these lead to, so that the processor waits for many at once. Names
are compared as bytes: equal hashes never mix up two players.
"""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stream_rater.names import HASH_START, Bytes, Names, hashed
from stream_rater.rating.compiled import inlined, kernel
from stream_rater.rating.model import Ints

Hashes = npt.NDArray[np.uint64]

T = TypeVar("T", bound=np.generic)

HALF, ROW = np.uint64(32), np.uint64(0xFFFFFFFF)
EMPTY = np.uint64(0)

START, END, STAMP, HASH = 0, 1, 2, 3
"""Columns of what is known of a row: its name's place, the last call with it, its hash."""


BLOCK = 64
"""Names that are fetched at once: what they lead to stays near."""


@inlined
def _hash(data: Bytes, first: int, end: int) -> np.uint64:
    h = hashed(HASH_START, data, first, end)
    return h ^ (h >> HALF)


@inlined
def _same(a: Bytes, first: int, end: int, b: Bytes, at: int, until: int) -> bool:
    if end - first != until - at:
        return False
    i = 0
    while i < end - first and a[first + i] == b[at + i]:
        i += 1
    return i == end - first


@inlined
def _enter(slots: Hashes, h: np.uint64, row: int) -> None:
    """Put a row where its hash leads; a slot is the hash's upper half and the row, from 1."""
    mask = np.uint64(len(slots) - 1)
    slot = h & mask
    while slots[slot] != EMPTY:
        slot = (slot + np.uint64(1)) & mask
    slots[slot] = (h >> HALF << HALF) | np.uint64(row + 1)


@inlined
def _meet(
    data: Bytes, starts: Ints, ends: Ints, slots: Hashes, names: Bytes, known: Ints
) -> tuple[Hashes, Bytes]:
    """Hash of each name, and the first byte of the name in the slot it leads to."""
    hashes, begins = np.empty(len(ends), np.uint64), np.empty(len(ends), np.uint8)
    mask = np.uint64(len(slots) - 1)
    rows = np.empty(len(ends), np.int64)
    for i in range(len(ends)):
        hashes[i] = _hash(data, starts[i], ends[i])
    for i in range(len(ends)):  # each loop fetches from one place, and nothing waits for it
        rows[i] = np.int64(slots[hashes[i] & mask] & ROW) - 1
    for i in range(len(ends)):
        rows[i] = known[max(rows[i], 0), START]
    for i in range(len(ends)):
        begins[i] = names[rows[i]]
    return hashes, begins


@inlined
def _find(
    data: Bytes, first: int, end: int, h: np.uint64, slots: Hashes, names: Bytes, known: Ints
) -> int:
    """The row of a name, or -1."""
    mask = np.uint64(len(slots) - 1)
    slot = h & mask
    while slots[slot] != EMPTY:
        if slots[slot] >> HALF == h >> HALF:
            row = int(slots[slot] & ROW) - 1
            if _same(data, first, end, names, known[row, START], known[row, END]):
                return row
        slot = (slot + np.uint64(1)) & mask
    return -1


@inlined
def _note(
    data: Bytes, first: int, end: int, h: np.uint64, names: Bytes, known: Ints, row: int
) -> None:
    """A new name in a row, behind that of the row before."""
    at = known[row - 1, END] if row > 0 else 0
    names[at : at + end - first] = data[first:end]
    known[row, START], known[row, END] = at, at + end - first
    known[row, HASH] = np.int64(h)


@kernel
def _rows(
    data: Bytes, starts: Ints, ends: Ints, slots: Hashes, names: Bytes, known: Ints, count: int,
    stamp: int, out: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Rows of the names in `data` into `out`, new ones entered.

    Returns how many are known now, and the index of a name that came before in this call, or -1.
    There must be room for all of them to be new.
    """
    twice = -1
    for begin in range(0, len(ends), BLOCK):
        until = min(begin + BLOCK, len(ends))
        hashes, _ = _meet(data, starts[begin:until], ends[begin:until], slots, names, known)
        for i in range(begin, until):
            h = hashes[i - begin]
            row = _find(data, starts[i], ends[i], h, slots, names, known)
            if row < 0:
                row = count
                count += 1
                _note(data, starts[i], ends[i], h, names, known, row)
                _enter(slots, h, row)
            elif known[row, STAMP] == stamp:
                twice = i
            known[row, STAMP] = stamp
            out[i] = row
    return count, twice


@kernel
def _enter_all(slots: Hashes, known: Ints) -> None:
    for row in range(len(known)):
        _enter(slots, np.uint64(known[row, HASH]), row)


class Roll:
    """The players seen so far; each has the row of its first appearance."""

    def __init__(self) -> None:
        self._count = self._calls = 0
        self._slots = np.zeros(1024, np.uint64)
        self._names = np.zeros(4096, np.uint8)
        self._known = np.zeros((512, 4), np.int64)

    def __len__(self) -> int:
        return self._count

    def rows(self, names: Names) -> tuple[Ints, int | None]:
        """Row of each name, new ones entered; and the index of one that stands there twice."""
        found = names.laid_out
        self._make_room(len(names), len(found.data))
        self._calls += 1
        out = np.empty(len(names), np.int64)
        self._count, twice = _rows(
            found.data, found.starts, found.ends, self._slots, self._names, self._known,
            self._count, self._calls, out,
        )  # fmt: skip
        return out, None if twice < 0 else twice

    def names(self, rows: Ints) -> list[str]:
        """The names of these rows."""
        places = self._known[rows, START : END + 1].tolist()
        data = self._names.data
        return [str(data[a:b], "utf-8", "surrogatepass") for a, b in places]

    def forget_after(self, count: int) -> None:
        """Only the first so many are known again."""
        self._count = count
        self._fill_slots(len(self._slots))

    def find(self, name: str) -> int | None:
        """The row of a name, if it is known."""
        count = self._count
        row = int(self.rows(Names([name]))[0][0])
        if row < count:
            return row
        self.forget_after(count)
        return None

    def _make_room(self, names: int, size: int) -> None:
        used = int(self._known[self._count - 1, END]) if self._count else 0
        self._names = _grown(self._names, used + size)
        self._known = _grown(self._known, self._count + names)
        if 2 * (self._count + names) > len(self._slots):
            self._fill_slots(1 << (4 * (self._count + names)).bit_length())

    def _fill_slots(self, size: int) -> None:
        self._slots = np.zeros(size, np.uint64)
        _enter_all(self._slots, self._known[: self._count])


def _grown(array: npt.NDArray[T], needed: int) -> npt.NDArray[T]:
    """The array with room for `needed` rows, zeros where there were none."""
    if needed <= len(array):
        return array
    larger = np.zeros((max(needed, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
