"""`stream-rater seed`: players begin with the ratings that they have elsewhere."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stream_rater.cli import options as common
from stream_rater.config.errors import BadConfiguration
from stream_rater.contract.events import shown
from stream_rater.runtime.progress import counted
from stream_rater.tables.reading import Reading, parse_columns

if TYPE_CHECKING:
    from rich.table import Table

    from stream_rater.operations.seed import Example, Head, Plan


@click.command()
@click.argument("table", type=common.INPUT, required=False)
@click.option("--ladder", required=True, help="The ladder on which the players begin.")
@click.option("--scale", metavar="SCALE",
              help="Of a table: trueskill, openskill, glicko, elo, ladder, or the MU,SIGMA of a "
              "newcomer there.")  # fmt: skip
@common.COLUMNS
@common.DECIMAL
@common.ENCODING
@click.option("--sigma", metavar="X",
              help="Of a table: the sigma of players without one, on its scale. With "
              "--from-ladder: what is added to each sigma, as in +150.")  # fmt: skip
@click.option("--from-ladder", metavar="LADDER",
              help="In place of a table: the players of this ladder.")  # fmt: skip
@click.option("--most", "most_sigma", type=common.POSITIVE,
              help="With --from-ladder: the greatest sigma.")  # fmt: skip
@click.option("--at", help="When the ratings were true (RFC 3339).", show_default="now")
@click.option("--source", default="", help="For people: where the ratings come from.")
@click.option("--skip-invalid", is_flag=True, help="Leave out invalid rows, and send the others.")
@click.option("--out", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
              help="Write the seeds to a file of JSON lines; send nothing.")  # fmt: skip
@click.option("--undo", is_flag=True, help="Take the same seeds back, which were sent before.")
@click.option("--dry-run", is_flag=True, help="Send nothing: show what becomes of five players.")
@click.option("--yes", is_flag=True, help="Send without a question.")
@common.DATA
@common.SETTINGS
@common.one_line_errors
def seed(
    table: Path | None, ladder: str, scale: str | None, columns: tuple[str, ...],
    sigma: str | None, from_ladder: str | None, most_sigma: float | None, at: str | None,
    source: str, skip_invalid: bool, out: Path | None, undo: bool, dry_run: bool, yes: bool,
    settings_path: Path | None, decimal: str | None, encoding: str | None,
) -> None:  # fmt: skip
    """Give players who have no round on a ladder the ratings that they have elsewhere: in a table
    (CSV, TSV, Parquet or JSON lines), or on another ladder. Shows what becomes of five of them, and
    asks, before it sends."""
    if (table is None) == (from_ladder is None):
        raise BadConfiguration("give a table of ratings, or --from-ladder")
    if out is not None and undo:
        raise BadConfiguration("give --out or --undo, not both")
    if from_ladder is not None and undo:
        raise BadConfiguration(
            "--undo is for a table: take a seed from another ladder back by `correct void`; its "
            "id is the round_id of its events"
        )
    from stream_rater.operations import seed as operation

    settings = common.settings_of(settings_path)
    head = operation.Head(ladder, at or operation.now(), source)
    if table is None:
        if given := _given(
            {
                "--scale": scale,
                "--columns": columns,
                "--skip-invalid": skip_invalid,
                "--decimal": decimal,
                "--encoding": encoding,
            }
        ):
            raise BadConfiguration(f"{given} is for a table: leave it out with --from-ladder")
        plan = _of_ladder(from_ladder or "", sigma, most_sigma, head, settings_path)
    else:
        if most_sigma is not None:
            raise BadConfiguration("--most is for --from-ladder: leave it out with a table")
        if scale is None:
            raise BadConfiguration(
                "which scale do the ratings have? Say --scale trueskill, openskill, glicko, elo, "
                "ladder, or the MU,SIGMA of a newcomer there"
            )
        reading = Reading(
            parse_columns(columns), ladder=ladder, decimal=decimal or "", encoding=encoding or ""
        ).checked()
        added = None if sigma is None else _number("--sigma", sigma)
        if added is not None and not added > 0.0:
            raise BadConfiguration(f"--sigma {sigma}: give a number over 0")
        given_table = operation.FromTable(reading, scale, added, skip_invalid)
        plan = operation.of_table(
            table, given_table, head, settings, sends=not (dry_run or out is not None)
        )
    _show(plan, to_stderr=out is not None)
    if out is not None:
        print(operation.write(plan, out, table, *settings.files), file=sys.stderr)
    elif not dry_run and (yes or _agreed(plan, undo=undo)):
        done = operation.take_back if undo else operation.send_seeds
        print(done(plan, settings))


def _of_ladder(
    from_ladder: str, sigma: str | None, most: float | None, head: "Head", path: Path | None
) -> "Plan":
    from stream_rater.operations.seed_from_ladder import of_ladder
    from stream_rater.rounds.seed_records import Taken

    more = 0.0
    if sigma is not None:
        if not sigma.startswith(("+", "-")):
            raise BadConfiguration(
                f"--sigma {sigma}: with --from-ladder it is added to each sigma: write "
                f"--sigma +{sigma}; --most sets the greatest"
            )
        more = _number("--sigma", sigma)
    taken = Taken(more) if most is None else Taken(more, most)
    return of_ladder(from_ladder, taken, head, common.settings_of(path))


def _given(options: dict[str, object]) -> str:
    """The first of these options that was given; empty if none was."""
    return next((name for name, value in options.items() if value), "")


def _number(option: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not abs(found) < float("inf"):
        raise BadConfiguration(f"{option} {text}: give a number")
    return found


def _agreed(plan: "Plan", *, undo: bool) -> bool:
    """Whether the person at the terminal agrees. Raises BadConfiguration if there is none."""
    if not sys.stdin.isatty():
        raise BadConfiguration("there is nobody to ask: say --yes to send, or --dry-run")
    verb = "Take the seeds of" if undo else "Send"
    ending = " back" if undo else ""
    return click.confirm(f"{verb} {counted(plan.total, 'player')}{ending}?", default=False)


def _show(plan: "Plan", *, to_stderr: bool) -> None:
    if to_stderr:
        for each in plan.examples:
            print(shown(" ".join(_cells(each))), file=sys.stderr)
    else:
        common.table_console().print(table_of(plan))
    for line in plan.remarks:
        print(line, file=sys.stderr)


def table_of(plan: "Plan") -> "Table":
    """A table of what becomes of some players."""
    from rich.table import Table
    from rich.text import Text

    every = counted(plan.total, "player")
    title = f"{every} on ladder {plan.head.ladder!r}, {len(plan.examples)} of them:"
    table = Table(title=Text(shown(title)), title_justify="left")
    table.add_column("player", overflow="fold")
    for heading in ("given mu", "given sigma", "mu", "sigma", "rating", "rounds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in plan.examples:
        name, *numbers = _cells(each)
        table.add_row(Text(name), *numbers)
    return table


def _cells(each: "Example") -> Sequence[str]:
    sigma = "–" if each.given_sigma is None else f"{each.given_sigma:,.6g}"
    return (
        shown(each.player), f"{each.given_mu:,.6g}", sigma, f"{each.mu:,.1f}", f"{each.sigma:,.1f}",
        f"{each.rating:,.1f}", f"{each.rounds:,}",
    )  # fmt: skip


@click.command()
@click.argument("ladder")
@click.argument("player")
@click.option("--sigma", type=common.POSITIVE, required=True, help="What sigma becomes at least.")
@click.option("--mu", type=float, help="What mu becomes; otherwise it stays.")
@click.option("--at", default="", help="From when on (RFC 3339).", show_default="now")
@click.option("--source", default="", help="For people: why.")
@click.option("--id", "round_id", default="", help="The id of the reset, to send it once more.")
@common.DATA
@common.SETTINGS
@common.one_line_errors
def reset(
    ladder: str, player: str, sigma: float, mu: float | None, at: str, source: str, round_id: str,
    settings_path: Path | None,
) -> None:  # fmt: skip
    """Make one player's rating uncertain again, from here on: a season of one. Prints the id, by
    which `correct void` takes it back."""
    from stream_rater.operations.seed import reset as send_reset

    settings = common.settings_of(settings_path)
    print(send_reset(ladder, player, sigma, mu, at, source, round_id, settings))
