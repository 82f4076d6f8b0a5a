"""Reads a file of rounds: JSON lines, or a table, which becomes JSON lines. Reports invalid lines,
and warns if rounds are out of order."""

import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import Ladders
from stream_rater.contract.events import shown
from stream_rater.contract.record import Record
from stream_rater.replay.edited_log import LogBatch, records_of
from stream_rater.replay.files import DASH, json_lines, name_of, read_lines, text_size
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime.progress import SHOWN_LINES, counted, track_bytes
from stream_rater.tables.reading import AS_FOUND, Reading, is_table, stem_of

if TYPE_CHECKING:  # it is loaded for tables only
    from stream_rater.tables.table import Table

MAX_LATE = 0.1  # The largest fraction of rounds that may be out of order without a warning.


class RoundsFile:
    """The records of a file, which can be read more than once: a correction changes rounds before
    it, so a file with corrections is read again. Standard input is copied to a temporary file while
    it is read. A table is read once, and its events are stored in a temporary file."""

    def __init__(
        self, path: Path, lines: Iterator[bytes] | None = None, reading: Reading = AS_FOUND,
        ladders: Ladders | None = None, *, once: bool = False,
    ) -> None:  # fmt: skip
        """`lines`: those of the first reading, if it has begun already. `ladders`: those among
        which the ladder of a table must be; None: any. `once`: the records are read once only,
        without a copy."""
        self.mistakes, self.order = Mistakes(path), Order()
        self._path, self._lines, self._once = path, lines, once
        self._reading, self._ladders = reading, ladders
        self._table: Table | None = None
        self._copy: IO[bytes] | None = None
        self._uncopied: Iterator[bytes] = iter(())

    def records(self) -> Iterator[Record]:
        """Yield the lines as records, with a progress bar by the bytes. Raises OSError if the file
        cannot be read or holds no JSON lines, and BadConfiguration about the columns of a table."""
        if is_table(self._path):
            return records_of(self.table().lines())
        if self._reading.given:
            raise BadConfiguration(
                f"{name_of(self._path)}: --columns, --score and their like are for tables, whose "
                "names end in .csv, .tsv or .parquet: JSON lines name all themselves"
            )
        lines = json_lines(self._read(), name_of(self._path))
        return records_of(track_bytes(lines, self._path.name, text_size(self._path)))

    def table(self) -> "Table":
        """The table in the file. Prints on standard error how its columns were understood."""
        if self._table is not None:
            return self._table
        from stream_rater.tables.table import table_of_file

        path = self._path

        def opened() -> Iterator[bytes]:
            lines, self._lines = self._lines, None
            return track_bytes(lines or read_lines(path), path.name, text_size(path))

        table = table_of_file(path, opened, self._reading)
        ladder = "" if table.names_ladder else self._reading.ladder or stem_of(path)
        if ladder and self._ladders is not None and self._ladders.find(ladder, 0) is None:
            raise BadConfiguration(
                f"{path}: ladder {ladder!r} is not configured: name one that is, as by --ladder "
                f"{next(iter(self._ladders.ladders), 'NAME')}"
            )
        of_all = f"; ladder: {ladder}" if ladder else ""
        print(f"{table.layout.described()}{of_all}", file=sys.stderr)
        table.read()
        print("".join(f"{each}\n" for each in table.said()), end="", file=sys.stderr)
        self.mistakes.add_table(table)
        self._table = table
        return table

    def restart(self) -> None:
        """Count mistakes and late rounds from the start of the file again."""
        self.mistakes.restart()
        self.order = Order()

    def conclude_order(self) -> None:
        """Warn if rounds were out of order."""
        self.order.conclude(self._path)

    def conclude(self) -> None:
        """Warn if rounds were out of order. Raises Failed if lines were rejected."""
        self.conclude_order()
        self.mistakes.conclude()

    def _read(self) -> Iterator[bytes]:
        lines, self._lines = self._lines, None
        if self._path != DASH or self._once:
            return lines or read_lines(self._path)
        if self._copy is None:
            self._copy = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object lives
            self._uncopied = _copied(lines or read_lines(self._path), self._copy)
            return self._uncopied
        return self._read_copy(self._copy)

    def _read_copy(self, copy: IO[bytes]) -> Iterator[bytes]:
        for _ in self._uncopied:  # the first reader may have stopped before the end
            pass
        copy.seek(0)
        yield from copy


def _copied(lines: Iterator[bytes], copy: IO[bytes]) -> Iterator[bytes]:
    for line in lines:
        copy.write(line)
        yield line


@contextmanager
def file_failures() -> Iterator[None]:
    """Raise Failed, with a text of one line, where a file cannot be read or written."""
    try:
        yield
    except BrokenPipeError:
        raise  # the process that reads our output has ended
    except (OSError, EOFError, zlib.error) as error:
        raise Failed(str(error)) from None


