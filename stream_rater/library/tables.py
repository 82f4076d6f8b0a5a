"""Columns of equal length that a notebook shows as a table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from stream_rater.contract.events import shown
from stream_rater.library import frames, markup

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

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
    """The number of decimals that are shown in each column of floats; 1 for columns not named."""
    ABSENT: ClassVar[Mapping[str, int]] = {}
    """By name of a column of integers, the number that stands for an absent value. Rows and data
    frames have None or null in its place."""

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
        if name in self.ABSENT:
            return [None if each == self.ABSENT[name] else each for each in found]
        return found

    def to_arrow(self) -> "pa.Table":
        """The table as a table of Arrow. Ids are texts, and times are timestamps in UTC. The rank
        of a side that did not finish is null.

        Raises MissingExtra if pyarrow is not installed.
        """
        return frames.to_arrow(self.columns(), self.ABSENT)

    def to_pandas(self) -> "pd.DataFrame":
        """The table as a data frame of pandas, as in `to_arrow`. Raises MissingExtra if pandas is
        not installed."""
        return frames.to_pandas(self.columns(), self.ABSENT)

    def to_polars(self) -> "pl.DataFrame":
        """The table as a data frame of Polars, as in `to_arrow`. Raises MissingExtra if Polars is
        not installed."""
        return frames.to_polars(self.columns(), self.ABSENT)

    def __repr__(self) -> str:
        cells = [list(self.columns()), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = _lines(cells, widths, self._are_left())
        return "\n".join([shown(self.title), *lines, *self._hidden_rows()])

    def _repr_html_(self) -> str:
        """The table as HTML, for notebooks."""
        return self.to_html()

    def to_html(self, title: str = "") -> str:
        """The first rows as HTML, as notebooks show them. `title`: the line above the table, if it
        should not be the table's own. All texts are escaped."""
        return markup.table(
            shown(title or self.title), self.columns(), self._cells(), self._are_left(),
            self._hidden_rows(),
        )  # fmt: skip

    def _are_left(self) -> list[bool]:
        """Whether each column is aligned to the left, as texts and times are."""
        return [column.dtype.kind in "OM" for column in self.columns().values()]

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
