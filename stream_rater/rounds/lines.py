"""Lines of a file of rounds as records, which are made only where they are needed.

A file has no partitions, headers or times of arrival, so the records of its lines differ only in
their values and offsets. Making the records of many small rounds takes longer than decoding them.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple, overload

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.contract.corrections import EVENT_TYPE, kind_of_line
from stream_rater.contract.record import Record

KIND = b'"event_type"'
"""The text that every line of a correction contains."""

FIRST_LINES, MOST_LINES = 64, 4096
"""The most lines that are taken from a file at once, first and later. Their number grows only while
they are short."""


class Lines(Sequence[Record]):
    """Consecutive lines of a file, none of which is blank or a correction, as records."""

    def __init__(self, values: Sequence[bytes], first: int) -> None:
        """`first`: the number of the first line in the file, which is its offset."""
        self.values = values
        self.first = first

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, i: int) -> Record: ...

    @overload
    def __getitem__(self, i: slice) -> "Lines": ...

    def __getitem__(self, i: "int | slice") -> "Record | Lines":
        if isinstance(i, slice):
            first, _, step = i.indices(len(self))
            assert step == 1, "lines are consecutive"
            return Lines(self.values[i], self.first + first)
        return _record(range(self.first, self.first + len(self))[i], self.values[i])


def _record(number: int, line: bytes, kind: str = "") -> Record:
    headers = ((EVENT_TYPE, kind.encode()),) if kind else ()
    return Record(0, number, line, headers, received_s=math.inf)


class LineReader(Iterator[Record]):
    """The lines of a file that are not blank, as records.

    The offset of a record is the number of its line. Its time of arrival is infinite, so that no
    round is too far ahead of it. Its header is made from the field `event_type`.
    """

    def __init__(self, lines: Iterator[bytes], first: int = 0) -> None:
        """`first`: the number of the first line."""
        self._lines, self._number = lines, first
        self._ahead: list[bytes] = []
        """Lines that were taken already; the first of them has the number `_number`."""

    def __next__(self) -> Record:
        while lines := self._take(1):
            number, self._number = self._number, self._number + 1
            if lines[0].strip():
                return _record(number, lines[0], kind_of_line(lines[0]))
        raise StopIteration

    def batches(self, most_bytes: int) -> Iterator[Sequence[Record]]:
        """Yield batches of consecutive records. A batch is a `Lines` of at most `most_bytes` bytes
        or of one line, or it is a list, which may have more bytes and corrections."""
        lines = FIRST_LINES
        while values := self._take_some(most_bytes, lines):
            first, self._number = self._number, self._number + len(values)
            text = b"".join(values)
            fitting = most_bytes * len(values) // len(text)
            lines = max(1, min(fitting, 4 * lines, MOST_LINES))
            if KIND in text or any(map(bytes.isspace, values)):
                yield [*LineReader(iter(values), first)]
            else:
                yield Lines(values, first)

    def _take_some(self, most_bytes: int, most_lines: int) -> Sequence[bytes]:
        """The next lines: at most so many, and at most so many bytes or one line. Empty if all
        lines were taken."""
        values = self._take(most_lines)
        ends = [*accumulate(map(len, values))]
        if len(values) > 1 and ends[-1] > most_bytes:
            fitting = max(1, bisect_right(ends, most_bytes))
            values, self._ahead = values[:fitting], [*values[fitting:], *self._ahead]
        return values

    def _take(self, count: int) -> list[bytes]:
        """The next lines, at most so many. Empty if all lines were taken."""
        found = self._ahead[:count]
        self._ahead = self._ahead[count:]
        found += islice(self._lines, count - len(found))
        return found


class Arrivals(NamedTuple):
    """The places of R records in a log, and the times when the log received them."""

    partition: Ints
    """(R,) the partition."""
    offset: Ints
    """(R,) the offset."""
    received_s: Floats
    """(R,) Unix seconds."""

    def take(self, rows: Ints) -> "Arrivals":
        """Those of the records at these indices."""
        return Arrivals(self.partition[rows], self.offset[rows], self.received_s[rows])


def arrivals_of(records: Sequence[Record]) -> Arrivals:
    """The places and times of arrival of these records."""
    if isinstance(records, Lines):
        first, n = records.first, len(records)
        return Arrivals(np.zeros(n, np.int64), np.arange(first, first + n), np.full(n, np.inf))
    return Arrivals(
        np.array([each.partition for each in records], np.int64),
        np.array([each.offset for each in records], np.int64),
        np.array([each.received_s for each in records], np.float64),
    )


def values_of(records: Sequence[Record]) -> Sequence[bytes]:
    """The values of these records; empty for a record without one."""
    return records.values if isinstance(records, Lines) else [each.value or b"" for each in records]
