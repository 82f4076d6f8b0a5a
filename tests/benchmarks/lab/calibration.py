"""The calibration error of forecasts: scored pairs, sorted by the favourite's probability, are cut
into BINS bins of equal count; the mean distance of a bin's probability from the share that
favourites won."""

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.evaluation.accuracy import distances_of
from stream_rater.evaluation.sides import Run, by_round
from stream_rater.rating.model import DID_NOT_FINISH, Places
from stream_rater.rating.normal import below

BINS = 10


@kernel
def _favourites(
    starts: Ints, place: Places, mu: Floats, variance: Floats, draws: bool, width: Floats,
    upset: Floats,
) -> tuple[Floats, Floats]:  # fmt: skip
    """(P,) the favourite's probability to win each pair, and whether it won (equals: half)."""
    total = 0
    for r in range(len(starts) - 1):
        n = starts[r + 1] - starts[r]
        for d in distances_of(n):
            total += n - d
    win, won, at = np.empty(total), np.empty(total), 0
    for r in range(len(starts) - 1):
        a, b = starts[r], starts[r + 1]
        margin, chance = width[r] if draws else 0.0, upset[r]
        for d in distances_of(b - a):
            for i in range(a, b - d):
                j = i + d
                tied = place[i] == place[j]
                if tied and (not draws or place[i] == DID_NOT_FINISH):
                    continue
                spread = np.sqrt(variance[i] + variance[j])
                gap = abs(mu[i] - mu[j])
                above, under = below((gap - margin) / spread), below((-gap - margin) / spread)
                win[at] = (1.0 - chance) * above + chance * under
                won[at] = 1.0 if mu[i] > mu[j] else 0.0
                if tied or gap == 0.0:
                    won[at] = 0.0 if tied else 0.5
                at += 1
    return win[:at], won[:at]


def calibration_errors(run: Run) -> tuple[float | None, float | None]:
    """The calibration error, from 0 to 1, and that of true probabilities if pairs were independent:
    the mean distance of normal variables with a bin's variance p (1 - p) / n. None: no pairs."""
    sides = run.sides
    variance, width, upset = by_round(run)
    predicted, won = _favourites(
        sides.starts, sides.place, sides.mu, variance, run.scores_draws, width, upset
    )
    if not len(predicted):
        return None, None
    order = np.argsort(predicted, kind="stable")
    bins = [each for each in np.array_split(order, BINS) if len(each)]
    gaps = [len(each) * abs(float(predicted[each].mean() - won[each].mean())) for each in bins]
    p = [predicted[each] for each in bins]
    chance = sum(float(np.sqrt(2.0 / np.pi * (each * (1.0 - each)).sum())) for each in p)
    return sum(gaps) / len(predicted), chance / len(predicted)
