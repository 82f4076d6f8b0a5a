"""`stream-rater tune`: searches parameters for the rounds of a file, or of a ladder on Kafka.

Only `tune_topic` needs the packages of the service. It changes nothing on Kafka.
"""

import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from stream_rater.config.errors import Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Record
from stream_rater.evaluation.accuracy import average, averages
from stream_rater.evaluation.alike import Counted, counted
from stream_rater.evaluation.bootstrap import Difference, differences
from stream_rater.evaluation.calibrating import Calibration
from stream_rater.evaluation.comparison import outcomes_alike
from stream_rater.evaluation.evaluation import evaluate, trained
from stream_rater.evaluation.executors import Where, trials_on
from stream_rater.evaluation.measures import MEASURES
from stream_rater.evaluation.present import system_of
from stream_rater.evaluation.proposal import Proposal, TooFewRounds, propose
from stream_rater.evaluation.season import Session, before, by_name, sessions_of
from stream_rater.evaluation.sides import calibration_of, own_run
from stream_rater.evaluation.spaces import WIDE, field_dimensions
from stream_rater.evaluation.tuning import (
    Problem,
    ProblemWithPrior,
    at_ends,
    without_defaults,
)
from stream_rater.evaluation.validation import Validated, validated
from stream_rater.operations.evaluate import SeasonFile
from stream_rater.operations.input_file import check_writable, file_failures
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.systems.dimension import rounded
from stream_rater.replay.corrected import with_verdicts
from stream_rater.replay.edited_log import RecordValidator, Verdicts
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime import progress
from stream_rater.runtime.progress import rejections, unknown_ladder
from stream_rater.tables.reading import AS_FOUND, Reading

T = TypeVar("T")

CURE = "tune by a file that has them"
"""The cure in an error about rounds that the log on Kafka lacks."""

DAY_S = 86_400.0


# --- a file --------------------------------------------------------------------------------------


class Report(NamedTuple):
    """The accuracy of the first guess and of the tuned parameters on both parts of a file."""

    rounds: int
    first: int
    """The number of rounds in the first part, on which the search was done."""
    measures: Mapping[tuple[str, str], Mapping[str, float | None]]
    """The averages by part ("first" or "second") and parameters ("start" or "tuned")."""
    differences: Mapping[str, Difference | None] | None
    """By measure, the average of the tuned parameters less that of the first guess on the second
    part, with an interval; None if that part is empty."""
    counted: Counted
    """The pairs and rounds of the second part that are scored."""
    calibration: Calibration
    """The calibration that suits the tuned parameters at the end of the first part."""
    losses: tuple[float | None, float | None]
    """The log loss on the second part, without and with that calibration."""


class TunedFile(NamedTuple):
    """Parameters that were tuned on the first part of a file."""

    rating: RatingConfig
    report: Report
    at_ends: tuple[str, ...]
    """The parameters whose value is at an end of their range."""
    season: SeasonFile
    out: Path | None
    validated: Validated
    """How the tuned parameters compared with the first guess before they were taken."""

    def conclude(self) -> None:
        """Write the parameters to `out`, if it is given. Warn if rounds were out of order. Raises
        Failed if lines were rejected."""
        write_rating(self.rating, self.out)
        self.season.conclude_order()
        self.season.mistakes.conclude()


def tune_file(
    path: Path, system: str, measure: str, out: Path | None, *, train: float, trials: int,
    where: Where, reading: Reading = AS_FOUND,
) -> TunedFile:  # fmt: skip
    """Search the parameters of a system that are best by a measure on the first part of a file.

    `train`: the size of this part, as a fraction of all rounds. `where`: where the trials run.
    `reading`: how a table is to be read. Raises BadConfiguration or Failed.
    """
    if out is not None:
        check_writable(out, path)
    with trials_on(where) as executor:
        return _tune_file(path, system, measure, out, train, trials, executor, reading)


