"""The systems to tune, ours from first guesses or by a ladder's present parameters, or another
package's; and the problem of tuning one on the first part of a game.

For a ladder, the search begins with the present values: they are the first guesses, so the prior of
`Fit` keeps a parameter near its present value unless the rounds are evidence against it. Parameters
that the system's space does not have stay unchanged. `initial_mu` and `initial_sigma` stay
unchanged, too, because a change of a ladder keeps the beliefs about all players who have played. A
table of learning rates keeps its form: all its rates are multiplied by the same factor.

The ranges of `spaces` are made for newcomers with a sigma of 350 points, and for the scale of
chess. For a ladder they are scaled to its own points, and widened to include its present values.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from msgspec import structs

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import sides, spaces
from stream_rater.evaluation.season import Session, before
from stream_rater.evaluation.sides import Run
from stream_rater.evaluation.tuning import PRIOR, UNDEFINED, middle_of, penalty, without_defaults
from stream_rater.rating.parameters import Climbing, RatingConfig
from stream_rater.rating.systems.common import LEVEL_PART, NEWCOMERS, Dimension, fraction_of
from stream_rater.rating.systems.two_moment import Score


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


class _Ours:
    """The methods that all of our systems have in common."""

    __slots__ = ()

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        """Rate a season with this configuration."""
        return sides.own_run(sessions, config)

    def described(self, config: Any) -> dict[str, Any]:
        """The configuration as a table, without the values that equal their default."""
        return without_defaults(config)


@dataclass(frozen=True, slots=True)
class OwnSystem(_Ours):
    """One of our systems."""

    system: str
    placing: bool = False
    """Whether newcomers begin at the level of their field, even if the first guess places none."""
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

    @property
    def presets(self) -> Sequence[Sequence[Mapping[str, float]]]:
        """Groups of values of dimensions to try before a search."""
        return spaces.presets_of(self.system, self.fields)

    def on(self, sessions: Iterable[Session]) -> "OwnSystem":
        """The system, with the dimensions of the optional fields that these rounds have."""
        return replace(self, fields=spaces.field_dimensions(self.system, sessions))

    def config(self, values: Mapping[str, float]) -> Any:
        """The configuration with these values of the dimensions."""
        fixed = {"newcomer_field": LEVEL_PART} if self.placing else {}
        return spaces.configuration(self.system, {**fixed, **values})


def system_of(config: RatingConfig) -> str:
    """The name of the configuration's system in configuration files."""
    return str(config.__struct_config__.tag)


@dataclass(frozen=True, slots=True)
class Present(_Ours):
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
        own = [each for each in spaces.SPACES[self.name] if each.name != "initial_mu"]
        values |= {spaces.SEAT + name: x for name, x in self.rating.seats.items()}
        if score := self._score:
            values |= {spaces.SCALE: score.scale, spaces.CAP: score.cap}
        all_ = (*own, *self.fields)
        return tuple(_around(each, values.get(each.name), point**each.points) for each in all_)

    @property
    def presets(self) -> Sequence[Sequence[Mapping[str, float]]]:
        """Groups of values of dimensions to try before a search."""
        return spaces.presets_of(self.name, self.fields, self.rating.point)

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


LOG_LOSS, ORDER, ORDER_OF_ALL = "log_loss", "pair_inversion", "pair_inversion_all"
"""The measures to tune by. The last replaces the second where nobody has enough rounds for it."""
DEFAULT = "default"
OUT_OF_RANGE = (ArithmeticError, MemoryError, ValueError)
"""The exceptions that a system may raise if its parameters let ratings diverge, as the steps of
Thurstone can."""


@dataclass(slots=True)
class Fit:
    """A system to tune on the first part of a game."""

    system: System
    first: Sequence[Session]
    aim: str
    has_prior: bool = True
    """Whether there is a prior (`PRIOR`). Without it, the likelihood alone is maximised."""
    runs: dict[tuple[float, ...], Floats] | None = None
    """The cached scores by point, or None for no cache. Two measures to tune by can share them."""
    calibrates: bool = False
    """Whether each point is scored with the calibration that suits the rounds so far. Then
    parameters are chosen by how well they predict who is better. How confident predictions are, and
    how likely draws, is learned separately (`calibrating`)."""

    @property
    def space(self) -> tuple[Dimension, ...]:
        """The dimensions that are tuned."""
        return self.system.space

    def start(self) -> list[float]:
        """The point of the first guess."""
        return [fraction_of(each, each.start) for each in self.space]

    def presets(self) -> list[list[dict[int, float]]]:
        """Groups of points of the unit cube to try before a search: some coordinates of each."""
        if not isinstance(self.system, OwnSystem | Present):
            return []
        space = list(enumerate(self.space))
        return [
            [{i: fraction_of(at, x[at.name]) for i, at in space if at.name in x} for x in group]
            for group in self.system.presets
        ]

    def config(self, point: Sequence[float]) -> Any:
        """The configuration at a point of the unit cube."""
        return self.system.config(
            {each.name: each.at(x) for each, x in zip(self.space, point, strict=True)}
        )

    def cost(self, point: Sequence[float]) -> float:
        """The total loss of the first part and the prior's penalty. It is UNDEFINED if the system
        raises one of OUT_OF_RANGE, if nothing was scored, or if the loss is not finite."""
        try:
            scores = self._scores(tuple(point))
        except OUT_OF_RANGE:
            return UNDEFINED
        loss = sides.total_loss(scores, self._aim(scores))
        if loss is None or not np.isfinite(loss):
            return UNDEFINED
        return loss + (penalty(point, self.start(), PRIOR) if self.has_prior else 0.0)

    def first_half(self) -> "Fit":
        """The same problem on the first half of its rounds."""
        return replace(self, first=before(self.first, middle_of(self.first)), runs=None)

    def later_losses(self, point: Sequence[float]) -> Floats | None:
        """(R,) the losses of the rounds of the second half at a point. Each round is predicted by
        the rounds before it, and calibrated by them. None if the system raises one of OUT_OF_RANGE,
        or if a loss is not finite."""
        try:
            scores = sides.scores_of(self._run(point).after(middle_of(self.first)))
        except OUT_OF_RANGE:
            return None
        losses = sides.losses_of(scores, self._aim(scores))
        return losses if np.isfinite(losses).all() else None

    def _aim(self, scores: Floats) -> str:
        """The measure to tune by: ORDER_OF_ALL, where nobody has played enough rounds for ORDER."""
        scored = self.aim != ORDER or sides.total_loss(scores, ORDER) is not None
        return self.aim if scored else ORDER_OF_ALL

    def _scores(self, point: tuple[float, ...]) -> Floats:
        """(R, OF_PAIRS) the scores of the first part by the configuration at this point."""
        found = self.runs.get(point) if self.runs is not None else None
        if found is None:
            found = sides.scores_of(self._run(point))
            if self.runs is not None:
                self.runs[point] = found
        return found

    def _run(self, point: Sequence[float]) -> Run:
        run = self.system.play(self.first, self.config(point))
        return sides.calibrated(run) if self.calibrates else sides.as_it_is(run)
