"""Tunes hyperparameters: searches for those that predict the first part of a season best.

Presets, one pass over the rounds each, come first: most of what a search gains is among them. Then
SciPy does the optimisation, in two stages. Differential evolution is the first, for three reasons.
The measures are piecewise constant in the parameters, so there is no gradient. They have several
local minima. And a whole population can be tried at once, by as many workers. The second is the
simplex method of Nelder and Mead. It starts from the best point, because it needs fewer trials near
the optimum.

A search always finds parameters that fit the rounds it was done on. On a short or unusual file they
may predict the next rounds worse than the first guess does. So the tuned parameters must first win
on rounds that their search has not seen (`validated`):

1. search on the first half of the rounds;
2. rate all rounds by the tuned parameters and by the first guess, each round predicted before it is
   rated, and compare their losses on the rounds of the second half;
3. keep the first guess, unless the tuned parameters lose less there by more than MARGIN standard
   errors of the sum of the paired differences. If they do not, take the preset that is best on all
   rounds, if it does: a dozen points fit little noise;
4. otherwise search again, on all rounds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.config.errors import extra
from stream_rater.evaluation.executors import sharing
from stream_rater.evaluation.season import Session
from stream_rater.rating.parameters import RatingConfig, default_of
from stream_rater.rating.systems.common import Dimension, fraction_of

SEED = 1
FOR_EVOLUTION = 0.7
"""The share of the trials that differential evolution gets; the simplex gets the rest."""
LEAST_GENERATION = 5  # With fewer trials than this left after the presets, there is no search.
UNDEFINED = 1e9  # The cost of a trial whose measure has no value.
PRIOR = 0.15
"""The standard deviation of a parameter around its first guess, as a fraction of its range."""
END = 0.01  # A parameter this close to an end of its range, as a fraction of the range, is at it.

MARGIN = 0.5
"""The tuned parameters win if their losses are less by more than this many standard errors."""
LEAST_ROUNDS = 4
"""With fewer scored rounds in the second half, the standard error means nothing, and the first
guess stays."""

NO_NUMBERS = np.empty(0, np.int64)


def middle_of(sessions: Sequence[Session]) -> int:
    """The number of the first round of the second half. The parts of a round that was cut have the
    same number, so they stay together."""
    numbers = np.unique(np.concatenate([NO_NUMBERS, *(each.numbers for each in sessions)]))
    return int(numbers[len(numbers) // 2]) if len(numbers) else 0


def penalty(point: Sequence[float], start: Sequence[float], prior: float) -> float:
    """Minus the logarithm of the prior's density at a point, up to a constant. The prior is normal
    around the first guess, with the standard deviation `prior`."""
    gaps = np.array(point) - np.array(start)
    return float(gaps @ gaps) / (2.0 * prior**2)


def at_ends(space: Sequence[Dimension], point: Sequence[float]) -> tuple[str, ...]:
    """The names of the parameters that ended at an end of their range and did not begin there. The
    best value may lie outside the range, or the rounds may not be informative enough."""
    begun = [fraction_of(each, each.start) for each in space]
    return tuple(
        each.name for each, x, first in zip(space, point, begun, strict=True)
        if any(abs(x - end) <= END < abs(first - end) for end in (0.0, 1.0))
    )  # fmt: skip


class Searchable(Protocol):
    """The interface of a problem that `search` can solve."""

    @property
    def space(self) -> tuple[Dimension, ...]:
        """The dimensions of the points."""

    def cost(self, point: Sequence[float]) -> float:
        """The cost at a point of the unit cube; less is better."""

    def start(self) -> list[float]:
        """The point to begin with."""

    def presets(self) -> Sequence[Sequence[Mapping[int, float]]]:
        """Groups of coordinates, by dimension, to try before the search."""


class Divisible(Searchable, Protocol):
    """A problem whose rounds can be divided in halves."""

    def first_half(self) -> Searchable:
        """The same problem on the first half of its rounds."""

    def later_losses(self, point: Sequence[float]) -> Floats | None:
        """(R,) the losses of the rounds of the second half at a point, each round predicted by the
        rounds before it. None if the point has no finite losses."""


Costs = Callable[[Iterable[Sequence[float]]], Iterable[float]]
"""Returns the cost of each of many points, in order."""


class Trial(NamedTuple):
    """A point that was tried."""

    cost: float
    point: list[float]


class _Trials:
    """Runs and reports trials, and remembers them."""

    def __init__(self, costs: Costs, on_trial: Callable[[], None]) -> None:
        self._costs, self._on_trial = costs, on_trial
        self.best = Trial(np.inf, [])
        self.all_of_them = list[Trial]()

    def all(self, _: object, points: Iterable[Sequence[float]]) -> list[float]:
        """The costs of many points, evaluated in parallel."""
        listed = [list(map(float, point)) for point in points]
        costs: list[float] = []
        for point, cost in zip(listed, self._costs(listed), strict=True):
            costs.append(cost)
            self.all_of_them.append(Trial(cost, point))
            if cost < self.best.cost:  # the first of equal ones, so that the first guess stays
                self.best = self.all_of_them[-1]
            self._on_trial()
        return costs

    def one(self, point: Floats) -> float:
        """The cost of one point."""
        return self.all(None, [point.tolist()])[0]

    def ranked(self) -> list[Trial]:
        """All trials, the best one first. Of equal ones, the one that was tried first is first."""
        return sorted(self.all_of_them, key=lambda each: each.cost)


def search(
    problem: Searchable, trials: int, executor: Executor | None = None,
    on_trial: Callable[[], None] = lambda: None,
) -> list[float]:  # fmt: skip
    """The best point of `searched`, never worse than the one that the search begins with."""
    return searched(problem, trials, executor, on_trial)[0].point


def searched(
    problem: Searchable, trials: int, executor: Executor | None = None,
    on_trial: Callable[[], None] = lambda: None, also: Sequence[Sequence[float]] = (),
) -> list[Trial]:  # fmt: skip
    """About `trials` points of the unit cube that were tried, the best one first. Of equal ones,
    the one that was tried first comes first. The points `also` are tried, too. The presets come
    first. Each group changes the best point so far. If trials are left, the search begins there.

    The workers of `executor` share the trials; None: this process does them. The result depends on
    the number of trials, not on the executor. `on_trial` is called after each trial. Raises
    MissingExtra without SciPy, and TrialsFailed if the executor fails.
    """
    dimensions, presets = len(problem.space), problem.presets()
    with sharing(problem, executor) as run:
        found, begun = _Trials(partial(run, _cost), on_trial), [problem.start(), *also]
        if presets:
            found.all(None, begun)
            for group in presets:
                best = found.best.point
                found.all(None, [[each.get(i, x) for i, x in enumerate(best)] for each in group])
            begun = [found.best.point, *begun]
            trials -= len(found.all_of_them)
            if trials < LEAST_GENERATION:
                return found.ranked()
        with extra("lab"):
            from scipy import optimize
            from scipy.stats import qmc
        size = generation_of(dimensions, trials)
        population = qmc.LatinHypercube(dimensions, rng=SEED).random(size)
        for i, point in enumerate(begun[:size]):
            population[i] = point
        generations = max(int(FOR_EVOLUTION * trials) // size - 1, 0)
        optimize.differential_evolution(
            _never_called, [(0.0, 1.0)] * dimensions, init=population, maxiter=generations, tol=0.0,
            polish=False, updating="deferred", workers=found.all, rng=SEED,
        )  # fmt: skip
        _refine(found, found.best.point, max(trials - size * (generations + 1), 1))
    return found.ranked()


def refined(problem: Searchable, point: Sequence[float], trials: int) -> list[Trial]:
    """About `trials` points near this one that the simplex method tried, the best one first."""
    found = _Trials(lambda points: map(problem.cost, points), lambda: None)
    _refine(found, point, trials)
    return found.ranked()


def _refine(found: "_Trials", point: Sequence[float], trials: int) -> None:
    with extra("lab"):
        from scipy import optimize
    optimize.minimize(
        found.one, list(point), method="Nelder-Mead", bounds=[(0.0, 1.0)] * len(point),
        options={
            "maxfev": trials, "xatol": 1e-3, "fatol": 1e-6,
            "initial_simplex": _simplex(np.array(point)),
        },
    )  # fmt: skip


def generation_of(dimensions: int, trials: int) -> int:
    """The number of configurations that are tried at once, in a generation."""
    return max(min(3 * dimensions + 2, trials // 3), LEAST_GENERATION)


def _never_called(_: Floats) -> float:
    raise AssertionError("costs come from the map")


def _simplex(best: Floats) -> Floats:
    """(D + 1, D) the best point, and for each dimension a point that is a tenth of the range away
    from it, inside the range."""
    step = np.where(best < 0.5, 0.1, -0.1)
    return np.vstack([best, best + np.diag(step)])


def _cost(problem: Searchable, point: Sequence[float]) -> float:
    return problem.cost(point)


def without_defaults(config: RatingConfig) -> dict[str, Any]:
    """The configuration as a table. It has the system, but no values that equal their default."""
    defaults = {each.encode_name: default_of(each) for each in msgspec.structs.fields(config)}
    table: dict[str, Any] = msgspec.to_builtins(config)
    return {
        name: value for name, value in table.items()
        if name not in defaults or getattr(config, name) != defaults[name]
    }  # fmt: skip


class Validated(NamedTuple):
    """The result of a search that was validated."""

    point: list[float]  # The tuned point, or that of the first guess if it stays.
    won: bool  # Whether the tuned parameters won on rounds that their search had not seen.
    gain: float
    """The loss of the first guess minus that of the parameters tuned on the first half, both summed
    over the second half."""
    error: float  # The standard error of `gain`.
    trials: Sequence[Trial]  # The points that the last search tried, the best one first.


def validated(
    problem: Divisible, trials: int, executor: Executor | None = None,
    on_trial: Callable[[], None] = lambda: None,
) -> Validated:  # fmt: skip
    """The best parameters that are found in two searches of about half of `trials` trials each, or
    the first guess if they do not win (see the module's docstring). There is only one search if the
    first guess stays. `executor`, `on_trial` and the errors are those of `tuning.search`."""
    early = searched(problem.first_half(), trials - trials // 2, executor, on_trial)
    start = problem.start()
    gain, error = 0.0, 0.0
    if early[0].point != start:
        gain, error = _gain(problem.later_losses(start), problem.later_losses(early[0].point))
    if gain > MARGIN * error:
        whole = searched(problem, trials // 2, executor, on_trial, also=[early[0].point])
        return Validated(whole[0].point, True, gain, error, whole)
    if problem.presets():
        whole = searched(problem, 0, executor, on_trial)
        of_preset = _gain(problem.later_losses(start), problem.later_losses(whole[0].point))
        if of_preset[0] > MARGIN * of_preset[1]:
            return Validated(whole[0].point, True, *of_preset, whole)
    return Validated(start, False, gain, error, early)


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
