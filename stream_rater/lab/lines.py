"""Reads files of rounds line by line, and decompresses them in a thread beside their use.

The module is light to import, so that a command can begin to read before it loads the rating code.
"""

import io
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from stream_rater.lab.read_ahead import ahead

BLOCK = 1 << 17
"""The bytes read from a file at once. If compressed, they hold some half a megabyte of text, and
128 MiB at most; the decompressing thread needs the interpreter lock only once for each block."""

BLOCKS_AHEAD = 256
"""The most blocks that wait to be used, about 128 MiB of text."""

BUFFER = 1 << 18

GZIP = 16 + zlib.MAX_WBITS
"""The zlib option that expects gzip's header and checksum."""


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, which is gzip-compressed if its name ends in .gz. Raises
    OSError."""
    return _lines(_text(path))


def begin_to_read(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file as `read_lines` does. A thread begins to read at once, and is up to
    BLOCKS_AHEAD blocks ahead."""
    return _lines(ahead(_text(path), BLOCKS_AHEAD))


def _lines(text: Iterator[bytes]) -> Iterator[bytes]:
    return io.BufferedReader(_Text(text), BUFFER)


def _text(path: Path) -> Iterator[bytes]:
    """Yield the text of a file in blocks. Raises OSError with the reason if it cannot be read."""
    with path.open("rb", buffering=0) as file:
        blocks = iter(partial(file.read, BLOCK), b"")
        try:
            yield from _decompressed(blocks) if path.suffix == ".gz" else blocks
        except (EOFError, zlib.error) as error:
            raise OSError(f"{path}: {error}") from None


def _decompressed(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the text of all members of a gzip file. Zero bytes between and after members are
    skipped."""
    member = None
    for block in blocks:
        while block := block if member else block.lstrip(b"\0"):
            member = member or zlib.decompressobj(GZIP)
            yield member.decompress(block)
            block = member.unused_data
            if member.eof:
                member = None
    if member:
        raise EOFError("the compressed file is cut off")


class _Text(io.RawIOBase):
    """A file object whose content is the given pieces of text."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
