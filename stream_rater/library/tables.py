"""Columns of equal length that a notebook shows as a table.

The packages of data frames are needed for nothing else, so each is imported when it is first used.
In HTML all texts are escaped. Nothing has a colour of its own, so a table suits light and dark
notebooks. Styles stand at each element: notebooks that are not trusted drop style sheets.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from stream_rater.columns.arrays import Flags
from stream_rater.config.errors import extra, own_package
from stream_rater.contract.events import shown

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

SHOWN_ROWS = 20  # The number of rows that are shown of a longer table.

WHOLE = "overflow-x: auto; font-variant-numeric: tabular-nums"
TABLE = "border-collapse: collapse; table-layout: auto; margin: 0"
CAPTION = "caption-side: top; padding: 0 0 0.5em; color: inherit"
CELL = "padding: 0.2em 0.8em; white-space: nowrap"
HEADING = "border-bottom: 1px solid currentColor"
NOTE = "opacity: 0.7; margin: 0.3em 0.8em"

Column = npt.NDArray[Any]
Objects = npt.NDArray[np.object_]  # (n,) Python values. A column of texts stores them unchanged.


def objects(values: list[Any]) -> Objects:
    """(n,) an array of these values, of any type."""
    return np.fromiter(values, np.object_, len(values))


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """A table by columns: each field that is an array has an element for each row."""

    DECIMALS: ClassVar[Mapping[str, int]] = {}
    """By name of a column of floats, the number of decimals that are shown; 1 for other columns."""
    ABSENT: ClassVar[Mapping[str, int]] = {}
    """By column of integers, the number for an absent value. Rows and frames have None or null."""
    LEADING: ClassVar[Sequence[str]] = ()  # The names of the columns that come first.

    @classmethod
    def later(cls, fields_with: Callable[[str], dict[str, Any]]) -> Self:
        """A table whose fields are made when one is first read: `fields_with` makes some fields, or
        all, with the one of this name among them."""
        found = cls.__new__(cls)
        found.__dict__["_fields_with"] = fields_with
        return found

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Make an absent field: Python calls this for absent attributes only."""
            fields_with = self.__dict__.get("_fields_with")
            if fields_with and name in self.__dataclass_fields__:
                self.__dict__.update(fields_with(name) | self.__dict__)
            return object.__getattribute__(self, name)

    @property
    def title(self) -> str:
        """The line above the table."""
        return type(self).__name__

    def columns(self) -> dict[str, Column]:
        """The columns by name, in order."""
        names = dict.fromkeys((*self.LEADING, *(each.name for each in fields(self))))
        every = ((name, getattr(self, name)) for name in names)
        return {name: column for name, column in every if isinstance(column, np.ndarray)}

    def __len__(self) -> int:
        return len(next(iter(self.columns().values())))

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows, each a dict of Python values by column."""
        columns = self.columns()
        values = (self._values(name, column) for name, column in columns.items())
        return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]

    def _values(self, name: str, column: Column) -> list[Any]:
        """A column as Python values, with times as RFC 3339 text."""
        if column.dtype.kind == "M":
            return [f"{each}Z" for each in np.datetime_as_string(column, "s").tolist()]
        values: list[Any] = column.tolist()
        if name in self.ABSENT:
            return [None if each == self.ABSENT[name] else each for each in values]
        return values

    def to_arrow(self) -> "pa.Table":
        """The table as a table of Arrow. Ids are texts, and times are timestamps in UTC. The rank
        of a side that did not finish is null.

        Raises MissingExtra if pyarrow is not installed.
        """
        with extra("arrow"):
            import pyarrow as pa

        def array(name: str, column: Column) -> Any:
            if column.dtype.kind == "O":
                text = pa.string()
                return pa.array(column.tolist(), pa.list_(text) if _has_lists(column) else text)
            if column.dtype.kind == "M":
                return pa.array(column, pa.timestamp("s", "UTC"))
            return pa.array(column, mask=self._is_absent(name, column))

        return pa.table({name: array(name, column) for name, column in self.columns().items()})

    def _is_absent(self, name: str, column: Column) -> Flags | None:
        return column == self.ABSENT[name] if name in self.ABSENT else None

    def to_pandas(self) -> "pd.DataFrame":
        """The table as a frame of pandas, as in `to_arrow`. Raises MissingExtra without pandas."""
        with own_package():
            import pandas as pd

        def series(name: str, column: Column) -> Any:
            if column.dtype.kind == "O":
                dtype = "object" if _has_lists(column) else "str"
                return pd.Series(column.tolist(), dtype=dtype)
            if column.dtype.kind == "M":
                return pd.Series(column).dt.tz_localize("UTC")
            if (absent := self._is_absent(name, column)) is not None:
                return pd.Series(pd.arrays.IntegerArray(column.copy(), absent))
            return pd.Series(column.copy())

        return pd.DataFrame({name: series(name, each) for name, each in self.columns().items()})

    def to_polars(self) -> "pl.DataFrame":
        """The table as a frame of Polars, as in `to_arrow`. Raises MissingExtra without Polars."""
        with own_package():
            import polars as pl

        def series(name: str, column: Column) -> "pl.Series":
            if column.dtype.kind == "O" and _has_lists(column):
                return pl.Series(name, [list(each) for each in column], pl.List(pl.String))
            if column.dtype.kind == "O":
                return pl.Series(name, column.tolist(), pl.String)
            if column.dtype.kind == "M":
                milliseconds = pl.Series(name, column.astype("datetime64[ms]"))
                return milliseconds.dt.replace_time_zone("UTC")
            values = pl.Series(name, column)
            return values.replace(self.ABSENT[name], None) if name in self.ABSENT else values

        return pl.DataFrame([series(name, column) for name, column in self.columns().items()])

    def __repr__(self) -> str:
        cells = [list(self.columns()), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        sides = ["<" if left else ">" for left in self._are_left()]
        line = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
        lines = [line.format(*row).rstrip() for row in cells]
        return "\n".join([shown(self.title), *lines, *self._hidden_rows()])

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self, title: str = "") -> str:
        """The first rows as HTML, as notebooks show them. `title`: the line above the table, if it
        should not be the table's own. All texts are escaped."""
        return _html(
            shown(title or self.title), self.columns(), self._cells(), self._are_left(),
            self._hidden_rows(),
        )  # fmt: skip

    def _are_left(self) -> list[bool]:
        """Whether each column is aligned to the left, as texts and times are."""
        return [column.dtype.kind in "OM" for column in self.columns().values()]

    def _cells(self) -> Iterator[list[str]]:
        texts = (
            [self._text(name, each) for each in self._values(name, column[:SHOWN_ROWS])]
            for name, column in self.columns().items()
        )
        return map(list, zip(*texts, strict=True))

    def _text(self, name: str, value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.{self.DECIMALS.get(name, 1)}f}"
        if isinstance(value, tuple):
            return shown(", ".join(map(str, value)))
        return "" if value is None else shown(str(value))

    def _hidden_rows(self) -> list[str]:
        left = len(self) - SHOWN_ROWS
        return [f"… and {left:,} more"] if left > 0 else []


