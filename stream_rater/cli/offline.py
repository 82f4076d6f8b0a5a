"""`stream-rater rate`, `convert` and `predict`: commands that write to no server."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_rater.cli import options
from stream_rater.config import errors, files
from stream_rater.config.ladders import BETTER_LADDER, any_ladder
from stream_rater.config.settings import PREFIX
from stream_rater.contract.events import shown, to_json
from stream_rater.tables.reading import Reading

if TYPE_CHECKING:
    from rich.table import Table

    from stream_rater.operations.predict import PredictedChange, RoundPrediction


@click.command()
@click.argument("rounds", type=options.INPUT)
@click.option(
    "--config", type=options.CONFIGURATION, help="Rating configuration (JSON or TOML), or a system."
)
@click.option(
    "--ladders", "ladders_path", type=options.EXISTING_FILE,
    help="Ladders file (TOML) instead; without both, STREAM_RATER_LADDERS.",
)  # fmt: skip
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
        raise errors.BadConfiguration("give --config or --ladders, not both")
    if config:
        ladders = any_ladder(files.read_rating(config))
    elif named := ladders_path or os.environ.get(f"{PREFIX}LADDERS"):
        ladders = files.read_ladders(Path(named))
    else:
        ladders = BETTER_LADDER
    if records and any(ladder.rating.kept == 0 for ladder in ladders.ladders.values()):
        raise errors.BadConfiguration('--records: no record holds history "full"; give a number')
    ending = "" if out is None or form else out.suffix.lower()
    if ending in (".tsv", ".gz", ".parquet"):
        raise errors.BadConfiguration(f"{out}: end its name in .csv, or in .jsonl")
    form = "csv" if ending == ".csv" else form
    if records and form not in (None, "json"):
        raise errors.BadConfiguration("--records: only with --format json")
    kind, _, name = (to or "").partition(":")
    if to and (kind != "sqlite" or not name or out or form or records):
        raise errors.BadConfiguration(
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


@click.command()
@click.argument("table", type=options.EXISTING_FILE)
@click.argument("out", type=options.OUTPUT)
@options.table_options
@options.one_line_errors
def convert(table: Path, out: Path, reading: Reading) -> None:
    """Write the rounds of a table (CSV or Parquet) as JSON lines, as `rate` would rate them. OUT
    `-` is standard output; if its name ends in .gz, it is compressed."""
    from stream_rater.operations.rate import convert as convert_table

    convert_table(table, out, reading)


MAX_PAIRED = 8  # The most sides for which the table shows their chances against each other.


@click.command()
@click.argument("sides", nargs=-1, required=True, metavar="SIDE...")
@click.option("--ladder", help="Whose ratings; of a file it can be left out if it has one ladder.")
@click.option(
    "--file", type=options.INPUT, help="Rate the rounds of this file; without it ask Redis."
)
@click.option(
    "--config", type=options.CONFIGURATION,
    help="With --file: rating configuration (JSON or TOML) or a system, not the ladders file.",
)  # fmt: skip
@click.option("--teams", type=options.COUNT, help="First deal all players into so many even teams.")
@click.option("--ranks", help="What if: the sides' ranks, as in 2,1,2; - did not finish.")
@click.option("--scores", help="With --ranks: the sides' scores, as in 4,1; - has none.")
@click.option("--seats", help="The sides' seats, as in home,away; - has none.")
@click.option(
    "--variance-factor", "factor", type=options.POSITIVE,
    help="Multiplies the variance of a side's performance; with --file it is learned without it.",
)  # fmt: skip
@options.reading_options
@options.FORMAT
@options.DATA
@options.SETTINGS
@options.one_line_errors
def predict(
    sides: tuple[str, ...], ladder: str | None, file: Path | None, config: Path | None, form: str,
    settings_path: Path | None, data: Path | None, *, reading: Reading, **given: Any,
) -> None:  # fmt: skip
    """How likely each side is to win a round, and what a result would change; nothing is written.

    A side is a player, or several with commas between: ann,bob cy,dee. If an id has a comma, write
    the side as a JSON list. Who has not played yet is a newcomer.
    """
    if file is None:
        options.only_with("--file", {"--config": config, **options.of_tables(reading)})
    if ladder is None and file is None:
        raise errors.BadConfiguration("give --ladder, or a file of rounds by --file")
    from stream_rater.operations import predict as operation

    question = operation.question_of(sides, **given)
    settings = options.settings_of(settings_path, data)
    if file is None:
        assert ladder is not None
        _show(operation.from_redis(question, settings, ladder), as_json=form == "json")
        return
    if config:
        ladders = any_ladder(files.read_rating(config))
    else:
        ladders = files.ladders_of_settings(settings, BETTER_LADDER)
    answer, read = operation.from_file(question, file, ladders, ladder, reading)
    _show(answer, as_json=form == "json")
    read.conclude()


def _show(answer: "RoundPrediction", *, as_json: bool) -> None:
    if as_json:
        print(to_json(answer).decode())
        return
    console = options.table_console()
    console.print(_table_of_sides(answer))
    draw = f", draw {answer.draw:.1%}" if answer.draw else ""
    by = f", calibrated by {answer.learned_from:,} rounds" if answer.learned_from else ""
    print(f"quality {answer.quality:.2f}{draw}{by}")
    if answer.changes:
        console.print(_table_of_changes(answer.changes))
    elif answer.changes is not None:
        print("the result would change nothing")


def _table_of_sides(answer: "RoundPrediction") -> "Table":
    """A table of a prediction, with a row for each side."""
    pairs = range(len(answer.sides)) if 2 < len(answer.sides) <= MAX_PAIRED else ()
    rows = list[Sequence[str]]()
    for i, side in enumerate(answer.sides):
        names = ", ".join(shown(player.player) for player in side.players)
        names += f" ({side.seat})" if side.seat else ""
        over = ("–" if i == j else f"{answer.pairwise[i][j]:.1%}" for j in pairs)
        rows.append((names, f"{side.win:.1%}", f"{side.expected_rank:.2f}", *over))
    headings = ("side", "win", "mean rank", *(f"over {i + 1}" for i in pairs))
    return options.table(f"ladder {answer.ladder!r}", headings, rows)


def _table_of_changes(changes: Sequence["PredictedChange"]) -> "Table":
    both = ((each, each.previous_rating, each.rating) for each in changes)
    rows = [
        (shown(each.player), f"{before:,.1f}", f"{after:,.1f}", f"{after - before:+,.1f}")
        for each, before, after in both
    ]
    headings = ("player", "rating", "after", "difference")
    return options.table("what the result would change", headings, rows)
