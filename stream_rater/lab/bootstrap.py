"""Is a difference between two systems more than noise? The paired bootstrap over rounds.

Both systems are scored on the same rounds. These are drawn again with repetition, the same draw for
both, and the interval holds the middle 95 % of the differences that the draws give: an interval
with 0 in it says that other rounds of the same kind might have turned the difference around.
"""

from dataclasses import dataclass

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.lab.accuracy import values_and_weights

DRAWS = 2000
SEED = 1
CHUNK = 1 << 22
"""Counts held at once."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A measure's difference between two systems, with its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def noise(self) -> bool:
        """Whether the interval holds 0."""
        return self.low <= 0.0 <= self.high


def difference(scores: Floats, base: Floats, measure: str, draws: int = DRAWS) -> Difference | None:
    """The measure by `scores` less that by `base`, (R, len(FIELDS)) both; None where undefined."""
    assert scores.shape == base.shape, "the same rounds"
    sums = [value_sums(each, measure) for each in (scores, base)]
    if any(weights.sum() <= 0.0 for _, weights in sums):
        return None
    rounds = len(scores)
    columns = np.stack([part for pair in sums for part in pair], axis=1)
    rng, found = np.random.default_rng(SEED), []
    for first in range(0, draws, size := max(1, CHUNK // rounds)):
        now = min(size, draws - first)
        times = rng.multinomial(rounds, np.full(rounds, 1.0 / rounds), size=now)
        found.append(_differences(times @ columns))
    differences = np.concatenate(found)
    low, high = np.quantile(differences[np.isfinite(differences)], [0.025, 0.975]).tolist()
    return Difference(float(_differences(columns.sum(axis=0))), low, high)


def value_sums(scores: Floats, measure: str) -> tuple[Floats, Floats]:
    """(R,) and (R,): what each round adds to the numerator and to the denominator."""
    values, weights = values_and_weights(scores, measure)
    return values * weights, weights


def _differences(sums: Floats) -> Floats:
    """From (..., 4): numerator and denominator of one system, then of the other."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3]
    return found
