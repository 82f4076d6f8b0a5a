"""What the laboratory's commands do, once their words are understood (`cli`)."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from stream_rater.config import Settings
from stream_rater.lab.accuracy import averages
from stream_rater.lab.bootstrap import Difference, difference
from stream_rater.lab.evaluation import Outcome, evaluate, trained
from stream_rater.lab.lines import read_lines
from stream_rater.lab.measures import MEASURES
from stream_rater.lab.offline import records_of
from stream_rater.lab.season import Session, sessions_of
from stream_rater.lab.spaces import SPACES
from stream_rater.lab.tuning import MissingExtra, Problem, tune
from stream_rater.lab.tuning import told as told_config
from stream_rater.rating.parameters import RatingConfig
from stream_rater.terminal import Failed, Mistakes, progress, track

Named = tuple[str, RatingConfig]
"""A configuration and what it is called."""


class Row(msgspec.Struct, kw_only=True):
    """One configuration on one file, as `evaluate --format json` writes it.

    Measures are None where no round was scored. Times are those of this configuration alone.
    """

    file: str
    config: str
    system: str
    rounds: int
    scored_rounds: int
    players: int
    """Of all rounds together: players times rounds."""
    pair_inversion: float | None
    rank_deviation: float | None
    pair_inversion_all: float | None
    rank_deviation_all: float | None
    kendall_tau: float | None
    log_loss: float | None
    brier: float | None
    seconds: float
    """Reading, rating and scoring."""
    rating_seconds: float
    rounds_per_second: float
    players_per_second: float
    differences: dict[str, Difference | None] | None = None
    """To the first configuration on the same file, by measure; None for the first one itself."""


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
            rows += _rows(lines, configs, train, mistakes)
    if as_json:
        print(msgspec.json.encode(rows).decode())
    else:
        from stream_rater import lab_tables  # as long to load as a small file to evaluate

        lab_tables.show(rows)
    for mistakes in every:
        mistakes.conclude()


def _rows(
    lines: Iterable[bytes], configs: Sequence[Named], train: float, mistakes: Mistakes
) -> list[Row]:
    began_s, reading_s = perf_counter(), 0.0
    alone = len(configs) == 1
    sessions: Iterable[Session] = read_sessions(lines, mistakes)
    if not alone:
        sessions = list(sessions)
        reading_s = perf_counter() - began_s
    rows: list[Row] = []
    base: Outcome | None = None
    for name, config in configs:
        outcome = evaluate(sessions, config, threads=alone)
        rows.append(_row(mistakes.path, name, outcome, train, reading_s))
        if base is not None:
            pair = outcome.scored(train), base.scored(train)
            rows[-1].differences = {each: difference(*pair, each) for each in MEASURES}
        base = base or outcome
    return rows


def _row(path: Path, name: str, outcome: Outcome, train: float, reading_s: float) -> Row:
    scored = outcome.scored(train)
    seconds = outcome.seconds + reading_s
    measures: dict[str, Any] = averages(scored)
    return Row(
        file=path.name,
        config=name,
        system=str(outcome.config.__struct_config__.tag),
        rounds=len(outcome.scores),
        scored_rounds=len(scored),
        players=int(outcome.players.sum()),
        seconds=seconds,
        rating_seconds=outcome.rating_s,
        rounds_per_second=len(outcome.scores) / seconds,
        players_per_second=float(outcome.players.sum()) / seconds,
        **measures,
    )


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
    from stream_rater import lab_tables

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
