"""Files of rounds, line by line, decompressed beside what is done with them.

Light to import, so that a command can begin to read before it loads what rates.
"""

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from stream_rater.lab.stages import ahead

CHUNK = 1 << 18
"""Bytes decompressed at once: by the usual 8 KiB it takes half as long again."""

CHUNKS_AHEAD = 512
"""128 MiB of text that may wait for who reads it."""


def _opened(path: Path) -> BinaryIO:
    """The file, gzip-compressed if its name ends in .gz."""
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file."""
    with _opened(path) as file:
        yield from io.BufferedReader(cast(io.RawIOBase, file), CHUNK)


def begin_to_read(path: Path) -> Iterator[bytes]:
    """The same; a thread begins at once, and is up to CHUNKS_AHEAD chunks ahead."""
    return io.BufferedReader(_Chunks(ahead(_chunks(path), CHUNKS_AHEAD)), CHUNK)


def _chunks(path: Path) -> Iterator[bytes]:
    with _opened(path) as file:
        while chunk := file.read(CHUNK):
            yield chunk


class _Chunks(io.RawIOBase):
    """Chunks one after the other, as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._rest = self._rest or next(self._chunks, b"")
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
