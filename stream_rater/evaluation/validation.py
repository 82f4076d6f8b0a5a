"""Tunes parameters, and keeps the first guess unless the tuned parameters predict later rounds
better.

A search always finds parameters that fit the rounds it was done on. On a short or unusual file they
may predict the next rounds worse than the first guess does. So the tuned parameters must first win
on rounds that their search has not seen:

1. search on the first half of the rounds;
2. rate all rounds by the tuned parameters and by the first guess, each round predicted before it is
   rated, and compare their losses on the rounds of the second half;
3. keep the first guess, unless the tuned parameters lose less there by more than MARGIN standard
   errors of the sum of the paired differences;
4. otherwise search again, on all rounds.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, Protocol

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation.tuning import Searchable, Trial, searched

MARGIN = 0.5
"""The tuned parameters win if their losses are less by more than this many standard errors."""
LEAST_ROUNDS = 4
"""With fewer scored rounds in the second half there is no standard error worth the name, and the
first guess stays."""


class Divisible(Searchable, Protocol):
    """A problem whose rounds can be divided in halves."""

    def first_half(self) -> Searchable:
        """The same problem on the first half of its rounds."""

    def later_losses(self, point: Sequence[float]) -> Floats | None:
        """(R,) the losses of the rounds of the second half at a point, each round predicted by the
        rounds before it. None if the point has no finite losses."""


class Validated(NamedTuple):
    """The result of a search that was validated."""

    point: list[float]  # The tuned point, or that of the first guess if it stays.
    won: bool  # Whether the tuned parameters won on rounds that their search had not seen.
    gain: float
    """The loss of the first guess less that of the parameters tuned on the first half, both summed
    over the second half."""
    error: float  # The standard error of `gain`.
    trials: Sequence[Trial]  # The points that the last search tried, the best one first.


def validated(
    problem: Divisible, trials: int, executor: Executor | None = None,
    on_trial: Callable[[], None] = lambda: None,
) -> Validated:  # fmt: skip
    """The best parameters that are found in two searches of about half of `trials` trials each, or
    the first guess if they do not win (see the module's docstring). There is only one search if
    the first guess stays.

    `executor`, `on_trial` and the errors are those of `tuning.search`.
    """
    early = searched(problem.first_half(), trials - trials // 2, executor, on_trial)
    start = problem.start()
    if early[0].point == start:
        return Validated(start, False, 0.0, 0.0, early)
    gain, error = _gain(problem.later_losses(start), problem.later_losses(early[0].point))
    if not gain > MARGIN * error:
        return Validated(start, False, gain, error, early)
    whole = searched(problem, trials // 2, executor, on_trial, also=[early[0].point])
    return Validated(whole[0].point, True, gain, error, whole)


def _gain(first_guess: Floats | None, tuned: Floats | None) -> tuple[float, float]:
    """The sum of the paired differences of losses, and its standard error. The sum is minus
    infinity if the tuned parameters have no losses, and 0 if rounds are too few."""
    if tuned is None:
        return -np.inf, 0.0
    if first_guess is None:
        return np.inf, 0.0
    differences = first_guess - tuned
    scored = differences[(first_guess != 0.0) | (tuned != 0.0)]
    if len(scored) < LEAST_ROUNDS:
        return 0.0, 0.0
    return float(scored.sum()), float(scored.std(ddof=1) * np.sqrt(len(scored)))
