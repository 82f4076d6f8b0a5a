"""The rows of a table, whatever its format is: data frames, dicts of columns, Parquet, JSON lines.

Frames of pandas and Polars and dicts are read column by column. Whatever else offers its columns by
`__arrow_c_stream__` or `__dataframe__` is read by pyarrow, the extra `arrow`, as are Parquet files.
`csv_rows` reads CSV.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from stream_rater.config.errors import missing
from stream_rater.rounds.validation import Invalid
from stream_rater.tables.reading import UnreadableTable, stem_of

FRAME: Final = "table"  # The name of a table that is no file.
PARQUET_EXTRA: Final = missing("pyarrow", "arrow")

Row = tuple[int, Sequence[Any]]  # The number of a row, from 1, and its cells.
Reject = Callable[[int, Invalid, Sequence[Any]], None]
"""Takes the number of a damaged row, the reason, and what could be read of its cells."""
_object = msgspec.json.Decoder(dict[str, Any]).decode


class TableRows:
    """The columns and the rows of a table."""

    columns: list[str]  # The names of its columns, in order.

    def __init__(self, name: str, stem: str, unit: str) -> None:
        self.name = name
        """Its name in messages."""
        self.stem = stem
        """Its name without endings, from which ids are made."""
        self.unit = unit
        """What the numbers of its rows count: `line` or `row`."""

    def check_header(self, is_known: Callable[[str], bool]) -> None:
        """Raise BadConfiguration if the first row of a text seems not to name the columns.
        `is_known`: whether a column has a name that says its role."""

    def rows(self, places: Sequence[int], reject: Reject) -> Iterator[Row]:
        """Yield the rows. `places`: the columns that are needed; the cells of other columns may be
        None. Damaged rows go to `reject`. A later call reads the table again. Raises OSError if the
        table cannot be read."""
        raise NotImplementedError


class JsonRows(TableRows):
    """The rows of JSON lines, read once: the fields of the first object are the columns. A field
    that an object lacks is None. Blank lines are skipped."""

    def __init__(self, path: Path, lines: Iterator[bytes]) -> None:
        """Raises UnreadableTable if the first line that is not blank is no JSON object."""
        super().__init__(str(path), path.stem, "line")
        self._lines = enumerate(lines, 1)
        number, line = self._first = next(self._filled(), (0, b""))
        try:
            self.columns = list(_object(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if not number:
                raise UnreadableTable(f"{path}: empty: give a player a line") from None
            raise UnreadableTable(
                f"{path}:{number}: no JSON object: {error}; a table's name ends in .csv, .tsv or "
                ".parquet"
            ) from None

    def _filled(self) -> Iterator[tuple[int, bytes]]:
        return (each for each in self._lines if each[1].strip())

    def rows(self, places: Sequence[int], reject: Reject) -> Iterator[Row]:
        for number, line in chain([self._first], self._filled()):
            try:
                fields = _object(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                reject(number, Invalid("malformed", f"no JSON object: {error}"), ())
            else:
                yield number, [fields.get(column) for column in self.columns]


class ColumnRows(TableRows):
    """The rows of a table that is given by its columns, whose names may repeat."""

    def __init__(
        self, names: Iterable[Any], columns: Iterable[Any], read: Callable[[Any], list[Any]]
    ) -> None:
        """`read(column)` gives the values of a column."""
        super().__init__(FRAME, FRAME, "row")
        self.columns, self._values, self._read = [*map(str, names)], list(columns), read

    def rows(self, places: Sequence[int], reject: Reject) -> Iterator[Row]:
        needed = {place: self._read(self._values[place]) for place in places}
        sizes = {self.columns[place]: len(values) for place, values in needed.items()}
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
            raise UnreadableTable(f"{self.name}: its columns differ in length: {listed}")
        return _numbered(needed, 0)


class ArrowRows(TableRows):
    """The rows of the record batches of pyarrow."""

    def __init__(self, name: str, stem: str, opened: Callable[[], Any]) -> None:
        """`opened()` gives a Parquet file or a table, by pyarrow."""
        super().__init__(name, stem, "row")
        self._again, self._opened = opened, opened()
        schema = getattr(self._opened, "schema_arrow", None) or self._opened.schema
        self.columns = [str(each) for each in schema.names]

    def rows(self, places: Sequence[int], reject: Reject) -> Iterator[Row]:
        first = 0
        with _arrow_failures(self.name):
            self._opened = self._opened or self._again()
            for batch in self._batches([self.columns[place] for place in places]):
                needed = {place: _arrow_values(batch.column(i)) for i, place in enumerate(places)}
                yield from _numbered(needed, first)
                first += batch.num_rows
            self._opened = None

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        if hasattr(self._opened, "iter_batches"):
            yield from self._opened.iter_batches(columns=names)
            return
        batches = self._opened.to_batches() if hasattr(self._opened, "to_batches") else self._opened
        for batch in batches:
            yield batch.select(names)


def parquet_rows(path: Path) -> ArrowRows:
    """The rows of a Parquet file. Raises UnreadableTable, also without pyarrow."""
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise UnreadableTable(f"{path}: {PARQUET_EXTRA}") from None
    with _arrow_failures(str(path)):
        return ArrowRows(str(path), stem_of(path), partial(parquet.ParquetFile, path))


def rows_of(table: Any) -> TableRows:
    """The rows of a dict of columns or of a data frame. Raises UnreadableTable if it is neither."""
    if isinstance(table, Mapping):
        named = {str(name): column for name, column in table.items()}
        return ColumnRows(named, named.values(), _listed)
    package = type(table).__module__.partition(".")[0]
    if package == "pandas" and hasattr(table, "columns"):
        columns = (table.iloc[:, i] for i in range(len(table.columns)))
        return ColumnRows(table.columns, columns, _of_pandas)
    if package == "polars" and hasattr(table, "collect") and not hasattr(table, "get_columns"):
        table = table.collect()
    if package == "polars" and hasattr(table, "get_columns"):
        return ColumnRows(table.columns, table.get_columns(), lambda column: column.to_list())
    return _by_arrow(table)


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
    read = pa.RecordBatchReader.from_stream if streams else interchange.from_dataframe
    with _arrow_failures(FRAME):
        return ArrowRows(FRAME, FRAME, partial(read, table))


@contextmanager
def _arrow_failures(name: str) -> Iterator[None]:
    """Raise UnreadableTable, on one line, where pyarrow cannot read."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException as error:
        raise UnreadableTable(f"{name}: {' '.join(str(error).split())}") from None


def _numbered(needed: Mapping[int, list[Any]], first: int) -> Iterator[Row]:
    """Yield rows with the cells of these columns, numbered from `first + 1`."""
    if not needed:
        return
    nothing = [None] * len(next(iter(needed.values())))
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
    return list(column.tolist())


def _of_pandas(column: Any) -> list[Any]:
    """Python values, None where the column has none."""
    values = column.astype(object).where(column.notna(), None)
    if column.dtype.kind == "M":  # pandas' own times have nanoseconds
        return [each if each is None else each.to_pydatetime(warn=False) for each in values]
    return list(values)


def _arrow_values(column: Any) -> list[Any]:
    """Python values. Times are cut to microseconds, which is what Python has."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_time64(kind) and kind.unit == "ns":
        column = column.cast(pa.time64("us"), safe=False)
    return list(column.to_pylist())
