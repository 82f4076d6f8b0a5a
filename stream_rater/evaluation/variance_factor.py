"""How sure predictions may be: the variance factor of a configuration, by its record.

The factor multiplies the variance of every side's performance (`rating.prediction.wins`). It
changes no rating, so one pass over the rounds serves all factors. The factor chosen is the most
probable one: it minimises

    total log loss of the winners + (ln factor)^2 / (2 PRIOR^2)

where the second term is a normal prior of ln factor around 0. A few rounds hardly move the factor
from 1; some hundred decide by themselves.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.evaluation import winners
from stream_rater.evaluation.evaluation import Contender
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.tuning import lab_extra
from stream_rater.rating.model import Places
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.prediction.wins import Performances, of_rounds, performances_of

PRIOR = 0.5
"""Standard deviation of ln factor before anything was seen."""
WIDEST = 32.0
"""The factor lies between its inverse and this."""
MOST_SIDES = 300_000
"""Of the last rounds; more would only take longer."""


class _Wave(NamedTuple):
    """Rounds that were foretold together."""

    starts: Ints
    place: Places
    sides: Performances
    """With a factor of 1."""


def variance_factor(sessions: Iterable[Session], config: RatingConfig) -> float:
    """The most probable factor by these rounds, each foretold before it was rated. Raises
    MissingExtra without SciPy."""
    waves = _last(_waves(sessions, config))
    draws = config.draw_width > 0.0
    return most_probable(lambda factor: sum(_loss(each, factor, draws=draws) for each in waves))


def most_probable(loss: Callable[[float], float]) -> float:
    """The factor with the least loss and prior, by the total loss at each. Raises MissingExtra
    without SciPy."""
    with lab_extra():
        from scipy.optimize import minimize_scalar

    def cost(log_factor: float) -> float:
        return float(loss(np.exp(log_factor)) + 0.5 * (log_factor / PRIOR) ** 2)

    reach = np.log(WIDEST)
    found = minimize_scalar(cost, bounds=(-reach, reach), method="bounded", options={"xatol": 1e-3})
    return float(np.exp(found.x))


def _waves(sessions: Iterable[Session], config: RatingConfig) -> Iterator[_Wave]:
    for _, _, wave in Contender(config).rate(sessions):
        if wave is not None:
            sides = performances_of(config, wave.entry_starts, wave.share, wave.mu, wave.sigma)
            yield _Wave(wave.round_starts, wave.place, sides)


def _last(waves: Iterable[_Wave]) -> Sequence[_Wave]:
    kept, sides = list[_Wave](), 0
    for each in reversed(list(waves)):
        sides += len(each.place)
        if kept and sides > MOST_SIDES:
            break
        kept.append(each)
    return kept


def _loss(wave: _Wave, factor: float, *, draws: bool) -> float:
    """The log loss of the winners of all rounds."""
    spread: Floats = wave.sides.sigma * np.sqrt(factor)
    win = of_rounds(wave.starts, wave.sides._replace(sigma=spread))
    return float(winners.score(wave.starts, wave.place, win, draws)[:, 1].sum())
