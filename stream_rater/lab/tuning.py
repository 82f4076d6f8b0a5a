"""Which hyperparameters foretell best? A search on the first part of a season.

The optimiser is SciPy's: differential evolution, because the measures are piecewise constant in the
parameters (no gradients), have several valleys, and a whole population can be tried at once on all
cores; then Nelder and Mead's simplex from the best point, which needs fewer trials near the end.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.lab.accuracy import averages
from stream_rater.lab.evaluation import evaluate
from stream_rater.lab.measures import better
from stream_rater.lab.season import Session
from stream_rater.lab.spaces import Dimension, configuration, place
from stream_rater.rating.parameters import RatingConfig

SEED = 1
FOR_EVOLUTION = 0.7
"""Part of the trials for differential evolution; the simplex has the rest."""
UNDEFINED = 1e9
"""What a trial costs whose measure has no value."""


class MissingExtra(Exception):
    """A package of the extra `lab` is not installed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be tuned, on what, by which measure."""

    system: str
    space: tuple[Dimension, ...]
    measure: str
    sessions: Sequence[Session]

    def config(self, point: Sequence[float]) -> RatingConfig:
        """The configuration at a point of the unit cube."""
        return configuration(
            self.system, {d.name: d.at(x) for d, x in zip(self.space, point, strict=True)}
        )

    def cost(self, point: Sequence[float]) -> float:
        """The measure at a point, less being better."""
        value = averages(evaluate(self.sessions, self.config(point)).scores)[self.measure]
        if value is None or not np.isfinite(value):
            return UNDEFINED
        return -better(self.measure) * value

    def start(self) -> list[float]:
        """The point of the first guess."""
        return [place(each, each.start) for each in self.space]


Cost = Callable[[Sequence[float]], float]
Map = Callable[[Cost, Iterable[Sequence[float]]], Iterable[float]]


class _Trials:
    """Counts trials, tells of each, and remembers the best point."""

    def __init__(self, problem: Problem, run: Map, tell: Callable[[], None]) -> None:
        self._problem, self._run, self._tell = problem, run, tell
        self.best: tuple[float, list[float]] = (np.inf, [])

    def all(self, _: object, points: Iterable[Sequence[float]]) -> list[float]:
        """Costs of many points, side by side."""
        listed = [list(map(float, point)) for point in points]
        costs: list[float] = []
        for point, cost in zip(listed, self._run(self._problem.cost, listed), strict=True):
            costs.append(cost)
            if cost < self.best[0]:  # of equals the first, which is the first guess
                self.best = cost, point
            self._tell()
        return costs

    def one(self, point: Floats) -> float:
        """The cost of one."""
        return self.all(None, [point.tolist()])[0]


def tune(
    problem: Problem, trials: int, workers: int, tell: Callable[[], None] = lambda: None
) -> RatingConfig:
    """The best configuration found in about so many trials, never worse than the first guess.

    Deterministic but for the number of trials: `workers` processes only share the work. `tell` is
    called after each trial. Raises MissingExtra without SciPy.
    """
    try:
        from scipy import optimize
        from scipy.stats import qmc
    except ImportError as error:
        raise MissingExtra(f"{error.name} is not installed: stream-rater[lab] brings it") from None
    dimensions = len(problem.space)
    size = max(min(3 * dimensions + 2, trials // 3), 5)
    population = qmc.LatinHypercube(dimensions, rng=SEED).random(size)
    population[0] = problem.start()
    with _mapped(problem, workers) as run:
        found = _Trials(problem, run, tell)
        generations = max(int(FOR_EVOLUTION * trials) // size - 1, 0)
        optimize.differential_evolution(
            _unused, [(0.0, 1.0)] * dimensions, init=population, maxiter=generations, tol=0.0,
            polish=False, updating="deferred", workers=found.all, rng=SEED,
        )  # fmt: skip
        optimize.minimize(
            found.one, found.best[1], method="Nelder-Mead", bounds=[(0.0, 1.0)] * dimensions,
            options={
                "maxfev": max(trials - size * (generations + 1), 1), "xatol": 1e-3, "fatol": 1e-6,
                "initial_simplex": _simplex(np.array(found.best[1])),
            },
        )  # fmt: skip
    return problem.config(found.best[1])


def _unused(_: Floats) -> float:
    raise AssertionError("costs come from the map")


def _simplex(best: Floats) -> Floats:
    """The best point, and one a tenth of the range away from it along each dimension, inside."""
    step = np.where(best < 0.5, 0.1, -0.1)
    return np.vstack([best, best + np.diag(step)])


# --- many at once --------------------------------------------------------------------------------

_received: list[Problem] = []
"""A worker's own copy: sent once, not with each trial."""


def _receive(problem: Problem) -> None:
    _received.append(problem)


def _cost(point: Sequence[float]) -> float:
    return _received[-1].cost(point)


@contextmanager
def _mapped(problem: Problem, workers: int) -> Iterator[Map]:
    """A map over points on so many processes; one means this one."""
    if workers <= 1:
        yield map
        return
    context = get_context("spawn")  # kernels run threads, which do not survive a fork
    with ProcessPoolExecutor(workers, context, _receive, (problem,)) as pool:
        yield lambda _, points: pool.map(_cost, points)


def told(config: RatingConfig) -> dict[str, Any]:
    """A configuration as a table: its system, and what is not as by default."""
    defaults = {each.encode_name: each.default for each in msgspec.structs.fields(config)}
    table: dict[str, Any] = msgspec.to_builtins(config)
    return {
        name: value for name, value in table.items()
        if name not in defaults or getattr(config, name) != defaults[name]
    }  # fmt: skip
