"""The beliefs of a rating system about the sides of each round before it, and their scores.

A system, our own or another package's, gives each side of a round a mean and a variance of its
performance. Differences of performances are normal. The scores depend on these alone (`accuracy`),
so that every system is measured by the same code:

the predicted probability of a pair is that of `calibrating`, with the calibration of its round. If
the season has draws, every system predicts them by the width of its calibration, and log loss and
Brier score are over three outcomes.

A run is *calibrated* if each of its rounds has the calibration that was fitted on the rounds before
it. Systems are compared by their calibrated runs.

The *total loss* is the sum over rounds of n / 2 times the mean loss of the round's pairs, where n
is the number of its sides: n / 2 pairs of a round can be chosen so that none share a side. The
total loss of a round of two sides is its log loss.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.ranges import bounds
from stream_rater.evaluation import accuracy, calibrating
from stream_rater.evaluation.calibrating import EVERYTHING, Calibration, Learned, Learner
from stream_rater.evaluation.evaluation import Contender
from stream_rater.evaluation.measures import FACTS_OF, FIELDS
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.shared_scores import have_draws
from stream_rater.rating.model import Places
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.wins import of_wave
from stream_rater.rounds.ragged import Ragged


class Sides(Ragged, gc=False):
    """The beliefs about the sides of R rounds before each round. There are E sides in all."""

    per_player: ClassVar = ("place", "mu", "variance", "played")

    number: Ints  # (R,) the round's number in the season.
    sizes: Ints  # (R,) the number of sides of each round.
    place: Places  # (E,) the place of each side. The sides of a round are in order of place.
    mu: Floats  # (E,) the mean of each side's performance.
    variance: Floats
    """(E,) the variance of each side's performance, in the square of the unit of `mu`."""
    played: Ints
    """(E,) the number of rounds that each side played before. For a team, it is the number of the
    member with the fewest."""

    @property
    def starts(self) -> Ints:
        """(R+1,) the first side of each round, and E."""
        return bounds(self.sizes)


_NONE, _NO_PLACES, _NO_NUMBERS = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0)
Sides.empty = Sides(_NONE, _NONE, _NO_PLACES, _NO_NUMBERS, _NO_NUMBERS, _NONE)


class Run(NamedTuple):
    """A system's beliefs and time during a season."""

    sides: Sides
    seconds: float  # Seconds spent on rating.
    results: int  # The number of results of the rated rounds: one for each player of each round.
    failed: int = 0  # The number of rounds that the system could not rate. They changed no rating.
    draws: bool = False
    """Whether the season has draws. They are scored in a run that has calibrations."""
    calibrations: Floats | None = None
    """(R, 3) the calibration of each round, in the order of `Calibration`. None: the model as it
    is, by which draws are left out."""

    def before(self, boundary: int) -> "Run":
        """A copy with only the rounds before the round numbered `boundary`."""
        return self.of(np.flatnonzero(self.sides.number < boundary))

    def after(self, boundary: int) -> "Run":
        """A copy with only the round numbered `boundary` and later rounds."""
        return self.of(np.flatnonzero(self.sides.number >= boundary))

    def of(self, chosen: Ints) -> "Run":
        """A copy with only the rounds of these indices, in this order."""
        found = None if self.calibrations is None else self.calibrations[chosen]
        return self._replace(sides=self.sides.take(chosen), calibrations=found)

    @property
    def scores_draws(self) -> bool:
        """Whether draws are outcomes."""
        return self.draws and self.calibrations is not None


def own_run(sessions: Iterable[Session], config: RatingConfig) -> Run:
    """Rate a season with one of our systems."""
    contender = Contender(config)
    found, results = list[Sides](), 0
    for session, indices, wave in contender.rate(sessions):
        if wave is None:
            continue
        own = of_wave(config, wave)
        found.append(Sides(
            session.numbers[indices], np.diff(wave.round_starts), wave.place, own.mu, own.sigma**2,
            np.minimum.reduceat(wave.rounds, wave.entry_starts[:-1]),
        ))  # fmt: skip
        results += len(wave.mu)
    return run_of(Sides.concat(found), contender.rating_s, results)


