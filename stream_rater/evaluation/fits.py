"""Tunes a system on the first part of a game, and scores it on the other rounds (see `games`)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import sides
from stream_rater.evaluation.accuracy import average
from stream_rater.evaluation.contestants import PeerSystem, System
from stream_rater.evaluation.game import Game
from stream_rater.evaluation.season import Session, before
from stream_rater.evaluation.sides import (
    Run,
    factors_of,
    losses_of,
    scores_of,
    total_loss,
    variance_factor,
)
from stream_rater.evaluation.tuning import PRIOR, UNDEFINED, at_ends, middle_of, penalty, search
from stream_rater.evaluation.warming import timed
from stream_rater.rating.systems.dimension import Dimension, fraction_of

LOG_LOSS, ORDER, ORDER_OF_ALL = "log_loss", "pair_inversion", "pair_inversion_all"
"""The measures to tune by. The last one replaces the second where nobody has played enough rounds
for it."""
DEFAULT = "default"
OUT_OF_RANGE = (ArithmeticError, MemoryError, ValueError)
"""The exceptions that a system may raise if its parameters let ratings diverge, as the steps of
Thurstone can."""
AIMS = (LOG_LOSS, ORDER)


@dataclass(slots=True)
class Fit:
    """A system to tune on the first part of a game."""

    system: System
    first: Sequence[Session]
    aim: str
    prior: float | None = PRIOR
    """The standard deviation of the prior, in parts of a parameter's range. None: no prior, so that
    the parameters of maximum likelihood are found."""
    runs: dict[tuple[float, ...], Floats] | None = None
    """The cached scores by point, or None for no cache. Two aims share the scores of the same
    points."""
    fits_factor: bool = False
    """Whether each point is scored with the variance factor that suits it best. Then parameters are
    chosen by how well they predict who is better, and the variance factor is fitted separately."""

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
        loss = total_loss(scores, self.aim)
        if loss is None and self.aim == ORDER:
            loss = total_loss(scores, ORDER_OF_ALL)
        if loss is None or not np.isfinite(loss):
            return UNDEFINED
        return loss + self._penalty(point)

    def first_half(self) -> "Fit":
        """The same problem on the first half of its rounds."""
        return replace(self, first=before(self.first, middle_of(self.first)), runs=None)

    def later_losses(self, point: Sequence[float]) -> Floats | None:
        """(R,) the losses of the rounds of the second half at a point. Each round is predicted by
        the rounds before it, and the variance factor is that of the first half. None if the system
        raises one of OUT_OF_RANGE, or if a loss is not finite."""
        middle = middle_of(self.first)
        try:
            run = self.system.play(self.first, self.config(point))
            factor = variance_factor(run.before(middle)) if self.fits_factor else 1.0
            scores = scores_of(run.after(middle), factor)
        except OUT_OF_RANGE:
            return None
        aim = self.aim
        if aim == ORDER and total_loss(scores, ORDER) is None:
            aim = ORDER_OF_ALL
        losses = losses_of(scores, aim)
        return losses if np.isfinite(losses).all() else None

    def _scores(self, point: tuple[float, ...]) -> Floats:
        """(R, OF_PAIRS) the scores of the first part by the configuration at this point."""
        found = self.runs.get(point) if self.runs is not None else None
        if found is None:
            run = self.system.play(self.first, self.config(point))
            found = scores_of(run, variance_factor(run) if self.fits_factor else 1.0)
            if self.runs is not None:
                self.runs[point] = found
        return found

    def _penalty(self, point: Sequence[float]) -> float:
        return 0.0 if self.prior is None else penalty(point, self.start(), self.prior)


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of a system on a game. Its measures are those of the rounds after the first
    part, or None if nothing was scored."""

    tuned_for: str
    config: dict[str, Any]
    variance_factor: float
    """The variance factor fitted on the rounds to tune on; 1 for the default configuration."""
    last_factor: float
    """The variance factor of the last of `sides.REFITS` parts, fitted on all rounds before it."""
    first_log_loss: float | None
    """The log loss on the rounds to tune on."""
    pair_inversion: float | None
    pair_inversion_all: float | None
    log_loss: float | None
    brier: float | None
    calibration_error: float | None
    us_update: float
    """Microseconds to rate one player in one round."""
    failed_rounds: int
    at_ends: tuple[str, ...] = ()
    """The parameters that ended at an end of their range."""


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """The log loss of the rounds after the first part, for each step of tuning for log loss."""

    default: float | None
    default_with_factor: float | None
    without_prior: float | None
    """The log loss by the parameters of maximum likelihood, with their variance factor. None for
    peers."""
    with_factor: float | None
    """The log loss by the parameters tuned with the prior, with their variance factor."""
    refitted: float | None
    """The log loss with the variance factor refitted as rounds come in, which is the one scored."""


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a system on a game."""

    system: str
    variants: list[Variant]
    gain: Gain

    def of(self, aim: str) -> Variant:
        """The variant tuned for `aim`. Raises StopIteration if there is none."""
        return next(each for each in self.variants if each.tuned_for == aim)


Scored = dict[str, Floats]
"""(R, OF_PAIRS) the scores of the rounds after the first part, by the aim that the system was tuned
for."""


def fit(system: System, game: Game, trials: int) -> tuple[Fitted, Scored]:
    """Tune a system on the first part of a game, and score it on the other rounds."""
    first, runs = game.first, dict[tuple[float, ...], Floats]()
    system = system.on(first)
    problem = Fit(system, first, LOG_LOSS, runs=runs, fits_factor=True)
    configs, ends = {DEFAULT: problem.config(problem.start())}, dict[str, tuple[str, ...]]()
    for aim in AIMS:
        problem = Fit(system, first, aim, runs=runs, fits_factor=True)
        point = search(problem, trials)
        configs[aim], ends[aim] = problem.config(point), at_ends(problem.space, point)
    variants, gains = list[Variant](), dict[str, float | None]()
    scored: Scored = {}
    for aim, config in configs.items():
        run = timed(partial(system.play, game.sessions, config))
        early, rest = run.before(game.boundary), run.after(game.boundary)
        factor = variance_factor(early)
        gains[aim] = average(scores_of(rest), LOG_LOSS)
        gains[f"{aim} with factor"] = average(scores_of(rest, factor), LOG_LOSS)
        factors = np.ones(len(rest.sides.number))
        if aim == DEFAULT:
            factor = 1.0
        else:
            factors = factors_of(run, game.boundary)
        rescaled = rest.with_variance_factors(factors)
        scored[aim] = scores_of(rescaled)
        gains[f"{aim} refitted"] = average(scored[aim], LOG_LOSS)
        last = float(factors[np.argmax(rest.sides.number)]) if len(factors) else factor
        made = _variant(system, aim, config, (factor, last), early, run, rescaled, scored[aim])
        variants.append(msgspec.structs.replace(made, at_ends=ends.get(aim, ())))
    gain = Gain(
        default=gains[DEFAULT], default_with_factor=gains[f"{DEFAULT} with factor"],
        without_prior=_without_prior(system, game, trials, runs),
        with_factor=gains[f"{LOG_LOSS} with factor"],
        refitted=gains[f"{LOG_LOSS} refitted"],
    )  # fmt: skip
    return Fitted(system=system.name, variants=variants, gain=gain), scored


def _variant(
    system: System, aim: str, config: Any, factors: tuple[float, float], early: Run, run: Run,
    rescaled: Run, scores: Floats,
) -> Variant:  # fmt: skip
    factor, last = factors
    return Variant(
        tuned_for=aim, config=system.described(config), variance_factor=factor, last_factor=last,
        first_log_loss=average(scores_of(early, factor), LOG_LOSS),
        pair_inversion=average(scores, ORDER),
        pair_inversion_all=average(scores, ORDER_OF_ALL),
        log_loss=average(scores, LOG_LOSS), brier=average(scores, "brier"),
        calibration_error=sides.calibration_error(rescaled),
        us_update=1e6 * run.seconds / max(run.results, 1), failed_rounds=run.failed,
    )  # fmt: skip


def _without_prior(
    system: System, game: Game, trials: int, runs: dict[tuple[float, ...], Floats]
) -> float | None:
    if isinstance(system, PeerSystem):
        return None
    problem = Fit(system, game.first, LOG_LOSS, None, runs, fits_factor=True)
    config = problem.config(search(problem, trials))
    run = system.play(game.sessions, config)
    early, rest = run.before(game.boundary), run.after(game.boundary)
    return average(scores_of(rest, variance_factor(early)), LOG_LOSS)
