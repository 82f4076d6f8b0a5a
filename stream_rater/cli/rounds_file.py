"""A file of rounds that can be read more than once, even if it is standard input.

Corrections change rounds before them. So a file that has any is read again, from its start.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from stream_rater.contract.record import Record
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.files import STANDARD_INPUT, json_lines, name_of, read_lines, text_size
from stream_rater.runtime.progress import track_bytes


class RoundsFile:
    """The records of a file. Standard input is copied to a temporary file while it is read."""

    def __init__(self, path: Path, begun: Iterator[bytes] | None = None) -> None:
        """`begun`: the lines of the first reading, if somebody has begun it."""
        self._path = path
        self._begun = begun
        self._copy: IO[bytes] | None = None
        self._rest: Iterator[bytes] = iter(())

    def records(self, *, label: str = "") -> Iterator[Record]:
        """The lines as records, from the first one on, with a progress bar by the bytes.

        Raises OSError where the file cannot be read, or holds no JSON lines.
        """
        lines = json_lines(self._lines(), name_of(self._path))
        size = text_size(self._path)
        return records_of(track_bytes(lines, label or self._path.name, size))

    def _lines(self) -> Iterator[bytes]:
        begun, self._begun = self._begun, None
        if self._path != STANDARD_INPUT:
            return begun or read_lines(self._path)
        if self._copy is None:
            self._copy = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object lives
            self._rest = self._copied(begun or read_lines(self._path), self._copy)
            return self._rest
        return self._from_copy(self._copy)

    def _copied(self, lines: Iterator[bytes], copy: IO[bytes]) -> Iterator[bytes]:
        for line in lines:
            copy.write(line)
            yield line

    def _from_copy(self, copy: IO[bytes]) -> Iterator[bytes]:
        for _ in self._rest:  # whoever read first has stopped before the end
            pass
        copy.seek(0)
        yield from copy