def check_writable(out: Path, *inputs: Path | None) -> None:
    """Raise BadConfiguration before the work if a file cannot be written, or is an input."""
    folder = out.parent
    for path in filter(None, inputs):
        if out.exists() and path.exists() and out.samefile(path):
            raise BadConfiguration(f"{out}: it is {path}, which is read: name another file")
    if not folder.is_dir():
        raise BadConfiguration(f"{out}: no folder {folder}")
    if not os.access(out if out.exists() else folder, os.W_OK):
        raise BadConfiguration(f"{out}: not to be written")


def output(out: Path | None) -> AbstractContextManager[IO[bytes]]:
    """A new file, which replaces an older one; standard output for None."""
    return nullcontext(sys.stdout.buffer) if out is None else out.open("wb")


class Order:
    """Counts rounds that are earlier than the round before them on their ladder: ratings depend on
    the order of the file."""

    def __init__(self) -> None:
        self._latest: dict[str, int] = {}
        self._count = self._late = 0
        self._first_late = ""

    def add(self, rounds: RoundBatch) -> None:
        """Compare the next rounds with those before them."""
        self._count += len(rounds)
        if len({head.ladder for head in rounds.heads}) == 1:
            self._add_ladder(rounds)
            return
        for head, time in zip(rounds.heads, rounds.time.tolist(), strict=True):
            if time < self._latest.get(head.ladder, time):
                self._late += 1
                self._first_late = self._first_late or head.round_id
            self._latest[head.ladder] = time

    def _add_ladder(self, rounds: RoundBatch) -> None:
        """Add rounds that are all of one ladder."""
        ladder, time = rounds.heads[0].ladder, rounds.time
        before = np.append(self._latest.get(ladder, time[0]), time[:-1])
        late = np.flatnonzero(time < before)
        self._late += len(late)
        if len(late) and not self._first_late:
            self._first_late = rounds.heads[int(late[0])].round_id
        self._latest[ladder] = int(time[-1])

    def conclude(self, path: Path) -> None:
        """Warn on standard error if many rounds are earlier than the round before them."""
        if self._late > MAX_LATE * self._count:
            print(
                f"{path}: warning: {self._late:,} of {counted(self._count, 'round')} were "
                "completed before the round before them in the file, the first of them is "
                f"{shown(self._first_late)!r}: the file is rated from top to bottom, and should "
                "be in order of time",
                file=sys.stderr,
            )


class Mistakes:
    """Counts the valid and the invalid lines of a file. Prints the place and the mistake of the
    first SHOWN_LINES invalid ones on standard error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = self.valid_lines = 0  # The numbers of invalid and of valid lines.
        self._printed = 0  # The number of invalid lines that an earlier reading has printed.
        self._table: Table | None = None

    def restart(self) -> None:
        """Count from the start of the file again, and print no line twice."""
        self._printed = max(self._printed, self.count)
        self.count = self.valid_lines = 0

    def add_all(self, batch: LogBatch) -> None:
        """Count the lines of a batch, and print the invalid ones."""
        self.valid_lines += len(batch.rounds) + len(batch.corrections) + len(batch.seeds)
        for line, invalid in batch.rejected:
            self.add(line.offset, invalid)

    def add(self, line: int, invalid: Invalid) -> None:
        """Count and print an invalid line. `line`: its number, from 0."""
        self.count += 1
        if self._printed < self.count and self._rejected_rows + self.count <= SHOWN_LINES:
            if self._table is None:
                self._print(line + 1, invalid)
            else:
                self._print(self._table.line_of(line), self._table.explained(invalid))

    def add_table(self, table: "Table") -> None:
        """Count and print a table's rejected rows. From now on, lines are those of its events."""
        self._table = table
        for line, invalid in table.rejections[:SHOWN_LINES]:
            self._print(line, invalid)

    @property
    def _rejected_rows(self) -> int:
        return 0 if self._table is None else self._table.rejected

    def _print(self, line: int, invalid: Invalid) -> None:
        print(f"{name_of(self.path)}:{line}: {invalid.code}: {invalid}", file=sys.stderr)

    def conclude(self) -> None:
        """Raise Failed if there were invalid lines. Warn if there were no lines at all."""
        if count := self.count + self._rejected_rows:
            were = f"{counted(count, 'round')} {'was' if count == 1 else 'were'} invalid"
            valid = self.valid_lines
            others = f"the {valid:,} others were" if valid > 1 else "the other one was"
            more = f"; {others} taken" if valid else ", and there was no other"
            raise Failed(f"{name_of(self.path)}: {were}{more}")
        if not self.valid_lines:
            print(f"{name_of(self.path)}: no rounds in it", file=sys.stderr)
