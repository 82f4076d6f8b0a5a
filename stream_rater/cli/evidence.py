"""`stream-rater evidence`: hands its words to the laboratory, which only the repository has."""

from importlib import import_module

import click

from stream_rater.cli.options import one_line_errors
from stream_rater.config.errors import Failed

LABORATORY = "tests.benchmarks.lab.command"


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@one_line_errors
def evidence(words: tuple[str, ...]) -> None:
    """Run the laboratory: in a checkout of the repository only, as `make evidence` does.

    It redoes the evidence of the Elo-MMR paper on your data, and compares all systems on games.
    `make evidence ARGS=--help` shows its options.
    """
    try:
        laboratory = import_module(LABORATORY)
    except ModuleNotFoundError as error:
        if not LABORATORY.startswith(str(error.name)):
            raise
        raise Failed("evidence needs a checkout of the repository: `make evidence` there") from None
    laboratory.evidence.main(list(words), "stream-rater evidence", standalone_mode=False)
