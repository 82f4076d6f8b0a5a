"""Is a difference between two systems more than noise? The paired bootstrap over rounds.

Both systems are scored on the same rounds. These are drawn again with repetition, the same draw for
both, and the interval holds the middle 95 % of the differences that the draws give: an interval
with 0 in it says that other rounds of the same kind might have turned the difference around.
"""

from collections.abc import Iterator, Sequence
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
    return differences(scores, base, [measure], draws)[measure]


def differences(
    scores: Floats, base: Floats, measures: Sequence[str], draws: int = DRAWS
) -> dict[str, Difference | None]:
    """The same of several measures, by the same draws: drawing takes most of the time."""
    assert scores.shape == base.shape, "the same rounds"
    sums = {
        measure: [part for each in (scores, base) for part in value_sums(each, measure)]
        for measure in measures
    }
    defined = [name for name, (_, one, _, other) in sums.items() if min(one.sum(), other.sum()) > 0]
    found: dict[str, Difference | None] = dict.fromkeys(measures)
    if not defined:
        return found
    columns = np.stack([part for name in defined for part in sums[name]], axis=1)
    drawn = np.concatenate([times @ columns for times in _draws(len(scores), draws)])
    for i, name in enumerate(defined):
        own = slice(4 * i, 4 * i + 4)
        gaps = _differences(drawn[:, own])
        low, high = np.quantile(gaps[np.isfinite(gaps)], [0.025, 0.975]).tolist()
        found[name] = Difference(float(_differences(columns[:, own].sum(axis=0))), low, high)
    return found


def _draws(rounds: int, draws: int) -> Iterator[Floats]:
    """(some, R) how often each round is drawn, until there were so many draws of R rounds each."""
    rng = np.random.default_rng(SEED)
    for first in range(0, draws, size := max(1, CHUNK // rounds)):
        now = min(size, draws - first)
        drawn = rng.integers(0, rounds, (now, rounds)) + rounds * np.arange(now)[:, np.newaxis]
        times = np.bincount(drawn.ravel(), minlength=now * rounds).reshape(now, rounds)
        yield times.astype(np.float64)


def value_sums(scores: Floats, measure: str) -> tuple[Floats, Floats]:
    """(R,) and (R,): what each round adds to the numerator and to the denominator."""
    values, weights = values_and_weights(scores, measure)
    return values * weights, weights


def _differences(sums: Floats) -> Floats:
    """From (..., 4): numerator and denominator of one system, then of the other."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3]
    return found
