"""Plays a game forward: tunes on the first part, follows the best parameters through the rest."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.config.ladders import DEFAULT_RATING
from stream_rater.evaluation import fits, sides
from stream_rater.evaluation.accuracy import average
from stream_rater.evaluation.calibrating import EVERYTHING, ONLY_WIDTH, Calibration
from stream_rater.evaluation.fits import System
from stream_rater.evaluation.season import before
from stream_rater.evaluation.tuning import UNDEFINED, Trial, Validated, at_ends, refined, validated
from tests.benchmarks.lab.calibration import calibration_errors
from tests.benchmarks.lab.game import Game
from tests.benchmarks.lab.timing import timed

PARTS = 30  # The number of parts of the rounds that are scored.
CANDIDATES = 10  # The most that are followed from the first part on, with first guess and tuned.
APART = 0.12  # Two of the other points are at least so far from each other, in the unit cube.


def distinct(
    wanted: Sequence[Sequence[float]], others: Iterable[Sequence[float]], count: int = CANDIDATES,
    apart: float = APART,
) -> list[list[float]]:  # fmt: skip
    """The `wanted`, each once, and up to `count` the first `others` `apart` from all before."""
    found: list[list[float]] = []
    for point in wanted:
        if list(point) not in found:
            found.append(list(point))
    for point in others:
        if len(found) >= count:
            break
        if min(float(np.linalg.norm(np.subtract(point, each))) for each in found) >= apart:
            found.append(list(point))
    return found


class Candidate(NamedTuple):
    point: Sequence[float]
    cost: float  # The total loss of the rounds before those scored, and the prior's penalty.
    losses: Floats  # (R,) the losses of the rounds that are scored, in the order of the season.
    since: int = 0  # The first round that it may predict; it was found on those before it.


def followed(candidates: Sequence[Candidate], first: int, numbers: Ints) -> Ints:
    """(R,) the index of each round's candidate, `first` for the first part. `numbers` ascend."""
    chosen = np.full(len(numbers), first)
    sums = np.cumsum([each.losses for each in candidates], axis=1)
    costs = np.array([each.cost for each in candidates])
    since = np.array([each.since for each in candidates])
    for start, end in parts_of(numbers)[1:]:
        chosen[start:end] = np.argmin(np.where(since <= start, costs + sums[:, start - 1], np.inf))
    return chosen


def parts_of(numbers: Ints) -> list[tuple[int, int]]:
    """First index of each part, and that after its last; rounds of one number stay together."""
    if not len(numbers):
        return []
    wanted = np.linspace(0, len(numbers), PARTS + 1)[:-1].astype(np.int64)
    starts = np.unique(np.searchsorted(numbers, numbers[wanted]))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(numbers)], strict=True))


# --- the parameters that predict best so far ------------------------------------------------------

ORDER, ORDER_OF_ALL = "order", "order_all"  # Of order; the second where nobody played enough.
USUAL_DIMENSIONS = 4  # Trials are for so many dimensions; others have as many for each.
AGAIN = (1 / 3, 2 / 3)  # After these fractions of the scored rounds parameters are searched again.
AGAIN_TRIALS = 1 / 6  # The part of the trials that such a search gets.
LEAST_TRIALS = 10
JOINING = 2  # The most points of such a search that are followed from then on.
JOINING_APART = 0.02  # Their least distance from each other and from the point that is followed.

CALIBRATED = "calibrated"
"""What a variant is tuned for that is not tuned, but calibrated by the rounds so far; that of
`fits.DEFAULT` says what the model says, with draws by the width that suits the rounds so far."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of a system; measures of the rounds after the first part, or None."""

    tuned_for: str  # DEFAULT, CALIBRATED, or the measure that it is tuned for.
    config: dict[str, Any]
    last: Calibration  # The calibration of the last round.
    first_log_loss: float | None  # The log loss on the rounds to tune on.
    order: float | None
    order_all: float | None
    log_loss: float | None
    brier: float | None
    calibration_error: float | None
    chance_error: float | None = None  # What calibration error true probabilities would have.
    us_update: float  # Microseconds to rate one player in one round.
    failed_rounds: int
    at_ends: tuple[str, ...] = ()  # The parameters that ended at an end of their range.


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    system: str
    variants: list[Variant]  # Untuned, that calibrated, and tuned and followed.
    gain: dict[str, float | None]  # The log loss of the scored rounds, after each step of `Steps`.
    changes: int = 0  # How often the parameters changed while they were followed.

    def of(self, aim: str) -> Variant:
        """The variant tuned for `aim`. Raises StopIteration if there is none."""
        return next(each for each in self.variants if each.tuned_for == aim)


