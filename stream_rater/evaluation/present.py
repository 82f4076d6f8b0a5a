"""A ladder's present parameters as a system to tune: the search begins with them.

The present values are the first guesses, so the prior of `fits` keeps a parameter near its present
value unless the rounds are evidence against it. Parameters that the system's space does not have
stay unchanged. `initial_mu` and `initial_sigma` stay unchanged, too, because a change of a ladder
keeps the beliefs about all players who have played. A table of learning rates keeps its form: all
of its rates are multiplied by the same factor.

The ranges of `spaces` are made for newcomers with a sigma of 350 points, and for the scale of
chess. Here they are scaled to the ladder's own points, and widened to include its present values.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec import structs

from stream_rater.evaluation import sides, spaces
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import Run
from stream_rater.evaluation.spaces import CHESS, DIGITS, Dimension, place
from stream_rater.evaluation.tuning import without_defaults
from stream_rater.rating.parameters import Climbing, EloMMR, EloR, Evolving, RatingConfig

USUAL_SIGMA = 350.0
"""The sigma of a newcomer, in points, for which the ranges of `spaces` are made."""

FOR_NEWCOMERS = "initial_mu"

POINTS = {
    "beta": 1, "delta": 1, "draw_margin": 1, "learning_rate": 1, "newcomer_offset": 1,
    "sigma_drift": 1, "sigma_limit": 1, "drift_per_day": 2,
    "newcomer_factor": 0, "newcomer_fade": 0, "newcomer_weight": 0, "rho": 0, "sigma_part": 0,
    "weight": 0, "weight_limit": 0,
}  # fmt: skip
"""The unit of each dimension, as a power of points: 0 is without unit, 1 is points, 2 is points
squared."""

FIELDS = {
    "newcomer_factor": "newcomer_weights", "newcomer_fade": "newcomer_weights",
    "sigma_part": "sigma_limit",
}  # fmt: skip
"""The parameter that a dimension determines, where it has another name than the dimension."""


def system_of(config: RatingConfig) -> str:
    """The name of the configuration's system in configuration files."""
    return str(config.__struct_config__.tag)


@dataclass(frozen=True, slots=True)
class Present:
    """The system of a ladder that is rated by these parameters."""

    rating: RatingConfig

    @property
    def name(self) -> str:
        """The name of the system."""
        return system_of(self.rating)

    @property
    def space(self) -> tuple[Dimension, ...]:
        """The dimensions that can be tuned. Their first guesses are the present values."""
        values, points = _values(self.rating), _points(self.rating)
        return tuple(
            _around(each, values.get(each.name), points ** POINTS[each.name])
            for each in spaces.SPACES[self.name] if each.name != FOR_NEWCOMERS
        )  # fmt: skip

    def config(self, values: Mapping[str, float]) -> Any:
        """The present parameters with these values of the dimensions in place of their own."""
        found = spaces.configuration(self.name, values)
        changed = {name: getattr(found, name) for name in (FIELDS.get(x, x) for x in values)}
        if isinstance(self.rating, Evolving):
            changed |= {"beta": None, "gamma": None}
        if isinstance(self.rating, Climbing) and len(self.rating.rates) > 1:
            (rate,) = (each for each in self.space if each.name == "learning_rate")
            factor = changed["learning_rate"] / rate.at(place(rate, rate.start))
            changed["learning_rate"] = tuple((at, x * factor) for at, x in self.rating.rates)
        return structs.replace(self.rating, **changed)

    def play(self, sessions: Sequence[Session], config: Any) -> Run:
        """Rate a season with this configuration."""
        return sides.of_ours(sessions, config)

    def told(self, config: Any) -> dict[str, Any]:
        """The configuration as a table, without the values that equal their default."""
        return without_defaults(config)


def _points(config: RatingConfig) -> float:
    """The number of the ladder's points that equal one point of `spaces`."""
    if isinstance(config, Climbing):
        return config.scale / CHESS["scale"]
    return config.initial_sigma / USUAL_SIGMA


def _values(config: RatingConfig) -> dict[str, Any]:
    """The present value of each dimension, if the dimension can express it."""
    found = structs.asdict(config)
    if isinstance(config, Evolving):
        found["weight_limit"], found["sigma_limit"] = config.limits
        first, *later = config.newcomer_weights or (1.0,)
        found["newcomer_factor"] = first
        if later and first != 1.0 and 0.0 <= (fade := (later[0] - 1.0) / (first - 1.0)) < 1.0:
            found["newcomer_fade"] = fade
    if isinstance(config, EloMMR):
        found["rho"] = config.momentum
    if isinstance(config, EloR):
        found["sigma_part"] = config.sigma_limit / config.delta
    if isinstance(config, Climbing):
        ratings, rates = zip(*config.rates, strict=True)
        rate = float(np.interp(config.initial_mu, ratings, rates))
        found["learning_rate"] = rate if len(rates) == 1 else float(f"{rate:.{DIGITS}g}")
    return found


def _around(dimension: Dimension, value: float | None, points: float) -> Dimension:
    """The dimension in the ladder's points, with `value` as its first guess. If its scale cannot
    represent the value, as a logarithmic one cannot represent 0 or infinity, the first guess is the
    nearest value in the range."""
    low, high = dimension.low * points, dimension.high * points
    if value is None:
        value = dimension.start * points
    if math.isfinite(value) and (value > 0.0 or dimension.scale == "linear"):
        low, high = min(low, value), max(high, value)
    return replace(dimension, low=low, high=high, start=min(max(value, low), high))
