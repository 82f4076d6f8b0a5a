"""`stream-rater predict`: its words as typed."""

from pathlib import Path

import click

from stream_rater.cli.options import COUNT, INPUT, RATE, ROUNDS, SETTINGS, one_line, settings_of
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import read_rating, service_ladders
from stream_rater.config.ladders import one_ladder


@click.command()
@click.argument("sides", nargs=-1, required=True, metavar="SIDE...")
@click.option("--ladder", help="Whose ratings; of a file it can be left out if it has one ladder.")
@click.option("--file", type=INPUT, help="Rate the rounds of this file; without it ask Redis.")
@click.option(
    "--config",
    type=ROUNDS,
    help="With --file: rating configuration (JSON or TOML), not the ladders file.",
)
@click.option("--teams", type=COUNT, help="First deal all players into so many even teams.")
@click.option("--ranks", help="What if: the sides' ranks, as in 2,1,2; - did not finish.")
@click.option(
    "--variance-factor",
    type=RATE,
    default=1.0,
    show_default=True,
    help="Multiplies the variance of a side's performance.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@SETTINGS
@one_line
def predict(
    sides: tuple[str, ...], ladder: str | None, file: Path | None, config: Path | None,
    teams: int | None, ranks: str | None, variance_factor: float, form: str,
    settings_path: Path | None,
) -> None:  # fmt: skip
    """How likely each side is to win a round, and what a result would change; nothing is written.

    A side is a player, or several with commas between: ann,bob cy,dee. If an id has a comma, write
    the side as a JSON list. Who has not played yet is a newcomer.
    """
    if config is not None and file is None:
        raise BadConfiguration("--config is for --file: add it, or leave --config out")
    if ladder is None and file is None:
        raise BadConfiguration("give --ladder, or a file of rounds by --file")
    from stream_rater.cli import predict as command

    asked = command.question_of(sides, teams, ranks, variance_factor)
    settings = settings_of(settings_path)
    if file is not None:
        ladders = one_ladder(read_rating(config)) if config else service_ladders(settings)
        command.from_file(asked, file, ladders, ladder, as_json=form == "json")
    else:
        assert ladder is not None
        from stream_rater.cli.predict_live import from_redis

        from_redis(asked, settings, ladder, as_json=form == "json")
