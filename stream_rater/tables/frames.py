"""Reads data frames, dicts of columns and Parquet files as rows of Python values.

Frames of pandas and Polars and dicts are read column by column. Whatever else offers its columns by
`__arrow_c_stream__` or `__dataframe__` is read by pyarrow, the extra `arrow`, as are Parquet files.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from stream_rater.config.errors import missing
from stream_rater.tables.reading import UnreadableTable
from stream_rater.tables.source import Reject, Source

FRAME: Final = "table"
"""The name of a table that is no file."""

PARQUET_EXTRA: Final = missing("pyarrow", "arrow")


class ColumnRows(Source):
    """The rows of a table that is given by its columns."""

    def __init__(self, columns: Mapping[str, Any], read: Any) -> None:
        """`read(column)` gives the values of a column as a list."""
        super().__init__(FRAME, FRAME, "row")
        self.columns, self._values, self._read = list(columns), list(columns.values()), read

    def rows(self, places: Sequence[int], reject: Reject) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the rows. Raises UnreadableTable if the columns differ in length."""
        needed = {place: self._read(self._values[place]) for place in places}
        sizes = {self.columns[place]: len(values) for place, values in needed.items()}
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
            raise UnreadableTable(f"{self.name}: its columns differ in length: {listed}")
        return _numbered(needed, len(self.columns), 0)


class ArrowRows(Source):
    """The rows of the record batches of pyarrow."""

    def __init__(self, name: str, stem: str, opened: Callable[[], Any]) -> None:
        """`opened()` gives a Parquet file or a table, by pyarrow."""
        super().__init__(name, stem, "row")
        self._again, self._opened = opened, opened()
        schema = getattr(self._opened, "schema_arrow", None) or self._opened.schema
        self.columns = [str(each) for each in schema.names]

    def rows(self, places: Sequence[int], reject: Reject) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the rows, a record batch at a time."""
        first = 0
        with _arrow_failures(self.name):
            self._opened = self._opened or self._again()
            for batch in self._batches(places):
                needed = {place: _arrow_values(batch.column(i)) for i, place in enumerate(places)}
                yield from _numbered(needed, len(self.columns), first)
                first += batch.num_rows
            self._opened = None

    def _batches(self, places: Sequence[int]) -> Iterator[Any]:
        names = [self.columns[place] for place in places]
        if hasattr(self._opened, "iter_batches"):
            yield from self._opened.iter_batches(columns=names)
            return
        batches = self._opened.to_batches() if hasattr(self._opened, "to_batches") else self._opened
        for batch in batches:
            yield batch.select(names)


def parquet_rows(path: Path, stem: str) -> ArrowRows:
    """The rows of a Parquet file. Raises UnreadableTable, which names the extra if pyarrow is not
    installed."""
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise UnreadableTable(f"{path}: {PARQUET_EXTRA}") from None
    with _arrow_failures(str(path)):
        return ArrowRows(str(path), stem, partial(parquet.ParquetFile, path))


def rows_of(table: Any) -> Source:
    """The rows of a dict of columns or of a data frame. Raises UnreadableTable if it is neither."""
    if isinstance(table, Mapping):
        return ColumnRows({str(name): each for name, each in table.items()}, _listed)
    package = type(table).__module__.partition(".")[0]
    if package == "pandas" and hasattr(table, "columns"):
        columns = [table.iloc[:, i] for i in range(len(table.columns))]
        return _ordered(map(str, table.columns), columns, _of_pandas)
    if package == "polars" and hasattr(table, "collect") and not hasattr(table, "get_columns"):
        table = table.collect()
    if package == "polars" and hasattr(table, "get_columns"):
        return _ordered(table.columns, table.get_columns(), lambda each: each.to_list())
    return _by_arrow(table)


def _ordered(names: Any, columns: Sequence[Any], read: Any) -> ColumnRows:
    """The rows of columns whose names may repeat."""
    found = ColumnRows({}, read)
    found.columns, found._values = list(names), list(columns)
    return found


def _by_arrow(table: Any) -> ArrowRows:
    streams, frames = hasattr(table, "__arrow_c_stream__"), hasattr(table, "__dataframe__")
    if not streams and not frames:
        raise UnreadableTable(
            f"{type(table).__name__} is no table: give a dict of columns, or a frame with "
            "__arrow_c_stream__ or __dataframe__, as those of Polars, pandas, DuckDB and pyarrow"
        )
    try:
        import pyarrow as pa
        from pyarrow import interchange
    except ModuleNotFoundError:
        raise UnreadableTable(
            f"{type(table).__name__}: {PARQUET_EXTRA}; a dict of columns needs none"
        ) from None
    with _arrow_failures(FRAME):
        if streams:
            return ArrowRows(FRAME, FRAME, partial(pa.RecordBatchReader.from_stream, table))
        return ArrowRows(FRAME, FRAME, partial(interchange.from_dataframe, table))


@contextmanager
def _arrow_failures(name: str) -> Iterator[None]:
    """Raise UnreadableTable, on one line, where pyarrow cannot read."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException as error:
        raise UnreadableTable(f"{name}: {' '.join(str(error).split())}") from None


def _numbered(
    needed: Mapping[int, list[Any]], width: int, first: int
) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield rows of `width` cells, numbered from `first + 1`, with the cells of these columns."""
    if not needed:
        return
    size = len(next(iter(needed.values())))
    nothing = [None] * size
    columns = [needed.get(place, nothing) for place in range(max(needed) + 1)]
    yield from enumerate(zip(*columns, strict=True), first + 1)


# --- values of columns ---------------------------------------------------------------------------


def _listed(column: Any) -> list[Any]:
    """A column of a dict: a list, an array, or a column of a frame."""
    if hasattr(column, "isna"):
        return _of_pandas(column)
    if isinstance(column, np.ndarray):
        return _of_numpy(column)
    for convert in ("to_pylist", "to_list", "tolist"):  # pyarrow, Polars, others
        if hasattr(column, convert):
            return list(getattr(column, convert)())
    return list(column)


def _of_numpy(column: Any) -> list[Any]:
    if column.dtype.kind == "M":
        day = np.datetime_data(column.dtype)[0] in ("D", "W", "M", "Y")
        column = column.astype("datetime64[D]" if day else "datetime64[us]")
    found: list[Any] = column.tolist()
    return found


def _of_pandas(column: Any) -> list[Any]:
    """Python values, None where the column has none."""
    if column.dtype.kind == "M":  # pandas' own times have nanoseconds
        found = [each if each is None else each.to_pydatetime(warn=False)
                 for each in column.astype(object).where(column.notna(), None)]  # fmt: skip
        return found
    return list(column.astype(object).where(column.notna(), None))


def _arrow_values(column: Any) -> list[Any]:
    """Python values. Times are cut to microseconds, which is what Python has."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_time64(kind) and kind.unit == "ns":
        column = column.cast(pa.time64("us"), safe=False)
    found: list[Any] = column.to_pylist()
    return found
