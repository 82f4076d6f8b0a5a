"""`make tables`: the tables of the documents again, from docs/benchmarks.jsonl; with files, after
the rows of these saved runs are added. Exit code 2: wrong usage."""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks.document import rows
from tests.benchmarks.document.tables import TABLES
from tests.benchmarks.document.writing import write


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parse(arguments)
    try:
        newer = [row for path in given.files for row in _saved(path, given)]
    except (OSError, rows.Unreadable) as error:
        print(f"tables: {error}", file=sys.stderr)
        return 2
    write(newer)
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    prog = "python -m tests.benchmarks.document"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="a saved run")
    parser.add_argument("--commit", help="that the runs were of; required with files")
    parser.add_argument("--date", help="when they ended, UTC (default: when a file was written)")
    parser.add_argument("--command", help="that measured (default: the target of the Makefile)")
    parser.add_argument("--machine", default=rows.machine(), help="default: this one: %(default)s")
    parser.add_argument("--remark", default="", help="a sentence that readers must know")
    given = parser.parse_args(arguments)
    if given.files and not given.commit:
        parser.error("--commit is required with files: a saved run does not contain it")
    return given


def _saved(path: Path, given: argparse.Namespace) -> Iterator[rows.Row]:
    date = given.date or rows.dated(path.stat().st_mtime)
    for figures in rows.printed_in(path):
        command = given.command or _command_of(rows.name_of(figures) or "")
        yield from rows.made(
            [figures], rows.Origin(date, given.commit, command, given.machine, given.remark)
        )


def _command_of(row: str) -> str:
    """`make` and the target that measures the rows of such a name."""
    commands = [each.command for each in TABLES if re.fullmatch(each.names, row)]
    return " ".join((commands or ["make bench-stream"])[0].split()[:2])


if __name__ == "__main__":
    sys.exit(main())
