"""Proposes parameters, and says whether they are better on rounds that their search had not seen.

The parameters are tuned on the first part of the rounds: they are the most probable ones given that
part (`fits`, `tuning`), or those that the search began with if these predict its second half no
worse (`validation`). By log loss and Brier score, each trial is scored with the calibration that
suits the rounds so far: how sure predictions are is learned afterwards.

The numbers of predictions follow. They are fitted on the rounds that were tuned on (`calibrating`),
one after the other: TrueSkill's `draw_margin`, which the search has found, the factor, the width of
draws, the share of upsets. Each is tested on the other rounds, and left out unless these have less
log loss with it. With it, those that were taken before are fitted again, because they depend on
each other. Without a width, draws are predicted by the width that suits the rounds before each
round (`shared_scores`).

The result is compared with the present parameters on the other rounds. The paired bootstrap gives
the interval of the difference. What it shows to be worse is never proposed.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import fits
from stream_rater.evaluation.accuracy import average
from stream_rater.evaluation.bootstrap import difference, differences, verdict
from stream_rater.evaluation.calibrating import Learned
from stream_rater.evaluation.evaluation import evaluate, trained
from stream_rater.evaluation.measures import FACTS_OF, FIELDS, Difference, better
from stream_rater.evaluation.season import Session, before
from stream_rater.evaluation.shared_scores import Counted, alike, counted
from stream_rater.evaluation.sides import calibration_of, own_run
from stream_rater.evaluation.tuning import at_ends, validated
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.systems.common import rounded

LEAST_ROUNDS = 20
"""The fewest rounds to tune on, and to compare on. With fewer, the bootstrap interval is too
narrow."""

TRAIN = 0.5
"""The part of the rounds that is tuned on, and that is not scored, unless another one is given."""

UNSEEN = "on rounds it had not seen"
ADOPT, NO_DIFFERENCE = f"better {UNSEEN}: adopt it", f"no difference {UNSEEN}"
KEEP = f"worse {UNSEEN}: keep what you have"

MARGIN, FACTOR, WIDTH, UPSET = "draw_margin", "variance_factor", "draw_width", "upset"


class Tested(NamedTuple):
    """A number that was fitted, and what it does on rounds that it was not fitted to."""

    name: str
    value: float
    difference: Difference  # The log loss with the number, minus the log loss without it.
    taken: bool


class TooFewRounds(Exception):
    """A part of the rounds is too short to tune or to compare on. The text is one line."""


class Compared(NamedTuple):
    """A measure over the rounds that were not tuned on, by both sets of parameters."""

    measure: str
    now: float  # The measure by the present parameters.
    tuned: float  # The measure by the tuned parameters.
    difference: Difference  # The measure by the tuned parameters minus that by the present ones.

    @property
    def verdict(self) -> str:
        """One of `bootstrap.VERDICTS`: how the tuned parameters compare, by the interval."""
        return verdict(self.measure, self.difference)


class TuningProposal(NamedTuple):
    """The proposed parameters, and what they gain."""

    rating: RatingConfig
    """The tuned parameters; the present ones if the tuned ones are worse, or if no difference is
    shown and they do no better by the measure that was tuned by."""
    first: int  # The number of rounds to tune on.
    rest: int  # The number of rounds to compare on.
    compared: list[Compared]
    """The comparison of what was found by log loss, then by order, then by the measure to tune by.
    Order is over the experienced sides, or over all sides if nobody has played enough rounds."""
    of: Counted | None = None
    """The counts of the pairs and rounds that are compared, which both configurations share."""
    at_ends: tuple[str, ...] = ()  # The parameters that ended at an end of their range.
    tested: Sequence[Tested] = ()
    """The numbers of predictions that were fitted, and what each did on the other rounds."""
    kept: bool = False  # Whether `rating` are the present parameters.
    scores: tuple[Floats, ...] = ()
    """The scores of all rounds by the present parameters, and by what was found."""

    @property
    def verdict(self) -> str:
        """KEEP if a measure is worse; else ADOPT if one is better; else NO_DIFFERENCE."""
        return _verdict(self.compared)

    @property
    def worse(self) -> bool:
        """Whether what was found is worse."""
        return self.verdict == KEEP


def _verdict(compared: Sequence[Compared]) -> str:
    found = {each.verdict for each in compared}
    return KEEP if "worse" in found else ADOPT if "better" in found else NO_DIFFERENCE


def propose(
    present: RatingConfig | None, system: str, sessions: Sequence[Session],
    aim: str = fits.LOG_LOSS, *, train: float = TRAIN, trials: int,
    executor: Executor | None = None, on_trial: Callable[[], None] = lambda: None,
) -> TuningProposal:  # fmt: skip
    """Propose parameters of `system` for rounds that are rated by `present` now.

    They are tuned on the first `train`, a fraction of the rounds, by `aim`, one of `AIMS`. If
    `system` is the present one, the search begins with the present parameters, otherwise with the
    system's first guess. Without `present`, that guess is compared with, and all dimensions are
    tuned (`spaces.WIDE`). `executor` and `on_trial` are those of `search`.

    Raises TooFewRounds, MissingExtra without SciPy, or TrialsFailed if the executor fails.
    """
    first = trained(sum(len(each.rounds) for each in sessions), train)
    own: fits.OwnSystem | fits.Present = fits.OwnSystem(system, wide=present is None)
    if present is not None and system == fits.system_of(present):
        own = fits.Present(present)
    to_tune = before(sessions, first)
    sure = FACTS_OF[aim].weight == FACTS_OF[fits.LOG_LOSS].weight  # it depends on a calibration
    problem = fits.Fit(own.on(to_tune), to_tune, aim, calibrates=sure)
    present = problem.config(problem.start()) if present is None else present
    now = evaluate(sessions, present)
    _check_enough(now.scores, first)
    point = validated(problem, trials, executor, on_trial).point
    found, tested = with_fitted(problem.config(point), present, sessions, first)
    base, tuned = alike([now.scores, evaluate(sessions, found).scores])
    compared = list(_compared(base[first:], tuned[first:], aim))
    aimed = next((each for each in compared if each.measure == aim), compared[-1])
    verdict, gain = _verdict(compared), better(aimed.measure) * aimed.difference.mean
    kept = verdict == KEEP or (verdict == NO_DIFFERENCE and gain <= 0.0)
    of = counted(base[first:], draws=now.draws)
    return TuningProposal(
        present if kept else found, first, len(base) - first, compared, of,
        at_ends(problem.space, point), tested, kept, (base, tuned),
    )  # fmt: skip


def _check_enough(scores: Floats, first: int) -> None:
    scored = scores[:, FIELDS.index(FACTS_OF[fits.LOG_LOSS].weight)] > 0.0
    counts = [int(np.count_nonzero(part)) for part in (scored[:first], scored[first:])]
    if min(counts) < LEAST_ROUNDS:
        raise TooFewRounds(
            f"{counts[0]} rounds to tune on and {counts[1]} to compare on say who was better, and "
            f"{LEAST_ROUNDS} of each are needed"
        )


def _compared(base: Floats, tuned: Floats, aim: str) -> Iterator[Compared]:
    gaps = differences(
        tuned, base, list(dict.fromkeys((fits.LOG_LOSS, fits.ORDER, fits.ORDER_OF_ALL, aim)))
    )
    order = fits.ORDER if gaps[fits.ORDER] is not None else fits.ORDER_OF_ALL
    for measure in dict.fromkeys((fits.LOG_LOSS, order, order if aim == fits.ORDER else aim)):
        gap, now, then = gaps[measure], average(base, measure), average(tuned, measure)
        if gap is not None and now is not None and then is not None:
            yield Compared(measure, now, then, gap)


# --- the numbers of predictions ------------------------------------------------------------------


def with_fitted(
    found: RatingConfig, present: RatingConfig, sessions: Sequence[Session], first: int
) -> tuple[RatingConfig, list[Tested]]:
    """The parameters with the numbers that help, and the test of each. They are fitted to the first
    rounds, those with numbers below `first`, and tested on the others. `present`: the parameters
    that the search began with."""
    best: Any = found
    margins = [getattr(each, MARGIN, None) for each in (found, present)]
    if None not in margins:
        best = structs.replace(best, draw_margin=margins[1])
    scores, tests = evaluate(sessions, best, most_sides=0).scores, list[Tested]()
    for name in (MARGIN, FACTOR, WIDTH, UPSET):
        taken = {each.name for each in tests if each.taken} | {name}
        values: dict[str, Any] = {MARGIN: margins[0]}
        if name != MARGIN:
            values = _fitted(best, sessions, first, taken)
        if values.get(name) in (None, getattr(best, name, None)):
            continue
        trial = structs.replace(best, **values)
        base, after = alike([scores, evaluate(sessions, trial, most_sides=0).scores])
        gap = difference(after[first:], base[first:], fits.LOG_LOSS)
        if gap is not None:
            tests.append(Tested(name, values[name], gap, gap.mean < 0.0))
            if gap.mean < 0.0:
                best, scores = trial, after
    return best, tests


def _fitted(
    config: Any, sessions: Sequence[Session], first: int, names: set[str]
) -> dict[str, float]:
    """The values of these numbers that suit the first rounds; none if the system has no finite
    predictions."""
    plain = structs.replace(config, variance_factor=1.0, draw_width=0.0, upset=0.0)
    try:
        run = own_run(before(sessions, first), plain)
        found = calibration_of(run, Learned(FACTOR in names, True, UPSET in names))
    except fits.OUT_OF_RANGE:
        return {}
    values = zip((FACTOR, WIDTH, UPSET), found, strict=True)
    return {name: rounded(x) for name, x in values if name in names}
