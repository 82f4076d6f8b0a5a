"""`stream-rater evaluate`: measures how well configurations predict the rounds of files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from stream_rater.config.errors import BadConfiguration, Failed, MissingExtra
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.settings import Settings
from stream_rater.evaluation.comparison import Named, compare
from stream_rater.evaluation.evaluation import MOST_SIDES
from stream_rater.evaluation.measures import Evaluation
from stream_rater.evaluation.season import Session, by_name, sessions_of
from stream_rater.operations import input_file
from stream_rater.rating.wins import ANY
from stream_rater.replay.edited_log import Verdicts
from stream_rater.replay.ledger import with_verdicts
from stream_rater.rounds.batch import RoundBatch
from stream_rater.runtime.progress import track
from stream_rater.tables.reading import AS_FOUND, Reading

T = TypeVar("T")
PICTURES = (".png", ".svg")  # The formats of a diagram, as endings of its file name.


class Evaluated(NamedTuple):
    """The accuracy of configurations on files."""

    rows: list[Evaluation]  # One for each file and configuration, ordered by file.
    seasons: "list[SeasonFile]"  # The files, with their mistakes and the order of their rounds.
    diagram: Path | None  # The picture to write, if one is wanted.

    def conclude(self) -> None:
        """Draw the diagram, and warn if rounds were late. Raises Failed if lines were rejected."""
        if self.diagram is not None:
            from stream_rater.evaluation import plots

            with input_file.file_failures():
                plots.reliability(self.rows, self.diagram)
        for each in self.seasons:
            each.file.conclude_order()
        for each in self.seasons:
            each.file.mistakes.conclude()


def evaluate_files(
    files: Sequence[tuple[Path, Iterator[bytes]]], configs: Sequence[Named], train: float, *,
    calibration: bool, diagram: Path | None, factor: float, by: str = "mu",
    reading: Reading = AS_FOUND,
) -> Evaluated:  # fmt: skip
    """Evaluate each configuration on each file. `files`: paths with their lines. `train`: the
    fraction of the rounds that only builds experience. `factor` multiplies the variance of a side's
    performance. `by`: "mu" or "display", the number that puts players in order. Raises
    BadConfiguration or Failed."""
    if diagram is not None:
        _check_diagram(diagram)

    def bar(name: str, sessions: Sequence[Session]) -> Iterable[Session]:
        return track(sessions, name, len(sessions))

    rows, seasons = [], []
    most = ANY if calibration or diagram is not None else MOST_SIDES
    for path, lines in files:
        named = by_name(config for _, config in configs)
        season = SeasonFile(path, lines, named=named, reading=reading)
        comparing = partial(
            compare, path.name, configs=configs, train=train, progress=bar,
            variance_factor=factor, most_sides=most, by_display=by == "display",
        )  # fmt: skip
        with input_file.file_failures():
            rows += season.play(comparing)
        seasons.append(season)
    return Evaluated(rows, seasons, diagram)


def _check_diagram(path: Path) -> None:
    """Check early that the picture can be made. Raises BadConfiguration or Failed."""
    from stream_rater.evaluation import plots

    if path.suffix not in PICTURES:
        raise BadConfiguration(f"--diagram {path}: end its name in {' or '.join(PICTURES)}")
    input_file.check_writable(path)
    try:
        plots.pyplot()
    except MissingExtra as error:
        raise Failed(f"--diagram: {error}") from None


class SeasonFile:
    """The rounds of a file with its corrections. If there are corrections, the file is begun, and
    then read three times: twice to validate the corrections, and once to rate the rounds."""

    def __init__(
        self, path: Path, lines: Iterator[bytes] | None = None, *, named: bool = False,
        reading: Reading = AS_FOUND,
    ) -> None:  # fmt: skip
        """`lines`: those of the file, if it is open already. `named`: whether names are kept."""
        self.file, self._named = input_file.RoundsFile(path, lines, reading), named

    def play(self, run: Callable[[Iterator[Session]], T]) -> T:
        """Return `run(sessions)` for the valid rounds, and count mistakes and late rounds. If the
        file has corrections, a first call ends at the first of them, and a second one follows."""

        def once(verdicts: Verdicts | None) -> T:
            self.file.restart()
            return run(self._sessions(verdicts))

        return with_verdicts(once, self.file.records, ANY_LADDER, Settings().duplicate_window)

    def _sessions(self, verdicts: Verdicts | None) -> Iterator[Session]:
        def seen(rounds: RoundBatch) -> None:
            self.file.mistakes.valid_lines += len(rounds)
            self.file.order.add(rounds)

        yield from sessions_of(
            self.file.records(), Settings().duplicate_window, self.file.mistakes.add, seen=seen,
            verdicts=verdicts, named=self._named,
        )  # fmt: skip
