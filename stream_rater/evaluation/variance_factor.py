"""Fits the variance factor of a configuration to how well it predicted past rounds.

The factor multiplies the variance of every side's performance (`rating.prediction.wins`), so it
determines how confident predictions are. It changes no rating, so the rounds are rated once for all
factors. The factor that is chosen is the most probable one: it minimises

    total log loss of the winners + (ln factor)^2 / (2 PRIOR^2)

where the second term is a normal prior of ln factor around 0. A few rounds hardly move the factor
from 1. With some hundred rounds the prior hardly matters.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.config.extras import lab_extra
from stream_rater.evaluation import winners
from stream_rater.evaluation.evaluation import Contender
from stream_rater.evaluation.season import Session
from stream_rater.rating import levels
from stream_rater.rating.model import Places
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.prediction.wins import Performances, of_rounds, performances_of

PRIOR = 0.5
"""The prior standard deviation of ln factor."""
WIDEST = 32.0
"""The largest factor. The least factor is its inverse."""
MOST_SIDES = 300_000
"""The most sides, in the last rounds, that the factor is fitted to. More would only take longer."""


class _Wave(NamedTuple):
    """Rounds that were predicted together."""

    starts: Ints
    place: Places
    sides: Performances
    """The performances of the sides, with a variance factor of 1."""


def variance_factor(sessions: Iterable[Session], config: RatingConfig) -> float:
    """The most probable factor by the last of these rounds. Each round is predicted before it is
    rated. Raises MissingExtra without SciPy."""
    waves = _last(_waves(sessions, config))
    draws = config.drawn_within > 0.0
    return most_probable(lambda factor: sum(_loss(each, factor, draws=draws) for each in waves))


def most_probable(loss: Callable[[float], float]) -> float:
    """The factor that minimises the sum of `loss` and the prior's penalty. `loss` gives the total
    loss at a factor, in nats. Raises MissingExtra without SciPy."""
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
            mu = levels.measured(config, wave)
            sides = performances_of(config, wave.entry_starts, wave.share, mu, wave.sigma)
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
    """The sum of the log losses of the winners over all rounds of a wave."""
    spread: Floats = wave.sides.sigma * np.sqrt(factor)
    win = of_rounds(wave.starts, wave.sides._replace(sigma=spread))
    return float(winners.score(wave.starts, wave.place, win, draws)[:, 1].sum())
