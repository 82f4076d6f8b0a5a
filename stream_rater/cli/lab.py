"""What the laboratory's commands do, once their words are understood (`cli`)."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stream_rater.cli.terminal import Failed, Mistakes, progress, track
from stream_rater.config import Settings
from stream_rater.lab.accuracy import averages
from stream_rater.lab.comparison import Named, compare
from stream_rater.lab.evaluation import evaluate, trained
from stream_rater.lab.lines import read_lines
from stream_rater.lab.offline import records_of
from stream_rater.lab.season import Session, sessions_of
from stream_rater.lab.spaces import SPACES
from stream_rater.lab.tuning import MissingExtra, Problem, tune
from stream_rater.lab.tuning import told as told_config
from stream_rater.rating.parameters import RatingConfig


@contextmanager
def named_failures() -> Iterator[None]:
    """A file that cannot be read or written fails in one line."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise Failed(str(error)) from None


def read_sessions(lines: Iterable[bytes], mistakes: Mistakes) -> Iterator[Session]:
    """The valid rounds of a file; the others go to `mistakes`."""
    records = track(records_of(lines), mistakes.path.name)
    return sessions_of(records, Settings().duplicate_window, mistakes.add)


def evaluate_files(
    files: Sequence[tuple[Path, Iterable[bytes]]],
    configs: Sequence[Named],
    train: float,
    *,
    as_json: bool,
) -> None:
    """`evaluate`: each configuration on each file, in a table or as JSON."""
    rows, every = [], []
    for path, lines in files:
        mistakes = Mistakes(path)
        every.append(mistakes)
        with named_failures():
            sessions = read_sessions(lines, mistakes)
            rows += compare(path.name, sessions, configs, train)
    if as_json:
        print(msgspec.json.encode(rows).decode())
    else:
        from stream_rater.cli import lab_tables  # as long to load as a small file to evaluate

        lab_tables.show(rows)
    for mistakes in every:
        mistakes.conclude()


# --- tune ---------------------------------------------------------------------------------------


def tune_file(
    path: Path, system: str, measure: str, out: Path | None, *, train: float, trials: int,
    workers: int,
) -> None:  # fmt: skip
    """`tune`: search on the first part of a file, report both parts, write the configuration."""
    mistakes = Mistakes(path)
    with named_failures():
        sessions = list(read_sessions(read_lines(path), mistakes))
    first = sessions[: trained(len(sessions), train)]
    problem = Problem(system, SPACES[system], measure, first)
    begin = problem.config(problem.start())
    if averages(evaluate(first, begin).scores)[measure] is None:
        raise Failed(f"{path}: {len(first)} rounds to tune on say nothing about {measure}")
    found = search(problem, trials, workers)
    from stream_rater.cli import lab_tables

    lab_tables.report_tuning(sessions, train, begin, found)
    written = msgspec.json.format(msgspec.json.encode(told_config(found)))
    with named_failures():
        if out is None:
            print(written.decode())
        else:
            out.write_bytes(written + b"\n")
    mistakes.conclude()


def search(problem: Problem, trials: int, workers: int) -> RatingConfig:
    """`tune` with a progress bar."""
    with progress() as bar:
        task = bar.add_task(f"tuning {problem.system}", total=trials)
        try:
            return tune(problem, trials, workers, lambda: bar.advance(task))
        except MissingExtra as error:
            raise Failed(str(error)) from None
