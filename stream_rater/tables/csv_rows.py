"""Reads the rows of a CSV file, each with the number of its first line. Cells are separated by
commas, semicolons or tabs. A cell in quotes may have several lines. A row that is damaged is
rejected, and the rows behind it are read: after an open quote, reading goes on with the line behind
the one where the row begins."""

import codecs
import csv
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from stream_rater.config.errors import BadConfiguration
from stream_rater.rounds.validation import Invalid
from stream_rater.tables.doubts import ROWS
from stream_rater.tables.reading import Reading, UnreadableTable, stem_of
from stream_rater.tables.sources import Reject, Row, TableRows, shown

MOST_LINES: Final = 100  # The most lines of a row. More mean that a quote is not closed.
MOST_BYTES: Final = 1 << 20  # The most bytes of a row.
MOST_COLUMNS: Final = 50_000  # The most columns, since the meaning of each is looked for.
ONE_PLAYER: Final = "write a row for each player of a round"
DELIMITERS: Final = ",;\t"
ENCODINGS: Final = ("cp1252", "cp1250", "cp1251", "shift_jis")
"""Common encodings of old, in which a word that is no UTF-8 is shown."""
UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
NUMBERED: Final = {"round": "1", "player1": "2", "player2": "3", "score1": "4", "score2": "5"}
"""An example of columns that are named by their numbers."""


class CsvRows(TableRows):
    """The rows of a CSV file. Without a header, its columns are named by their numbers."""

    def __init__(self, path: Path, opened: Callable[[], Iterator[bytes]], reading: Reading) -> None:
        """`opened()` gives the lines of the file. Tabs separate the cells if its name says so;
        otherwise the header shows what does. Raises UnreadableTable if there is no header."""
        super().__init__(str(path), stem_of(path), "line")
        self._opened, self._reading = opened, reading
        self._begin()

    def _begin(self) -> None:
        encoding, self._is_new = self._reading.encoding, True
        self._lines = _in_utf8(self._opened(), encoding) if encoding else self._opened()
        self._again = deque[bytes]()  # Lines that are read again, behind a damaged row.
        self._taken = list[bytes]()  # The lines of the present row.
        self._number = 0  # The number of the latest line that was read.
        self._delimiter = "\t" if self.name.lower().endswith((".tsv", ".tsv.gz")) else ""
        self.columns = self._header()

    def check_header(self, is_known: Callable[[str], bool]) -> None:
        columns, known = self.columns, self._reading.columns or any(map(is_known, self.columns))
        if len(columns) == 1:
            raise BadConfiguration(
                f"{self.name}:1: one column only, {shown(columns[0])}: separate cells by commas, "
                "semicolons or tabs"
            )
        if not known and any(each.replace(".", "").replace("-", "").isdigit() for each in columns):
            listed = ", ".join(map(shown, columns[:4])) + (", …" if len(columns) > 4 else "")
            raise BadConfiguration(
                f"{self.name}:1: no header row: the first line must name the columns, but it is "
                f"{listed}: name them by their numbers, as {self._reading.by_columns(NUMBERED)}"
            )

    def rows(self, places: Sequence[int], reject: Reject) -> Iterator[Row]:
        """Yield the line and all cells of each row that is not blank. Raises UnreadableTable."""
        if not self._is_new:
            self._begin()
        self._is_new = False
        width = len(self.columns)
        for line, cells in self._records(reject):
            if len(cells) == width:
                if cells[0].strip() == self.columns[0] and [*map(str.strip, cells)] == self.columns:
                    continue  # the header again
                if any(cells):
                    yield line, cells
            elif any(cells[width:]) or (any(cells) and len(cells) < width):
                more = f"{width}: quote a cell that contains the separator"
                text = f"{len(cells)} cells, but the header has {more}"
                reject(line, Invalid("malformed", text), cells)
            elif any(cells):
                yield line, cells[:width]

    def _header(self) -> list[str]:
        def refuse(line: int, invalid: Invalid, _: Sequence[Any]) -> None:
            raise UnreadableTable(f"{self.name}:{line}: no header row: {invalid}")

        for line, cells in self._records(refuse):
            if len(cells) > MOST_COLUMNS:
                refuse(line, Invalid("malformed", f"{len(cells):,} columns: {ONE_PLAYER}"), ())
            numbers = [str(number) for number in range(1, len(cells) + 1)]
            if _by_numbers(self._reading) and not set(numbers) & {each.strip() for each in cells}:
                self._again.extendleft(reversed(self._taken))
                self._number = line - 1
                return numbers
            return [each.strip() for each in cells]
        raise UnreadableTable(
            f"{self.name}: empty: the first line of a table must name its columns"
        )

    def _records(self, reject: Reject) -> Iterator[tuple[int, list[str]]]:
        while True:
            texts = self._texts()
            first = self._number + 1
            try:
                if not self._delimiter:
                    self._delimiter = self._sniffed(texts)
                reader = csv.reader(texts, delimiter=self._delimiter, strict=True)
                while True:
                    first = self._number + 1
                    self._taken.clear()
                    if (cells := next(reader, None)) is None:
                        return
                    if cells:
                        yield first, cells
            except csv.Error as error:
                self._again.extendleft(reversed(self._taken[1:]))
                self._number = first
                reject(first, Invalid("malformed", _damage(str(error))), ())

    def _sniffed(self, texts: Iterator[str]) -> str:
        """The most frequent delimiter of the first line that is not blank."""
        for text in texts:
            if text.strip():
                self._again.appendleft(self._taken[-1])
                self._number -= 1
                outside = "".join(text.split('"')[::2])
                return max(DELIMITERS, key=outside.count)
        return ","

    def _texts(self) -> Iterator[str]:
        lines, again, taken = self._lines, self._again, self._taken
        while True:
            raw = again.popleft() if again else next(lines, None)
            if raw is None:
                return
            self._number += 1
            taken.append(raw)
            if self._number == 1:
                raw = self._first_line(raw)
            if b"\0" in raw:
                raise csv.Error("NUL")
            if len(taken) > MOST_LINES:
                raise csv.Error("unexpected end of data")
            if sum(map(len, taken)) > MOST_BYTES:
                raise csv.Error("too long")
            try:
                yield raw.decode()
            except UnicodeDecodeError as error:
                self._not_utf8(raw[error.start : error.start + 1])

    def _first_line(self, raw: bytes) -> bytes:
        if raw.startswith(UTF_16):
            raise BadConfiguration(
                f"{self.name}: it is in UTF-16: say {self._reading.by('encoding', 'utf-16')}"
            )
        if b"\r" in raw.rstrip(b"\r\n"):
            raise UnreadableTable(
                f"{self.name}: its lines end in CR alone: save it with other line ends, as by: "
                f"tr '\\r' '\\n' < {self.name} > lines.csv"
            )
        return raw.removeprefix(b"\xef\xbb\xbf")

    def _not_utf8(self, byte: bytes) -> None:
        """Ask about the encoding. Shows up to three cells as each encoding that fits reads them."""
        seen, first = list[tuple[int, bytes]](), self._number
        for number, raw in enumerate(chain(self._taken[-1:], self._lines), first):
            words = re.split(rb"[,;\t\r\n\"]", raw)
            seen += [(number, word) for word in words if word and not _decoded(word, "utf-8")]
            if len(seen) >= ROWS:
                break
        del seen[ROWS:]
        fits = [each for each in ENCODINGS if all(_decoded(word, each) for _, word in seen)]
        rows = "; ".join(
            f"line {number}: {' or '.join(f'{shown(_decoded(word, by))} by {by}' for by in fits)}"
            for number, word in seen
        )
        cures = " or ".join(self._reading.by("encoding", each) for each in fits)
        raise BadConfiguration(
            f"{self.name}:{first}: not UTF-8 (the byte 0x{byte.hex()}): {rows}: say {cures}, or "
            "another of Python's encodings"
        ) from None


