"""What a rating system believes of the sides of each round before it, scored in one way for all.

A system, ours or another package's, gives each side of a round a mean and a variance of its
performance, and says whether differences of performances are normal or logistic. The scores follow
from these alone (`accuracy`), so that every system is measured by the same code:

- a pair is foretold with p = F((mu_i - mu_j) / sqrt(factor (variance_i + variance_j))); pairs that
  drew are left out of the scores of every system, those with a draw margin, too;
- the calibration error is taken over the pairs not tied in place: they are sorted by the
  favourite's p, cut into BINS bins of equal count, and the distances between the mean p of a bin
  and the part of it that the favourites won are averaged. In rounds of more than `accuracy.EXACT`
  sides the pairs are those that `accuracy` scores.

The *total loss* of rounds is the sum of n / 2 times a round's mean loss of a pair, n being its
number of sides: so many of its pairs share no side. Of a round of two it is its log loss.
"""

from collections.abc import Iterable
from typing import ClassVar, NamedTuple

import numpy as np
from msgspec import structs

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.ranges import bounds
from stream_rater.evaluation import accuracy
from stream_rater.evaluation.accuracy import SURE, distances_of
from stream_rater.evaluation.evaluation import Contender
from stream_rater.evaluation.measures import FIELDS, WEIGHT_OF
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.tuning import lab_extra
from stream_rater.evaluation.variance_factor import most_probable
from stream_rater.rating.elo_mmr.performance import C
from stream_rater.rating.model import Places
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.prediction.wins import performances_of
from stream_rater.rounds.ragged import Ragged

BINS = 10
REFITS = 9
"""How often the variance factor is fitted during the rounds that are scored."""


class Sides(Ragged, gc=False):
    """What was believed of the sides of R rounds before each, E sides in all."""

    per_player: ClassVar = ("place", "mu", "variance", "played")

    number: Ints
    """(R,) the round's number in the season."""
    sizes: Ints
    """(R,) the number of sides of each round."""
    place: Places
    """(E,) in order of place within a round."""
    mu: Floats
    """(E,) mean performance."""
    variance: Floats
    """(E,) of the performance, in the square of the unit of `mu`."""
    played: Ints
    """(E,) rounds before; of a team, those of the member with the fewest."""

    @property
    def starts(self) -> Ints:
        """(R+1,) the first side of each round, and E."""
        return bounds(self.sizes)


_NONE, _NO_PLACES, _NO_NUMBERS = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0)
Sides.nothing = Sides(_NONE, _NONE, _NO_PLACES, _NO_NUMBERS, _NO_NUMBERS, _NONE)


class Run(NamedTuple):
    """A system's way through a season."""

    sides: Sides
    gaussian: bool
    """Whether differences of performances are normal; else logistic."""
    seconds: float
    """Spent on rating."""
    results: int
    """Players of all rounds that were rated."""
    failed: int = 0
    """Rounds that the system could not rate. They changed nothing."""

    def before(self, boundary: int) -> "Run":
        """With the rounds before the one of this number alone."""
        return self._replace(sides=self.sides.take(np.flatnonzero(self.sides.number < boundary)))

    def after(self, boundary: int) -> "Run":
        """With the round of this number and later ones alone."""
        return self._replace(sides=self.sides.take(np.flatnonzero(self.sides.number >= boundary)))

    def less_sure(self, factors: Floats) -> "Run":
        """With the variances of each round's sides times its (R,) factor."""
        variance = self.sides.variance * np.repeat(factors, self.sides.sizes)
        return self._replace(sides=structs.replace(self.sides, variance=variance))


def of_ours(sessions: Iterable[Session], config: RatingConfig) -> Run:
    """A season by one of our systems."""
    contender, chances = Contender(config), config.chances
    found, results = list[Sides](), 0
    for session, indices, wave in contender.rate(sessions):
        if wave is None:
            continue
        mu, sigma, _ = performances_of(
            config, wave.entry_starts, wave.share, wave.mu, wave.sigma
        )  # fmt: skip
        played = np.minimum.reduceat(wave.rounds, wave.entry_starts[:-1])
        number = session.numbers[indices]
        found.append(Sides(number, np.diff(wave.round_starts), wave.place, mu, sigma**2, played))
        results += len(wave.mu)
    return Run(Sides.concat(found), chances.gaussian, contender.rating_s, results)


