"""`stream-rater submit`, `watch` and `rejected`: commands that write and read the topics of the
service."""

from pathlib import Path
from typing import Any

import click

from stream_rater.cli import options as common
from stream_rater.tables.reading import Reading


@click.command()
@click.argument("rounds", type=common.INPUT)
@click.option("--per-second", type=common.POSITIVE, help="At most so many rounds a second.")
@common.table_options
@common.DATA
@common.SETTINGS
@common.one_line_errors
def submit(
    rounds: Path, per_second: float | None, settings_path: Path | None, reading: Reading
) -> None:
    """Send the rounds and corrections of a file (JSON lines, CSV or Parquet) to round-completed,
    each validated before. `-` is standard input, with JSON lines."""
    from stream_rater.operations.submit import submit as submit_file

    submit_file(rounds, common.settings_of(settings_path), per_second, reading)


@click.command()
@click.option("--ladder", help="Only this ladder.")
@click.option("--player", help="Only this player.")
@click.option("--json", "as_json", is_flag=True, help="The events as they are, one a line.")
@common.following
@common.DATA
@common.SETTINGS
@common.one_line_errors
def watch(
    settings_path: Path | None, from_start: bool, count: int | None, wait_s: float | None,
    **options: Any,
) -> None:  # fmt: skip
    """Follow rating-changed."""
    from stream_rater.operations import follow

    span = follow.Following(from_start=from_start, count=count, wait_s=wait_s)
    for line in follow.watch(common.settings_of(settings_path), span, **options):
        print(line, flush=True)


@click.command()
@click.option("--ladder", help="Only this ladder, as far as it can be read.")
@click.option("--code", help="Only this error code.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line, with the record.")
@common.following
@common.DATA
@common.SETTINGS
@common.one_line_errors
def rejected(
    settings_path: Path | None, from_start: bool, count: int | None, wait_s: float | None,
    **options: Any,
) -> None:  # fmt: skip
    """Follow round-rejected: which records were rejected, and why."""
    from stream_rater.operations import follow

    span = follow.Following(from_start=from_start, count=count, wait_s=wait_s)
    for line in follow.rejected(common.settings_of(settings_path), span, **options):
        print(line, flush=True)