def _by_numbers(reading: Reading) -> bool:
    """Whether the caller names all columns by their numbers."""
    texts = filter(None, (*reading.columns.values(), *reading.team))
    parts = [part.strip() for each in texts for part in each.partition(":")[0].split("+")]
    return bool(parts) and all(map(str.isdecimal, parts))


def _in_utf8(lines: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder, rest = codecs.getincrementaldecoder(encoding)(), ""
    for raw in chain(lines, (b"",)):
        try:
            *whole, rest = (rest + decoder.decode(raw, final=not raw)).split("\n")
        except UnicodeDecodeError as error:
            raise UnreadableTable(f"not in {encoding}: {error}") from None
        yield from (f"{each}\n".encode() for each in whole)
    if rest:
        yield rest.encode()


def _decoded(word: bytes, encoding: str) -> str:
    """A word by an encoding; empty if it has none."""
    try:
        return word.decode(encoding)
    except UnicodeDecodeError:
        return ""


def _damage(error: str) -> str:
    if error == "too long":
        return f"more than {MOST_BYTES:,} bytes: {ONE_PLAYER}"
    if error == "NUL":
        return "it contains a NUL: remove it"
    if error == "unexpected end of data" or "field larger" in error:
        return "a quote is not closed: write a quote inside of a cell twice"
    return f"{error}: write a quote inside of a cell twice, and put the whole cell in quotes"
