"""Columns of equal length that a notebook shows as a table."""

import html
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stream_rater.contract.events import shown

SHOWN_ROWS = 20
"""The number of rows that are shown of a longer table."""

Objects = npt.NDArray[np.object_]
"""(n,) Python values. A column of texts stores them unchanged."""


def objects(values: list[Any]) -> Objects:
    """(n,) an array of these values, of any type."""
    return np.fromiter(values, np.object_, len(values))


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """A table by columns: each field that is an array has an element for each row."""

    DECIMALS: ClassVar[Mapping[str, int]] = {}
    """By name of a column of floats, the number of decimals that are shown; 1 for other columns."""

    @property
    def title(self) -> str:
        """The line above the table."""
        return type(self).__name__

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by name, in order."""
        every = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name: column for name, column in every if isinstance(column, np.ndarray)}

    def __len__(self) -> int:
        return len(next(iter(self.columns().values())))

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows, each a dict of Python values by column."""
        columns = self.columns()
        values = (self._values(name, column) for name, column in columns.items())
        return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]

    def _values(self, name: str, column: npt.NDArray[Any]) -> list[Any]:
        """A column as Python values, with times as RFC 3339 text."""
        if column.dtype.kind == "M":
            return [f"{each}Z" for each in np.datetime_as_string(column, "s").tolist()]
        found: list[Any] = column.tolist()
        return found

    def __repr__(self) -> str:
        cells = [list(self.columns()), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        left = [column.dtype.kind in "OM" for column in self.columns().values()]
        return "\n".join([self.title, *_lines(cells, widths, left), *self._hidden_rows()])

    def _repr_html_(self) -> str:
        """The table as HTML, for notebooks."""
        head = _row("th", self.columns())
        body = "".join(_row("td", cells) for cells in self._cells())
        hidden_rows = "".join(f"<p>{html.escape(line)}</p>" for line in self._hidden_rows())
        title = html.escape(self.title)
        return f"<table><caption>{title}</caption>{head}{body}</table>{hidden_rows}"

    def _cells(self) -> Iterator[list[str]]:
        """The first rows as texts."""
        columns = self.columns()
        texts = (
            [self._text(name, each) for each in self._values(name, column[:SHOWN_ROWS])]
            for name, column in columns.items()
        )
        return (list(row) for row in zip(*texts, strict=True))

    def _text(self, name: str, value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.{self.DECIMALS.get(name, 1)}f}"
        if isinstance(value, tuple):
            return shown(", ".join(map(str, value)))
        return "" if value is None else shown(str(value))

    def _hidden_rows(self) -> list[str]:
        left = len(self) - SHOWN_ROWS
        return [f"… and {left:,} more"] if left > 0 else []


def _lines(cells: list[list[str]], widths: list[int], left: list[bool]) -> Iterator[str]:
    """Yield the lines of a table. `cells`: the texts by row. `widths`: the width of each column.
    `left`: whether each column is aligned to the left, otherwise to the right."""
    for row in cells:
        padded = (
            text.ljust(width) if to_left else text.rjust(width)
            for text, width, to_left in zip(row, widths, left, strict=True)
        )
        yield "  ".join(padded).rstrip()


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(each)}</{tag}>' for each in cells)}</tr>"
