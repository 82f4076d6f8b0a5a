"""What a ladder has rated, in order: rounds that were given, and files.

A correction changes rounds before it, so the ladder goes back to them. Rounds are kept as messages;
a file is read again, and must still be what it was.
"""

from collections.abc import Iterator
from pathlib import Path

from stream_rater.contract.record import Record
from stream_rater.library.messages import record_of, renamed
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.files import json_lines, read_lines


class RoundsFile:
    """A file of rounds, as it was when it was first named. Raises OSError where there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        """How many it has, once it was read to its end."""
        self._state = _state_of(path)

    def records(self, first: int) -> Iterator[Record]:
        """Its lines as records, the first line at this offset. Raises OSError where it cannot be
        read, has changed, or holds no JSON lines."""
        if _state_of(self.path) != self._state:
            raise OSError(
                f"{self.path}: has changed since it was rated, and is needed as it was: rate it "
                "with a new Ladder"
            )
        return records_of(self._counted(json_lines(read_lines(self.path), str(self.path))), first)

    def _counted(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        count = 0
        for line in lines:
            yield line
            count += 1
        self.lines = count


def _state_of(path: Path) -> tuple[int, ...]:
    """What is another number once the file is written."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Log:
    """The sources of all rounds that were rated, each at its offset."""

    def __init__(self) -> None:
        self.end = 0
        """The offset of what is rated next."""
        self._sources: list[tuple[int, bytes | RoundsFile]] = []

    def add_round(self, message: bytes) -> None:
        """A round was rated."""
        self._sources.append((self.end, message))
        self.end += 1

    def add_file(self, file: RoundsFile) -> None:
        """A file was rated, to its end."""
        self._sources.append((self.end, file))
        self.end += file.lines

    def renamed(self, ladder: str) -> "Log":
        """The same rounds on this ladder. There are no files."""
        found = Log()
        for _, source in self._sources:
            assert isinstance(source, bytes), "a file names its ladder"
            found.add_round(renamed(source, ladder))
        return found

    def records(self) -> Iterator[Record]:
        """All records, from the first one on. Raises OSError as `RoundsFile.records` does."""
        for first, source in self._sources:
            if isinstance(source, bytes):
                yield record_of(first, source)
            else:
                yield from source.records(first)
