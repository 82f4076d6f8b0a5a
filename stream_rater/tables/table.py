"""A table as JSON lines of `round-completed` events, in order of their times. source (rows of
cells) -> layout (roles of columns) -> wide or long (events) -> order of time All rows are read
before the first event is given: a later row may be of an earlier time. The events wait in a
temporary file, so memory holds some numbers for each."""

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from stream_rater.rounds.validation import Invalid
from stream_rater.tables.csv_rows import CsvRows
from stream_rater.tables.doubts import Doubts, Statuses
from stream_rater.tables.layout import Layout, layout_of
from stream_rater.tables.long import LongEvents
from stream_rater.tables.names import is_known
from stream_rater.tables.reading import Reading, UnreadableTable, is_parquet
from stream_rater.tables.rounds import RoundCells, Spool
from stream_rater.tables.sources import Rejecting, Row, TableRows, parquet_rows, rows_of, stripped
from stream_rater.tables.times import Times
from stream_rater.tables.wide import WideEvents

CHUNK: Final = 1 << 16  # The number of events whose places are Python integers at the same time.


def table_of_file(path: Path, opened: Callable[[], Iterator[bytes]], reading: Reading) -> "Table":
    """The table in a file. `opened()` gives the lines of a text. Raises OSError if it cannot be
    read, and BadConfiguration with a question about its columns."""
    rows = parquet_rows(path) if is_parquet(path) else CsvRows(path, opened, reading)
    return Table(rows, reading)


def table_of_frame(frame: Any, reading: Reading) -> "Table":
    """The table in a data frame or a dict of columns. Raises as `table_of_file` does."""
    return Table(rows_of(frame), reading)


class Table(Rejecting):
    """The events of a table."""

    def __init__(self, source: TableRows, reading: Reading) -> None:
        """Find the roles of its columns, and read no row. Raises BadConfiguration."""
        super().__init__()
        self.name, self._source, self._reading = source.name, source, reading
        source.check_header(is_known)
        self.layout: Layout = layout_of(source.name, source.columns, reading)
        self.layout.unit = source.unit
        if reading.ladder and "ladder" not in reading.columns:
            self.layout.roles.pop("ladder", None)
        self._doubts = Doubts(source.name, source.unit, reading)
        self._skipped, self._count = 0, -1
        self._order = np.empty(0, np.int64)

    @property
    def names_ladder(self) -> bool:
        return "ladder" in self.layout.roles

    def read(self, ladder: str = "") -> None:
        """Read all rows. `ladder`: that of a table that names none; empty: the table's name. Raises
        OSError if it cannot be read, and BadConfiguration with a question about a column."""
        while True:
            before, self._count = self._count, 0
            self._read(ladder)
            if before not in (-1, self._count):
                raise UnreadableTable(f"{self.name}: other rows at a second reading: give a table")
            if self._doubts.settled():
                break
        self._order = np.argsort(np.array(self._moments, np.int64), kind="stable")
        self.rejections.sort(key=lambda each: each[0])

    def said(self) -> list[str]:
        """How the cells were read, where they could be read in several ways, a line a column."""
        texts = ", ".join(f"{name}={text}" for name, text in self._reading.skip)
        skipped = [f"{self._skipped:,} left out by {texts}"] if texts else []
        return [f"{self.name}: {each}" for each in (*self._doubts.said(), *skipped)]

    def _read(self, ladder: str) -> None:
        layout, reading, source, doubts = self.layout, self._reading, self._source, self._doubts
        self._events, self._lines, self._moments = Spool(), array("q"), array("q")
        self.rejected, self.rejections, self._skipped = 0, [], 0
        timed = "time" in layout.roles
        times = Times(layout.column("time"), doubts, layout.time_format) if timed else None
        of_all = "" if self.names_ladder else reading.ladder or ladder or source.stem
        head = RoundCells(layout, source.stem, of_all, times, doubts)
        form = WideEvents if layout.is_wide else LongEvents
        maker: WideEvents | LongEvents = form(layout, head, doubts)

        def damaged(line: int, invalid: Invalid, cells: Sequence[Any]) -> None:
            head.row += 1
            if not isinstance(maker, LongEvents) or maker.drop(cells):
                self._reject(line, invalid)

        places = {i for each in layout.roles.values() for i in each} | {i for i, _ in layout.skip}
        rows = self._chosen(source.rows(sorted(places), damaged), head)
        for of_round, text in maker.events(rows, self._reject):
            self._events.append(text)
            self._moments.append(of_round.moment[0])
            self._lines.append(of_round.line)
        self._events.seal()

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
        """A mistake in an event, with the column for the field. `first`: the first offset."""
        text = str(invalid)
        for field, role in (("completed_at", "time"), ("round_id", "round"), ("ladder", "ladder"),
                            ("weight", "weight")):  # fmt: skip
            if role in self.layout.roles and text.startswith(f"{field}:"):
                text = f"column {self.layout.column(role)}{text[len(field) :]}"
        if (found := re.search(r"at offset (\d+)$", text)) and int(found[1]) >= first:
            unit, line = self._source.unit, self.line_of(int(found[1]) - first)
            text = f"{text[: found.start()]}in {unit} {line}"
        return Invalid(invalid.code, text)

    def _chosen(self, rows: Iterator[Row], head: RoundCells) -> Iterator[Row]:
        doubts, layout = self._doubts, self.layout
        won = layout.is_wide and layout.sides[0].role == "winner" and "result" not in layout.roles
        statuses = [
            (place, Statuses(layout.columns[place], doubts, won=won))
            for place in layout.roles.get("status", ())
        ]
        for line, cells in rows:
            head.row += 1
            self._count += 1
            doubts.line = line
            if any(stripped(cells[place]).lower() == text for place, text in layout.skip):
                self._skipped += 1
                continue
            for place, status in statuses:
                status.see(cells[place])
            yield line, cells
