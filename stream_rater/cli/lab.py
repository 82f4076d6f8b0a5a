"""`stream-rater evaluate`, `tune` and `evidence`: how well ratings predict rounds."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import msgspec

from stream_rater.cli import options as common
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import read_rating
from stream_rater.config.settings import Settings
from stream_rater.evaluation import measures, spaces
from stream_rater.evaluation.tuning import without_defaults
from stream_rater.tables.reading import Reading, is_parquet

CONFIGURATIONS = {".json", ".toml"}


@contextmanager
def short_run() -> Iterator[None]:
    """Set up a short run: no garbage collection, and ten times as many switches between threads.
    Collection stays off to the end: one takes 50 ms, and the run makes no reference cycles. Threads
    hold the interpreter only briefly before a kernel, so switches cost less than waiting."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(interval_s / 10.0)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        sys.setswitchinterval(interval_s)


@click.command()
@click.argument("files", type=common.INPUT, nargs=-1, required=True, metavar="ROUNDS...")
@click.option(
    "--config", "configs", type=common.CONFIGURATION, multiple=True,
    help="Rating configuration (JSON or TOML), or a system; give several to compare.",
)  # fmt: skip
@click.option(
    "--train", type=common.FRACTION, default=0.5, show_default=True,
    help="Part of the rounds that only builds experience.",
)  # fmt: skip
@common.FORMAT
@click.option("--calibration", is_flag=True, help="How often sides won, by their probability.")
@click.option("--diagram", type=common.NEW_FILE, help="Picture of that to write (.png or .svg).")
@common.VARIANCE_FACTOR
@click.option(
    "--by", type=click.Choice(["mu", "display"]), default="mu", show_default=True,
    help="Which number puts players in order: the rating mu, or the displayed one.",
)  # fmt: skip
@common.table_options
@common.one_line_errors
@short_run()
def evaluate(
    files: tuple[Path, ...], configs: tuple[Path, ...], train: float, form: str, **options: Any
) -> None:
    """How well ratings predict the rounds of files: JSON lines, CSV or Parquet.

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
    for name, rating in named:
        if name == rating.__struct_config__.tag:  # a system by its name
            print(f"{name}: {without_defaults(rating)}", file=sys.stderr)
    from stream_rater.replay.files import begin_to_read, read_lines

    # The first file is read while the modules below load.
    first = read_lines if is_parquet(rounds[0]) else begin_to_read
    opened = [first(rounds[0]), *map(read_lines, rounds[1:])]
    sources = list(zip(rounds, opened, strict=True))
    from stream_rater.operations.evaluate import evaluate_files

    evaluated = evaluate_files(sources, named, train, **options)
    if form == "json":
        print(msgspec.json.encode(evaluated.rows).decode())
    else:
        from stream_rater.cli import tables  # loading takes as long as evaluating a small file

        tables.show_accuracy(evaluated.rows, calibration=options["calibration"])
    evaluated.conclude()


# --- tune ----------------------------------------------------------------------------------------


@click.command()
@click.argument("rounds", type=common.EXISTING_FILE, required=False)
@click.option("--from-topic", is_flag=True, help="The rounds on Kafka, not those of a file.")
@click.option("--ladder", help="With --from-topic: whose rounds; compared with what it has now.")
@click.option(
    "--system", type=click.Choice(sorted(spaces.SPACES)),
    help="With --from-topic or --config it may be left out: then the present one.",
)  # fmt: skip
@click.option(
    "--config", type=common.CONFIGURATION,
    help="With a file: present parameters (JSON or TOML), in place of the system's first guess.",
)  # fmt: skip
@click.option(
    "--train", type=common.FRACTION, default=0.5, show_default=True,
    help="Part of the rounds to search on; the others decide whether what was found is better.",
)  # fmt: skip
@click.option(
    "--metric", "measure", type=click.Choice(measures.AIMS), default="log_loss", show_default=True,
    help="What to tune by.",
)  # fmt: skip
@click.option(
    "--trials", type=common.COUNT, default=200, show_default=True,
    help="Configurations to try, about.",
)  # fmt: skip
@click.option("--out", type=common.NEW_FILE, help="Where to write the configuration as JSON.")
@common.reading_options
@common.DATA
@common.SETTINGS
@common.trial_options
@common.one_line_errors
def tune(
    rounds: Path | None, ladder: str | None, system: str | None, config: Path | None,
    settings_path: Path | None, data: Path | None, *, from_topic: bool, reading: Reading,
    **options: Any,
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
        _tune_topic(common.settings_of(settings_path, data), ladder, system, **options)
        return
    only = {"--ladder": ladder, "--settings": settings_path, "--data": data}
    common.only_with("--from-topic", only)
    if rounds is None:
        raise BadConfiguration("give a file of rounds, or --from-topic and --ladder")
    present = read_rating(config) if config else None
    if system is None:
        if present is None:
            raise BadConfiguration("give --system: which one to tune")
        system = str(present.__struct_config__.tag)
    from stream_rater.operations import tune as operation

    tuned = operation.tune_file(rounds, system, present=present, reading=reading, **options)
    from stream_rater.cli import tables

    tables.show_proposal(f"{rounds.name}, {system}", tuned.proposal)
    if tuned.proposal.worse:
        sys.exit(3)
    if options["out"] is None:
        print(operation.as_json(tuned.proposal.rating).decode(), end="")
    operation.write_rating(tuned.proposal, options["out"])
    tuned.file.conclude()


def _tune_topic(settings: Settings, ladder: str, system: str | None, **options: Any) -> None:
    from stream_rater.operations import tune as operation

    tuned = operation.tune_topic(settings, ladder, system, **options)
    from stream_rater.cli import tables

    proposal = tuned.proposal
    tables.show_proposal(f"ladder {ladder!r}, {tuned.system}", proposal)
    if proposal.worse:
        sys.exit(3)
    if tuned.another and not proposal.kept:
        print(
            f"another system is another ladder: {ladder!r} cannot change to {tuned.system}: name a "
            "new ladder, and report its rounds there",
            file=sys.stderr,
        )
    print(f"# {tables.verdict(proposal)}")
    if not proposal.kept:
        entry = tables.ladders_file_entry(
            tuned.ladders, ladder, proposal.rating, tuned.offset, named=bool(settings.ladders)
        )
        print(entry, end="")
    operation.write_rating(proposal, options["out"])


LABORATORY = "tests.benchmarks.lab.command"


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@common.one_line_errors
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
