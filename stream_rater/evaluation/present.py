"""A ladder's present parameters as a system to tune: the search begins with them.

They are the first guesses, so the prior of `fits` holds a parameter where it is until the rounds
say otherwise. Parameters that the system's space does not have stay as they are, and so do
`initial_mu` and `initial_sigma`: a change of a ladder leaves the beliefs of all who have played.
A table of learning rates keeps its form: all of its rates are multiplied by the same factor.

The ranges of `spaces` are made for newcomers with a sigma of 350 points, and for the scale of
chess. Here they are stretched to the ladder's own points, and to hold its present values.
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
"""Of a newcomer, in points, where the ranges of `spaces` hold."""

FOR_NEWCOMERS = "initial_mu"

POINTS = {
    "beta": 1, "delta": 1, "draw_margin": 1, "learning_rate": 1, "newcomer_offset": 1,
    "sigma_drift": 1, "sigma_limit": 1, "drift_per_day": 2,
    "newcomer_factor": 0, "newcomer_fade": 0, "newcomer_weight": 0, "rho": 0, "sigma_part": 0,
    "weight": 0, "weight_limit": 0,
}  # fmt: skip
"""The power of points that each dimension is measured in."""

FIELDS = {
    "newcomer_factor": "newcomer_weights", "newcomer_fade": "newcomer_weights",
    "sigma_part": "sigma_limit",
}  # fmt: skip
"""The parameter that a dimension of another name decides."""


def system_of(config: RatingConfig) -> str:
    """Its name in configuration files."""
    return str(config.__struct_config__.tag)


@dataclass(frozen=True, slots=True)
class Present:
    """The system of a ladder that is rated by these parameters."""

    rating: RatingConfig

    @property
    def name(self) -> str:
        """The system's."""
        return system_of(self.rating)

    @property
    def space(self) -> tuple[Dimension, ...]:
        """What can be tuned, from the present values on."""
        values, points = _values(self.rating), _points(self.rating)
        return tuple(
            _around(each, values.get(each.name), points ** POINTS[each.name])
            for each in spaces.SPACES[self.name] if each.name != FOR_NEWCOMERS
        )  # fmt: skip

    def config(self, values: Mapping[str, float]) -> Any:
        """The present parameters but for these values of the dimensions."""
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
        """A season by this configuration."""
        return sides.of_ours(sessions, config)

    def told(self, config: Any) -> dict[str, Any]:
        """A configuration as a table."""
        return without_defaults(config)


def _points(config: RatingConfig) -> float:
    """How many of the ladder's points are one of those that `spaces` has."""
    if isinstance(config, Climbing):
        return config.scale / CHESS["scale"]
    return config.initial_sigma / USUAL_SIGMA


def _values(config: RatingConfig) -> dict[str, Any]:
    """The present values by dimension, as far as they can be expressed."""
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
    """The dimension in the ladder's points, with this first guess. Where its scale cannot have the
    value, as the logarithmic one 0 or infinity, the first guess is the nearest that it can have."""
    low, high = dimension.low * points, dimension.high * points
    if value is None:
        value = dimension.start * points
    if math.isfinite(value) and (value > 0.0 or dimension.scale == "linear"):
        low, high = min(low, value), max(high, value)
    return replace(dimension, low=low, high=high, start=min(max(value, low), high))
