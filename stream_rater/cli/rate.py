"""`stream-rater rate`: rates the rounds of a file, without any server."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from stream_rater.cli import options
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import ladders_of_environment, read_ladders, read_rating
from stream_rater.config.ladders import any_ladder
from stream_rater.tables.reading import Reading


@click.command()
@click.argument("rounds", type=options.INPUT)
@click.option("--config", type=options.EXISTING_FILE, help="Rating configuration (JSON or TOML).")
@click.option(
    "--ladders",
    "ladders_path",
    type=options.EXISTING_FILE,
    help="Ladders file (TOML) instead; without both, STREAM_RATER_LADDERS.",
)
@click.option("--out", type=options.NEW_FILE, help="Where to write; standard output otherwise.")
@click.option(
    "--changes", type=options.NEW_FILE, help="Where to write each rating change (JSON lines)."
)
@click.option("--records", is_flag=True, help="Add each belief's bytes (base64), to JSON.")
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]),
    show_default="table on a terminal, else json",
    help="A table of the best players with few digits; or all players, as CSV or JSON lines.",
)  # fmt: skip
@click.option(
    "--to", metavar="sqlite:FILE", help="Write the table `ratings` of a database, instead."
)
@options.CORES
@options.table_options
@options.one_line_errors
def rate(
    rounds: Path, config: Path | None, ladders_path: Path | None, out: Path | None,
    changes: Path | None, records: bool, form: Any, to: str | None, cores: int | None,
    reading: Reading,
) -> None:  # fmt: skip
    """Rate the rounds of a file, without any server: JSON lines or CSV, either also
    gzip-compressed, or Parquet. `-` is standard input, with JSON lines."""
    if config and ladders_path:
        raise BadConfiguration("give --config or --ladders, not both")
    if config:
        ladders = any_ladder(read_rating(config))
    elif ladders_path:
        ladders = read_ladders(ladders_path)
    else:
        ladders = ladders_of_environment(os.environ)
    if records and any(ladder.rating.kept == 0 for ladder in ladders.ladders.values()):
        raise BadConfiguration('--records: no record holds history "full"; give a number')
    if records and form not in (None, "json"):
        raise BadConfiguration("--records: only with --format json")
    kind, _, name = (to or "").partition(":")
    if to and (kind != "sqlite" or not name or out or form or records):
        raise BadConfiguration(
            "--to: give sqlite:FILE, without --out, --format and --records; for another database "
            "load the CSV of --format csv"
        )
    if form is None:
        form = "table" if out is None and not records and sys.stdout.isatty() else "json"
    from stream_rater.operations.input_file import check_writable
    from stream_rater.operations.rate import rate as rate_rounds

    for each in filter(None, (out, changes)):
        check_writable(each, config, ladders_path)
    rate_rounds(
        rounds, ladders, out, changes, records=records, reading=reading, cores=cores, form=form,
        database=Path(name) if name else None,
    )  # fmt: skip