def scores_of(run: Run, factor: float = 1.0) -> Floats:
    """(R, OF_PAIRS) the scores of the rounds, with this variance factor. Raises ArithmeticError
    where beliefs are no numbers."""
    sides = run.sides
    if not (np.isfinite(sides.mu).all() and np.isfinite(sides.variance).all()):
        raise ArithmeticError("beliefs are no numbers")
    alone = np.arange(len(sides.mu) + 1)
    found: Floats = accuracy.score(
        sides.starts, sides.place, alone, np.ones(len(sides.mu)), sides.mu,
        np.sqrt(sides.variance), sides.played, 0.0, 0.0, factor, run.gaussian, 0.0, np.empty(0),
    )  # fmt: skip
    return found


def total_loss(scores: Floats, measure: str) -> float | None:
    """The total loss of rounds by (R, OF_PAIRS) scores: by `log_loss`, in nats, or by a measure of
    pairs in the right order, in pairs in the wrong one. None where nothing was scored."""
    weight = scores[:, FIELDS.index(WEIGHT_OF[measure])]
    value = scores[:, FIELDS.index(measure)]
    if not weight.any():
        return None
    wrong = value if measure == "log_loss" else 1.0 - value / 100.0
    return float(0.5 * (weight @ wrong))


# --- pairs ----------------------------------------------------------------------------------------


@kernel
def _pairs(starts: Ints, place: Places, mu: Floats, variance: Floats) -> tuple[Floats, Ints]:
    """(P,) how many standard deviations the better placed side of each pair is better by, and (P,)
    the round of each pair. The pairs are those that `accuracy` scores."""
    total = 0
    for r in range(len(starts) - 1):
        n = starts[r + 1] - starts[r]
        for d in distances_of(n):
            total += n - d
    z, of_round, at = np.empty(total), np.empty(total, np.int64), 0
    for r in range(len(starts) - 1):
        a, b = starts[r], starts[r + 1]
        for d in distances_of(b - a):
            for i in range(a, b - d):
                j = i + d
                if place[i] != place[j]:
                    z[at] = (mu[i] - mu[j]) / np.sqrt(variance[i] + variance[j])
                    of_round[at] = r
                    at += 1
    return z[:at], of_round[:at]


def pairs_of(run: Run) -> tuple[Floats, Ints]:
    """(P,) the standardised differences of the pairs, the better placed side first, and (P,) the
    index of each pair's round."""
    sides = run.sides
    z, of_round = _pairs(sides.starts, sides.place, sides.mu, sides.variance)
    return z, of_round


def _log_below(z: Floats, *, gaussian: bool) -> Floats:
    """The logarithm of the distribution function of variance 1."""
    with lab_extra():
        from scipy.special import log_ndtr
    found: Floats = log_ndtr(z) if gaussian else -np.logaddexp(0.0, -C * z)
    return np.clip(found, np.log(SURE), np.log1p(-SURE))


def variance_factor(run: Run) -> float:
    """The most probable variance factor by the total log loss of these rounds (see `sureness`).
    Raises MissingExtra without SciPy."""
    z, of_round = pairs_of(run)
    if not len(z):
        return 1.0
    counts = np.bincount(of_round, minlength=len(run.sides.number))
    weight = (0.5 * run.sides.sizes / np.maximum(counts, 1))[of_round]
    return most_probable(
        lambda factor: -float(weight @ _log_below(z / np.sqrt(factor), gaussian=run.gaussian))
    )


def factors_of(run: Run, boundary: int) -> Floats:
    """(R,) the variance factor of each round from the one numbered `boundary` on. They are parted
    into REFITS parts, and each part's factor is fitted on all rounds before it. Raises MissingExtra
    without SciPy."""
    rest = run.after(boundary).sides.number
    order = np.argsort(rest, kind="stable")
    factors = np.ones(len(rest))
    for part in np.array_split(order, REFITS):
        if len(part):
            factors[part] = variance_factor(run.before(int(rest[part[0]])))
    return factors


def calibration_error(run: Run) -> float | None:
    """The calibration error, from 0 to 1; None without pairs."""
    z, _ = pairs_of(run)
    if not len(z):
        return None
    told = np.exp(_log_below(np.abs(z), gaussian=run.gaussian))
    won = np.where(z > 0.0, 1.0, np.where(z < 0.0, 0.0, 0.5))
    order = np.argsort(told, kind="stable")
    bins = [each for each in np.array_split(order, BINS) if len(each)]
    gaps = [len(each) * abs(float(told[each].mean() - won[each].mean())) for each in bins]
    return sum(gaps) / len(z)
