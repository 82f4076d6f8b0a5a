"""`stream-rater convert`: writes the rounds of a table as JSON lines."""

import gzip
import sys
from pathlib import Path
from typing import IO

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import ladders_of_environment
from stream_rater.config.settings import Settings
from stream_rater.operations.input_file import RoundsFile, check_writable, file_failures
from stream_rater.replay.edited_log import EditedLog, records_of
from stream_rater.replay.files import STANDARD_INPUT
from stream_rater.runtime.progress import counted
from stream_rater.tables.reading import SUFFIXES, Reading, is_table


def convert(path: Path, out: Path, reading: Reading) -> None:
    """Write the rounds of a table to `out` as JSON lines, in order of time; `-` is standard output.
    A name that ends in .gz is compressed by gzip.

    Raises BadConfiguration with a question about a column, or Failed if rows were rejected, here or
    as rounds; all others are written.
    """
    if not is_table(path):
        raise BadConfiguration(f"{path}: no table: its name must end in {', '.join(SUFFIXES)}")
    if is_table(out):
        raise BadConfiguration(f"{out}: it would have JSON lines: end its name in .jsonl")
    if out != STANDARD_INPUT:
        check_writable(out, path)
    file = RoundsFile(path, None, reading)
    with file_failures():
        table, mistakes, refused = file.table(), file.mistakes, set[int]()
        log = EditedLog(ladders_of_environment({}), Settings().duplicate_window)
        for batch in log.batches(records_of(table.lines())):
            mistakes.add_all(batch)
            refused.update(record.offset for record, _ in batch.rejected)
        lines = (line for i, line in enumerate(table.lines()) if i not in refused)
        if out == STANDARD_INPUT:
            sys.stdout.buffer.writelines(lines)
        else:
            with _opened(out) as target:
                target.writelines(lines)
    print(f"{counted(mistakes.valid_lines, 'round')} written", file=sys.stderr)
    file.mistakes.conclude()


def _opened(out: Path) -> IO[bytes]:
    if out.name.endswith(".gz"):
        return gzip.GzipFile(out, "wb", mtime=0)  # type: ignore[return-value]
    return out.open("wb")
