"""`stream-rater tune`: its words as typed."""

import os
from pathlib import Path
from typing import Any

import click

from stream_rater.cli.options import COUNT, FILE, PART, ROUNDS, SETTINGS, one_line, settings_of
from stream_rater.config.errors import BadConfiguration
from stream_rater.evaluation.measures import MEASURES
from stream_rater.evaluation.spaces import SPACES

OF_FILE = {"train": 0.1, "measure": "pair_inversion"}
OF_TOPIC = {"train": 0.5, "measure": "log_loss"}
"""What holds unless it is told. A live ladder's first tenth has too many newcomers in it."""

OF_PAIRS = ("log_loss", "pair_inversion")
"""What a live ladder can be tuned by."""


@click.command()
@click.argument("rounds", type=ROUNDS, required=False)
@click.option("--from-topic", is_flag=True, help="The rounds on Kafka, not those of a file.")
@click.option("--ladder", help="With --from-topic: whose rounds; compared with what it has now.")
@click.option(
    "--system", type=click.Choice(sorted(SPACES)), help="With --from-topic: else the ladder's own."
)
@click.option(
    "--train", type=PART, help="Part of the rounds to search on.",
    show_default="0.1; 0.5 with --from-topic",
)  # fmt: skip
@click.option(
    "--metric", "measure", type=click.Choice(MEASURES),
    show_default="pair_inversion; log_loss with --from-topic",
)  # fmt: skip
@click.option(
    "--trials", type=COUNT, default=200, show_default=True, help="Configurations to try, about."
)
@click.option(
    "--workers", type=COUNT, default=os.cpu_count() or 1, show_default="cores", help="Processes."
)
@click.option("--out", type=FILE, help="Where to write the configuration as JSON.")
@SETTINGS
@one_line
def tune(
    rounds: Path | None, ladder: str | None, system: str | None, out: Path | None,
    settings_path: Path | None, train: float | None, measure: str | None, *, from_topic: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Search the hyperparameters that foretell the first part of a file's rounds best; or those of
    a ladder on Kafka, with the gain over its present ones.

    Nothing on Kafka changes. A file's configuration is printed as JSON, a ladder's as what to add
    to the ladders file.
    """
    usual = OF_TOPIC if from_topic else OF_FILE
    by: Any = measure or usual["measure"]
    options["train"] = usual["train"] if train is None else train
    if from_topic:
        if rounds is not None:
            raise BadConfiguration("give a file of rounds or --from-topic, not both")
        if ladder is None:
            raise BadConfiguration("--from-topic: name the ladder to tune by --ladder")
        if by not in OF_PAIRS:
            raise BadConfiguration(f"--metric {by}: with --from-topic give {' or '.join(OF_PAIRS)}")
        from stream_rater.cli.tune_live import tune_live

        tune_live(settings_of(settings_path), ladder, system, by, out, **options)
        return
    for name, value in (("--ladder", ladder), ("--settings", settings_path)):
        if value is not None:
            raise BadConfiguration(f"{name} is for --from-topic: add it, or leave {name} out")
    if rounds is None:
        raise BadConfiguration("give a file of rounds, or --from-topic and --ladder")
    if system is None:
        raise BadConfiguration("give --system: which one to tune")
    from stream_rater.cli import lab

    lab.tune_file(rounds, system, by, out, **options)
