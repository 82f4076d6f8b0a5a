"""The base class of all columnar data with a value for each round, each entry or each player.

A round is a group of entries, and an entry is a group of players. A class names its columns, and
`Ragged` takes, cuts and joins all of them at once. The functions that do this are compiled once for
each class from its fields, as the methods of dataclasses are. A generic loop would take some
microseconds more at every step for a round of five players.

This module is not in `columns`, because it has no kernel, and an edit in `columns` causes all
kernels to be compiled again.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, ClassVar, NamedTuple, Self, get_origin

import msgspec
import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.ranges import bounds, spread
from stream_rater.columns.strings import StringColumn

Span = tuple[int, int]  # The number of the first row, and the number after the last row.


class Ragged(msgspec.Struct, gc=False):
    """R rounds with E entries and P players in all, as columns.

    A column is an array, a StringColumn, another Ragged with the same rounds, or else a list. It
    has a value for each entry if `per_entry` names it, for each player if `per_player` names it,
    and otherwise for each round. A StringColumn or a list may be empty if its values are not
    needed. An array that `optional` names is empty if all of its values would be the one that
    stands there.

    A subclass has a column `sizes` or a property of that name: (R,) the number of players of each
    round. If it has columns by entry, it also has `entries`: (R,) the number of entries of each
    round.
    """

    per_entry: ClassVar[tuple[str, ...]] = ()
    per_player: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[Mapping[str, Any]] = {}
    """The columns that may be empty, and the value that stands for each row of an empty one."""
    empty: ClassVar[Any] = None  # The object of the subclass that has no rounds.

    def __len__(self) -> int:
        return len(self.sizes)  # type: ignore[attr-defined]

    def take(self, rounds: Ints) -> Self:
        """Copy these rounds, in this order."""
        taken: Self = functions_of(type(self)).take(self, rounds)
        return taken

    def slice(self, first: int, last: int) -> Self:
        """A view of the rounds from `first` to before `last`."""
        columns: Any = self
        players = entries = bounds(columns.sizes[:last])[[first, last]].tolist()
        if self.per_entry:
            entries = bounds(columns.entries[:last])[[first, last]].tolist()
        return self.cut((first, last), players, entries)

    def cut(self, rounds: Span, players: Span, entries: Span) -> Self:
        """A view of consecutive rounds with their players and their entries."""
        view: Self = functions_of(type(self)).cut(self, *rounds, *players, *entries)
        return view

    @classmethod
    def concat(cls, batches: Sequence[Self]) -> Self:
        """Concatenate the rounds of these objects."""
        own = [each for each in batches if len(each)]
        if len(own) < 2:
            empty: Self = cls.empty
            return own[0] if own else empty
        joined: Self = functions_of(cls).concat(own)
        return joined


class RaggedFunctions(NamedTuple):
    """The functions that are compiled for a class, for all its columns."""

    take: Callable[..., Any]
    cut: Callable[..., Any]
    concat: Callable[..., Any]


_SOURCE = """
def take(self, r):
    p = rows_of(self.sizes, r)
    {entries}
    return cls({take})

def cut(self, r0, r1, p0, p1, e0, e1):
    return cls({cut})

def concat(some):
    return cls({concat})
"""

_LIST = (
    "[*map(self.{0}.__getitem__, {1}.tolist())] if len(self.{0}) else self.{0}",
    "self.{0}[{1}0:{1}1]",
    "[*chain(*{2})]",
)
_ARRAY = "self.{0}[{1}]", "self.{0}[{1}0:{1}1]", "join({2})"
_OPTIONAL = (
    "self.{0}[{1}] if len(self.{0}) else self.{0}",
    "self.{0}[{1}0:{1}1] if len(self.{0}) else self.{0}",
    "filled({2}, [len(x.{3}) for x in some], cls.optional['{0}'])",
)
_STRINGS = (
    "self.{0}.take({1}, compact=True) if len(self.{0}) else self.{0}",
    "self.{0}.slice({1}0, {1}1) if len(self.{0}) else self.{0}",
    "strings({2})",
)
_NESTED = "self.{0}.take({1})", "self.{0}.slice({1}0, {1}1)", "type(some[0].{0}).concat({2})"
"""For a column of each kind, the expressions that take, cut and join it. {0} is the column's name,
{1} the letter of its rows (r, e or p), {2} the columns to join, and {3} a column that always has a
value for each of these rows."""


@cache
def functions_of(cls: type[Ragged]) -> RaggedFunctions:
    """The compiled functions of a class. A loop over single rounds calls them directly."""
    rows = dict.fromkeys(cls.per_entry, "e") | dict.fromkeys(cls.per_player, "p")
    whole = {"r": "sizes", "e": cls.per_entry[:1], "p": cls.per_player[:1]}
    expressions = []
    for each in msgspec.structs.fields(cls):
        letter = rows.get(each.name, "r")
        values = each.name, letter, f"[x.{each.name} for x in some]", "".join(whole[letter])
        kinds = _OPTIONAL if each.name in cls.optional else _expressions(each.type)
        expressions.append([expression.format(*values) for expression in kinds])
    take, cut, concat = map(", ".join, zip(*expressions, strict=True))
    entries = "e = rows_of(self.entries, r)" if cls.per_entry else ""
    known: dict[str, Any] = {
        "cls": cls, "rows_of": rows_of, "chain": chain, "join": np.concatenate,
        "strings": StringColumn.concat, "filled": _filled,
    }  # fmt: skip
    exec(_SOURCE.format(entries=entries, take=take, cut=cut, concat=concat), known)
    return RaggedFunctions(known["take"], known["cut"], known["concat"])


def _expressions(kind: Any) -> tuple[str, str, str]:
    if get_origin(kind) is np.ndarray:
        return _ARRAY
    if kind is StringColumn:
        return _STRINGS
    return _NESTED if isinstance(kind, type) and issubclass(kind, Ragged) else _LIST


def _filled(columns: Sequence[Any], sizes: Sequence[int], value: Any) -> Any:
    """Join arrays. If only some are empty, such a one gets its size in copies of the value."""
    if not any(map(len, columns)):
        return columns[0]
    return np.concatenate([
        column if len(column) else np.full(size, value, column.dtype)
        for column, size in zip(columns, sizes, strict=True)
    ])  # fmt: skip


def rows_of(sizes: Ints, rounds: Ints) -> Ints:
    """The rows of these rounds. `sizes` has the number of rows of each round."""
    return spread(bounds(sizes)[rounds], sizes[rounds])
