"""Rounds as columns of records, which are made only where they are needed. Making the records of
many small rounds takes longer than decoding them. Most rounds have no header, so they differ only
in their values and in where and when they arrived. Lines of a file have no partitions and times of
arrival, either."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple, overload

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.contract.corrections import EVENT_TYPE, kind_of_line
from stream_rater.contract.record import Record

KIND = b'"event_type"'  # The text that every line of a correction contains.

FIRST_LINES, MOST_LINES = 64, 4096
"""The most lines that are taken at first, and later. The number grows while lines are short."""


class Arrivals(NamedTuple):
    """The places of R records in a log, and the times when the log received them."""

    partition: Ints  # (R,) the partition.
    offset: Ints  # (R,) the offset.
    received_s: Floats  # (R,) Unix seconds.

    def take(self, rows: Ints) -> "Arrivals":
        """Those of the records at these indices."""
        return Arrivals(self.partition[rows], self.offset[rows], self.received_s[rows])


class PlainRecords(Sequence[Record]):
    """Records that have a value and no header, and whose batch could be decompressed."""

    def __init__(self, values: Sequence[bytes], arrivals: Arrivals) -> None:
        self.values, self.arrivals = values, arrivals

    @property
    def last(self) -> dict[int, int]:
        """By partition that has some of them, the offset of the last one."""
        partition, offset, _ = self.arrivals
        return {p: int(offset[partition == p][-1]) for p in np.unique(partition).tolist()}

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, i: int) -> Record: ...

    @overload
    def __getitem__(self, i: slice) -> "PlainRecords": ...

    def __getitem__(self, i: "int | slice") -> "Record | PlainRecords":
        partition, offset, received_s = self.arrivals
        if isinstance(i, slice):
            return PlainRecords(self.values[i], Arrivals(partition[i], offset[i], received_s[i]))
        at = int(partition[i]), int(offset[i])
        return Record(*at, self.values[i], received_s=float(received_s[i]))


class RecordBatches(Iterable[Record]):
    """The records of a log, in batches as they were read."""

    def __init__(self, read: Callable[[], Iterable[Sequence[Record]]]) -> None:
        """`read` yields the batches, from the first one on, at each call."""
        self._read = read

    def batches(self, _: int) -> Iterable[Sequence[Record]]:
        """The batches as they were read, whatever their size."""
        return self._read()

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(self._read())


def plain_lines(values: Sequence[bytes], first: int) -> PlainRecords:
    """Consecutive lines of a file, none of which is blank or a correction, as records. `first`: the
    number of the first line in the file, which is its offset."""
    n = len(values)
    arrivals = Arrivals(np.zeros(n, np.int64), first + np.arange(n), np.full(n, np.inf))
    return PlainRecords(values, arrivals)


class LineReader(Iterator[Record]):
    """The lines of a file that are not blank, as records. The offset of a record is the number of
    its line. Its time of arrival is infinite, so that no round is too far ahead of it. Its header
    is made from the field `event_type`."""

    def __init__(self, lines: Iterator[bytes], first: int = 0) -> None:
        """`first`: the number of the first line."""
        self._lines, self._number = lines, first
        self._ahead: list[bytes] = []
        """The line that has the number `_number`, if it was read already."""

    def __next__(self) -> Record:
        while lines := self._take(1):
            number, self._number = self._number, self._number + 1
            if lines[0].strip():
                kind = kind_of_line(lines[0])
                headers = ((EVENT_TYPE, kind.encode()),) if kind else ()
                return Record(0, number, lines[0], headers, received_s=math.inf)
        raise StopIteration

    def batches(self, most_bytes: int) -> Iterator[Sequence[Record]]:
        """Yield batches of consecutive records, of at most `most_bytes` bytes or of one line. A
        batch is a PlainRecords, or a list if one of its lines may be a correction or is blank."""
        lines = FIRST_LINES
        while values := self._take(lines, most_bytes):
            first, self._number = self._number, self._number + len(values)
            text = b"".join(values)
            fitting = most_bytes * len(values) // len(text)
            lines = max(1, min(fitting, 4 * lines, MOST_LINES))
            if KIND in text or any(map(bytes.isspace, values)):
                yield [*LineReader(iter(values), first)]
            else:
                yield plain_lines(values, first)

    def _take(self, most_lines: int, most_bytes: float = math.inf) -> list[bytes]:
        """The next lines: at most so many, and so many bytes or one line. Empty at the end."""
        taken, self._ahead = self._ahead, []
        size = sum(map(len, taken))
        for line in islice(self._lines, most_lines - len(taken)):
            size += len(line)
            if taken and size > most_bytes:
                self._ahead = [line]
                break
            taken.append(line)
        return taken
