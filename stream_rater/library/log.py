"""The log of a ladder: the rounds and the files that it has rated, in order.

A correction changes rounds before it, so the ladder must read these again. The log stores single
rounds as messages. It reads a file again, and the file must not have changed.
"""

from collections.abc import Iterator
from pathlib import Path

from stream_rater.contract.record import Record
from stream_rater.library.messages import record_of, renamed
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.files import json_lines, read_lines


class RoundsFile:
    """A file of rounds, in its state when this object was made. Raises OSError if there is no such
    file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        """The number of its lines, once it was read to its end."""
        self._state = _state_of(path)

    def records(self, first: int) -> Iterator[Record]:
        """Yield its lines as records, with the first line at the offset `first`. Raises OSError if
        the file cannot be read, has changed, or holds no JSON lines."""
        if _state_of(self.path) != self._state:
            raise OSError(
                f"{self.path}: has changed since it was rated, and is needed as it was: rate it "
                "with a new Ladder"
            )
        return records_of(self._counting(json_lines(read_lines(self.path), str(self.path))), first)

    def _counting(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        count = 0
        for line in lines:
            yield line
            count += 1
        self.lines = count


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
        self._sources: list[tuple[int, bytes | RoundsFile]] = []

    def add_round(self, message: bytes) -> None:
        """Add a round that was rated."""
        self._sources.append((self.end, message))
        self.end += 1

    def add_file(self, file: RoundsFile) -> None:
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