def _has_lists(column: Column) -> bool:
    """Whether the values of a column of objects are tuples of ids, and not ids."""
    return len(column) > 0 and isinstance(column[0], tuple)


def _html(
    title: str, headings: Iterable[str], rows: Iterable[Sequence[str]], is_left: Sequence[bool],
    notes: Iterable[str] = (),
) -> str:  # fmt: skip
    """A table with a title above it and notes below it. `is_left`: whether each column is aligned
    to the left, otherwise to the right."""
    styles = [f"text-align: {'left' if left else 'right'}; {CELL}" for left in is_left]
    head = _row("th", headings, [f"{style}; {HEADING}" for style in styles])
    body = "".join(_row("td", row, styles) for row in rows)
    below = "".join(f'<p style="{NOTE}">{escape(note)}</p>' for note in notes)
    return _whole(title, f"<thead>{head}</thead><tbody>{body}</tbody>", below)


def html_fields(title: str, values: Mapping[str, str]) -> str:
    """A table with a row for each name and its value."""
    name, value = f"text-align: left; {CELL}", f"text-align: right; {CELL}"
    body = "".join(
        f'<tr><th scope="row" style="{name}">{escape(each)}</th>'
        f'<td style="{value}">{escape(text)}</td></tr>'
        for each, text in values.items()
    )
    return _whole(title, f"<tbody>{body}</tbody>")


def _whole(title: str, rows: str, below: str = "") -> str:
    table = f'<table style="{TABLE}"><caption style="{CAPTION}">{escape(title)}</caption>{rows}'
    return f'<div style="{WHOLE}">{table}</table>{below}</div>'


def _row(tag: str, cells: Iterable[str], styles: Sequence[str]) -> str:
    parts = (
        f'<{tag} style="{style}">{escape(text)}</{tag}>'
        for text, style in zip(cells, styles, strict=True)
    )
    return f"<tr>{''.join(parts)}</tr>"