def _tune_file(
    path: Path, system: str, measure: str, out: Path | None, train: float, trials: int,
    executor: Executor | None, reading: Reading,
) -> TunedFile:  # fmt: skip
    season = SeasonFile(path, reading=reading)
    with file_failures():
        sessions = season.play(list)
    first = before(sessions, trained(season.mistakes.valid_lines, train))
    problem = Problem(system, (*WIDE[system], *field_dimensions(system, first)), measure, first)
    first_guess = problem.config(problem.start())
    if averages(evaluate(first, first_guess).scores)[measure] is None:
        to_tune = sum(len(each.rounds) for each in first)
        raise Failed(f"{path}: {to_tune} rounds to tune on say nothing about {measure}")
    measured = ProblemWithPrior.of(problem)
    tuned = search_with_progress(
        system, trials, lambda advance: validated(measured, trials, executor, advance)
    )
    found = problem.config(tuned.point)
    report = _report(sessions, train, first_guess, found, _calibration(first, found))
    return TunedFile(found, report, at_ends(problem.space, tuned.point), season, out, tuned)


def _report(
    sessions: Sequence[Session], train: float, first_guess: RatingConfig, found: RatingConfig,
    calibration: Calibration,
) -> Report:  # fmt: skip
    outcomes = outcomes_alike([evaluate(sessions, each) for each in (first_guess, found)])
    rounds = len(outcomes[0].scores)
    first = trained(rounds, train)
    measures = {
        (part, name): averages(outcome.scores[chosen])
        for part, chosen in (("first", slice(0, first)), ("second", slice(first, None)))
        for name, outcome in zip(("start", "tuned"), outcomes, strict=True)
    }
    base, tuned = (each.scores[first:] for each in outcomes)
    gaps = differences(tuned, base, MEASURES) if len(base) else None
    corrected = evaluate(sessions, predicting(found, calibration), most_sides=0)
    losses = average(tuned, "log_loss"), average(corrected.scored(train), "log_loss")
    return Report(
        rounds, first, measures, gaps, counted(tuned, draws=outcomes[0].draws), calibration, losses
    )


def _calibration(first: Sequence[Session], found: RatingConfig) -> Calibration:
    """The calibration that suits these parameters after the first part, to four digits."""
    learned = calibration_of(own_run(first, found))
    return Calibration(*(rounded(each) for each in learned))


def predicting(rating: RatingConfig, calibration: Calibration) -> RatingConfig:
    """The parameters with a calibration as their parameters of predictions."""
    return msgspec.structs.replace(
        rating, variance_factor=calibration.factor, draw_width=calibration.draw_width,
        upset=calibration.upset,
    )  # fmt: skip


def search_with_progress(system: str, trials: int, run: Callable[[Callable[[], None]], T]) -> T:
    """Return `run(advance)`, with a progress bar that `advance()` moves by a trial."""
    with progress.progress() as bar:
        task = bar.add_task(f"tuning {system}", total=trials)
        return run(lambda: bar.advance(task))


def as_json(config: RatingConfig) -> bytes:
    """A configuration as JSON in several lines, as `--out` writes it."""
    return msgspec.json.format(msgspec.json.encode(without_defaults(config))) + b"\n"


def write_rating(config: RatingConfig, out: Path | None) -> None:
    """Write a configuration, if a file is given. Raises Failed."""
    if out is not None:
        with file_failures():
            out.write_bytes(as_json(config))


# --- a ladder on Kafka ---------------------------------------------------------------------------


class TunedLadder(NamedTuple):
    """Parameters for a ladder, by its rounds on Kafka."""

    ladder: str
    ladders: Ladders
    proposal: Proposal
    system: str
    another: bool
    """Whether `system` differs from the system that the ladder has now."""
    offset: int
    """The approximate end offset of the ladder's partition in a day. The new parameters can hold
    from there on."""
    out: Path | None

    def conclude(self) -> None:
        """Write the parameters to `out`, if it is given. Raises Failed."""
        write_rating(self.proposal.rating, self.out)


def tune_topic(
    settings: Settings, ladder: str, system: str | None, measure: str, out: Path | None, *,
    train: float, trials: int, where: Where,
) -> TunedLadder:  # fmt: skip
    """Search parameters for a ladder on the first part of its rounds on Kafka. `system`: the rating
    system to tune; None for the ladder's present one. `train`: the size of the first part, as a
    fraction of all rounds. `where`: where the trials run.

    Raises BadConfiguration if the ladders file is not that of the workers, Failed if the ladder has
    no rounds or too few, or if the trials cannot be run.
    """
    if out is not None:
        check_writable(out, Path(settings.data), Path(settings.ladders))
    with trials_on(where) as executor:
        return _tune_topic(settings, ladder, system, measure, out, train, trials, executor)


