"""`python -m tests.benchmarks.ablation`: what each part of our system, and of how it is tuned and
calibrated, gains on the files that report: the log loss with the part switched off less that with
it, on the same rounds, with the 95 % interval of a paired bootstrap. Exit code 1: a file was
skipped."""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import calibrating
from stream_rater.evaluation.bootstrap import differences
from stream_rater.evaluation.calibrating import EVERYTHING, Learned
from stream_rater.evaluation.fits import LOG_LOSS, OwnSystem
from stream_rater.evaluation.shared_scores import alike
from stream_rater.evaluation.sides import Run, calibrated, scores_of
from stream_rater.operations.input_file import RoundsFile
from stream_rater.rating.systems.common import Dimension
from tests.benchmarks.command import a_parser, end, parsed, show
from tests.benchmarks.games import Plan, laid_out
from tests.benchmarks.lab.forward import Steps, fit_in_steps
from tests.benchmarks.lab.game import Game, games_of
from tests.benchmarks.lab.games import REFERENCE
from tests.benchmarks.lab.report import load
from tests.benchmarks.measure import Result, result

PLANS = (
    Plan(("formula-one",)),
    Plan(("clubs",), rounds=12_000, skip=43_863),
    Plan(("frc",), rounds=12_000),
)
QUICK = (Plan(("formula-one",), 6, 100),)


@dataclass(frozen=True)
class Without(OwnSystem):
    """Our system with some parameters fixed, so that what they are for has no effect."""

    fixed: tuple[tuple[str, Any], ...] = ()

    @property
    def space(self) -> tuple[Dimension, ...]:
        names = [name for name, _ in self.fixed]
        return tuple(each for each in super().space if each.name not in names)

    def config(self, values: Mapping[str, float]) -> Any:
        return msgspec.structs.replace(super().config(values), **dict(self.fixed))


PARAMETERS: Mapping[str, tuple[tuple[str, Any], ...]] = {
    "newcomers at the level of their field": (("newcomer_field", 0.0), ("newcomer_offset", 0.0)),
    "drift by days": (("drift_per_day", 0.0),),
    "experience": (("inexperience", 0.0), ("inexperience_rounds", 20.0)),
}
"""Parts that are switched off by parameters."""
CALIBRATION = {  # Parts of the calibration that can be left unlearned.
    "calibration: factor": Learned(factor=False),
    "calibration: upset": Learned(upset=False),
    "calibration: draw width": Learned(draw_width=False),
}


def rows(game: Game, trials: int) -> Iterator[Result]:
    own = OwnSystem(REFERENCE).on(game.first)
    _, steps = fit_in_steps(own, game, trials)
    yield from _of_steps(game, steps)
    yield from _of_calibration(game)
    for part in ("seats", "score"):
        others = tuple(each for each in own.fields if each.parameter != part)
        if others != own.fields:
            _, without = fit_in_steps(replace(own, fields=others), game, trials)
            yield from _row(game, part, steps.followed, without.followed)
    for part, fixed in PARAMETERS.items():
        _, without = fit_in_steps(Without(REFERENCE, fixed=fixed).on(game.first), game, trials)
        yield from _row(game, part, steps.followed, without.followed)


def _of_steps(game: Game, steps: Steps) -> Iterator[Result]:
    for part, on, off in (
        ("calibration", steps.calibrated, steps.default),
        ("tuning once", steps.tuned, steps.calibrated),
        ("validation", steps.validated, steps.tuned),
        ("following", steps.followed, steps.validated),
        ("all of tuning and calibration", steps.followed, steps.default),
    ):
        yield from _row(game, part, on, off)


def _of_calibration(game: Game) -> Iterator[Result]:
    """Parts of the calibration, by the first guess of the system."""
    own = OwnSystem(REFERENCE)
    run = own.play(game.sessions, own.config({each.name: each.start for each in own.space}))
    on = _calibrated(run, game, EVERYTHING)
    for part, learned in CALIBRATION.items():
        if run.draws or part != "calibration: draw width":
            yield from _row(game, part, on, _calibrated(run, game, learned))
    half_life = calibrating.HALF_LIFE
    try:
        calibrating.HALF_LIFE = 1e12
        yield from _row(game, "calibration: forgetting", on, _calibrated(run, game, EVERYTHING))
    finally:
        calibrating.HALF_LIFE = half_life


def _calibrated(run: Run, game: Game, learned: Learned) -> Floats:
    rest = calibrated(run, learned).after(game.boundary)
    return scores_of(rest.of(np.argsort(rest.sides.number, kind="stable")))


def _row(game: Game, part: str, on: Floats, off: Floats) -> Iterator[Result]:
    with_it, without = alike([on, off])
    gap = differences(without, with_it, [LOG_LOSS])[LOG_LOSS]
    if gap is not None:
        name = f"ablation/{game.name}/{part.replace(' ', '-')}"
        yield result(name, gap.mean, "nats", {"low": gap.low, "high": gap.high}, part)


def play(plan: Plan) -> Iterator[Result]:
    """The rows of a plan's files. Raises Skipped where one is not to be had."""
    with tempfile.TemporaryDirectory() as folder:
        for path in laid_out(plan, Path(folder)):
            data, _ = load(path, RoundsFile(path), plan.rounds)
            for game in games_of(data.name, data.sessions):
                yield from rows(game, plan.trials)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parsed(a_parser("tests.benchmarks.ablation", __doc__), arguments)
    parts = (("ablation", play(plan)) for plan in (QUICK if asked.quick else PLANS))
    return end("bench-ablation", asked, show(parts, tabled=False))


if __name__ == "__main__":
    sys.exit(main())
