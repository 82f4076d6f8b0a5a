"""What the laboratory's commands do, once their words are understood (`cli`)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from stream_rater.cli.rounds_file import RoundsFile
from stream_rater.cli.terminal import Mistakes, Order, check_writable, file_failures
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.settings import Settings
from stream_rater.evaluation.accuracy import averages
from stream_rater.evaluation.comparison import Named, Row, compare
from stream_rater.evaluation.evaluation import MOST_SIDES, evaluate, trained
from stream_rater.evaluation.season import Session, before, by_name, sessions_of
from stream_rater.evaluation.spaces import WIDE
from stream_rater.evaluation.tuning import (
    Held,
    MissingExtra,
    Problem,
    at_ends,
    search,
    without_defaults,
)
from stream_rater.evaluation.variance_factor import variance_factor
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.prediction.wins import ANY
from stream_rater.replay.corrected import with_verdicts
from stream_rater.replay.edited_log import Verdicts
from stream_rater.rounds.batch import RoundBatch
from stream_rater.runtime.progress import progress, track

T = TypeVar("T")

PICTURES = (".png", ".svg")
"""What a diagram can be written as, by the ends of its name."""


class Season:
    """A file's rounds, as its corrections make them; it is read again if it has any."""

    def __init__(
        self, path: Path, begun: Iterator[bytes] | None = None, *, named: bool = False
    ) -> None:
        """`begun`: its lines, if somebody has begun to read them. `named`: players keep their
        names."""
        self.mistakes, self.order = Mistakes(path), Order()
        self._path, self._file, self._named = path, RoundsFile(path, begun), named

    def play(self, run: Callable[[Iterator[Session]], T]) -> T:
        """What `run` gives for the valid rounds. Mistakes and order are then those of the file."""

        def once(verdicts: Verdicts | None) -> T:
            self.mistakes.begin_again()
            self.order = Order()
            return run(self._sessions(verdicts))

        return with_verdicts(once, self._file.records, ANY_LADDER, Settings().duplicate_window)

    def _sessions(self, verdicts: Verdicts | None) -> Iterator[Session]:
        def seen(rounds: RoundBatch) -> None:
            self.mistakes.taken += len(rounds)
            self.order.add(rounds)

        yield from sessions_of(
            self._file.records(), Settings().duplicate_window, self.mistakes.add, seen=seen,
            verdicts=verdicts, named=self._named,
        )  # fmt: skip

    def conclude_order(self) -> None:
        """Warn if rounds are out of order."""
        self.order.conclude(self._path)


def evaluate_files(
    files: Sequence[tuple[Path, Iterator[bytes]]],
    configs: Sequence[Named],
    train: float,
    *,
    as_json: bool,
    calibration: bool,
    diagram: Path | None,
    factor: float,
    by: str = "mu",
) -> None:
    """`evaluate`: each configuration on each file, in a table or as JSON, and in a picture."""
    if diagram is not None:
        _check_diagram(diagram)
    rows, seasons = [], []
    most = ANY if calibration or diagram is not None else MOST_SIDES
    for path, lines in files:
        seasons.append(Season(path, lines, named=by_name(config for _, config in configs)))
        comparing = partial(_compare, path.name, configs, train, factor, most, by == "display")
        with file_failures():
            rows += seasons[-1].play(comparing)
    if as_json:
        print(msgspec.json.encode(rows).decode())
    else:
        from stream_rater.cli import lab_tables  # as long to load as a small file to evaluate

        lab_tables.show(rows, calibration=calibration)
    if diagram is not None:
        from stream_rater.evaluation.research import figures

        with file_failures():
            figures.reliability(rows, diagram)
    for each in seasons:
        each.conclude_order()
    for each in seasons:
        each.mistakes.conclude()


def _check_diagram(path: Path) -> None:
    """Before the work is done: whether the picture can be made and written."""
    from stream_rater.evaluation.research import figures

    if path.suffix not in PICTURES:
        raise BadConfiguration(f"--diagram {path}: end its name in {' or '.join(PICTURES)}")
    check_writable(path)
    try:
        figures.pyplot()
    except MissingExtra as error:
        raise Failed(f"--diagram: {error}") from None


def _compare(
    name: str, configs: Sequence[Named], train: float, factor: float, most_sides: int, shown: bool,
    sessions: Iterable[Session],
) -> list[Row]:  # fmt: skip
    return compare(name, sessions, configs, train, _watched, factor, most_sides, shown=shown)


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
    season = Season(path)
    with file_failures():
        sessions = season.play(list)
    first = before(sessions, trained(season.mistakes.taken, train))
    problem = Problem(system, WIDE[system], measure, first)
    begin = problem.config(problem.start())
    if averages(evaluate(first, begin).scores)[measure] is None:
        to_tune = sum(len(each.rounds) for each in first)
        raise Failed(f"{path}: {to_tune} rounds to tune on say nothing about {measure}")
    held = Held.of(problem)
    point = searched(system, trials, lambda tell: search(held, trials, workers, tell))
    found, ends = problem.config(point), at_ends(problem.space, point)
    from stream_rater.cli import lab_tables

    lab_tables.report_tuning(sessions, train, begin, found, variance_factor(first, found), ends)
    with file_failures():
        if out is None:
            print(as_json(found).decode(), end="")
        else:
            out.write_bytes(as_json(found))
    season.conclude_order()
    season.mistakes.conclude()


def searched(system: str, trials: int, run: Callable[[Callable[[], None]], T]) -> T:
    """What `run` finds, with a progress bar: it is told of each trial."""
    with progress() as bar:
        task = bar.add_task(f"tuning {system}", total=trials)
        try:
            return run(lambda: bar.advance(task))
        except MissingExtra as error:
            raise Failed(str(error)) from None


def as_json(config: RatingConfig) -> bytes:
    """A configuration as `--out` has it, in a few lines."""
    return msgspec.json.format(msgspec.json.encode(without_defaults(config))) + b"\n"
