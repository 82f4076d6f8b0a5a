"""`stream-rater seed`: players begin with the ratings that they have elsewhere."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_rater.cli import options as common
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings
from stream_rater.contract.events import shown
from stream_rater.runtime.progress import counted
from stream_rater.tables.reading import Reading, parse_columns

if TYPE_CHECKING:
    from stream_rater.operations.seed import Plan, SeedExample
    from stream_rater.rounds.seed_records import Taken


@click.command()
@click.argument("table", type=common.INPUT, required=False)
@click.option("--ladder", required=True, help="The ladder on which the players begin.")
@click.option(
    "--scale", metavar="SCALE",
    help="Of a table: trueskill, openskill, glicko, elo, ladder, or the MU,SIGMA of a newcomer "
    "there.",
)  # fmt: skip
@common.COLUMNS
@common.DECIMAL
@common.ENCODING
@click.option(
    "--sigma", metavar="X",
    help="Of a table: the sigma of players without one, on its scale. With --from-ladder: what is "
    "added to each sigma, as in +150.",
)  # fmt: skip
@click.option(
    "--from-ladder", metavar="LADDER", help="In place of a table: the players of this ladder."
)
@click.option(
    "--most", "most_sigma", type=common.POSITIVE, help="With --from-ladder: the greatest sigma."
)
@click.option("--at", help="When the ratings were true (RFC 3339).", show_default="now")
@click.option("--source", default="", help="For people: where the ratings come from.")
@click.option("--skip-invalid", is_flag=True, help="Leave out invalid rows, and send the others.")
@click.option(
    "--out", type=common.OUTPUT, help="Write the seeds to a file of JSON lines; send nothing."
)
@click.option("--undo", is_flag=True, help="Take the same seeds back, which were sent before.")
@click.option("--dry-run", is_flag=True, help="Send nothing: show what becomes of five players.")
@click.option("--yes", is_flag=True, help="Send without a question.")
@common.DATA
@common.SETTINGS
@common.one_line_errors
def seed(
    table: Path | None, ladder: str, from_ladder: str | None, at: str | None, source: str,
    out: Path | None, undo: bool, dry_run: bool, yes: bool, settings_path: Path | None,
    data: Path | None, **options: Any,
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

    settings = common.settings_of(settings_path, data)
    head = operation.SeedHead(ladder, at or operation.now(), source)
    if table is None:
        plan = operation.of_ladder(from_ladder or "", _taken(**options), head, settings)
    else:
        sends = not (dry_run or out is not None)
        plan = operation.of_table(
            table, head, settings, sends=sends, **_of_table(ladder, **options)
        )
    _show(plan, to_stderr=out is not None)
    if out is not None:
        print(operation.write(plan, out, table, *settings.files), file=sys.stderr)
    elif not dry_run and (yes or _agreed(plan, undo=undo)):
        done = operation.take_back if undo else operation.send_seeds
        print(done(plan, settings))


def _taken(sigma: str | None, most_sigma: float | None, **of_table: Any) -> "Taken":
    """How the ratings of another ladder are taken. Raises BadConfiguration."""
    from stream_rater.rounds.seed_records import Taken

    for name in ("scale", "columns", "skip_invalid", "decimal", "encoding"):
        if of_table[name]:
            option = f"--{name.replace('_', '-')}"
            raise BadConfiguration(f"{option} is for a table: leave it out with --from-ladder")
    more = 0.0
    if sigma is not None:
        if not sigma.startswith(("+", "-")):
            raise BadConfiguration(
                f"--sigma {sigma}: with --from-ladder it is added to each sigma: write "
                f"--sigma +{sigma}; --most sets the greatest"
            )
        more = _number("--sigma", sigma)
    return Taken(more) if most_sigma is None else Taken(more, most_sigma)


def _of_table(
    ladder: str, *, sigma: str | None, most_sigma: float | None, scale: str | None,
    columns: tuple[str, ...], skip_invalid: bool, decimal: str | None, encoding: str | None,
) -> dict[str, Any]:  # fmt: skip
    """How the ratings of a table are read. Raises BadConfiguration."""
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
    given = None if sigma is None else _number("--sigma", sigma)
    if given is not None and not given > 0.0:
        raise BadConfiguration(f"--sigma {sigma}: give a number over 0")
    return {"reading": reading, "scale": scale, "sigma": given, "skip_invalid": skip_invalid}


def _number(option: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not abs(number) < float("inf"):
        raise BadConfiguration(f"{option} {text}: give a number")
    return number


def _agreed(plan: "Plan", *, undo: bool) -> bool:
    """Whether the person at the terminal agrees. Raises BadConfiguration if there is none."""
    if not sys.stdin.isatty():
        raise BadConfiguration("there is nobody to ask: say --yes to send, or --dry-run")
    players = counted(plan.total, "player")
    text = f"Take the seeds of {players} back?" if undo else f"Send {players}?"
    return click.confirm(text, default=False)


def _show(plan: "Plan", *, to_stderr: bool) -> None:
    """Print what becomes of some players, and the remarks."""
    rows = [_cells(example) for example in plan.examples]
    if to_stderr:
        for row in rows:
            print(shown(" ".join(row)), file=sys.stderr)
    else:
        players = counted(plan.total, "player")
        title = f"{players} on ladder {plan.head.ladder!r}, {len(plan.examples)} of them:"
        headings = ("player", "given mu", "given sigma", "mu", "sigma", "rating", "rounds")
        common.table_console().print(common.table(shown(title), headings, rows))
    for line in plan.remarks:
        print(line, file=sys.stderr)


def _cells(example: "SeedExample") -> tuple[str, ...]:
    sigma = "–" if example.given_sigma is None else f"{example.given_sigma:,.6g}"
    return (
        shown(example.player), f"{example.given_mu:,.6g}", sigma, f"{example.mu:,.1f}",
        f"{example.sigma:,.1f}", f"{example.rating:,.1f}", f"{example.rounds:,}",
    )  # fmt: skip


@click.command()
@click.argument("ladder")
@click.argument("player")
@click.option("--sigma", type=common.POSITIVE, required=True, help="What sigma becomes at least.")
@click.option("--mu", type=float, help="What mu becomes; otherwise it stays.")
@click.option("--at", default="", help="From when on (RFC 3339).", show_default="now")
@click.option("--source", default="", help="For people: why.")
@click.option("--id", "round_id", default="", help="The id of the reset, to send it once more.")
@common.with_data
def reset(
    ladder: str, player: str, sigma: float, mu: float | None, at: str, source: str, round_id: str,
    settings: Settings,
) -> None:  # fmt: skip
    """Make one player's rating uncertain again, from here on: a season of one. Prints the id, by
    which `correct void` takes it back."""
    from stream_rater.operations.seed import reset as send_reset

    print(send_reset(ladder, player, sigma, mu, at, source, round_id, settings))
