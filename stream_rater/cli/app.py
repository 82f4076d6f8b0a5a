"""`stream-rater …`: the commands. Exit codes: 0 done, 1 the work failed, 2 wrong usage.

A command imports what it runs when it is called: `evaluate` needs no client of Kafka's or Redis's.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from stream_rater.cli.correct_app import correct
from stream_rater.cli.evidence_app import evidence
from stream_rater.cli.options import (
    COUNT,
    FILE,
    INPUT,
    PART,
    RATE,
    ROUNDS,
    SETTINGS,
    following,
    one_line,
    settings_of,
)
from stream_rater.cli.predict_app import predict
from stream_rater.cli.terminal import brief
from stream_rater.cli.tune_app import tune
from stream_rater.columns import compile_progress
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import ladders_of, read_ladders, read_rating
from stream_rater.config.ladders import one_ladder

CONFIGURATIONS = {".json", ".toml"}

ENOUGH = 128 + signal.SIGPIPE
"""Exit code of a command whose reader, as `head`, has ended: what a shell says of SIGPIPE."""


def _end_quietly() -> NoReturn:
    """End without a word: nobody reads standard output any more, not even what is left in it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(ENOUGH)


class Commands(click.Group):
    """All commands, each of which ends quietly once nobody reads its output, its help too."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """As click does it; shows the help of the group."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError:
            _end_quietly()

    def invoke(self, ctx: click.Context) -> Any:
        """As click does it; runs a command, or shows its help."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _end_quietly()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="stream-rater")
@click.pass_context
def main(context: click.Context) -> None:
    """Rate players from finished rounds: offline, or streaming on Kafka and Redis."""
    if context.invoked_subcommand not in ("run", "serve"):  # which have a log
        compile_progress.on_stderr()


main.add_command(correct)
main.add_command(evidence)
main.add_command(predict)
main.add_command(tune)


@main.command()
@click.argument("rounds", type=INPUT)
@click.option("--config", type=ROUNDS, help="Rating configuration (JSON or TOML).")
@click.option(
    "--ladders",
    "ladders_path",
    type=ROUNDS,
    help="Ladders file (TOML) instead; without both, STREAM_RATER_LADDERS.",
)
@click.option("--out", type=FILE, help="Where to write; standard output otherwise.")
@click.option("--changes", type=FILE, help="Where to write each rating change (JSON lines).")
@click.option("--records", is_flag=True, help="Add each belief's bytes (base64).")
@one_line
def rate(
    rounds: Path,
    config: Path | None,
    ladders_path: Path | None,
    out: Path | None,
    changes: Path | None,
    records: bool,
) -> None:
    """Rate the rounds of a JSON-lines file, without any server. The file may be gzip-compressed;
    `-` is standard input."""
    if config and ladders_path:
        raise BadConfiguration("give --config or --ladders, not both")
    if config:
        ladders = one_ladder(read_rating(config))
    elif ladders_path:
        ladders = read_ladders(ladders_path)
    else:
        ladders = ladders_of(os.environ)
    if records and any(ladder.rating.kept == 0 for ladder in ladders.ladders.values()):
        raise BadConfiguration('--records: no record holds history "full"; give a number')
    from stream_rater.cli.rate import rate as rate_file

    rate_file(rounds, ladders, out, changes, records=records)


@main.command()
@click.argument("files", type=INPUT, nargs=-1, required=True, metavar="ROUNDS...")
@click.option(
    "--config",
    "configs",
    type=ROUNDS,
    multiple=True,
    help="Rating configuration (JSON or TOML); give several to compare.",
)
@click.option(
    "--train", type=PART, default=0.1, show_default=True,
    help="Part of the rounds that only builds experience.",
)  # fmt: skip
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option("--calibration", is_flag=True, help="How often sides won, by their probability.")
@click.option("--diagram", type=FILE, help="Picture of that to write (.png or .svg).")
@click.option(
    "--variance-factor", "factor", type=RATE, default=1.0, show_default=True,
    help="Multiplies the variance of a side's performance.",
)  # fmt: skip
@click.option(
    "--by", type=click.Choice(["mu", "display"]), default="mu", show_default=True,
    help="Which number puts players in order: the rating mu, or the displayed one.",
)  # fmt: skip
@one_line
@brief()
def evaluate(
    files: tuple[Path, ...], configs: tuple[Path, ...], train: float, form: str, **options: Any
) -> None:
    """How well ratings foretell the rounds of JSON-lines files.

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

    sources = [(path, read_lines(path)) for path in rounds]
    sources[0] = (rounds[0], begin_to_read(rounds[0]))
    from stream_rater.cli import lab

    lab.evaluate_files(sources, named, train, as_json=form == "json", **options)


@main.command()
@click.option("--role", type=click.Choice(["all", "estimator", "updater"]), default="all")
@SETTINGS
@one_line
def run(role: str, settings_path: Path | None) -> None:
    """Run the service until SIGTERM or Ctrl-C."""
    settings = settings_of(settings_path)
    from stream_rater.runtime import log

    compile_progress.in_log(log.logger("service").info)
    roles = frozenset({"estimator", "updater"} if role == "all" else {role})
    from stream_rater.cli import commands

    commands.run(settings, roles)


