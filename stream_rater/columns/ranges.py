"""Rows that belong to groups of different sizes, and columns of such rows.

A round is a group of entries, and an entry a group of players. `Ragged` is the base of everything
that holds a value for each round, each entry and each player: it takes, cuts and joins all columns
at once, so that no subclass does so by hand.
"""

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.strings import StringColumn


class Ragged(msgspec.Struct, gc=False):
    """R rounds with E entries and P players in all, as columns.

    A column is an array, a list, a StringColumn, or another Ragged with the same rounds. It has a
    value for each round, or for each entry or player if `per_entry` or `per_player` names it. An
    empty column stays empty: it stands for values that nobody needs.

    A subclass has a column `sizes` or a property of that name: (R,) the number of players of each
    round. If it has columns by entry, it has `entries`, too: (R,) the number of entries.
    """

    per_entry: ClassVar[tuple[str, ...]] = ()
    per_player: ClassVar[tuple[str, ...]] = ()
    nothing: ClassVar[Any] = None
    """An object of the subclass without rounds."""

    def __len__(self) -> int:
        return len(self.sizes)  # type: ignore[attr-defined]

    def take(self, rounds: Ints) -> Self:
        """These rounds, in this order, copied."""
        cls, columns = type(self), self
        at = [rounds, *(_rows(getattr(columns, name), rounds) for name in _sizes(cls))]
        return cls(*[_taken(getattr(columns, name), at[level]) for name, level in _levels(cls)])

    def slice(self, first: int, last: int) -> Self:
        """The rounds from `first` to before `last`: a view."""
        sizes = [getattr(self, name)[:last] for name in _sizes(type(self))]
        spans = [bounds(each)[[first, last]].tolist() for each in sizes]
        return self.cut([(first, last), *spans])

    def cut(self, spans: Sequence[tuple[int, int]]) -> Self:
        """A view of consecutive rounds, of which `spans` has the rows: the first round and the one
        behind the last, and the same of their players and their entries."""
        cls = type(self)
        return cls(*[_cut(getattr(self, name), *spans[level]) for name, level in _levels(cls)])

    @classmethod
    def concat(cls, some: Sequence[Self]) -> Self:
        """The rounds of all these in turn."""
        own = [each for each in some if len(each)]
        if len(own) < 2:
            nothing: Self = cls.nothing
            return own[0] if own else nothing
        return cls(*[_joined([getattr(each, name) for each in own]) for name, _ in _levels(cls)])


ROUND, PLAYER, ENTRY = range(3)


@cache
def _levels(cls: type[Ragged]) -> list[tuple[str, int]]:
    """The columns of a class, and of what each has a value."""
    levels = dict.fromkeys(cls.per_entry, ENTRY) | dict.fromkeys(cls.per_player, PLAYER)
    return [(name, levels.get(name, ROUND)) for name in cls.__struct_fields__]


@cache
def _sizes(cls: type[Ragged]) -> tuple[str, ...]:
    """The columns with the sizes of rounds that a class needs, in the order of the levels."""
    return ("sizes", "entries") if cls.per_entry else ("sizes",)


def _rows(sizes: Ints, rounds: Ints) -> Ints:
    """The rows of these rounds, which have so many rows each."""
    return spread(bounds(sizes)[rounds], sizes[rounds])


def _taken(column: Any, rows: Ints) -> Any:
    if isinstance(column, np.ndarray):
        return column[rows]
    if isinstance(column, StringColumn):
        return column.take(rows, compact=True) if len(column) else column
    if isinstance(column, Ragged):
        return column.take(rows)
    return [column[i] for i in rows.tolist()]


def _cut(column: Any, first: int, last: int) -> Any:
    if isinstance(column, StringColumn | Ragged):
        return column.slice(first, last) if len(column) else column
    return column[first:last]


def _joined(columns: list[Any]) -> Any:
    first = columns[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(columns)
    if isinstance(first, StringColumn | Ragged):
        return type(first).concat(columns)
    return list(chain.from_iterable(columns))


@kernel
def bounds(sizes: Ints) -> Ints:
    """(n + 1,) where each of n consecutive groups begins, and where the last one ends."""
    found = np.zeros(len(sizes) + 1, np.int64)
    for i in range(len(sizes)):
        found[i + 1] = found[i] + sizes[i]
    return found


@kernel
def spread(firsts: Ints, sizes: Ints) -> Ints:
    """The numbers firsts[i], firsts[i] + 1, … (sizes[i] of them), for each i in turn."""
    out = np.empty(sizes.sum(), np.int64)
    at = 0
    for i in range(len(sizes)):
        for k in range(sizes[i]):
            out[at + k] = firsts[i] + k
        at += sizes[i]
    return out
