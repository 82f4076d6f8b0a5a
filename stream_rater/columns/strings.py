"""Columns of strings: UTF-8 bytes in one array, and where each string starts and ends.

Python strings are made only for those who show or send them: of millions of names that takes longer
than decoding them and looking them up.

Names come from outside. So each table that holds them takes its slots from their hashes under
SECRET_KEY. These hashes are good within this process: nothing that is stored, sent or shown depends
on them.
"""

import secrets
from collections.abc import Sequence

import msgspec
import numpy as np

from stream_rater.columns.arrays import Bytes, Hashes, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.columns.siphash import Key, hashed

NEW_LINE = 10

SECRET_KEY = Key(np.uint64(secrets.randbits(64)), np.uint64(secrets.randbits(64)))
"""Drawn once per process, so that nobody outside can choose names that share a slot. An argument of
kernels: numba would compile a global into them, and keep it on the disk."""

FEW = 32
"""Up to so many hashes are compared with each other."""

FREE, ONE = np.uint64(0), np.uint64(1)


class StringColumn(msgspec.Struct, gc=False):
    """Strings in UTF-8, and where each starts and ends; between them may be anything."""

    data: Bytes
    starts: Ints
    ends: Ints
    known_hashes: Hashes | None = None
    """Once somebody asked for them."""

    @classmethod
    def of(cls, texts: Sequence[str]) -> "StringColumn":
        """These texts."""
        data = "\n".join(texts).encode("utf-8", "surrogatepass")
        if data.count(b"\n") == len(texts) - 1:
            # A copy: to kernels, an array that is read-only is of another type.
            text = np.frombuffer(data, np.uint8).copy()
            ends = np.flatnonzero(text == NEW_LINE)
            return cls(text, np.append(0, ends + 1), np.append(ends, len(data)))
        return cls.of_bytes([text.encode("utf-8", "surrogatepass") for text in texts])

    @classmethod
    def of_bytes(cls, strings: Sequence[bytes]) -> "StringColumn":
        """These strings, whatever bytes they are."""
        ends = np.fromiter(map(len, strings), np.int64, len(strings)).cumsum()
        starts = np.append(0, ends)[:-1]
        return cls(np.frombuffer(b"".join(strings), np.uint8).copy(), starts, ends)

    @classmethod
    def concat(cls, columns: Sequence["StringColumn"]) -> "StringColumn":
        """The strings of all these columns in turn, copied, with nothing between them."""
        starts = np.concatenate([each.starts for each in columns])
        ends = np.concatenate([each.ends for each in columns])
        data = np.empty(int((ends - starts).sum()), np.uint8)
        at = first = 0
        for each in columns:
            last = first + len(each)
            at = _compact(each.data, starts[first:last], ends[first:last], data, at)
            first = last
        return cls(data, starts, ends)

    def __len__(self) -> int:
        return len(self.ends)

    def take(self, rows: Ints, *, compact: bool = False) -> "StringColumn":
        """The strings in these rows; `compact`: copied, so that the others' bytes can be freed."""
        starts, ends, data = self.starts[rows], self.ends[rows], self.data
        if compact:
            data = np.empty(int((ends - starts).sum()), np.uint8)
            _compact(self.data, starts, ends, data, 0)
        return StringColumn(data, starts, ends)

    def slice(self, first: int, last: int) -> "StringColumn":
        """The strings in the rows from `first` to before `last`: a view."""
        hashes = None if self.known_hashes is None else self.known_hashes[first:last]
        return StringColumn(self.data, self.starts[first:last], self.ends[first:last], hashes)

    @property
    def hashes(self) -> Hashes:
        """(n,) the hash of each string's bytes under SECRET_KEY, and of nothing else."""
        if self.known_hashes is None:
            self.known_hashes = hash_each(self.data, self.starts, self.ends, SECRET_KEY)
        return self.known_hashes

    def texts(self) -> list[str]:
        """As Python strings."""
        if len(self) == 0:
            return []
        lines = _in_lines(self.data, self.starts, self.ends).tobytes()
        if lines.count(b"\n") == len(self) - 1:
            return lines.decode("utf-8", "surrogatepass").split("\n")
        return [each.decode("utf-8", "surrogatepass") for each in self.strings()]

    def strings(self) -> list[bytes]:
        """As bytes, each by itself."""
        spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [self.data[start:end].tobytes() for start, end in spans]


