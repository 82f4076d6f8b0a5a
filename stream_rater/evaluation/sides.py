"""The beliefs of a rating system about the sides of each round before it, and their scores.

A system, our own or another package's, gives each side of a round a mean and a variance of its
performance. Differences of performances are normal. The scores depend on these alone (`accuracy`),
so that every system is measured by the same code:

- the predicted probability of a pair is
  p = Phi((mu_i - mu_j) / sqrt(factor (variance_i + variance_j))). Pairs that drew are left out for
  every system, even for one with a draw margin;
- the calibration error is computed over the pairs that are not tied in place. They are sorted by
  the favourite's p and cut into BINS bins of equal count. The error is the average distance between
  the mean p of a bin and the share of its pairs that the favourites won. In rounds of more than
  `accuracy.EXACT` sides the pairs are those that `accuracy` scores.

The *total loss* is the sum over rounds of n / 2 times the mean loss of the round's pairs, where n
is the number of its sides: n / 2 pairs of a round can be chosen so that none share a side. The
total loss of a round of two sides is its log loss.
"""

from collections.abc import Iterable
from typing import ClassVar, NamedTuple

import numpy as np
from msgspec import structs

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.ranges import bounds
from stream_rater.config.extras import lab_extra
from stream_rater.evaluation import accuracy
from stream_rater.evaluation.accuracy import LEAST_PROBABILITY, distances_of
from stream_rater.evaluation.evaluation import Contender
from stream_rater.evaluation.measures import FACTS_OF, FIELDS
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.variance_factor import most_probable
from stream_rater.rating.model import Places
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.prediction.wins import performances_of
from stream_rater.rounds.ragged import Ragged

BINS = 10
REFITS = 9
"""The number of times that the variance factor is fitted during the rounds that are scored."""


class Sides(Ragged, gc=False):
    """The beliefs about the sides of R rounds before each round. There are E sides in all."""

    per_player: ClassVar = ("place", "mu", "variance", "played")

    number: Ints
    """(R,) the round's number in the season."""
    sizes: Ints
    """(R,) the number of sides of each round."""
    place: Places
    """(E,) the place of each side. The sides of a round are in order of place."""
    mu: Floats
    """(E,) the mean of each side's performance."""
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
    seconds: float
    """Seconds spent on rating."""
    results: int
    """The number of results of the rated rounds: one for each player of each round."""
    failed: int = 0
    """The number of rounds that the system could not rate. They changed no rating."""

    def before(self, boundary: int) -> "Run":
        """A copy with only the rounds before the round numbered `boundary`."""
        return self._replace(sides=self.sides.take(np.flatnonzero(self.sides.number < boundary)))

    def after(self, boundary: int) -> "Run":
        """A copy with only the round numbered `boundary` and later rounds."""
        return self._replace(sides=self.sides.take(np.flatnonzero(self.sides.number >= boundary)))

    def with_variance_factors(self, factors: Floats) -> "Run":
        """A copy in which the variances of each round's sides are multiplied by the round's factor.
        `factors` is (R,)."""
        variance = self.sides.variance * np.repeat(factors, self.sides.sizes)
        return self._replace(sides=structs.replace(self.sides, variance=variance))


def own_run(sessions: Iterable[Session], config: RatingConfig) -> Run:
    """Rate a season with one of our systems."""
    contender = Contender(config)
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
    return Run(Sides.concat(found), contender.rating_s, results)


def scores_of(run: Run, factor: float = 1.0) -> Floats:
    """(R, OF_PAIRS) the scores of the rounds, with this variance factor. Raises ArithmeticError if
    a mean or a variance is not finite."""
    sides = run.sides
    if not (np.isfinite(sides.mu).all() and np.isfinite(sides.variance).all()):
        raise ArithmeticError("beliefs are no numbers")
    alone = np.arange(len(sides.mu) + 1)
    found: Floats = accuracy.score(
        sides.starts, sides.place, alone, np.ones(len(sides.mu)), sides.mu,
        np.sqrt(sides.variance), sides.played,
        0.0, 0.0, factor,  # initial_mu, noise, sigmas
        0.0, np.empty(0),  # margin, shown
    )  # fmt: skip
    return found


