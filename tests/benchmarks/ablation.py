"""`python -m tests.benchmarks.ablation`: what each part of our system, and of how it is tuned and
calibrated, gains on the shared files: the log loss with the part switched off less that with
it, on the same rounds, with the 95 % interval of a paired bootstrap. Exit code 1: a file was
skipped.

`--part NAME BEFORE AFTER` measures another part alone, for example
`--part beta '{"beta": 250}' '{"beta": 600}'`: both are parameters in place of the defaults, in
JSON, and may name another `system`."""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
from stream_rater.rating.parameters import TwoMoment, from_builtins
from stream_rater.rating.systems.two_moment import BETTER
from tests.benchmarks import games
from tests.benchmarks.command import a_parser, end, parsed, show
from tests.benchmarks.games import OTHER, Plan, laid_out
from tests.benchmarks.lab.forward import Steps, fit_in_steps
from tests.benchmarks.lab.game import Game, games_of
from tests.benchmarks.lab.games import REFERENCE
from tests.benchmarks.lab.report import load
from tests.benchmarks.measure import Result, result

PLANS = [each for each in games.PLANS if each.whole]
FEW_TRIALS = 24  # Hardly more than the presets.
QUICK = (Plan(("formula-one",), 6, 100),)


class Part(NamedTuple):
    """A variation of the parameters that a ladder has by default."""

    before: Mapping[str, Any]
    after: Mapping[str, Any] = {}


OWN_DEFAULTS = {**msgspec.to_builtins(TwoMoment())}
"""The parameters of the system that a ladders file leaves out."""
PARTS = {
    "the defaults of a ladder": Part(OWN_DEFAULTS),
    "newcomers at the level of their field": Part({"newcomer_field": 0.0, "newcomer_offset": 0.0}),
    "drift by days": Part({"drift_per_day": 0.0}),
    "more noise in teams": Part({"team_noise": 0.0}),
    "experience": Part({"inexperience": 0.0}),
}
"""Parts that are switched off by parameters; untuned, with the calibration by the rounds so far."""
CALIBRATION = {  # Parts of the calibration that can be left unlearned.
    "calibration: factor": Learned(factor=False),
    "calibration: upset": Learned(upset=False),
    "calibration: draw width": Learned(draw_width=False),
}


def rows(game: Game, trials: int, parts: Mapping[str, Part] = {}) -> Iterator[Result]:
    """The rows of these parts, or of all that there are."""
    for name, part in (parts or PARTS).items():
        on, off = (_untuned(game, parameters) for parameters in (part.after, part.before))
        yield from _row(game, name, on, off)
    if parts:
        return
    own = OwnSystem(REFERENCE).on(game.first)
    _, steps = fit_in_steps(own, game, trials)
    yield from _of_steps(game, steps)
    _, few = fit_in_steps(own, game, FEW_TRIALS)
    yield from _row(game, "presets alone", few.validated, few.calibrated)
    yield from _of_calibration(game)
    for field in ("seats", "score"):
        others = tuple(each for each in own.fields if each.parameter != field)
        if others != own.fields:
            _, without = fit_in_steps(replace(own, fields=others), game, trials)
            yield from _row(game, field, steps.followed, without.followed)


def _untuned(game: Game, parameters: Mapping[str, Any]) -> Floats:
    usual = {} if "system" in parameters else BETTER
    config = from_builtins({"system": REFERENCE, **usual, **parameters})
    return _calibrated(OwnSystem(REFERENCE).play(game.sessions, config), game, EVERYTHING)


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


def play(plan: Plan, parts: Mapping[str, Part] = {}) -> Iterator[Result]:
    """The rows of a plan's files. Raises Skipped where one is not to be had."""
    with tempfile.TemporaryDirectory() as folder:
        for path in laid_out(plan, Path(folder)):
            data, _ = load(path, RoundsFile(path), plan.rounds)
            yield from rows(next(games_of(data.name, data.sessions)), plan.trials, parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = a_parser("tests.benchmarks.ablation", __doc__)
    parser.add_argument("--file", nargs="+", type=Path, default=[], metavar="PATH",
                        help="files of rounds to play in place of the shared ones")  # fmt: skip
    parser.add_argument("--part", nargs=3, action="append", default=[],
                        metavar=("NAME", "BEFORE", "AFTER"), help="see above")  # fmt: skip
    asked = parsed(parser, arguments, "--file", "--part")
    parts = {name: Part(*map(msgspec.json.decode, given)) for name, *given in asked.part}
    plans = [replace(OTHER, files=(each,)) for each in asked.file]
    works = map(partial(play, parts=parts), plans or (QUICK if asked.quick else PLANS))
    return end("bench-ablation", asked, show((("ablation", each) for each in works), tabled=False))


if __name__ == "__main__":
    sys.exit(main())
