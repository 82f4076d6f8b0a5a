"""A round's players: as texts, or end to end in bytes, each made of the other when it is asked for.

A decoder finds names as bytes and the laboratory looks them up as bytes: texts of millions, which
take longer than both, are for those who show or send them.
"""

from collections.abc import Sequence
from itertools import accumulate

import msgspec
import numpy as np
import numpy.typing as npt

from stream_rater.rating.compiled import inlined, kernel
from stream_rater.rating.model import Ints

Bytes = npt.NDArray[np.uint8]

NEW_LINE = 10

HASH_START, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


class LaidOut(msgspec.Struct, frozen=True, gc=False):
    """Names in UTF-8, and where each starts and ends; between them may be anything."""

    data: Bytes
    starts: Ints
    ends: Ints

    def rows(self, rows: Ints) -> "LaidOut":
        """These of them."""
        return LaidOut(self.data, self.starts[rows], self.ends[rows])

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


@inlined
def hashed(h: np.uint64, data: Bytes, start: int, end: int) -> np.uint64:
    """FNV-1a, of 64 bits, from h on."""
    of = np.uint64(start)
    for k in range(np.uint64(max(end - start, 0))):
        h = np.uint64((h ^ np.uint64(data[of + k])) * FNV_PRIME)
    return h


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


class Names:
    """The names of some players, in order: texts, or some of many that are laid out."""

    __slots__ = ("_all", "_first", "_last", "_texts", "distinct")

    def __init__(
        self, names: LaidOut | list[str], first: int = 0, last: int = -1, *, distinct: bool = False
    ) -> None:
        """Of names that are laid out those from `first` to before `last`, or all."""
        if isinstance(names, LaidOut):
            self._all: LaidOut | None = names
            self._texts: list[str] | None = None
            last = last if last >= 0 else len(names.ends)
        else:
            self._all, self._texts, last = None, names, len(names)
        self._first, self._last = first, last
        self.distinct = distinct
        """Known to hold nobody twice."""

    def __len__(self) -> int:
        return self._last - self._first

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
        own = slice(self._first, self._last)
        return LaidOut(self._all.data, self._all.starts[own], self._all.ends[own])

    def rows(self, rows: Ints) -> "Names":
        """These of them."""
        if self._texts is not None:
            return Names([self._texts[i] for i in rows.tolist()])
        return Names(self.laid_out.rows(rows))

    def some(self, first: int, last: int) -> "Names":
        """Those from `first` to before `last`, or to the end."""
        last = min(last, len(self))
        if self._all is None:
            return Names(self.texts[first:last], distinct=self.distinct)
        start = self._first
        return Names(self._all, start + first, start + last, distinct=self.distinct)


def together(some: Sequence[Names]) -> LaidOut:
    """The names of all of these, one after the other."""
    _lay_out_all([each for each in some if each._all is None])
    first = {id(each._all): each for each in some}
    sources = [each._all for each in first.values() if each._all is not None]
    base = dict(zip(first, [0, *accumulate(len(each.ends) for each in sources)], strict=False))
    firsts = np.array([base[id(each._all)] + each._first for each in some], np.int64)
    chosen = spread(firsts, np.array([each._last - each._first for each in some], np.int64))
    if len(sources) == 1:
        return LaidOut(sources[0].data, sources[0].starts[chosen], sources[0].ends[chosen])
    shift = np.repeat(
        np.cumsum([0, *(len(each.data) for each in sources[:-1])]),
        [len(each.ends) for each in sources],
    )
    return LaidOut(
        np.concatenate([each.data for each in sources]),
        (np.concatenate([each.starts for each in sources]) + shift)[chosen],
        (np.concatenate([each.ends for each in sources]) + shift)[chosen],
    )


def _lay_out_all(some: Sequence[Names]) -> None:
    """Names that are texts, so far: all in one call."""
    laid_out, start = lay_out([text for each in some for text in each.texts]), 0
    for each in some:
        each._all, each._first, each._last = laid_out, start, start + len(each)
        start = each._last


def spread(firsts: Ints, sizes: Ints) -> Ints:
    """Numbers that follow each other: so many from each first one on."""
    shifts = firsts - (np.cumsum(sizes) - sizes)
    return np.repeat(shifts, sizes) + np.arange(sizes.sum())
