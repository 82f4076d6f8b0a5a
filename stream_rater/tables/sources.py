"""The rows of a table, whatever its format is (`csv_rows` reads CSV), and single cells. Frames of
pandas and Polars and dicts are read column by column. Whatever else offers its columns by
`__arrow_c_stream__` or `__dataframe__` is read by pyarrow, the extra `arrow`, as are Parquet
files."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from itertools import chain
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from stream_rater.config.errors import missing
from stream_rater.rounds.validation import Invalid
from stream_rater.tables.reading import UnreadableTable, stem_of

FRAME: Final = "table"  # The name of a table that is no file.
PARQUET_EXTRA: Final = missing("pyarrow", "arrow")
MOST_KEPT: Final = 1_000  # The most mistakes of a table whose texts are stored.

Row = tuple[int, Sequence[Any]]  # The number of a row, from 1, and its cells.
Reject = Callable[[int, Invalid, Sequence[Any]], None]
"""Receives the number of a damaged row, the reason, and what could be read of its cells."""
_object = msgspec.json.Decoder(dict[str, Any]).decode
NO_OBJECT: Final = msgspec.DecodeError, UnicodeDecodeError, RecursionError


class Rejecting:
    """Counts rejected rows or rounds, and keeps the reasons of the first ones."""

    def __init__(self) -> None:
        self.rejected = 0
        """The number of rejected rows and rounds."""
        self.rejections: list[tuple[int, Invalid]] = []
        """The first of them: the number of the row, and the reason. They are sorted at the end."""

    def _reject(self, line: int, invalid: Invalid, _: Sequence[Any] = ()) -> None:
        self.rejected += 1
        if len(self.rejections) < MOST_KEPT:
            self.rejections.append((line, invalid))


class TableRows:
    """The columns and the rows of a table."""

    columns: list[str]  # The names of its columns, in order.

    def __init__(self, name: str, stem: str, unit: str) -> None:
        """`name`: the table's name in messages. `stem`: its name without endings, from which ids
        are made. `unit`: what the numbers of its rows count: `line` or `row`."""
        self.name, self.stem, self.unit = name, stem, unit

    def check_header(self, is_known: Callable[[str], bool]) -> None:
        """Raise BadConfiguration if the first row of a text seems not to name the columns.
        `is_known`: whether a name of a column says its role."""

    def rows(self, places: Sequence[int], reject: Reject) -> Iterator[Row]:
        """Yield the number of each row, from 1, and its cells. `places`: the columns that are
        needed; the cells of other columns may be None. Damaged rows go to `reject`. A later call
        reads the table again. Raises OSError if the table cannot be read."""
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
        except NO_OBJECT as error:
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
            except NO_OBJECT as error:
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
        opened = self._opened
        if hasattr(opened, "iter_batches"):
            return iter(opened.iter_batches(columns=names))
        batches = opened.to_batches() if hasattr(opened, "to_batches") else opened
        return (batch.select(names) for batch in batches)


def parquet_rows(path: Path) -> ArrowRows:
    """The rows of a Parquet file. Raises UnreadableTable, also if pyarrow is not installed."""
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
    """Yield rows with the cells of these columns. Their numbers begin with `first + 1`."""
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


# --- single cells ---------------------------------------------------------------------------------
# A cell of a CSV file is a text; one of a data frame is a Python value, or None where it is empty.
# The functions raise Invalid, with a code of the event contract, the column and the cure. `doubts`
# reads cells that depend on their column.

SHOWN: Final = 40  # The most characters of a cell that an error shows.
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_EXACT: Final = 2**53

FIRST, DRAWN, SECOND = (1, 2), (1, 1), (2, 1)  # The ranks of both sides by the result of a match.


def shown(value: Any) -> str:
    """A cell as an error shows it: quoted, on one line, and not too long."""
    text = repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def is_missing(value: Any) -> bool:
    """Whether a cell is None, blank, or a missing value of NumPy or pandas (NaN, NaT, NA)."""
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def stripped(value: Any) -> str:
    """A cell as a text without the blanks around it; empty if it is missing."""
    return "" if is_missing(value) else str(value).strip()


def mistake(code: str, column: str, text: str) -> Invalid:
    """The error for a cell in this column."""
    return Invalid(code, f"column {column}: {text}")


def identifier(value: Any, column: str) -> str:
    """An id: the digits of a whole number, or a text without blanks around it, in Unicode's NFC."""
    if isinstance(value, str) and (value := value.strip()):
        return value if value.isascii() else unicodedata.normalize("NFC", value)
    if is_missing(value):
        raise mistake("bad-id", column, "empty")
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and isinstance(value, Integral):
        return str(int(value))
    if is_number:
        raise mistake(
            "bad-id", column,
            f"{value!r} is a fraction, not an id: whole numbers with gaps become fractions in "
            "pandas, so convert the column first, as by .astype('Int64')",
        )  # fmt: skip
    raise mistake("bad-id", column, f"{shown(value)} is no id: ids are texts or whole numbers")


def players(value: Any, column: str) -> tuple[str, ...]:
    """The players of a cell: one id, or a list of the ids of a team's members."""
    if isinstance(value, list | tuple) and not value:
        raise mistake("bad-id", column, "an empty list")
    several = value if isinstance(value, list | tuple) else (value,)
    return tuple(identifier(each, column) for each in several)


def number(value: Any, column: str, code: str = "malformed") -> int | float:
    """A finite number. A whole number is an int, so that all kinds of tables give the same."""
    if type(value) is int:
        return value
    if type(value) is str and value.isdecimal() and value.isascii() and len(value) < 16:
        return int(value)  # nearly all
    amount = math.nan
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        amount = float(value)
        if amount.is_integer() and abs(amount) >= _EXACT and value.strip().lstrip("+-").isdigit():
            return int(value)
    elif isinstance(value, Real | Decimal) and not isinstance(value, bool):
        amount = float(value)
    if is_missing(value):
        raise mistake(code, column, "empty")
    if not math.isfinite(amount):
        cure = ": write a point, not a comma" if isinstance(value, str) and "," in value else ""
        raise mistake(code, column, f"{shown(value)} is no number{cure}")
    return int(amount) if amount.is_integer() and abs(amount) < _EXACT else amount


def order(scores: Sequence[float], *, low: bool = False) -> tuple[int, ...]:
    """The rank of each score: 1 and the number of better ones."""
    if len(scores) == 2:
        first, second = scores if not low else (scores[1], scores[0])
        return FIRST if first > second else SECOND if second > first else DRAWN
    ranks: dict[float, int] = {}
    for place, score in enumerate(sorted(scores, reverse=not low), 1):
        ranks.setdefault(score, place)
    return tuple(ranks[score] for score in scores)
