"""Turns tables into tables of Arrow, and into data frames of pandas and Polars.

In all three, ids are texts, times are timestamps in UTC, and an absent value is null. None of these
packages is needed for anything else, so each is imported when it is first used.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from stream_rater.config.errors import extra, own_package

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

Column = npt.NDArray[Any]


def to_arrow(columns: Mapping[str, Column], absent: Mapping[str, int]) -> "pa.Table":
    """A table of Arrow with these columns. `absent`: by name of a column, the number that stands
    for an absent value. Raises MissingExtra."""
    with extra("arrow"):
        import pyarrow as pa

    def array(name: str, column: Column) -> Any:
        if column.dtype.kind == "O":
            text = pa.string()
            return pa.array(column.tolist(), pa.list_(text) if _has_lists(column) else text)
        if column.dtype.kind == "M":
            return pa.array(column, pa.timestamp("s", "UTC"))
        return pa.array(column, mask=column == absent[name] if name in absent else None)

    return pa.table({name: array(name, column) for name, column in columns.items()})


def to_pandas(columns: Mapping[str, Column], absent: Mapping[str, int]) -> "pd.DataFrame":
    """A data frame of pandas with these columns. `absent` is as in `to_arrow`. Raises
    MissingExtra."""
    with own_package():
        import pandas as pd

    def series(name: str, column: Column) -> Any:
        if column.dtype.kind == "O":
            values = column.tolist()
            return pd.Series(values, dtype="object" if _has_lists(column) else "str")
        if column.dtype.kind == "M":
            return pd.Series(column).dt.tz_localize("UTC")
        if name in absent:
            return pd.Series(pd.arrays.IntegerArray(column.copy(), column == absent[name]))
        return pd.Series(column.copy())

    return pd.DataFrame({name: series(name, column) for name, column in columns.items()})


def to_polars(columns: Mapping[str, Column], absent: Mapping[str, int]) -> "pl.DataFrame":
    """A data frame of Polars with these columns. `absent` is as in `to_arrow`. Raises
    MissingExtra."""
    with own_package():
        import polars as pl

    def series(name: str, column: Column) -> "pl.Series":
        if column.dtype.kind == "O":
            lists = _has_lists(column)
            values = [list(each) for each in column] if lists else column.tolist()
            return pl.Series(name, values, pl.List(pl.String) if lists else pl.String)
        if column.dtype.kind == "M":
            milliseconds = pl.Series(name, column.astype("datetime64[ms]"))
            return milliseconds.dt.replace_time_zone("UTC")
        found = pl.Series(name, column)
        return found.replace(absent[name], None) if name in absent else found

    return pl.DataFrame([series(name, column) for name, column in columns.items()])


def _has_lists(column: Column) -> bool:
    """Whether the values of a column of objects are tuples of ids, and not ids."""
    return len(column) > 0 and isinstance(column[0], tuple)
