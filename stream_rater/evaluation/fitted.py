"""Fits the numbers of predictions to parameters that were tuned, and keeps those that help.

They are fitted on the rounds that were tuned on (`calibrating`), one after the other: TrueSkill's
`draw_margin`, which the search has found, the factor, the width of draws, the share of upsets. Each
is tested on the other rounds, and left out unless these have less log loss with it. With it, those
that were taken before are fitted again, because they depend on each other.
Without a width, draws are predicted by the width that suits the rounds before each round (`alike`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import structs

from stream_rater.evaluation.alike import alike
from stream_rater.evaluation.bootstrap import Difference, difference
from stream_rater.evaluation.calibrating import Learned
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.fits import LOG_LOSS, OUT_OF_RANGE
from stream_rater.evaluation.season import Session, before
from stream_rater.evaluation.sides import calibration_of, own_run
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.systems.dimension import rounded

MARGIN, FACTOR, WIDTH, UPSET = "draw_margin", "variance_factor", "draw_width", "upset"


class Tested(NamedTuple):
    """A number that was fitted, and what it does on rounds that it was not fitted to."""

    name: str
    value: float
    difference: Difference
    """The log loss with it less that without it."""
    taken: bool


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
        gap = difference(after[first:], base[first:], LOG_LOSS)
        if gap is not None:
            tests.append(Tested(name, values[name], gap, gap.mean < 0.0))
            if gap.mean < 0.0:
                best, scores = trial, after
    return best, tests


def _fitted(
    config: Any, sessions: Sequence[Session], first: int, names: set[str]
) -> dict[str, float]:
    """The values of these numbers that suit the first rounds, to four digits; none if the system
    has no finite predictions."""
    plain = structs.replace(config, variance_factor=1.0, draw_width=0.0, upset=0.0)
    try:
        run = own_run(before(sessions, first), plain)
        found = calibration_of(run, Learned(FACTOR in names, True, UPSET in names))
    except OUT_OF_RANGE:
        return {}
    values = zip((FACTOR, WIDTH, UPSET), found, strict=True)
    return {name: rounded(x) for name, x in values if name in names}
