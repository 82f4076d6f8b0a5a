"""The systems to tune: one of ours from its first guess, or by a ladder's present parameters.

For a ladder, the search begins with the present values: they are the first guesses, so the prior of
`fits` keeps a parameter near its present value unless the rounds are evidence against it.
Parameters that the system's space does not have stay unchanged. `initial_mu` and `initial_sigma`
stay unchanged, too, because a change of a ladder keeps the beliefs about all players who have
played. A table of learning rates keeps its form: all its rates are multiplied by the same factor.

The ranges of `spaces` are made for newcomers with a sigma of 350 points, and for the scale of
chess. For a ladder they are scaled to its own points, and widened to include its present values.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from msgspec import structs

from stream_rater.evaluation import sides, spaces
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import Run
from stream_rater.evaluation.tuning import without_defaults
from stream_rater.rating.parameters import Climbing, RatingConfig
from stream_rater.rating.systems.dimension import LEVEL_PART, NEWCOMERS, Dimension, fraction_of
from stream_rater.rating.systems.two_moment import Score

FOR_NEWCOMERS = "initial_mu"


class System(Protocol):
    """A rating system that can be tuned, and that can rate a season."""

    @property
    def name(self) -> str:
        """The name of the system."""

    @property
    def space(self) -> tuple[Dimension, ...]:
        """The dimensions that can be tuned."""

    def config(self, values: Mapping[str, float]) -> Any:
        """The configuration with these values of the dimensions."""

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        """Rate a season with this configuration."""

    def described(self, config: Any) -> dict[str, Any]:
        """The configuration as a table for a report."""


@dataclass(frozen=True, slots=True)
class OwnSystem:
    """One of our systems."""

    system: str
    placing: bool = False
    """Whether newcomers begin at the level of their field although the system's first guess does
    not place them."""
    fields: tuple[Dimension, ...] = ()
    """The dimensions of the optional fields that the rounds have."""
    wide: bool = False  # Whether all dimensions of the system are tuned.

    @property
    def name(self) -> str:
        """The name of the system, with "+newcomers" if newcomers are placed."""
        return f"{self.system}+newcomers" if self.placing else self.system

    @property
    def space(self) -> tuple[Dimension, ...]:
        """The dimensions that can be tuned."""
        space = spaces.WIDE if self.wide else spaces.SPACES
        own = (*space[self.system], *self.fields)
        return (*own, NEWCOMERS) if self.placing else own

    def on(self, sessions: Iterable[Session]) -> "OwnSystem":
        """The system, with the dimensions of the optional fields that these rounds have."""
        return replace(self, fields=spaces.field_dimensions(self.system, sessions))

    def config(self, values: Mapping[str, float]) -> Any:
        """The configuration with these values of the dimensions."""
        fixed = {"newcomer_field": LEVEL_PART} if self.placing else {}
        return spaces.configuration(self.system, {**fixed, **values})

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        """Rate a season with this configuration."""
        return sides.own_run(sessions, config)

    def described(self, config: Any) -> dict[str, Any]:
        """The configuration as a table for a report."""
        return without_defaults(config)


def system_of(config: RatingConfig) -> str:
    """The name of the configuration's system in configuration files."""
    return str(config.__struct_config__.tag)


@dataclass(frozen=True, slots=True)
class Present:
    """The system of a ladder that is rated by these parameters."""

    rating: RatingConfig
    fields: tuple[Dimension, ...] = ()
    """The dimensions of the optional fields that the rounds have."""

    @property
    def name(self) -> str:
        """The name of the system."""
        return system_of(self.rating)

    @property
    def space(self) -> tuple[Dimension, ...]:
        """The dimensions that can be tuned. Their first guesses are the present values."""
        values, point = self.rating.dimensions(), self.rating.point
        own = [each for each in spaces.SPACES[self.name] if each.name != FOR_NEWCOMERS]
        values |= {spaces.SEAT + name: x for name, x in self.rating.seats.items()}
        if score := self._score:
            values |= {spaces.SCALE: score.scale, spaces.CAP: score.cap}
        all_ = (*own, *self.fields)
        return tuple(_around(each, values.get(each.name), point**each.points) for each in all_)

    def on(self, sessions: Iterable[Session]) -> "Present":
        """The system, with the dimensions of the optional fields that these rounds have."""
        fields = spaces.field_dimensions(self.name, sessions, self._margins)
        return replace(self, fields=fields)

    @property
    def _score(self) -> Score | None:
        return getattr(self.rating, "score", None)

    @property
    def _margins(self) -> str:
        """How margins are measured."""
        return self._score.by if self._score else spaces.DIFFERENCE

    def config(self, values: Mapping[str, float]) -> Any:
        """The present parameters with these values of the dimensions in place of their own."""
        found = spaces.configuration(self.name, values, self._margins)
        decides = {each.name: each.parameter or each.name for each in found.space}
        own = (x for x in values if not spaces.is_of_field(x))
        changed = {name: getattr(found, name) for name in (decides[x] for x in own)}
        if seats := spaces.seats_of(values):
            changed["seats"] = {**self.rating.seats, **seats}
        if spaces.SCALE in values:
            changed["score"] = getattr(found, "score", None)
        changed |= dict.fromkeys(found.replaced)
        if isinstance(self.rating, Climbing) and len(self.rating.rates) > 1:
            (rate,) = (each for each in self.space if each.name == "learning_rate")
            factor = changed["learning_rate"] / rate.at(fraction_of(rate, rate.start))
            changed["learning_rate"] = tuple((at, x * factor) for at, x in self.rating.rates)
        return structs.replace(self.rating, **changed)

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        """Rate a season with this configuration."""
        return sides.own_run(sessions, config)

    def described(self, config: Any) -> dict[str, Any]:
        """The configuration as a table, without the values that equal their default."""
        return without_defaults(config)


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
