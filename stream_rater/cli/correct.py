"""`stream-rater correct …`: sends corrections, or shows the effect that they would have."""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from stream_rater.cli import options
from stream_rater.config.errors import BadConfiguration
from stream_rater.contract.events import shown
from stream_rater.tables.reading import Reading

if TYPE_CHECKING:
    from rich.table import Table

    from stream_rater.operations.dry_run import DryRun, Move

Build = Callable[..., Sequence[Any]]  # Builds the corrections of a command from its arguments.
SHOWN_PLAYERS = 20  # The largest number of players in the table of a dry run without `--top`.


@click.group()
def correct() -> None:
    """Correct a ladder: rounds, players, seasons. Ratings become what they would be had the log
    been right from the start.

    Use --dry-run first: it shows how far each player would move, and sends nothing.
    """


_SENDING = (
    click.option("--reason", default="", help="For people: it is stored in the log."),
    click.option(
        "--dry-run", is_flag=True, help="Send nothing: show how far each player would move."
    ),
    click.option(
        "--file", type=options.INPUT,
        help="With --dry-run: the rounds of this file, not those on Kafka.",
    ),
    click.option(
        "--top", type=options.COUNT,
        help="With --dry-run: so many players; 20 in a table, all in JSON.",
    ),
    click.option(
        "--format", "form", type=click.Choice(["table", "json"]),
        help="With --dry-run: a table, or a JSON object a line.",
    ),
    options.reading_options,
    options.DATA,
    options.SETTINGS,
)  # fmt: skip


def _sending(build: Build) -> Callable[..., None]:
    """A command that sends the corrections that `build` returns, or shows their effect. It has the
    options that all these commands share."""

    @options.one_line_errors
    @wraps(build)
    def run(
        settings_path: Path | None, data: Path | None, dry_run: bool, file: Path | None,
        top: int | None, form: str | None, reading: Reading, **given: Any,
    ) -> None:  # fmt: skip
        if file is None:
            options.only_with("--file", options.of_tables(reading))
        if not dry_run:
            options.only_with("--dry-run", {"--file": file, "--top": top, "--format": form})
        settings = options.settings_of(settings_path, data)
        plan = build(**given)
        if dry_run:
            from stream_rater.operations.dry_run import dry_run as preview

            effect = preview(plan, settings, file, reading)
            _show(effect, top, as_json=form == "json")
            effect.conclude()
        else:
            from stream_rater.operations.submit import send

            print(send(plan, settings))

    return options.with_options(run, _SENDING)


BATCHED = click.option(
    "--batched", is_flag=True, help="Defer it: the next `correct apply` applies it."
)


@correct.command()
@click.argument("ladder")
@click.argument("round_id")
@BATCHED
@_sending
def void(ladder: str, round_id: str, reason: str, *, batched: bool) -> Sequence[Any]:
    """Take a round back, as if it had never been."""
    from stream_rater.operations.corrections import voided

    return [voided(ladder, round_id, reason, batched=batched)]


@correct.command()
@click.argument("ladder")
@click.argument("round", type=options.INPUT, metavar="ROUND.json")
@BATCHED
@_sending
def amend(ladder: str, round: Path, reason: str, *, batched: bool) -> Sequence[Any]:
    """Put a round right: it has other standings. The file is a round as JSON; a field that is left
    out keeps its value. `-` is standard input."""
    from stream_rater.operations.corrections import amended

    return [amended(ladder, round, reason, batched=batched)]


@correct.command()
@click.argument("ladder")
@click.argument("players", nargs=-1, metavar="[PLAYER]...")
@click.option("--players", "listed_in", type=options.INPUT, help="File of players, one id a line.")
@click.option("--from", "since", help="Only rounds completed at this time or later.")
@click.option("--until", help="Only rounds completed before this time.")
@click.option("--seed", is_flag=True, help="From the seeds and resets of that time, too.")
@BATCHED
@_sending
def remove(
    ladder: str, players: tuple[str, ...], listed_in: Path | None, since: str | None,
    until: str | None, reason: str, *, batched: bool, seed: bool,
) -> Sequence[Any]:  # fmt: skip
    """Take players out of their rounds: a ban with refunds. Several are applied together."""
    from stream_rater.operations.corrections import applied, players_in_file, removed

    named = [(player, "") for player in dict.fromkeys(players)]
    if listed_in is not None:
        named += [line for line in players_in_file(listed_in) if line[0] not in players]
    if not named:
        raise BadConfiguration("name a player, or give --players with a file of them")
    together = len(named) > 1
    deferred = batched or together
    plan = [
        removed(ladder, player, since, until, reason, batched=deferred, place=place, seed=seed)
        for player, place in named
    ]
    return [*plan, applied(ladder, reason)] if together and not batched else plan


@correct.command()
@click.argument("ladder")
@click.argument("player")
@click.argument("into")
@BATCHED
@_sending
def merge(ladder: str, player: str, into: str, reason: str, *, batched: bool) -> Sequence[Any]:
    """Join two accounts: the rounds of PLAYER count as those of INTO, those to come, too."""
    from stream_rater.operations.corrections import merged

    return [merged(ladder, player, into, reason, batched=batched)]


@correct.command()
@click.argument("ladder")
@click.argument("number")
@click.option(
    "--keep", type=float, default=1.0, show_default=True,
    help="How much of mu's distance from the initial one stays.",
)  # fmt: skip
@click.option(
    "--sigma", type=float, default=0.0, show_default=True, help="What sigma becomes at least."
)
@_sending
def season(ladder: str, number: str, keep: float, sigma: float, reason: str) -> Sequence[Any]:
    """Begin a season: every belief is drawn towards the initial one. NUMBER may be a date, such as
    %Y%m: 202611 in November 2026 (UTC). A number that was begun before begins nothing."""
    from stream_rater.operations.corrections import season_number, season_started

    return [season_started(ladder, season_number(number), keep, sigma, reason)]


@correct.command()
@click.argument("ladder")
@_sending
def apply(ladder: str, reason: str) -> Sequence[Any]:
    """Apply the deferred corrections, all together."""
    from stream_rater.operations.corrections import applied

    return [applied(ladder, reason)]


def _show(effect: "DryRun", top: int | None, *, as_json: bool) -> None:
    if effect.moves is None:
        return
    if as_json:
        for move in effect.moves[:top]:
            print(msgspec.json.encode(move).decode())
        print(effect.summary, file=sys.stderr)
        return
    if effect.moves:
        moves = effect.moves[: top or SHOWN_PLAYERS]
        options.table_console().print(table_of(effect.ladder, moves))
    print(effect.summary)


def table_of(ladder: str, moves: Sequence["Move"]) -> "Table":
    """A table of ratings before and after corrections, with a row for each player."""
    headings = ("player", "before", "after", "difference", "rounds before", "after")
    rows = [
        (
            shown(move.player), _number(move.rating_before), _number(move.rating_after),
            _number(move.difference, "+,.1f"), f"{move.rounds_before:,}", f"{move.rounds_after:,}",
        )
        for move in moves
    ]  # fmt: skip
    return options.table(f"ladder {ladder!r}", headings, rows)


def _number(value: float | None, form: str = ",.1f") -> str:
    return "–" if value is None else format(value, form)