@main.command()
@SETTINGS
@one_line
def serve(settings_path: Path | None) -> None:
    """Answer questions about ratings over HTTP until SIGTERM or Ctrl-C."""
    settings = settings_of(settings_path)
    from stream_rater.runtime import log

    compile_progress.in_log(log.logger("serve").info)
    from stream_rater.cli.serve import serve as serve_api

    serve_api(settings)


@main.command()
@click.argument("rounds", type=INPUT)
@click.option("--per-second", type=RATE, help="At most so many rounds a second.")
@SETTINGS
@one_line
def submit(rounds: Path, per_second: float | None, settings_path: Path | None) -> None:
    """Send the rounds and corrections of a JSON-lines file to round-completed, each validated
    before. `-` is standard input."""
    from stream_rater.cli import commands

    commands.submit(rounds, settings_of(settings_path), per_second)


@main.command()
@click.option("--ladder", help="Only this ladder.")
@click.option("--player", help="Only this player.")
@click.option("--json", "as_json", is_flag=True, help="The events as they are, one a line.")
@following
@SETTINGS
@one_line
def watch(
    settings_path: Path | None, from_start: bool, count: int | None, wait_s: float | None,
    **options: Any,
) -> None:  # fmt: skip
    """Follow rating-changed."""
    from stream_rater.cli import follow

    how = follow.Following(from_start=from_start, count=count, wait_s=wait_s)
    follow.watch(settings_of(settings_path), how, **options)


@main.command()
@click.option("--ladder", help="Only this ladder, as far as it can be read.")
@click.option("--code", help="Only this error code.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line, with the record.")
@following
@SETTINGS
@one_line
def rejected(
    settings_path: Path | None, from_start: bool, count: int | None, wait_s: float | None,
    **options: Any,
) -> None:  # fmt: skip
    """Follow round-rejected: which rounds were refused, and why."""
    from stream_rater.cli import follow

    how = follow.Following(from_start=from_start, count=count, wait_s=wait_s)
    follow.rejected(settings_of(settings_path), how, **options)


@main.command()
@click.option("--replace", is_flag=True, help="Delete what Redis holds of this service first.")
@SETTINGS
@one_line
def rebuild(replace: bool, settings_path: Path | None) -> None:
    """Replay the log into an empty Redis, while no worker runs; they then go on from there."""
    from stream_rater.operations.rebuild import rebuild as rebuild_store

    rebuild_store(settings_of(settings_path), replace=replace)


@main.command()
@click.argument("ladders", nargs=-1, metavar="[LADDER]...")
@SETTINGS
@one_line
def checkpoint(ladders: tuple[str, ...], settings_path: Path | None) -> None:
    """Make checkpoints of ladders (all, if none is named): a correction of a later round is then
    worked in sooner. Workers may run meanwhile."""
    from stream_rater.operations.checkpoint import checkpoint as make_checkpoints

    make_checkpoints(settings_of(settings_path), ladders)


@main.command()
@click.argument("player")
@click.option("--to", "prefix", required=True, help="Prefix of the new topics.")
@click.option("--pseudonym", help="The name in place of the id; a random one otherwise.")
@click.option("--delete-old", is_flag=True, help="Delete the old topics once all is done.")
@click.option("--dry-run", is_flag=True, help="Copy nothing: tell what names the player.")
@SETTINGS
@one_line
def erase(
    player: str, prefix: str, pseudonym: str | None, settings_path: Path | None, **options: bool
) -> None:
    """Put a pseudonym in the place of a player's id, on all ladders, while no worker runs.

    Kafka's log cannot be changed, so it is written anew, to topics of another prefix. All ratings
    stay as they are.
    """
    from stream_rater.operations.erase import erase as erase_player

    erase_player(settings_of(settings_path), player, prefix, pseudonym, **options)


@main.command()
@click.option("--wait", "wait_s", default=60.0, show_default=True,
              help="Seconds to wait for the workers to catch up.")  # fmt: skip
@SETTINGS
@one_line
def verify(wait_s: float, settings_path: Path | None) -> None:
    """Compare every belief in Redis with a sequential replay of the log, bit for bit."""
    from stream_rater.cli import commands

    commands.verify(settings_of(settings_path), wait_s)


@main.command()
@click.option("--ladder", help="With --player: whose belief to tell.")
@click.option("--player", help="Without one: how topics are kept, how far, who has them.")
@SETTINGS
@one_line
def inspect(ladder: str | None, player: str | None, settings_path: Path | None) -> None:
    """Tell what is believed of a player, their last rounds, where it lives; or of a ladder's
    corrections; or of all topics."""
    if ladder is None and player is not None:
        raise BadConfiguration("give --ladder with --player")
    from stream_rater.cli.inspect import inspect as show_beliefs

    show_beliefs(settings_of(settings_path), ladder, player)


@main.command()
@click.option("--embedded", is_flag=True, help="In memory: no servers, nothing durable.")
@click.option("--rounds", type=COUNT, default=300, show_default=True, help="Length of the season.")
@one_line
def demo(embedded: bool, rounds: int) -> None:
    """A made-up season, rated as the service would."""
    if not embedded:
        raise BadConfiguration(
            "`make demo` shows the service on real servers; here, give --embedded"
        )
    from stream_rater.cli import embedded_demo
    from stream_rater.cli.terminal import tables

    embedded_demo.play(rounds, tables())
