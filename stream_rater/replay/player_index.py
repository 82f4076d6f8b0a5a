"""An index from players' names to rows, which looks up all names of many rounds at once.

For millions of results a dict would take more time than the rating itself: each look-up follows
three pointers to distant memory, one after the other. Here a kernel reads the names as bytes and
uses open addressing in one table with 8 bytes per slot. It first prefetches the slots of many
names, and then the data that these slots point to. So the processor waits for many cache misses at
once. Names are compared as bytes, so equal hashes never confuse two players.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stream_rater.columns.arrays import Bytes, Hashes, Ints
from stream_rater.columns.intrinsics import prefetch
from stream_rater.columns.kernels import giving, inlined, kernel
from stream_rater.columns.player_column import LadderColumn, PlayerColumn
from stream_rater.columns.strings import StringColumn, put

T = TypeVar("T", bound=np.generic)

HALF, ROW = np.uint64(32), np.uint64(0xFFFFFFFF)
EMPTY = np.uint64(0)
BLOCK = 64  # The names whose data is prefetched together: it stays in the cache until it is used.


@inlined
def _same(a: Bytes, first: int, end: int, b: Bytes, at: int, until: int) -> bool:
    if end - first != until - at:
        return False
    one, other, k, size = np.uint64(first), np.uint64(at), np.uint64(0), np.uint64(end - first)
    while k < size and a[one + k] == b[other + k]:
        k += np.uint64(1)
    return bool(k == size)


@inlined
def _slot(slots: Hashes, h: np.uint64) -> np.uint64:
    """The index of the first slot to examine for a hash."""
    return (h ^ (h >> HALF)) & np.uint64(len(slots) - 1)


@inlined
def _insert(slots: Hashes, h: np.uint64, row: int) -> None:
    """Enter a row at its hash. A slot has the upper half of the hash, and the row number plus 1."""
    mask = np.uint64(len(slots) - 1)
    slot = _slot(slots, h)
    while slots[slot] != EMPTY:
        slot = (slot + np.uint64(1)) & mask
    slots[slot] = (h >> HALF << HALF) | np.uint64(row + 1)


@giving
def _fetch(hashes: Hashes, slots: Hashes, names: Bytes, starts: Ints) -> None:
    """Prefetch the data that `_find` reads for these names."""
    rows = np.empty(BLOCK, np.int64)
    for i in range(len(hashes)):  # each loop prefetches the targets of the previous one
        prefetch(slots, int(_slot(slots, hashes[i])), 0)
    for i in range(len(hashes)):
        rows[i] = max(np.int64(slots[_slot(slots, hashes[i])] & ROW) - 1, np.int64(0))
        prefetch(starts, rows[i], 0)
    for i in range(len(hashes)):
        prefetch(names, starts[rows[i]], 0)


@inlined
def _find(
    data: Bytes, first: int, end: int, h: np.uint64, slots: Hashes, names: Bytes, starts: Ints
) -> int:
    """The row of a name; -1 if it is unknown."""
    mask = np.uint64(len(slots) - 1)
    slot = _slot(slots, h)
    while slots[slot] != EMPTY:
        if slots[slot] >> HALF == h >> HALF:
            row = int(slots[slot] & ROW) - 1
            if _same(data, first, end, names, starts[row], starts[row + 1]):
                return row
        slot = (slot + np.uint64(1)) & mask
    return -1


@kernel
def _rows(
    data: Bytes, firsts: Ints, ends: Ints, hashes: Hashes, slots: Hashes, names: Bytes,
    starts: Ints, stored_hashes: Hashes, count: int, out: Ints,
) -> int:  # fmt: skip
    """Write the rows of the names in `data` into `out`. Unknown names are entered.

    Returns the number of known names afterwards. There must be room for the case that all names are
    new.
    """
    for begin in range(0, len(ends), BLOCK):
        until = min(begin + BLOCK, len(ends))
        _fetch(hashes[begin:until], slots, names, starts)
        for i in range(begin, until):
            first, end = firsts[i], ends[i]
            row = _find(data, first, end, hashes[i], slots, names, starts)
            if row < 0:
                row = count
                count += 1
                stored_hashes[row] = hashes[i]
                starts[count] = put(names, starts[row], data, first, end)
                _insert(slots, hashes[i], row)
            out[i] = row
    return count


@kernel
def _row_of(data: Bytes, end: int, h: np.uint64, slots: Hashes, names: Bytes, starts: Ints) -> int:
    """The row of the name data[:end]; -1 if it is unknown."""
    return _find(data, 0, end, h, slots, names, starts)


@kernel
def _insert_all(slots: Hashes, stored_hashes: Hashes) -> None:
    for row in range(len(stored_hashes)):
        _insert(slots, stored_hashes[row], row)


class PlayerIndex:
    """The players seen so far. Rows are in order of first appearance."""

    def __init__(self) -> None:
        self._count = 0
        self._slots = np.zeros(1024, np.uint64)
        self._names = np.zeros(4096, np.uint8)
        self._starts = np.zeros(513, np.int64)
        """The start of each name, which is also the end of the previous name."""
        self._stored_hashes = np.zeros(512, np.uint64)
        """The hash of each name."""

    def __len__(self) -> int:
        return self._count

    def rows(self, names: StringColumn) -> Ints:
        """(n,) the row of each name; new names are entered."""
        self._make_room(len(names), int((names.ends - names.starts).sum()))
        out = np.empty(len(names), np.int64)
        self._count = _rows(
            names.data, names.starts, names.ends, names.hashes, self._slots, self._names,
            self._starts, self._stored_hashes, self._count, out,
        )  # fmt: skip
        return out

    def names(self, rows: Ints) -> StringColumn:
        """The names of these rows. Names that are entered later do not change the result."""
        return StringColumn(self._names, self._starts[rows], self._starts[rows + 1])

    def find(self, name: str) -> int | None:
        """The row of a name; None if it is unknown."""
        text = StringColumn.of([name])
        end, h = text.ends[0], text.hashes[0]
        row = _row_of(text.data, end, h, self._slots, self._names, self._starts)
        return None if row < 0 else int(row)

    def _make_room(self, names: int, size: int) -> None:
        most = self._count + names
        self._names = grown(self._names, int(self._starts[self._count]) + size)
        self._starts = grown(self._starts, most + 1)
        self._stored_hashes = grown(self._stored_hashes, most)
        if 2 * most > len(self._slots):
            self._fill_slots(1 << (4 * most).bit_length())

    def _fill_slots(self, size: int) -> None:
        self._slots = np.zeros(size, np.uint64)
        _insert_all(self._slots, self._stored_hashes[: self._count])


def grown(array: npt.NDArray[T], needed: int) -> npt.NDArray[T]:
    """The array with room for at least `needed` rows. New rows are zero."""
    if needed <= len(array):
        return array
    larger = np.zeros((max(needed, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


# --- the players of all ladders -------------------------------------------------------------------

PREFIX_BYTES = 4
"""The bytes before each name that hold the number of its ladder, so that equal names on two ladders
differ."""


@kernel
def _prefixed(data: Bytes, starts: Ints, ends: Ints, numbers: Ints) -> tuple[Bytes, Ints]:
    """Concatenate names, each after its ladder's number. Returns the bytes and the (n,) ends."""
    out = np.empty(PREFIX_BYTES * len(ends) + (ends - starts).sum(), np.uint8)
    out_ends = np.empty(len(ends), np.int64)
    at = 0
    for i in range(len(ends)):
        for k in range(PREFIX_BYTES):
            out[at + k] = (numbers[i] >> (8 * k)) & 255
        at = put(out, at + PREFIX_BYTES, data, starts[i], ends[i])
        out_ends[i] = at
    return out, out_ends