Scored = dict[str, Floats]  # (R, OF_PAIRS) scores after the first part, by what it is tuned for.


class Played(NamedTuple):
    """A point of a system's space that has rated a whole game."""

    point: list[float]
    early: sides.Run  # The first part, by the model as it is; times of the whole game.
    cost: float  # The total loss of the first part, and the prior's penalty.
    rest: sides.Run  # The rounds that are scored, in order, calibrated by those before.
    scores: Floats  # (R, OF_PAIRS) their scores.


def fit(system: System, game: Game, trials: int) -> tuple[Fitted, Scored]:
    """Tune on the first part, follow the best parameters through the others, and score these.
    `trials`: configurations to try for USUAL_DIMENSIONS dimensions."""
    fitted, steps = fit_in_steps(system, game, trials)
    return fitted, {
        fits.DEFAULT: steps.default, CALIBRATED: steps.calibrated, fits.LOG_LOSS: steps.followed,
    }  # fmt: skip


class Steps(NamedTuple):
    """(R, OF_PAIRS) the scores of the rounds after the first part, after each step of tuning."""

    default: Floats  # Untuned; draws by a width that suits the rounds so far.
    calibrated: Floats  # Untuned, calibrated by the rounds so far, as all below.
    tuned: Floats  # By the parameters tuned on the first part.
    validated: Floats  # By those, or by the first guess if they did not win (`validation`).
    followed: Floats  # By the parameters that predicted best so far, which are scored.


def fit_in_steps(system: System, game: Game, trials: int) -> tuple[Fitted, Steps]:
    """The same as `fit`, with the scores after each step."""
    trials = max(round(trials * len(system.space) / USUAL_DIMENSIONS), LEAST_TRIALS)
    problem = fits.Fit(system, game.first, fits.LOG_LOSS, runs={}, calibrates=True)
    run, config = _rated(problem, game, problem.start()), problem.config(problem.start())
    guessed = _played(problem, game, problem.start(), run)
    if system.name == fits.system_of(DEFAULT_RATING):  # of who names no system
        config = DEFAULT_RATING
        run = timed(partial(system.play, game.sessions, config))
    early, by_default = run.before(game.boundary), [
        _in_order(sides.calibrated(run, learned).after(game.boundary)) for learned in LEARNED
    ]  # fmt: skip
    del run
    found = validated(problem, trials)
    way = _Way(problem, game, guessed, found)
    way.search_again(max(int(AGAIN_TRIALS * trials), LEAST_TRIALS))
    chosen = way.chosen()
    raw, calibrated = map(sides.scores_of, by_default)
    steps = Steps(
        raw, calibrated, way.of(found.trials[0].point).scores,
        way.of(found.point).scores, way.scores(chosen),
    )  # fmt: skip
    last = way.played[chosen[-1]] if len(chosen) else way.of(found.point)
    variants = [
        _variant(aim, system.described(config), early, rest, rest, scores)
        for aim, rest, scores in zip((fits.DEFAULT, CALIBRATED), by_default, steps, strict=False)
    ]
    described = system.described(problem.config(last.point))
    tuned = _variant(
        fits.LOG_LOSS, described, last.early, last.rest, way.run(chosen), steps.followed
    )
    ends = at_ends(problem.space, last.point)
    variants.append(msgspec.structs.replace(tuned, at_ends=ends))
    gain = {name: average(each, fits.LOG_LOSS) for name, each in steps._asdict().items()}
    fitted = Fitted(
        system=system.name, variants=variants, gain=gain,
        changes=int(np.count_nonzero(np.diff(chosen))),
    )  # fmt: skip
    return fitted, steps


