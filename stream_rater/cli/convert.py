"""`stream-rater convert`: writes the rounds of a table as JSON lines."""

from pathlib import Path

import click

from stream_rater.cli.options import EXISTING_FILE, one_line_errors, table_options
from stream_rater.tables.reading import Reading


@click.command()
@click.argument("table", type=EXISTING_FILE)
@click.argument("out", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@table_options
@one_line_errors
def convert(table: Path, out: Path, reading: Reading) -> None:
    """Write the rounds of a table (CSV or Parquet) as JSON lines, as `rate` would rate them. OUT
    `-` is standard output; if its name ends in .gz, it is compressed."""
    from stream_rater.operations.convert import convert as convert_table

    convert_table(table, out, reading)
