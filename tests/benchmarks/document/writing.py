"""What a benchmark calls to put its figures into the documents."""

import argparse
import fcntl
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.benchmarks.document import faults, games, kernels, platform, reading, stream
from tests.benchmarks.document.origins import ROOT, origin_now
from tests.benchmarks.document.pages import replace_text, untabled, with_summary, with_tables
from tests.benchmarks.document.rows import Row, dumped, load, made, replaced

ROWS = Path("docs/benchmarks.jsonl")
PAGE = Path("docs/benchmarks.md")
README = Path("README.md")
TABLES = (
    *kernels.TABLES, *games.TABLES, *stream.TABLES, *reading.TABLES, *faults.TABLES,
    *platform.TABLES,
)  # fmt: skip


def add_option(parser: argparse.ArgumentParser) -> None:
    """`--write`, the same for all benchmarks: `make ... WRITE=1`."""
    parser.add_argument("--write", action="store_true", help=f"write the figures into {PAGE}, too")


def check(parser: argparse.ArgumentParser, *, write: bool, unlike: dict[str, object]) -> None:
    """Wrong usage if `--write` comes with an option whose figures are none to be written."""
    for option, given in unlike.items():
        if write and given:
            parser.error(f"--write and {option}: such figures are not written")


def write_run(target: str, printed: Iterable[object], arguments: Sequence[str]) -> None:
    """Put what a run of this target printed into the documents of this folder."""
    objects = [msgspec.to_builtins(each) for each in printed]
    write(made(objects, origin_now(target, arguments)))


def write(newer: Sequence[Row]) -> None:
    """Replace the rows of these names, and make the documents' tables anew.

    ValueError where the page has not the markers that it should have; the rows are kept then.
    """
    root = ROOT
    with _alone(root):
        rows = replaced(load(root / ROWS), newer)
        replace_text(root / ROWS, dumped(rows))
        for path, text in documents(root, rows):
            replace_text(path, text)
    for name in untabled(TABLES, newer):
        print(f"{name}: kept in {ROWS}, but no table shows it", file=sys.stderr)
    print(f"{len(newer)} rows written, see {PAGE}", file=sys.stderr)


def documents(root: Path, rows: Sequence[Row]) -> Iterator[tuple[Path, str]]:
    """Each document that has figures, and its text with these rows' figures."""
    page, readme = root / PAGE, root / README
    yield page, with_tables(page.read_text(), TABLES, rows)
    yield readme, with_summary(readme.read_text(), rows)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Nobody else writes within the block: two benchmarks may end at the same time."""
    folder = os.open((root / PAGE).parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