@kernel
def put(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Copy data[start:end]; returns where it ends in `out`.

    With unsigned indices: signed ones may count from the end, and looking for that at each byte
    takes five times as long as the copying.
    """
    to, of = np.uint64(at), np.uint64(start)
    for k in range(np.uint64(end - start)):
        out[to + k] = data[of + k]
    return at + end - start


@kernel
def put_number(out: Bytes, at: int, number: int) -> int:
    """Write a number that is not below 0 in decimal digits; returns where it ends."""
    size, rest = 1, number // 10
    while rest:
        size, rest = size + 1, rest // 10
    for i in range(size - 1, -1, -1):
        out[at + i] = 48 + number % 10
        number //= 10
    return at + size


@kernel
def hash_each(data: Bytes, starts: Ints, ends: Ints, key: Key) -> Hashes:
    """(n,) the hash of each string's bytes under a key."""
    found = np.empty(len(ends), np.uint64)
    for i in range(len(ends)):
        found[i] = hashed(key, data, starts[i], ends[i])
    return found


@kernel
def are_distinct(hashes: Hashes) -> bool:
    """Whether no two are the same, nor any is 0."""
    if len(hashes) <= FEW:
        same = 0
        for i in range(1, len(hashes)):
            for k in range(i):
                same += hashes[i] == hashes[k]
        return same == 0
    slots = 2 * FEW
    while slots < 2 * len(hashes):
        slots *= 2
    seen, mask = np.zeros(slots, np.uint64), np.uint64(slots - 1)
    for h in hashes:  # 0, which nobody has but by chance, is a free slot: that name counts as two
        slot = h & mask
        while seen[slot] != FREE and seen[slot] != h:
            slot = (slot + ONE) & mask
        if seen[slot] == h:
            return False
        seen[slot] = h
    return True


@kernel
def _in_lines(data: Bytes, starts: Ints, ends: Ints) -> Bytes:
    """The strings with new lines between them."""
    size = len(ends) - 1
    for i in range(len(ends)):
        size += ends[i] - starts[i]
    out = np.full(size, NEW_LINE, np.uint8)
    at = 0
    for i in range(len(ends)):
        at = put(out, at, data, starts[i], ends[i]) + 1
    return out


@kernel
def _distinct(data: Bytes, starts: Ints, ends: Ints, key: Key) -> tuple[Ints, Ints]:
    """The first row of each different string, and which of these each row has."""
    slots = 1
    while slots < 2 * len(ends):
        slots *= 2
    table, firsts = np.full(slots, -1), np.empty(len(ends), np.int64)
    which = np.empty(len(ends), np.int64)
    kinds = 0
    for i in range(len(ends)):
        slot = np.int64(hashed(key, data, starts[i], ends[i])) & (slots - 1)
        while table[slot] >= 0 and not _are_same(data, starts, ends, firsts[table[slot]], i):
            slot = (slot + 1) & (slots - 1)
        if table[slot] < 0:
            table[slot], firsts[kinds] = kinds, i
            kinds += 1
        which[i] = table[slot]
    return firsts[:kinds], which


@kernel
def _are_same(data: Bytes, starts: Ints, ends: Ints, i: int, j: int) -> bool:
    if ends[j] - starts[j] != ends[i] - starts[i]:
        return False
    size, k = ends[i] - starts[i], 0
    while k < size and data[starts[i] + k] == data[starts[j] + k]:
        k += 1
    return bool(k == size)


def distinct(strings: StringColumn) -> tuple[StringColumn, Ints]:
    """The different strings, in order of appearance, and (n,) which of these each row has."""
    firsts, which = _distinct(strings.data, strings.starts, strings.ends, SECRET_KEY)
    return strings.take(firsts), which


@inlined
def compact(data: Bytes, starts: Ints, ends: Ints, out: Bytes, at: int) -> int:
    """Copy strings to `out`, from `at` on, with nothing between them; `starts` and `ends` are
    changed to where they are there. Returns where the last one ends."""
    for i in range(len(starts)):
        first, at = at, put(out, at, data, starts[i], ends[i])
        starts[i], ends[i] = first, at
    return at


@kernel
def _compact(data: Bytes, starts: Ints, ends: Ints, out: Bytes, at: int) -> int:
    return compact(data, starts, ends, out, at)
