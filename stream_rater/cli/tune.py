"""`stream-rater tune`: searches parameters, for a file or for a ladder on Kafka."""

from pathlib import Path
from typing import Any

import click

from stream_rater.cli.options import (
    COUNT,
    DATA,
    EXISTING_FILE,
    FRACTION,
    NEW_FILE,
    SETTINGS,
    given_data,
    one_line_errors,
    reading_options,
    settings_of,
    trial_options,
)
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings
from stream_rater.evaluation.measures import MEASURES
from stream_rater.evaluation.spaces import SPACES
from stream_rater.tables.reading import Reading

FILE_DEFAULTS = {"train": 0.1, "measure": "pair_inversion"}
TOPIC_DEFAULTS = {"train": 0.5, "measure": "log_loss"}
"""The defaults for a ladder on Kafka. They differ from those for a file, because the first tenth of
a ladder on Kafka has too many newcomers."""

TOPIC_MEASURES = ("log_loss", "pair_inversion")
"""The measures by which a ladder on Kafka can be tuned."""


@click.command()
@click.argument("rounds", type=EXISTING_FILE, required=False)
@click.option("--from-topic", is_flag=True, help="The rounds on Kafka, not those of a file.")
@click.option("--ladder", help="With --from-topic: whose rounds; compared with what it has now.")
@click.option(
    "--system", type=click.Choice(sorted(SPACES)), help="With --from-topic: else the ladder's own."
)
@click.option(
    "--train", type=FRACTION, help="Part of the rounds to search on.",
    show_default="0.1; 0.5 with --from-topic",
)  # fmt: skip
@click.option(
    "--metric", "measure", type=click.Choice(MEASURES),
    show_default="pair_inversion; log_loss with --from-topic",
)  # fmt: skip
@click.option(
    "--trials", type=COUNT, default=200, show_default=True, help="Configurations to try, about."
)
@click.option("--out", type=NEW_FILE, help="Where to write the configuration as JSON.")
@reading_options
@DATA
@SETTINGS
@trial_options
@one_line_errors
def tune(
    rounds: Path | None, ladder: str | None, system: str | None, out: Path | None,
    settings_path: Path | None, train: float | None, measure: str | None, *, from_topic: bool,
    reading: Reading, **options: Any,
) -> None:  # fmt: skip
    """Search the hyperparameters that predict the first part of a file's rounds best; or those of
    a ladder on Kafka, with the gain over its present ones.

    Nothing on Kafka changes. A file's configuration is printed as JSON, a ladder's as what to add
    to the ladders file.
    """
    defaults = TOPIC_DEFAULTS if from_topic else FILE_DEFAULTS
    by: Any = measure or defaults["measure"]
    options["train"] = defaults["train"] if train is None else train
    if from_topic:
        if rounds is not None:
            raise BadConfiguration("give a file of rounds or --from-topic, not both")
        if reading.given:
            raise BadConfiguration("--columns and their like are for tables, not for --from-topic")
        if ladder is None:
            raise BadConfiguration("--from-topic: name the ladder to tune by --ladder")
        if by not in TOPIC_MEASURES:
            choices = " or ".join(TOPIC_MEASURES)
            raise BadConfiguration(f"--metric {by}: with --from-topic give {choices}")
        _tune_topic(settings_of(settings_path), ladder, system, by, out, **options)
        return
    only = {"--ladder": ladder, "--settings": settings_path, "--data": given_data() or None}
    for name, value in only.items():
        if value is not None:
            raise BadConfiguration(f"{name} is for --from-topic: add it, or leave {name} out")
    if rounds is None:
        raise BadConfiguration("give a file of rounds, or --from-topic and --ladder")
    if system is None:
        raise BadConfiguration("give --system: which one to tune")
    _tune_file(rounds, system, by, out, reading=reading, **options)


def _tune_file(
    path: Path, system: str, measure: str, out: Path | None, **options: Any
) -> None:  # fmt: skip
    from stream_rater.operations import tune as operation

    found = operation.tune_file(path, system, measure, out, **options)
    from stream_rater.cli import tables

    tables.show_tuning(found)
    if out is None:
        print(operation.as_json(found.rating).decode(), end="")
    found.conclude()


def _tune_topic(
    settings: Settings,
    ladder: str,
    system: str | None,
    measure: str,
    out: Path | None,
    **options: Any,
) -> None:
    from stream_rater.operations import tune as operation

    found = operation.tune_topic(settings, ladder, system, measure, out, **options)
    from stream_rater.cli import tables

    tables.show_proposal(found)
    print(f"# {tables.verdict(found.proposal)}")
    rating, named = found.proposal.rating, bool(settings.ladders)
    print(
        tables.ladders_file_entry(found.ladders, ladder, rating, found.offset, named=named), end=""
    )
    found.conclude()