class PlayerTable:
    """The players of all ladders, each in a row, in order of appearance."""

    def __init__(self) -> None:
        self._index = PlayerIndex()
        self._numbers: dict[str, int] = {}
        """The number of each ladder."""
        self._ladder_column = LadderColumn(StringColumn.of([]))
        """The ladders' column, as of the last call of `at`."""

    def __len__(self) -> int:
        return len(self._index)

    @property
    def ladders(self) -> list[str]:
        """All ladders, in the order of their numbers."""
        return list(self._numbers)

    def ladder_numbers(self, ladders: Sequence[str]) -> Ints:
        """(n,) the number of each of these ladders. New ladders are added."""
        known = self._numbers
        if not known.keys() >= set(ladders):
            for each in ladders:
                known.setdefault(each, len(known))
        return np.fromiter(map(known.__getitem__, ladders), np.int64, len(ladders))

    def rows(self, players: PlayerColumn) -> Ints:
        """(P,) the row of each player. New players are added."""
        numbers = self.ladder_numbers(players.ladders.texts)
        return self.rows_of(players.names, numbers[players.ladder])

    def rows_of(self, names: StringColumn, numbers: Ints) -> Ints:
        """(P,) the row of each player. `numbers` (P,) are the numbers of their ladders. New players
        are added."""
        data, ends = _prefixed(names.data, names.starts, names.ends, numbers)
        return self._index.rows(StringColumn(data, np.append(0, ends)[:-1], ends))

    def at(self, rows: Ints) -> PlayerColumn:
        """The players in these rows."""
        if len(self._ladder_column.names.ends) < len(self._numbers):
            self._ladder_column = LadderColumn(StringColumn.of(list(self._numbers)))
        names = self._index.names(rows)
        marks = names.data[names.starts[:, np.newaxis] + np.arange(PREFIX_BYTES)]
        ladder = marks.view("<u4").ravel().astype(np.int64)
        own = StringColumn(names.data, names.starts + PREFIX_BYTES, names.ends)
        return PlayerColumn(self._ladder_column, ladder, own)
