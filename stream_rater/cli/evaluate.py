"""`stream-rater evaluate`: shows how well ratings predict the rounds of files."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from stream_rater.cli import options as common
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import read_rating
from stream_rater.tables.reading import is_parquet

CONFIGURATIONS = {".json", ".toml"}


@contextmanager
def short_run() -> Iterator[None]:
    """Set up the interpreter for a short run: no garbage collection, and ten times as many switches
    between threads.

    Garbage collection is off for the whole run and at its end: one collection takes 50 ms, and the
    run makes no reference cycles. Threads hold the interpreter only briefly before they run a
    kernel, so frequent switches cost less than waiting.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(interval_s / 10.0)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        sys.setswitchinterval(interval_s)


@click.command()
@click.argument("files", type=common.INPUT, nargs=-1, required=True, metavar="ROUNDS...")
@click.option(
    "--config",
    "configs",
    type=common.EXISTING_FILE,
    multiple=True,
    help="Rating configuration (JSON or TOML); give several to compare.",
)
@click.option(
    "--train", type=common.FRACTION, default=0.5, show_default=True,
    help="Part of the rounds that only builds experience.",
)  # fmt: skip
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option("--calibration", is_flag=True, help="How often sides won, by their probability.")
@click.option("--diagram", type=common.NEW_FILE, help="Picture of that to write (.png or .svg).")
@click.option(
    "--variance-factor", "factor", type=common.POSITIVE, default=1.0, show_default=True,
    help="Multiplies the variance of a side's performance.",
)  # fmt: skip
@click.option(
    "--by", type=click.Choice(["mu", "display"]), default="mu", show_default=True,
    help="Which number puts players in order: the rating mu, or the displayed one.",
)  # fmt: skip
@common.table_options
@common.one_line_errors
@short_run()
def evaluate(
    files: tuple[Path, ...], configs: tuple[Path, ...], train: float, form: str, **options: Any
) -> None:
    """How well ratings predict the rounds of files: JSON lines, CSV or Parquet.

    Several configurations are compared with the first one. They may also stand one after the other
    behind a single --config.
    """
    given = [*configs, *(path for path in files if path.suffix in CONFIGURATIONS)]
    rounds = [path for path in files if path.suffix not in CONFIGURATIONS]
    if not given:
        raise BadConfiguration("give at least one --config")
    if not rounds:
        raise BadConfiguration("give at least one file of rounds")
    named = [(path.name, read_rating(path)) for path in given]
    from stream_rater.replay.files import begin_to_read, read_lines

    # The first file is read while the modules below load.
    first = read_lines if is_parquet(rounds[0]) else begin_to_read
    opened = [first(rounds[0]), *map(read_lines, rounds[1:])]
    sources = list(zip(rounds, opened, strict=True))
    from stream_rater.operations.evaluate import evaluate_files

    found = evaluate_files(sources, named, train, **options)
    if form == "json":
        print(msgspec.json.encode(found.rows).decode())
    else:
        from stream_rater.cli import tables  # loading takes as long as evaluating a small file

        tables.show_accuracy(found.rows, calibration=options["calibration"])
    found.conclude()