def run_of(sides: Sides, seconds: float, results: int, failed: int = 0) -> Run:
    """A run of these beliefs, with the model as it is."""
    return Run(sides, seconds, results, failed, have_draws(sides.sizes, sides.place))


def calibrated(run: Run, learned: Learned = EVERYTHING) -> Run:
    """The run with the calibration of each round that suits the rounds before it. Raises
    ArithmeticError if a mean or a variance is not finite."""
    return run._replace(calibrations=_followed(run, Learner(run.draws, learned=learned)))


def as_it_is(run: Run) -> Run:
    """The run with the model as it is. If the season has draws, each round has the width of draws
    that suits the rounds before it, so that draws are outcomes here, too. Raises ArithmeticError as
    `calibrated` does."""
    return calibrated(run, calibrating.ONLY_WIDTH) if run.draws else run


def joined(runs: Sequence[Run]) -> Run:
    """The rounds of several runs of one season as one run. All of them are calibrated, or none. It
    has the time and the counts of the first."""
    found = [each.calibrations for each in runs if each.calibrations is not None]
    assert len(found) in (0, len(runs)), "all or none are calibrated"
    return runs[0]._replace(
        sides=Sides.concat([each.sides for each in runs]),
        calibrations=np.concatenate(found) if found else None,
    )


def calibration_of(run: Run, learned: Learned = EVERYTHING) -> Calibration:
    """The calibration for the round after those of a run. Raises as `calibrated` does."""
    learner = Learner(run.draws, learned=learned)
    _followed(run, learner)
    return learner.now


def _followed(run: Run, learner: Learner) -> Floats:
    sides = _finite(run.sides)
    return learner.follow(sides.number, sides.starts, sides.place, sides.mu, sides.variance)


def _finite(sides: Sides) -> Sides:
    if not (np.isfinite(sides.mu).all() and np.isfinite(sides.variance).all()):
        raise ArithmeticError("beliefs are no numbers")
    return sides


def by_round(run: Run) -> tuple[Floats, Floats, Floats]:
    """(E,) the variances after calibration, and (R,) the width and (R,) the upset of each round."""
    sides, count = run.sides, len(run.sides.number)
    if run.calibrations is None:
        return sides.variance, np.zeros(count), np.zeros(count)
    factor, width, upset = run.calibrations.T
    return sides.variance * np.repeat(factor, sides.sizes), width.copy(), upset.copy()


def scores_of(run: Run) -> Floats:
    """(R, OF_PAIRS) the scores by the calibrations. Raises as `calibrated` does."""
    sides = _finite(run.sides)
    variance, width, upset = by_round(run)
    alone = np.arange(len(sides.mu) + 1)
    found: Floats = accuracy.score(
        sides.starts, sides.place, alone, np.ones(len(sides.mu)), sides.mu,
        np.sqrt(variance), sides.played,
        0.0, 0.0, 1.0,  # initial_mu, noise, sigmas
        run.scores_draws, width, upset, np.empty(0),  # no displayed ratings
    )  # fmt: skip
    return found


def total_loss(scores: Floats, measure: str) -> float | None:
    """The total loss of rounds with these (R, OF_PAIRS) scores; None if nothing was scored."""
    if not scores[:, FIELDS.index(FACTS_OF[measure].weight)].any():
        return None
    return float(losses_of(scores, measure).sum())


def losses_of(scores: Floats, measure: str) -> Floats:
    """(R,) what each round with these (R, OF_PAIRS) scores adds to the total loss. A round of n
    entries counts as n / 2 pairs. So by `log_loss` the loss is in nats, and by a pair inversion it
    is a number of pairs in the wrong order. It is 0 for a round that is not scored."""
    facts = FACTS_OF[measure]
    loss = scores[:, FIELDS.index(measure)] / (100.0 if facts.in_per_cent else 1.0)
    loss = 1.0 - loss if facts.higher_is_better else loss
    found: Floats = 0.5 * scores[:, FIELDS.index(facts.weight)] * loss
    return found