class _Way:
    def __init__(self, problem: fits.Fit, game: Game, default: Played, found: Validated) -> None:
        self._problem, self._game = problem, game
        self._numbers = default.rest.sides.number
        self.played, self._since = [default], [0]
        wanted = [default.point, found.point, found.trials[0].point]
        for point in distinct(wanted, (each.point for each in found.trials if _finite(each)))[1:]:
            self._join(point, 0)
        self._first = next(
            (i for i, each in enumerate(self.played) if each.point == found.point), 0
        )

    def search_again(self, trials: int) -> None:
        """At AGAIN, search all rounds so far near the point that is followed; the best join."""
        parts = parts_of(self._numbers)
        for start in (parts[int(each * len(parts))][0] for each in AGAIN if parts):
            seen = before(self._game.sessions, int(self._numbers[start]))
            problem = replace(self._problem, first=seen, runs=None)
            point = self.played[self.chosen()[start]].point
            tried = (each.point for each in refined(problem, point, trials) if _finite(each))
            for new in distinct([point], tried, 1 + JOINING, JOINING_APART)[1:]:
                self._join(new, start)

    def _join(self, point: list[float], since: int) -> None:
        """Follow a point, unless it lets ratings diverge in later rounds."""
        with suppress(*fits.OUT_OF_RANGE):
            run = _rated(self._problem, self._game, point)
            self.played.append(_played(self._problem, self._game, point, run))
            self._since.append(since)

    def of(self, point: list[float]) -> Played:
        """What a point has played, or the first guess if it let ratings diverge."""
        return next((each for each in self.played if each.point == point), self.played[0])

    def chosen(self) -> Ints:
        """(R,) the index of the point that predicts each round."""
        candidates = [
            Candidate(each.point, each.cost, sides.losses_of(each.scores, fits.LOG_LOSS), since)
            for each, since in zip(self.played, self._since, strict=True)
        ]
        return followed(candidates, self._first, self._numbers)

    def scores(self, chosen: Ints) -> Floats:
        """(R, OF_PAIRS) the scores of the rounds, each predicted by the chosen point."""
        found: Floats = np.stack([each.scores for each in self.played])[
            chosen, np.arange(len(chosen))
        ]
        return found

    def run(self, chosen: Ints) -> sides.Run:
        """The calibrated beliefs about the rounds, each by the chosen point."""
        return sides.joined(
            [each.rest.of(np.flatnonzero(chosen == i)) for i, each in enumerate(self.played)]
        )


def _finite(trial: Trial) -> bool:
    return trial.cost < UNDEFINED


def _rated(problem: fits.Fit, game: Game, point: list[float]) -> sides.Run:
    """The run of a whole game by a point. Raises one of OUT_OF_RANGE if ratings diverge."""
    return timed(partial(problem.system.play, game.sessions, problem.config(point)))


def _played(problem: fits.Fit, game: Game, point: list[float], run: sides.Run) -> Played:
    """What a point's run of a game is scored by. Raises as `_rated` does."""
    rest = _in_order(sides.calibrated(run).after(game.boundary))
    early = run.before(game.boundary)
    return Played(point, early, problem.cost(point), rest, sides.scores_of(rest))


def _in_order(run: sides.Run) -> sides.Run:
    """A copy whose rounds are in the order of the season."""
    return run.of(np.argsort(run.sides.number, kind="stable"))


LEARNED = ONLY_WIDTH, EVERYTHING  # Of untuned parameters, in the order of the first two steps.


def _variant(
    aim: str, config: dict[str, Any], run: sides.Run, own: sides.Run, scored: sides.Run,
    scores: Floats,
) -> Variant:  # fmt: skip
    """`run`: the first part; `own`: scored rounds by the last followed point alone; `scored`,
    `scores`: by whichever."""
    learned = ONLY_WIDTH if aim == fits.DEFAULT else EVERYTHING
    now = sides.calibration_of(run, learned)
    calibrations = own.calibrations
    if calibrations is None or not len(calibrations):
        last = now
    else:
        last = Calibration(*calibrations[-1].tolist())
    error, by_chance = calibration_errors(scored)
    return Variant(
        tuned_for=aim, config=config, last=last,
        first_log_loss=average(sides.scores_of(sides.calibrated(run, learned)), fits.LOG_LOSS),
        order=average(scores, ORDER), order_all=average(scores, ORDER_OF_ALL),
        log_loss=average(scores, fits.LOG_LOSS), brier=average(scores, "brier"),
        calibration_error=error, chance_error=by_chance,
        us_update=1e6 * run.seconds / max(run.results, 1), failed_rounds=run.failed,
    )  # fmt: skip
