"""Is a difference between two systems more than noise? The paired bootstrap over rounds.

Both systems are scored on the same rounds. These are drawn again with repetition, the same draw for
both, and the interval holds the middle 95 % of the differences that the draws give: an interval
with 0 in it says that other rounds of the same kind might have turned the difference around.

More than MOST_DRAWN rounds are drawn in groups of rounds that follow each other: it takes less
time, and where rounds are independent the interval is about as wide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel
from stream_rater.evaluation.accuracy import values_and_weights

DRAWS = 2000
MOST_DRAWN = 20_000
CHUNK = 1 << 20
"""Counts held at once."""

SEED = np.uint64(1)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""SplitMix64's constants."""


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
    columns = _grouped(np.stack([part for name in defined for part in sums[name]], axis=1))
    drawn = np.concatenate([times @ columns for times in _draws(len(columns), draws)])
    for i, name in enumerate(defined):
        own = slice(4 * i, 4 * i + 4)
        gaps = _differences(drawn[:, own])
        low, high = np.quantile(gaps[np.isfinite(gaps)], [0.025, 0.975]).tolist()
        found[name] = Difference(float(_differences(columns[:, own].sum(axis=0))), low, high)
    return found


def _grouped(columns: Floats) -> Floats:
    """Sums over groups of rows that follow each other, so that there are MOST_DRAWN at most."""
    size = -(-len(columns) // MOST_DRAWN)
    if size <= 1:
        return columns
    found: Floats = np.add.reduceat(columns, np.arange(0, len(columns), size))
    return found


@kernel
def _draw(first: int, times: Floats) -> None:
    """Write how often each of R rounds is drawn in R draws with repetition, for each row of `times`
    (n, R). The rows are those from number `first` on, whatever n is.

    Each draw is half of a number that SplitMix64 makes of the number of the draw (Steele, Lea and
    Flood 2014), as a fraction of R: so it needs no state.
    """
    n, rounds = times.shape
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    counts = np.empty(rounds, np.uint32)
    for row in range(n):
        counts[:] = 0
        pairs = (rounds + 1) // 2
        for pair in range(pairs):
            z = np.uint64((first + row) * pairs + pair + 1) * GOLDEN + SEED
            z = (z ^ (z >> np.uint64(30))) * MIX_1
            z = (z ^ (z >> np.uint64(27))) * MIX_2
            z ^= z >> np.uint64(31)
            counts[int(((z & low) * np.uint64(rounds)) >> half)] += np.uint32(1)
            if 2 * pair + 1 < rounds:
                counts[int(((z >> half) * np.uint64(rounds)) >> half)] += np.uint32(1)
        for r in range(rounds):
            times[row, r] = counts[r]


def _draws(rounds: int, draws: int) -> Iterator[Floats]:
    """(some, R) how often each round is drawn, until there were so many draws of R rounds each.
    What was given before is overwritten."""
    times = np.empty((min(draws, max(1, CHUNK // rounds)), rounds))
    for first in range(0, draws, len(times)):
        some = times[: draws - first]
        _draw(first, some)
        yield some


def value_sums(scores: Floats, measure: str) -> tuple[Floats, Floats]:
    """(R,) and (R,): what each round adds to the numerator and to the denominator."""
    values, weights = values_and_weights(scores, measure)
    return values * weights, weights


def _differences(sums: Floats) -> Floats:
    """From (..., 4): numerator and denominator of one system, then of the other."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3]
    return found