def total_loss(scores: Floats, measure: str) -> float | None:
    """The total loss of rounds with these (R, OF_PAIRS) scores. It is None if nothing was
    scored."""
    if not scores[:, FIELDS.index(FACTS_OF[measure].weight)].any():
        return None
    return float(losses_of(scores, measure).sum())


def losses_of(scores: Floats, measure: str) -> Floats:
    """(R,) what each round with these (R, OF_PAIRS) scores adds to the total loss. A round of n
    entries counts as n / 2 pairs. So by `log_loss` the loss is in nats, and by a pair inversion it
    is a number of pairs in the wrong order. It is 0 for a round that is not scored."""
    facts = FACTS_OF[measure]
    loss = scores[:, FIELDS.index(measure)]
    if facts.in_per_cent:
        loss = loss / 100.0
    if facts.higher_is_better:
        loss = 1.0 - loss
    found: Floats = 0.5 * scores[:, FIELDS.index(facts.weight)] * loss
    return found


# --- pairs ----------------------------------------------------------------------------------------


@kernel
def _pairs(starts: Ints, place: Places, mu: Floats, variance: Floats) -> tuple[Floats, Ints]:
    """(P,) the difference of means of each pair in standard deviations, the better placed side
    first, and (P,) the index of each pair's round. The pairs are those that `accuracy` scores."""
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
    """(P,) the standardised difference of each pair, the better placed side first, and (P,) the
    index of each pair's round."""
    sides = run.sides
    z, of_round = _pairs(sides.starts, sides.place, sides.mu, sides.variance)
    return z, of_round


def _log_below(z: Floats) -> Floats:
    """The logarithm of Phi(z), which is clipped as in `accuracy`. Raises MissingExtra without
    SciPy."""
    with lab_extra():
        from scipy.special import log_ndtr
    found: Floats = log_ndtr(z)
    return np.clip(found, np.log(LEAST_PROBABILITY), np.log1p(-LEAST_PROBABILITY))


def variance_factor(run: Run) -> float:
    """The most probable variance factor by the total log loss of these rounds (see the module
    `variance_factor`). It is 1 if there are no pairs. Raises MissingExtra without SciPy."""
    z, of_round = pairs_of(run)
    if not len(z):
        return 1.0
    counts = np.bincount(of_round, minlength=len(run.sides.number))
    weight = (0.5 * run.sides.sizes / np.maximum(counts, 1))[of_round]
    return most_probable(lambda factor: -float(weight @ _log_below(z / np.sqrt(factor))))


def factors_of(run: Run, boundary: int) -> Floats:
    """(R,) the variance factor of each round from the one numbered `boundary` on.

    These rounds are divided into REFITS parts. The factor of a part is fitted on all rounds before
    the part. Raises MissingExtra without SciPy.
    """
    rest = run.after(boundary).sides.number
    order = np.argsort(rest, kind="stable")
    factors = np.ones(len(rest))
    for part in np.array_split(order, REFITS):
        if len(part):
            factors[part] = variance_factor(run.before(int(rest[part[0]])))
    return factors


def calibration_error(run: Run) -> float | None:
    """The calibration error, from 0 to 1, or None if there are no pairs. Raises MissingExtra
    without SciPy."""
    z, _ = pairs_of(run)
    if not len(z):
        return None
    predicted = np.exp(_log_below(np.abs(z)))
    won = np.where(z > 0.0, 1.0, np.where(z < 0.0, 0.0, 0.5))
    order = np.argsort(predicted, kind="stable")
    bins = [each for each in np.array_split(order, BINS) if len(each)]
    gaps = [len(each) * abs(float(predicted[each].mean() - won[each].mean())) for each in bins]
    return sum(gaps) / len(z)
