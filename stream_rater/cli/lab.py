"""What the laboratory's commands do, once their words are understood (`cli`)."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from stream_rater.cli.terminal import (
    Failed,
    Mistakes,
    Order,
    check_writable,
    file_failures,
    progress,
    track,
    track_bytes,
)
from stream_rater.config import Settings
from stream_rater.lab.accuracy import averages
from stream_rater.lab.comparison import Named, compare
from stream_rater.lab.evaluation import evaluate, trained
from stream_rater.lab.lines import json_lines, name_of, read_lines, text_size
from stream_rater.lab.season import Session, before, sessions_of
from stream_rater.lab.spaces import SPACES
from stream_rater.lab.tuning import MissingExtra, Problem, tune, without_defaults
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.sequential import records_of
from stream_rater.rounds.batch import RoundBatch


def read_sessions(
    lines: Iterable[bytes], mistakes: Mistakes, order: Order | None = None
) -> Iterator[Session]:
    """The valid rounds of a file; the others go to `mistakes`."""
    path, order = mistakes.path, order or Order()
    checked = json_lines(iter(lines), name_of(path))
    records = records_of(track_bytes(checked, path.name, text_size(path)))

    def seen(rounds: RoundBatch) -> None:
        mistakes.taken += len(rounds)
        order.add(rounds)

    yield from sessions_of(records, Settings().duplicate_window, mistakes.add, seen=seen)


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
        mistakes, order = Mistakes(path), Order()
        every.append((mistakes, order))
        with file_failures():
            sessions = read_sessions(lines, mistakes, order)
            rows += compare(path.name, sessions, configs, train, _watched)
    if as_json:
        print(msgspec.json.encode(rows).decode())
    else:
        from stream_rater.cli import lab_tables  # as long to load as a small file to evaluate

        lab_tables.show(rows)
    for mistakes, order in every:
        order.conclude(mistakes.path)
    for mistakes, _ in every:
        mistakes.conclude()


def _watched(name: str, sessions: Sequence[Session]) -> Iterable[Session]:
    """A configuration's way through the rounds, with a progress bar."""
    return track(sessions, name, len(sessions))


# --- tune ---------------------------------------------------------------------------------------


def tune_file(
    path: Path, system: str, measure: str, out: Path | None, *, train: float, trials: int,
    workers: int,
) -> None:  # fmt: skip
    """`tune`: search on the first part of a file, report both parts, write the configuration."""
    if out is not None:
        check_writable(out)
    mistakes, order = Mistakes(path), Order()
    with file_failures():
        sessions = list(read_sessions(read_lines(path), mistakes, order))
    first = before(sessions, trained(mistakes.taken, train))
    problem = Problem(system, SPACES[system], measure, first)
    begin = problem.config(problem.start())
    if averages(evaluate(first, begin).scores)[measure] is None:
        to_tune = sum(len(each.rounds) for each in first)
        raise Failed(f"{path}: {to_tune} rounds to tune on say nothing about {measure}")
    found = search(problem, trials, workers)
    from stream_rater.cli import lab_tables

    lab_tables.report_tuning(sessions, train, begin, found)
    written = msgspec.json.format(msgspec.json.encode(without_defaults(found)))
    with file_failures():
        if out is None:
            print(written.decode())
        else:
            out.write_bytes(written + b"\n")
    order.conclude(path)
    mistakes.conclude()


def search(problem: Problem, trials: int, workers: int) -> RatingConfig:
    """`tune` with a progress bar."""
    with progress() as bar:
        task = bar.add_task(f"tuning {problem.system}", total=trials)
        try:
            return tune(problem, trials, workers, lambda: bar.advance(task))
        except MissingExtra as error:
            raise Failed(str(error)) from None
