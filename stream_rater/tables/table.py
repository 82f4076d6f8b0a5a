"""A table as JSON lines of `round-completed` events, in order of their times.

    source (rows of cells) -> layout (roles of columns) -> wide or long (events) -> order of time

All rows are read before the first event is given: a later row may be of an earlier time. The events
wait in a temporary file, so memory holds some numbers for each.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from stream_rater.config.errors import BadConfiguration
from stream_rater.rounds.validation import Invalid
from stream_rater.tables.cells import shown
from stream_rater.tables.csv_rows import CsvRows, check_header
from stream_rater.tables.event_lines import Spool
from stream_rater.tables.formats import is_parquet, is_tabbed, stem_of
from stream_rater.tables.frames import parquet_rows, rows_of
from stream_rater.tables.layout import Layout, layout_of
from stream_rater.tables.long import LongEvents
from stream_rater.tables.names import is_known
from stream_rater.tables.reading import Reading
from stream_rater.tables.rounds import RoundCells
from stream_rater.tables.source import Source
from stream_rater.tables.times import Times
from stream_rater.tables.wide import WideEvents

CHUNK: Final = 1 << 16
"""The number of events whose places are Python integers at the same time."""

MOST_KEPT: Final = 1_000
"""The most mistakes of a table whose texts are stored."""


def table_of_file(path: Path, lines: Iterator[bytes], reading: Reading) -> "Table":
    """The table in a file. `lines`: the lines of a text. Raises OSError if it cannot be read, and
    BadConfiguration with a question about its columns."""
    stem = stem_of(path)
    if is_parquet(path):
        return Table(parquet_rows(path, stem), reading)
    return Table(CsvRows(str(path), stem, lines, tabs=is_tabbed(path)), reading)


def table_of_frame(frame: Any, reading: Reading) -> "Table":
    """The table in a data frame or a dict of columns. Raises as `table_of_file` does."""
    return Table(rows_of(frame), reading)


class Table:
    """The events of a table."""

    def __init__(self, source: Source, reading: Reading) -> None:
        """Find the roles of its columns, and read no row. Raises BadConfiguration with the question
        that is left."""
        self.name = source.name
        self.rejected = 0
        """The number of rejected rows and rounds."""
        self.rejections: list[tuple[int, Invalid]] = []
        """The first of them: the number of the row, and the reason."""
        self._source, self._reading = source, reading
        if isinstance(source, CsvRows):
            check_header(source.name, source.columns, known=self._is_known(source))
        self.layout: Layout = layout_of(source.name, source.columns, reading)
        self.layout.unit = source.unit
        if reading.ladder and "ladder" not in reading.columns:
            self.layout.roles.pop("ladder", None)
        self._events, self._order, self._lines = Spool(), np.empty(0, np.int64), array("q")

    @property
    def names_ladder(self) -> bool:
        """Whether each row names its ladder."""
        return "ladder" in self.layout.roles

    def read(self, ladder: str = "") -> None:
        """Read all rows. `ladder`: that of a table that names none; empty: the table's name. Raises
        OSError if it cannot be read, and BadConfiguration with a question about a column."""
        layout, reading, source = self.layout, self._reading, self._source
        named = self.names_ladder
        times = Times(layout.column("time"), layout.time_format) if "time" in layout.roles else None
        of_all = "" if named else reading.ladder or ladder or source.stem
        head = RoundCells(layout, source.stem, of_all, times)
        maker: WideEvents | LongEvents = (WideEvents if layout.is_wide else LongEvents)(
            layout, reading, head
        )

        def damaged(line: int, invalid: Invalid, cells: Sequence[Any]) -> None:
            head.row += 1
            if not isinstance(maker, LongEvents) or maker.drop(cells):
                self._reject(line, invalid)

        rows = source.rows(sorted({i for each in layout.roles.values() for i in each}), damaged)
        moments = array("q")
        counted = self._counted(self._with_order(rows, times), head)
        for made in maker.events(counted, lambda line, invalid, _: self._reject(line, invalid)):
            self._events.append(made.text)
            moments.append(made.moment[0])
            self._lines.append(made.line)
        self._events.seal()
        self._order = np.argsort(np.array(moments, np.int64), kind="stable")
        self.rejections.sort(key=lambda each: each[0])

    def __len__(self) -> int:
        return len(self._events)

    def lines(self) -> Iterator[bytes]:
        """Yield the events as JSON lines."""
        events, order = self._events, self._order
        for first in range(0, len(order), CHUNK):
            for number in order[first : first + CHUNK].tolist():
                yield events[number] + b"\n"

    def line_of(self, number: int) -> int:
        """The number of the first row of an event. `number`: that of the event, from 0."""
        return self._lines[int(self._order[number])]

    def explained(self, invalid: Invalid, first: int = 0) -> Invalid:
        """A mistake in an event, with the column in place of the event's field. `first`: the offset
        of the first event."""
        text = str(invalid)
        for field, role in (("completed_at", "time"), ("round_id", "round"), ("ladder", "ladder"),
                            ("weight", "weight")):  # fmt: skip
            if role in self.layout.roles and text.startswith(f"{field}:"):
                text = f"column {self.layout.column(role)}{text[len(field) :]}"
        if (found := re.search(r"at offset (\d+)$", text)) and int(found[1]) >= first:
            unit, line = self._source.unit, self.line_of(int(found[1]) - first)
            text = f"{text[: found.start()]}in {unit} {line}"
        return Invalid(invalid.code, text)

    def _is_known(self, source: Source) -> bool:
        return bool(self._reading.columns) or any(map(is_known, source.columns))

    def _reject(self, line: int, invalid: Invalid) -> None:
        self.rejected += 1
        if len(self.rejections) < MOST_KEPT:
            self.rejections.append((line, invalid))

    @staticmethod
    def _counted(rows: Iterator[tuple[int, Any]], head: RoundCells) -> Iterator[tuple[int, Any]]:
        for row in rows:
            head.row += 1
            yield row

    def _with_order(
        self, rows: Iterator[tuple[int, Any]], times: Times | None
    ) -> Iterator[tuple[int, Any]]:
        """The rows, once it is known which of two numbers in a date is the day."""
        if times is None:
            return rows
        rows, undecided = times.decided(rows, self.layout.roles["time"][0])
        if undecided is not None:
            line, cell = undecided
            column = self.layout.column("time")
            cures = " or ".join(
                self._reading.by_columns({"time": f"{column}:{each}"}) for each in ("dmy", "mdy")
            )
            raise BadConfiguration(
                f"{self.name}:{line}: is {shown(cell)} in column {column} the day first or the "
                f"month? No row decides it: say {cures}"
            )
        return rows
