"""Reads files of rounds line by line, and decompresses them in a separate thread. `prefetched` lets
any stage of a pipeline make items before the next stage needs them. The module imports little, so
that a command can begin to read before it loads the rating code."""

import io
import os
import queue
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
MOST_AHEAD = 16  # The most items that a stage makes ahead of the next one.

ITEM, END, ERROR = "item", "end", "error"

BLOCK = 1 << 17
"""The number of bytes that are read from a file at once. A compressed block contains about half a
megabyte of text. The decompressing thread needs the interpreter lock only once for each block."""

TEXT_BLOCK = 1 << 20  # The most bytes of text that are decompressed at once.
BLOCKS_AHEAD = 256  # The most decompressed blocks that wait for the reader, about 128 MiB of text.
MOST_LINE = 64 * 1024 * 1024  # The most bytes of a line.
BUFFER = 1 << 18
GZIP = 16 + zlib.MAX_WBITS  # The zlib option for data with gzip's header and checksum.
GZIP_MAGIC = b"\x1f\x8b"  # The first bytes of a gzip file.
SMALLEST_GZIP = 20  # The size in bytes of a gzip file without content.
DASH = Path("-")
SHOWN_CHARACTERS = 40  # The most characters that an error shows of a line that is no JSON object.


def name_of(path: Path) -> str:
    """The name of a file in messages."""
    return "standard input" if path == DASH else str(path)


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, which may be gzip-compressed. The path `-` is standard input.
    Raises OSError."""
    return _lines(_text(path))


def text_size(path: Path) -> int | None:
    """The number of bytes of text in a file; None if it is unknown before the file is read. For a
    gzip file the number comes from its last four bytes. It is wrong if the file has several members
    or more than 4 GiB of text, so use it only to show progress."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(2) != GZIP_MAGIC or size < SMALLEST_GZIP:
            return size
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")


def json_lines(lines: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Return the lines unchanged. Raises OSError if neither of the first two lines that are not
    blank is a JSON object. If the first of them begins an array, one line is enough. Without this
    check, a file of another format would give one error for each line."""
    seen: list[bytes] = []
    bad = size = 0
    for line in lines:
        seen.append(line)
        size += len(line)
        if size > TEXT_BLOCK:
            break
        if not line.strip():
            continue
        if line.lstrip().startswith(b"{"):
            break
        bad += 1
        if bad == 2 or line.lstrip().startswith(b"["):
            break
    filled = [number for number, line in enumerate(seen, 1) if line.strip()]
    if bad and bad == len(filled):
        raise OSError(_no_json_lines(name, filled[0], seen[filled[0] - 1]))
    return chain(seen, lines)


def _no_json_lines(name: str, number: int, line: bytes) -> str:
    text = line.strip().decode(errors="backslashreplace")
    start = text[:SHOWN_CHARACTERS] + ("…" if len(text) > SHOWN_CHARACTERS else "")
    start = start if start.isprintable() else repr(start)[1:-1]
    guess = " (is it CSV? Then end its name in .csv)" if "," in text else ""
    guess = " (is it one JSON array?)" if text.startswith("[") else guess
    return (
        f"{name}: no JSON lines{guess}: each line must be a round as a JSON object, but line "
        f"{number} is: {start}"
    )


def begin_to_read(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file as `read_lines` does. A thread begins to read immediately, and
    reads up to BLOCKS_AHEAD blocks ahead."""
    return _lines(prefetched(_text(path), BLOCKS_AHEAD))


def _lines(text: Iterator[bytes]) -> Iterator[bytes]:
    return io.BufferedReader(_Text(text), BUFFER)


def _text(path: Path) -> Iterator[bytes]:
    """Yield the decompressed content of a file in blocks. Raises OSError, with the reason."""
    with _opened(path) as file:
        blocks = iter(partial(file.read, BLOCK), b"")
        first = next(blocks, b"")
        while len(first) == 1 and (more := next(blocks, b"")):
            first += more
        compressed = path.suffix == ".gz" or first.startswith(GZIP_MAGIC)
        blocks = chain([first] if first else [], blocks)
        try:
            text = _decompressed(blocks) if compressed else blocks
            yield from _with_short_lines(text, name_of(path))
        except (EOFError, zlib.error) as error:
            raise OSError(f"{name_of(path)}: {error}") from None


def _opened(path: Path) -> io.FileIO:
    """Open a file without a buffer, so that a line of a pipe can be read once it is written."""
    is_piped = path == DASH
    return io.FileIO(sys.stdin.fileno() if is_piped else path, closefd=not is_piped)


def _with_short_lines(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The blocks of a text. Raises OSError if a line of it is longer than MOST_LINE, before the
    line is in memory as a whole."""
    begin = end = 0
    for block in blocks:
        at = block.rfind(b"\n")
        begin, end = begin if at < 0 else end + at + 1, end + len(block)
        if end - begin > MOST_LINE:
            raise OSError(
                f"{name}: the line that begins at byte {begin:,} has more than "
                f"{MOST_LINE >> 20} MiB: begin a new line behind each round"
            )
        yield block


def _decompressed(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the text of all members of a gzip file. Zero bytes between the members are skipped."""
    member, text = None, b""
    for block in blocks:
        while len(text) == TEXT_BLOCK or (block := block if member else block.lstrip(b"\0")):
            member = member or zlib.decompressobj(GZIP)
            text = member.decompress(block, TEXT_BLOCK)
            yield text
            block = member.unconsumed_tail or member.unused_data
            if member.eof:
                member, text = None, b""
    if member:
        raise EOFError("the compressed file is cut off")


class _Text(io.RawIOBase):
    """A file object whose content is the concatenation of the given blocks of text."""

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


# --- stages in parallel ---------------------------------------------------------------------------


def prefetched(items: Iterable[T], most: int = MOST_AHEAD) -> Iterator[T]:
    """Yield the items. A thread begins to make them immediately, and stays up to `most` items
    ahead. Raises the exceptions that are raised while the items are made."""
    ready_items: queue.Queue[tuple[str, T | BaseException | None]] = queue.Queue(most)
    stopped = threading.Event()

    def put(kind: str, what: T | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                return ready_items.put((kind, what), timeout=0.5)
            except queue.Full:
                continue

    def run() -> None:
        try:
            for item in items:
                put(ITEM, item)
                if stopped.is_set():
                    return
            put(END, None)
        except BaseException as error:
            put(ERROR, error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return _taken(ready_items, stopped)


def _taken(
    ready_items: "queue.Queue[tuple[str, T | BaseException | None]]", stopped: threading.Event
) -> Iterator[T]:
    try:
        while (taken := ready_items.get())[0] == ITEM:
            yield taken[1]  # type: ignore[misc]
        if isinstance(taken[1], BaseException):
            raise taken[1]
    finally:
        stopped.set()
