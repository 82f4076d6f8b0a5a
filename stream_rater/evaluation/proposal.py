"""Proposes parameters for a ladder, and estimates what they gain.

The parameters are tuned on the first part of the ladder's rounds: they are the most probable ones
given that part (`fits`), or those that the search began with if these predict its second half no
worse (`validation`). They are compared with the present parameters on the other rounds, which the
search has not seen. The paired bootstrap gives the interval of the gain.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation.accuracy import average
from stream_rater.evaluation.alike import Counted, alike, counted
from stream_rater.evaluation.bootstrap import Difference, differences
from stream_rater.evaluation.contestants import OwnSystem
from stream_rater.evaluation.evaluation import Outcome, evaluate, trained
from stream_rater.evaluation.fits import LOG_LOSS, ORDER, ORDER_OF_ALL, Fit
from stream_rater.evaluation.measures import FIELDS, WEIGHT_OF
from stream_rater.evaluation.present import Present, system_of
from stream_rater.evaluation.research.games import verdict
from stream_rater.evaluation.season import Session, before
from stream_rater.evaluation.tuning import at_ends
from stream_rater.evaluation.validation import validated
from stream_rater.rating.parameters import RatingConfig

LEAST_ROUNDS = 20
"""The fewest rounds to tune on, and the fewest to compare on. With fewer rounds the bootstrap's
interval is too narrow."""

ADOPT, NO_DIFFERENCE = "adopt it", "no difference that the rounds show"
KEEP = "it is worse, keep what you have"


class TooFewRounds(Exception):
    """A part of the rounds is too short to tune or to compare on. The text is one line."""


class Compared(NamedTuple):
    """A measure over the rounds that were not tuned on, by both sets of parameters."""

    measure: str
    now: float
    """The measure by the present parameters."""
    tuned: float
    """The measure by the tuned parameters."""
    difference: Difference
    """The measure by the tuned parameters minus that by the present ones."""

    @property
    def verdict(self) -> str:
        """One of `games.VERDICTS`: how the tuned parameters compare, by the interval."""
        return verdict(self.measure, self.difference)


class Proposal(NamedTuple):
    """The proposed parameters, and what they gain."""

    rating: RatingConfig
    first: int
    """The number of rounds to tune on."""
    rest: int
    """The number of rounds to compare on."""
    compared: list[Compared]
    """The comparison by log loss, then by order. Order is over the experienced sides, or over all
    sides if nobody has played enough rounds."""
    of: Counted | None = None
    """The counts of the pairs and rounds that are compared, which both configurations share."""
    at_ends: tuple[str, ...] = ()
    """The parameters that ended at an end of their range."""

    @property
    def verdict(self) -> str:
        """KEEP if a measure is worse; otherwise ADOPT if a measure is better; otherwise
        NO_DIFFERENCE."""
        found = {each.verdict for each in self.compared}
        if "worse" in found:
            return KEEP
        return ADOPT if "better" in found else NO_DIFFERENCE


def propose(
    present: RatingConfig, system: str, sessions: Sequence[Session], aim: str = LOG_LOSS, *,
    train: float, trials: int, executor: Executor | None = None,
    on_trial: Callable[[], None] = lambda: None,
) -> Proposal:  # fmt: skip
    """Propose parameters of `system` for one ladder's rounds, which are rated by `present` now.

    They are tuned on the first `train`, a fraction of the rounds, by `aim`, one of `fits.AIMS`. If
    `system` is the ladder's own system, the search begins with the present parameters, otherwise
    with the system's first guess. `executor` and `on_trial` are those of `search`.

    Raises TooFewRounds, MissingExtra without SciPy, or TrialsFailed if the executor fails.
    """
    own: OwnSystem | Present = (
        Present(present) if system == system_of(present) else OwnSystem(system)
    )
    now = _played(sessions, present)
    base = now.scores
    first = trained(len(base), train)
    _check_enough(base, first)
    own = own.on(before(sessions, first))
    problem = Fit(own, before(sessions, first), aim)
    point = validated(problem, trials, executor, on_trial).point
    found: RatingConfig = problem.config(point)
    base, tuned = alike([base, _played(sessions, found).scores])
    compared = list(_compared(base[first:], tuned[first:]))
    of = counted(base[first:], draws=now.draws)
    ends = at_ends(own.space, point)
    return Proposal(found, first, len(base) - first, compared, of, ends)


def _played(sessions: Sequence[Session], config: RatingConfig) -> Outcome:
    """The scores of all rounds. Their columns for winners are 0."""
    return evaluate(sessions, config, most_sides=0)


def _check_enough(scores: Floats, first: int) -> None:
    scored = scores[:, FIELDS.index(WEIGHT_OF[LOG_LOSS])] > 0.0
    counts = [int(np.count_nonzero(part)) for part in (scored[:first], scored[first:])]
    if min(counts) < LEAST_ROUNDS:
        raise TooFewRounds(
            f"{counts[0]} rounds to tune on and {counts[1]} to compare on say who was better, and "
            f"{LEAST_ROUNDS} of each are needed"
        )


def _compared(base: Floats, tuned: Floats) -> list[Compared]:
    gaps = differences(tuned, base, [LOG_LOSS, ORDER, ORDER_OF_ALL])
    found = []
    for measure in (LOG_LOSS, ORDER if gaps[ORDER] is not None else ORDER_OF_ALL):
        gap, now, then = gaps[measure], average(base, measure), average(tuned, measure)
        if gap is not None and now is not None and then is not None:
            found.append(Compared(measure, now, then, gap))
    return found
