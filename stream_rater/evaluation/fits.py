"""The problem of tuning a system, our own or another package's, on the first part of a game."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import sides
from stream_rater.evaluation.season import Session, before
from stream_rater.evaluation.tuned_systems import System
from stream_rater.evaluation.tuning import PRIOR, UNDEFINED, middle_of, penalty
from stream_rater.rating.systems.dimension import Dimension, fraction_of

LOG_LOSS, ORDER, ORDER_OF_ALL = "log_loss", "pair_inversion", "pair_inversion_all"
"""The measures to tune by. The last one replaces the second where nobody has played enough rounds
for it."""
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
    """Whether there is a prior (`tuning.PRIOR`). Without it, the parameters of maximum
    likelihood are found."""
    runs: dict[tuple[float, ...], Floats] | None = None
    """The cached scores by point, or None for no cache. Two aims share the scores of the same
    points."""
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

    def config(self, point: Sequence[float]) -> Any:
        """The configuration at a point of the unit cube."""
        return self.system.config(
            {each.name: each.at(x) for each, x in zip(self.space, point, strict=True)}
        )

    def cost(self, point: Sequence[float]) -> float:
        """The total loss of the first part and the prior's penalty. It is UNDEFINED if the system
        raises one of OUT_OF_RANGE, or if there is no finite loss."""
        try:
            scores = self._scores(tuple(point))
        except OUT_OF_RANGE:
            return UNDEFINED
        loss = sides.total_loss(scores, self.aim)
        if loss is None and self.aim == ORDER:
            loss = sides.total_loss(scores, ORDER_OF_ALL)
        if loss is None or not np.isfinite(loss):
            return UNDEFINED
        return loss + self._penalty(point)

    def first_half(self) -> "Fit":
        """The same problem on the first half of its rounds."""
        return replace(self, first=before(self.first, middle_of(self.first)), runs=None)

    def later_losses(self, point: Sequence[float]) -> Floats | None:
        """(R,) the losses of the rounds of the second half at a point. Each round is predicted by
        the rounds before it, and calibrated by them. None if the system raises one of OUT_OF_RANGE,
        or if a loss is not finite."""
        try:
            run = self.system.play(self.first, self.config(point))
            scores = sides.scores_of(self._calibrated(run).after(middle_of(self.first)))
        except OUT_OF_RANGE:
            return None
        aim = self.aim
        if aim == ORDER and sides.total_loss(scores, ORDER) is None:
            aim = ORDER_OF_ALL
        losses = sides.losses_of(scores, aim)
        return losses if np.isfinite(losses).all() else None

    def _scores(self, point: tuple[float, ...]) -> Floats:
        """(R, OF_PAIRS) the scores of the first part by the configuration at this point."""
        found = self.runs.get(point) if self.runs is not None else None
        if found is None:
            run = self.system.play(self.first, self.config(point))
            found = sides.scores_of(self._calibrated(run))
            if self.runs is not None:
                self.runs[point] = found
        return found

    def _calibrated(self, run: sides.Run) -> sides.Run:
        return sides.calibrated(run) if self.calibrates else sides.as_it_is(run)

    def _penalty(self, point: Sequence[float]) -> float:
        if not self.has_prior:
            return 0.0
        return penalty(point, self.start(), PRIOR)
