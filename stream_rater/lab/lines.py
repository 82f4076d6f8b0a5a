"""Files of rounds, line by line, decompressed beside what is done with them.

Light to import, so that a command can begin to read before it loads what rates.
"""

import io
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from stream_rater.lab.read_ahead import ahead

BLOCK = 1 << 17
"""Bytes of a file taken at once. Compressed they are half a megabyte of text, or 128 at the most: a
thread that decompresses them needs the interpreter only as often as that."""

BLOCKS_AHEAD = 256
"""128 MiB of text that may wait for who reads it."""

BUFFER = 1 << 18

GZIP = 16 + zlib.MAX_WBITS
"""How zlib is told to expect gzip's header, and its checksum."""


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, gzip-compressed if its name ends in .gz."""
    return _lines(_text(path))


def begin_to_read(path: Path) -> Iterator[bytes]:
    """The same; a thread begins at once, and is up to BLOCKS_AHEAD blocks ahead."""
    return _lines(ahead(_text(path), BLOCKS_AHEAD))


def _lines(text: Iterator[bytes]) -> Iterator[bytes]:
    return io.BufferedReader(_Text(text), BUFFER)


def _text(path: Path) -> Iterator[bytes]:
    """What is in a file, piece by piece; OSError says why it cannot be read."""
    with path.open("rb", buffering=0) as file:
        blocks = iter(partial(file.read, BLOCK), b"")
        try:
            yield from _decompressed(blocks) if path.suffix == ".gz" else blocks
        except (EOFError, zlib.error) as error:
            raise OSError(f"{path}: {error}") from None


def _decompressed(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The text of all members of a gzip file; between and after them there may be zeros."""
    member = None
    for block in blocks:
        while block := block if member else block.lstrip(b"\0"):
            member = member or zlib.decompressobj(GZIP)
            yield member.decompress(block)
            block = member.unused_data
            if member.eof:
                member = None
    if member:
        raise EOFError("the compressed file has no end")


class _Text(io.RawIOBase):
    """Pieces of text one after the other, as a file."""

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
