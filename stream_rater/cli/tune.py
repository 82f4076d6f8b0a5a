"""`stream-rater tune`: searches parameters, for a file or for a ladder on Kafka."""

import sys
from pathlib import Path
from typing import Any

import click

from stream_rater.cli import options as common
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import read_rating
from stream_rater.config.settings import Settings
from stream_rater.evaluation.measures import AIMS
from stream_rater.evaluation.spaces import SPACES
from stream_rater.tables.reading import Reading


@click.command()
@click.argument("rounds", type=common.EXISTING_FILE, required=False)
@click.option("--from-topic", is_flag=True, help="The rounds on Kafka, not those of a file.")
@click.option("--ladder", help="With --from-topic: whose rounds; compared with what it has now.")
@click.option(
    "--system", type=click.Choice(sorted(SPACES)),
    help="With --from-topic or --config it may be left out: then the present one.",
)  # fmt: skip
@click.option(
    "--config", type=common.EXISTING_FILE,
    help="With a file: present parameters (JSON or TOML), in place of the system's first guess.",
)  # fmt: skip
@click.option(
    "--train", type=common.FRACTION, default=0.5, show_default=True,
    help="Part of the rounds to search on; the others decide whether what was found is better.",
)  # fmt: skip
@click.option(
    "--metric", "measure", type=click.Choice(AIMS), default="log_loss", show_default=True,
    help="What to tune by.",
)  # fmt: skip
@click.option(
    "--trials",
    type=common.COUNT,
    default=200,
    show_default=True,
    help="Configurations to try, about.",
)
@click.option("--out", type=common.NEW_FILE, help="Where to write the configuration as JSON.")
@common.reading_options
@common.DATA
@common.SETTINGS
@common.trial_options
@common.one_line_errors
def tune(
    rounds: Path | None, ladder: str | None, system: str | None, config: Path | None,
    out: Path | None, settings_path: Path | None, measure: str, *, from_topic: bool,
    reading: Reading, **options: Any,
) -> None:  # fmt: skip
    """Search parameters that predict the rounds of a file better than the system's first guess; or
    those of a ladder on Kafka better than its present ones.

    The search is done on the first half of the rounds, and the other half decides: better, no
    difference, or worse. Then nothing is written, and the exit code is 3. Nothing on Kafka changes.
    A file's configuration is printed as JSON, a ladder's as what to add to the ladders file.
    """
    if from_topic:
        if rounds is not None:
            raise BadConfiguration("give a file of rounds or --from-topic, not both")
        if reading.given or config:
            raise BadConfiguration("--config and what tables need are for files of rounds")
        if ladder is None:
            raise BadConfiguration("--from-topic: name the ladder to tune by --ladder")
        _tune_topic(common.settings_of(settings_path), ladder, system, measure, out, **options)
        return
    only = {"--ladder": ladder, "--settings": settings_path, "--data": common.given_data() or None}
    for name, value in only.items():
        if value is not None:
            raise BadConfiguration(f"{name} is for --from-topic: add it, or leave {name} out")
    if rounds is None:
        raise BadConfiguration("give a file of rounds, or --from-topic and --ladder")
    present = read_rating(config) if config else None
    if system is None:
        if present is None:
            raise BadConfiguration("give --system: which one to tune")
        system = str(present.__struct_config__.tag)
    _tune_file(rounds, system, measure, out, present=present, reading=reading, **options)


def _tune_file(
    path: Path, system: str, measure: str, out: Path | None, **options: Any
) -> None:  # fmt: skip
    from stream_rater.operations import tune as operation

    found = operation.tune_file(path, system, measure, out, **options)
    from stream_rater.cli import tables

    tables.show_proposal(f"{path.name}, {system}", found.proposal)
    if found.proposal.worse:
        sys.exit(3)
    if out is None:
        print(operation.as_json(found.proposal.rating).decode(), end="")
    found.conclude()


def _tune_topic(
    settings: Settings, ladder: str, system: str | None, measure: str, out: Path | None,
    **options: Any,
) -> None:  # fmt: skip
    from stream_rater.operations import tune as operation

    found = operation.tune_topic(settings, ladder, system, measure, out, **options)
    from stream_rater.cli import tables

    proposal, named = found.proposal, bool(settings.ladders)
    tables.show_proposal(f"ladder {ladder!r}, {found.system}", proposal)
    if proposal.worse:
        sys.exit(3)
    if found.another and not proposal.kept:
        print(
            f"another system is another ladder: {ladder!r} cannot change to {found.system}: name a "
            "new ladder, and report its rounds there",
            file=sys.stderr,
        )
    print(f"# {tables.verdict(proposal)}")
    if not proposal.kept:
        entry = tables.ladders_file_entry(
            found.ladders, ladder, proposal.rating, found.offset, named=named
        )
        print(entry, end="")
    found.conclude()
