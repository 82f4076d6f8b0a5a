"""The log of a ladder: the rounds and the files that it has rated, in order.

A correction changes rounds before it, so the ladder must read these again. The log stores single
rounds and data frames as messages. It reads a file again, and the file must not have changed.
"""

import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stream_rater.config.errors import BadConfiguration
from stream_rater.contract.record import Record
from stream_rater.library.messages import record_of, renamed
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.files import json_lines, read_lines
from stream_rater.tables.reading import AS_FOUND, Reading, is_table

if TYPE_CHECKING:  # it is loaded for tables only
    from stream_rater.tables.table import Table


class RoundsFile:
    """A file of rounds, in its state when this object was made. Raises OSError if there is no such
    file, and BadConfiguration with a question about the columns of a table."""

    def __init__(self, path: Path, reading: Reading = AS_FOUND, ladder: str = "") -> None:
        """`reading`: how a table is to be read. `ladder`: that of a table that names none; empty:
        the file's name."""
        self.path: Path | str = path
        """Its name in messages."""
        self.lines = 0
        """The number of its lines, once it was read to its end."""
        self._path, self._reading, self._ladder = path, reading, ladder
        self._state = _state_of(path)
        if not is_table(path) and reading.given:
            raise BadConfiguration(
                f"{path}: columns and score are for tables, whose names end in .csv, .tsv or "
                ".parquet: JSON lines name all themselves"
            )
        self.table: Table | None = self._read() if is_table(path) else None
        """The table in the file, while the file is rated for the first time."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "table": None}

    def release(self) -> None:
        """Free the table. If it is needed again, the file is read again."""
        self.table = None

    def records(self, first: int) -> Iterator[Record]:
        """Yield its lines as records, with the first line at the offset `first`. Raises OSError if
        the file cannot be read, has changed, or holds no JSON lines."""
        if _state_of(self._path) != self._state:
            raise OSError(
                f"{self.path}: has changed since it was rated, and is needed as it was: rate it "
                "with a new Ladder"
            )
        if is_table(self._path):
            lines = (self.table or self._read()).lines()
        else:
            lines = json_lines(read_lines(self._path), str(self.path))
        return records_of(self._counting(lines), first)

    def _read(self) -> "Table":
        from stream_rater.tables.table import table_of_file

        table = table_of_file(self._path, partial(read_lines, self._path), self._reading)
        table.read(self._ladder)
        return table

    def _counting(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        count = 0
        for line in lines:
            yield line
            count += 1
        self.lines = count


class RoundsTable:
    """The rounds of a data frame, in the state of the frame when this object was made. Raises
    OSError if it cannot be read, and BadConfiguration with a question about its columns."""

    def __init__(self, frame: Any, reading: Reading, ladder: str) -> None:
        """`ladder`: that of a table that names none."""
        from stream_rater.tables.table import table_of_frame

        table = table_of_frame(frame, reading)
        table.read(ladder)
        self.path: Path | str = table.name
        """Its name in messages."""
        self.lines = len(table)
        """The number of its rounds."""
        self.table: Table | None = table
        """The table, while it is rated for the first time."""
        self._text = b"".join(table.lines())

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "table": None}

    def release(self) -> None:
        """Free the table. Its rounds stay in memory."""
        self.table = None

    def records(self, first: int) -> Iterator[Record]:
        """Yield its rounds as records, with the first one at the offset `first`."""
        return records_of(io.BytesIO(self._text), first)


Rounds = RoundsFile | RoundsTable
"""What a ladder rates in one call."""


def _state_of(path: Path) -> tuple[int, ...]:
    """The device, inode, size and time of change of a file. One of them differs once the file is
    written."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Log:
    """The sources of all rounds that were rated, each at its offset."""

    def __init__(self) -> None:
        self.end = 0
        """The offset of the next record."""
        self._sources: list[tuple[int, bytes | Rounds]] = []

    def add_round(self, message: bytes) -> None:
        """Add a round that was rated."""
        self._sources.append((self.end, message))
        self.end += 1

    def add_file(self, file: Rounds) -> None:
        """Add a file that was rated to its end."""
        self._sources.append((self.end, file))
        self.end += file.lines

    def renamed(self, ladder: str) -> "Log":
        """A log with the same rounds on this ladder. This log must not have files."""
        found = Log()
        for _, source in self._sources:
            assert isinstance(source, bytes), "a file names its ladder"
            found.add_round(renamed(source, ladder))
        return found

    def records(self) -> Iterator[Record]:
        """Yield all records, from the first one on. Raises OSError as `RoundsFile.records` does."""
        for first, source in self._sources:
            if isinstance(source, bytes):
                yield record_of(first, source)
            else:
                yield from source.records(first)
