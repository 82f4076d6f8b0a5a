"""A round's players: as texts, or end to end in bytes, each made of the other when it is asked for.

A decoder finds names as bytes and the laboratory looks them up as bytes: texts of millions, which
take longer than both, are for those who show or send them.

Names come from outside. So each table that holds them takes its slots from their hashes under
SECRET_KEY. These hashes are good within this process: nothing that is stored, sent or shown depends
on them.
"""

import secrets
from collections.abc import Sequence
from itertools import accumulate

import msgspec
import numpy as np

from stream_rater.columns.arrays import Bytes, Hashes, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.columns.ranges import spread
from stream_rater.columns.siphash import Key, hashed

NEW_LINE = 10

SECRET_KEY = Key(np.uint64(secrets.randbits(64)), np.uint64(secrets.randbits(64)))
"""Drawn once per process, so that nobody outside can choose names that share a slot. An argument of
kernels: numba would compile a global into them, and keep it on the disk."""

FEW = 32
"""Up to so many hashes are compared with each other."""

FREE, ONE = np.uint64(0), np.uint64(1)


class LaidOut(msgspec.Struct, frozen=True, gc=False):
    """Names in UTF-8, and where each starts and ends; between them may be anything."""

    data: Bytes
    starts: Ints
    ends: Ints
    known_hashes: Hashes | None = None

    def rows(self, rows: Ints) -> "LaidOut":
        """These of them."""
        return LaidOut(self.data, self.starts[rows], self.ends[rows])

    def picked(self, rows: Ints) -> "LaidOut":
        """The same, and nothing of the others is kept."""
        starts, ends = self.starts[rows], self.ends[rows]
        data = np.empty(int((ends - starts).sum()), np.uint8)
        _close_up(self.data, starts, ends, data, 0)
        return LaidOut(data, starts, ends)

    def some(self, where: slice) -> "LaidOut":
        """Those that stand there."""
        hashes = None if self.known_hashes is None else self.known_hashes[where]
        return LaidOut(self.data, self.starts[where], self.ends[where], hashes)

    @property
    def hashes(self) -> Hashes:
        """Of each name: the hash of its bytes under SECRET_KEY, and of nothing else."""
        if self.known_hashes is None:
            return hash_each(self.data, self.starts, self.ends, SECRET_KEY)
        return self.known_hashes

    def texts(self) -> list[str]:
        """As texts."""
        if len(self.ends) == 0:
            return []
        joined = _joined(self.data, self.starts, self.ends).tobytes()
        if joined.count(b"\n") == len(self.ends) - 1:
            return joined.decode("utf-8", "surrogatepass").split("\n")
        spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [
            self.data[start:end].tobytes().decode("utf-8", "surrogatepass") for start, end in spans
        ]


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
    """Of each name: the hash of its bytes under a key."""
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
def _joined(data: Bytes, starts: Ints, ends: Ints) -> Bytes:
    """The names with new lines between them."""
    size = len(ends) - 1
    for i in range(len(ends)):
        size += ends[i] - starts[i]
    out = np.full(size, NEW_LINE, np.uint8)
    at = 0
    for i in range(len(ends)):
        at = put(out, at, data, starts[i], ends[i]) + 1
    return out


def lay_out(names: Sequence[str]) -> LaidOut:
    """Texts as bytes. In a copy: to kernels, what may not be written to is of another type."""
    data = "\n".join(names).encode("utf-8", "surrogatepass")
    if data.count(b"\n") == len(names) - 1:
        text = np.frombuffer(data, np.uint8).copy()
        ends = np.flatnonzero(text == NEW_LINE)
        return LaidOut(text, np.append(0, ends + 1), np.append(ends, len(data)))
    parts = [name.encode("utf-8", "surrogatepass") for name in names]
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return LaidOut(np.frombuffer(b"".join(parts), np.uint8).copy(), np.append(0, ends)[:-1], ends)


@kernel
def _distinct(data: Bytes, starts: Ints, ends: Ints, key: Key) -> tuple[Ints, Ints]:
    """The first of each kind, and of which kind each is."""
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