def _tune_topic(
    settings: Settings, ladder: str, system: str | None, measure: str, out: Path | None,
    train: float, trials: int, executor: Executor | None,
) -> TunedLadder:  # fmt: skip
    ladders = ladders_of_settings(settings)
    rounds = _read(settings, ladders, ladder)
    terms = ladders.find(ladder, rounds.end)
    assert terms is not None, "it has rounds"
    system = system or system_of(terms.rating)
    count = progress.counted(sum(len(each.rounds) for each in rounds.sessions), "round")
    print(f"ladder {ladder!r}: {count} read, {rejections(rounds.rejected)}", file=sys.stderr)
    found = _proposed(
        ladder, terms.rating, system, rounds.sessions, measure, train, trials, executor
    )
    another = system != system_of(terms.rating)
    return TunedLadder(ladder, ladders, found, system, another, rounds.in_a_day, out)


class _Rounds(NamedTuple):
    """The rounds of one ladder, with its corrections."""

    sessions: Sequence[Session]
    rejected: Mapping[str, int]
    """The number of rejected records by error code. Records whose ladder cannot be read are
    included."""
    end: int
    """The end offset of the ladder's partition."""
    in_a_day: int
    """The approximate end offset of the partition in a day."""


def _read(settings: Settings, ladders: Ladders, ladder: str) -> _Rounds:
    """Read the rounds that the ladder has now. Raises BadConfiguration or Failed."""
    from stream_rater.operations import live_log
    from stream_rater.runtime.failures import named_failures

    growth, window, rejected = GrowthForecast(), settings.duplicate_window, Counter[str]()

    def reject(_: int, invalid: Invalid) -> None:
        if invalid.ladder in (ladder, ""):
            rejected[invalid.code] += 1

    def once(verdicts: Verdicts | None) -> list[Session]:
        rejected.clear()
        validator = RecordValidator(ladders, window, partitions)
        records, terms = growth.watch(read_log()), ladders.find(ladder)
        named = terms is not None and by_name([terms.rating])
        return list(sessions_of(
            records, window, reject, verdicts=verdicts, validator=validator, only=ladder,
            named=named,
        ))  # fmt: skip

    with named_failures():
        read_log, _, partitions = live_log.live_log(settings, ladders, ladder, CURE)
        sessions = with_verdicts(once, read_log, ladders, window, partitions)
        if not sessions:
            known = live_log.known_ladders(settings, ladders)
            others = [each for each in known if each != ladder]
            more = f"; {rejections(rejected)}" if rejected else ""
            raise Failed(f"{unknown_ladder(ladder, others)}{more}")
    return _Rounds(sessions, rejected, growth.end, growth.in_a_day())


class GrowthForecast:
    """Predicts the end offset of a partition in a day, if it grows as it did on its last day."""

    def __init__(self) -> None:
        self._received_s, self._offsets = array("d"), array("q")

    def watch(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield all records of the partition, from the first one on, and store their times."""
        del self._received_s[:], self._offsets[:]
        for record in records:
            self._received_s.append(record.received_s)
            self._offsets.append(record.offset)
            yield record

    def in_a_day(self) -> int:
        """The predicted end offset in a day. At least one record must have been read."""
        received_s = np.maximum.accumulate(np.array(self._received_s))
        first = int(np.searchsorted(received_s, received_s[-1] - DAY_S))
        return self.end + (self.end - self._offsets[first])

    @property
    def end(self) -> int:
        """The offset after the last record. At least one record must have been read."""
        return self._offsets[-1] + 1


def _proposed(
    ladder: str, present: RatingConfig, system: str, sessions: Sequence[Session], measure: str,
    train: float, trials: int, executor: Executor | None,
) -> Proposal:  # fmt: skip
    try:
        return search_with_progress(
            system, trials,
            lambda advance: propose(present, system, sessions, measure, train=train, trials=trials,
                                    executor=executor, on_trial=advance),
        )  # fmt: skip
    except TooFewRounds as error:
        raise Failed(
            f"ladder {ladder!r}: {error}: wait for more rounds, or choose another --train than "
            f"{train:g}"
        ) from None
