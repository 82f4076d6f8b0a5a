"""`make evidence`: repeats the experiments of the Elo-MMR paper on files of rounds."""

from pathlib import Path
from typing import Any

import click

from stream_rater.cli.options import COUNT, one_line_errors, table_options, trial_options
from stream_rater.config.errors import BadConfiguration
from stream_rater.evaluation.spaces import SPACES
from tests.benchmarks.lab.report import MADE_UP_PARTS, PARTS, USUAL_PARTS, evidence_report

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


def _sizes(_: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Parse whole numbers of at least 2, separated by commas. Returns them sorted, each once."""
    least = click.IntRange(min=2)
    return tuple(sorted({least(each, param) for each in (value or "").split(",") if each}))


@click.command()
@click.argument("folder", type=FOLDER, required=False)
@click.option("--data", type=FOLDER, help="The same as FOLDER: that of the files of rounds.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default="evidence",
    show_default=True, help="Folder for report.md, its figures, and games.json.",
)  # fmt: skip
@click.option(
    "--only", "parts", type=click.Choice(PARTS), multiple=True,
    help="Only this part; several can be given.",
)  # fmt: skip
@click.option(
    "--system", "systems", type=click.Choice(sorted(SPACES)), multiple=True,
    help="Only this system; several can be given.",
)  # fmt: skip
@click.option("--rounds", type=COUNT, help="Only so many rounds of each file, the first ones.")
@click.option("--trials", type=COUNT, help="Configurations to try for each, when tuning.")
@click.option(
    "--cut", callback=_sizes, metavar="N,N,...",
    help="Games: each file also cut at random into rounds of N players.",
)  # fmt: skip
@click.option(
    "--teams", type=COUNT, metavar="N", help="Games: each file also cut into rounds of N against N."
)
@click.option(
    "--seconds-per-peer", type=COUNT, metavar="N",
    help="Games: leave a peer or system out of a game that it does not finish within N seconds of "
         "one processor. The report says so.",
)  # fmt: skip
@click.option(
    "--season", type=COUNT, metavar="N",
    help="Kerby: the first N rounds of each file are one season, the later rounds another. Each "
         "season starts without ratings.",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="A little of everything, in a minute.")
@table_options
@trial_options
@one_line_errors
def evidence(
    folder: Path | None, data: Path | None, out: Path, parts: tuple[str, ...],
    systems: tuple[str, ...], **options: Any,
) -> None:  # fmt: skip
    """Redo the evidence of the Elo-MMR paper on your data, and compare games; write a report.

    Without a folder, the paper's experiments are made on made-up seasons alone.
    The part `games` compares all systems with plain Elo and Glicko-2, and with openskill.py and
    trueskill where these are installed.
    Results on games are kept in the folder `saved` of the report: a second run with the same files
    and options goes on where the first one was.
    The part `kerby` makes the tables of Kerby's note; it is done only when asked for.
    """
    if folder is None:
        folder = data
    elif data is not None:
        raise BadConfiguration("give the folder of files once: by FOLDER or by --data")
    if folder is None and (of_files := sorted({*parts} - {*MADE_UP_PARTS})):
        raise BadConfiguration(f"name the folder of files, for {' and '.join(of_files)}")
    parts = parts or (MADE_UP_PARTS if folder is None else USUAL_PARTS)
    evidence_report(folder, out, parts, systems or tuple(SPACES), **options)
