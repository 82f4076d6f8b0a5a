"""Reads JSON lines as the rows of a table: the fields of the first object are its columns."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from stream_rater.rounds.validation import Invalid
from stream_rater.tables.reading import UnreadableTable
from stream_rater.tables.source import Reject, TableSource

_object = msgspec.json.Decoder(dict[str, Any]).decode


class JsonRows(TableSource):
    """The rows of JSON lines."""

    def __init__(self, name: str, stem: str, lines: Iterator[bytes]) -> None:
        """`lines`: the lines of the file. Raises UnreadableTable if the first one that is not blank
        is no JSON object."""
        super().__init__(name, stem, "line")
        self._lines = enumerate(lines, 1)
        number, line = next(((n, each) for n, each in self._lines if each.strip()), (0, b""))
        try:
            first = _object(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if not number:
                raise UnreadableTable(f"{name}: empty: give a player a line") from None
            raise UnreadableTable(
                f"{name}:{number}: no JSON object: {error}; a table's name ends in .csv, .tsv or "
                ".parquet"
            ) from None
        self.columns = list(first)
        self._first = number, line

    def rows(self, places: Sequence[int], reject: Reject) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the line and the cells of each object. A field that an object lacks is None. Blank
        lines are skipped."""
        columns = self.columns
        yield from self._row(*self._first, columns, reject)
        for number, line in self._lines:
            if line.strip():
                yield from self._row(number, line, columns, reject)

    @staticmethod
    def _row(
        number: int, line: bytes, columns: Sequence[str], reject: Reject
    ) -> Iterator[tuple[int, Sequence[Any]]]:
        try:
            found = _object(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            reject(number, Invalid("malformed", f"no JSON object: {error}"), ())
            return
        yield number, [found.get(column) for column in columns]
