"""`stream-rater predict`: shows how likely sides are to win, and what a result would change."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_rater.cli import options
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import ladders_of_settings, read_rating
from stream_rater.config.ladders import any_ladder
from stream_rater.contract.events import shown, to_json

if TYPE_CHECKING:
    from rich.table import Table

    from stream_rater.operations.predict import PredictedChange, RoundPrediction

MAX_PAIRED = 8
"""The largest number of sides for which the table shows their probabilities against each other."""


@click.command()
@click.argument("sides", nargs=-1, required=True, metavar="SIDE...")
@click.option("--ladder", help="Whose ratings; of a file it can be left out if it has one ladder.")
@click.option(
    "--file", type=options.INPUT, help="Rate the rounds of this file; without it ask Redis."
)
@click.option(
    "--config", type=options.EXISTING_FILE,
    help="With --file: rating configuration (JSON or TOML), not the ladders file.",
)  # fmt: skip
@click.option("--teams", type=options.COUNT, help="First deal all players into so many even teams.")
@click.option("--ranks", help="What if: the sides' ranks, as in 2,1,2; - did not finish.")
@click.option("--scores", help="With --ranks: the sides' scores, as in 4,1; - has none.")
@click.option("--seats", help="The sides' seats, as in home,away; - has none.")
@options.VARIANCE_FACTOR
@options.FORMAT
@options.DATA
@options.SETTINGS
@options.one_line_errors
def predict(
    sides: tuple[str, ...], ladder: str | None, file: Path | None, config: Path | None, form: str,
    settings_path: Path | None, **given: Any,
) -> None:  # fmt: skip
    """How likely each side is to win a round, and what a result would change; nothing is written.

    A side is a player, or several with commas between: ann,bob cy,dee. If an id has a comma, write
    the side as a JSON list. Who has not played yet is a newcomer.
    """
    if config is not None and file is None:
        raise BadConfiguration("--config is for --file: add it, or leave --config out")
    if ladder is None and file is None:
        raise BadConfiguration("give --ladder, or a file of rounds by --file")
    from stream_rater.operations import predict as operation

    question = operation.question_of(sides, **given)
    settings = options.settings_of(settings_path)
    if file is None:
        assert ladder is not None
        _show(operation.from_redis(question, settings, ladder), as_json=form == "json")
        return
    ladders = any_ladder(read_rating(config)) if config else ladders_of_settings(settings)
    answer, rated = operation.from_file(question, file, ladders, ladder)
    _show(answer, as_json=form == "json")
    rated.conclude()


def _show(answer: "RoundPrediction", *, as_json: bool) -> None:
    if as_json:
        print(to_json(answer).decode())
        return
    console = options.table_console()
    console.print(table_of(answer))
    draw = f", draw {answer.draw:.1%}" if answer.draw else ""
    print(f"quality {answer.quality:.2f}{draw}")
    if answer.changes:
        console.print(_table_of_changes(answer.changes))
    elif answer.changes is not None:
        print("the result would change nothing")


def table_of(answer: "RoundPrediction") -> "Table":
    """A table of a prediction, with a row for each side."""
    pairs = range(len(answer.sides)) if 2 < len(answer.sides) <= MAX_PAIRED else ()
    headings = ("win", "mean rank", *(f"over {i + 1}" for i in pairs))
    table = options.table(f"ladder {answer.ladder!r}", "side", *headings)
    for i, side in enumerate(answer.sides):
        names = ", ".join(shown(player.player) for player in side.players)
        names += f" ({side.seat})" if side.seat else ""
        over = ("–" if i == j else f"{answer.pairwise[i][j]:.1%}" for j in pairs)
        options.add_row(table, names, f"{side.win:.1%}", f"{side.expected_rank:.2f}", *over)
    return table


def _table_of_changes(changes: Sequence["PredictedChange"]) -> "Table":
    headings = ("rating", "after", "difference")
    table = options.table("what the result would change", "player", *headings)
    for change in changes:
        before, after = change.previous_rating, change.rating
        numbers = (f"{before:,.1f}", f"{after:,.1f}", f"{after - before:+,.1f}")
        options.add_row(table, shown(change.player), *numbers)
    return table