def distinct(names: LaidOut) -> tuple[LaidOut, Ints]:
    """The different ones, as they come, and (n,) which of these each is."""
    firsts, which = _distinct(names.data, names.starts, names.ends, SECRET_KEY)
    return names.rows(firsts), which


class Names:
    """The names of some players, in order: texts, or some of many that are laid out."""

    __slots__ = ("_all", "_distinct", "_first", "_last", "_texts")

    def __init__(
        self, names: LaidOut | list[str], first: int = 0, last: int = -1,
        *, distinct: bool | None = False,
    ) -> None:  # fmt: skip
        """Of names that are laid out those from `first` to before `last`, or all.

        `distinct`: whether they are known to hold nobody twice; None: see by their hashes.
        """
        if isinstance(names, LaidOut):
            self._all: LaidOut | None = names
            self._texts: list[str] | None = None
            last = last if last >= 0 else len(names.ends)
        else:
            self._all, self._texts, last = None, names, len(names)
        self._first, self._last = first, last
        self._distinct = distinct

    def __len__(self) -> int:
        return self._last - self._first

    @property
    def distinct(self) -> bool:
        """Known to hold nobody twice."""
        if self._distinct is None:
            self._distinct = are_distinct(self.laid_out.hashes)
        return self._distinct

    @property
    def texts(self) -> list[str]:
        """As texts."""
        if self._texts is None:
            self._texts = self.laid_out.texts()
        return self._texts

    @property
    def laid_out(self) -> LaidOut:
        """As bytes."""
        if self._all is None:
            self._all = lay_out(self.texts)
        return self._all.some(slice(self._first, self._last))

    def rows(self, rows: Ints) -> "Names":
        """These of them."""
        if self._texts is not None:
            return Names([self._texts[i] for i in rows.tolist()])
        return Names(self.laid_out.rows(rows))

    def some(self, first: int, last: int) -> "Names":
        """Those from `first` to before `last`, or to the end."""
        last = min(last, len(self))
        if self._all is None:
            return Names(self.texts[first:last], distinct=self._distinct)
        start = self._first
        return Names(self._all, start + first, start + last, distinct=self._distinct)


def together(some: Sequence[Names]) -> LaidOut:
    """The names of all of these, one after the other."""
    if texts := [each for each in some if each._all is None]:
        _lay_out_all(texts)
    first = {id(each._all): each for each in some}
    sources = [each._all for each in first.values() if each._all is not None]
    base = dict(zip(first, [0, *accumulate(len(each.ends) for each in sources)], strict=False))
    firsts = np.array([base[id(each._all)] + each._first for each in some], np.int64)
    chosen = spread(firsts, np.array([each._last - each._first for each in some], np.int64))
    if len(sources) == 1:
        return LaidOut(sources[0].data, sources[0].starts[chosen], sources[0].ends[chosen])
    names = chained(sources)
    return LaidOut(names.data, names.starts[chosen], names.ends[chosen])


@inlined
def close_up(data: Bytes, starts: Ints, ends: Ints, out: Bytes, at: int) -> int:
    """Copy names to `out`, one behind the other, and tell where they are there instead."""
    for i in range(len(starts)):
        first, at = at, put(out, at, data, starts[i], ends[i])
        starts[i], ends[i] = first, at
    return at


@kernel
def _close_up(data: Bytes, starts: Ints, ends: Ints, out: Bytes, at: int) -> int:
    return close_up(data, starts, ends, out, at)


def chained(some: Sequence[LaidOut]) -> LaidOut:
    """All of these, one after the other, and nothing between them."""
    starts = np.concatenate([each.starts for each in some])
    ends = np.concatenate([each.ends for each in some])
    data = np.empty(int((ends - starts).sum()), np.uint8)
    at = first = 0
    for each in some:
        last = first + len(each.ends)
        at = _close_up(each.data, starts[first:last], ends[first:last], data, at)
        first = last
    return LaidOut(data, starts, ends)


def _lay_out_all(some: Sequence[Names]) -> None:
    """Names that are texts, so far: all in one call."""
    laid_out, start = lay_out([text for each in some for text in each.texts]), 0
    for each in some:
        each._all, each._first, each._last = laid_out, start, start + len(each)
        start = each._last
