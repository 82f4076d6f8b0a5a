"""The paired bootstrap over rounds, which shows whether two systems differ by more than noise.

Both systems are scored on the same rounds. The rounds are resampled with replacement, in the same
way for both systems. The interval contains the middle 95 % of the differences of these samples. If
it contains 0, other rounds of the same kind might have reversed the difference.

More than MOST_RESAMPLED rounds are resampled in groups of consecutive rounds. This takes less time,
and where rounds are independent the interval is about as wide.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel
from stream_rater.evaluation.accuracy import values_and_weights
from stream_rater.evaluation.measures import Difference, better

SAMPLES = 2000
MOST_RESAMPLED = 20_000
CHUNK = 1 << 20  # The number of counts in memory at the same time.

SEED = np.uint64(1)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""The constants of SplitMix64."""

VERDICTS = ("better", "no difference", "worse")


def verdict(measure: str, difference: Difference) -> str:
    """Classify a difference: one of VERDICTS, which describes the first of the two systems."""
    if difference.noise:
        return "no difference"
    return "better" if difference.mean * better(measure) > 0.0 else "worse"


def difference(
    scores: Floats, base: Floats, measure: str, samples: int = SAMPLES
) -> Difference | None:
    """The measure by `scores` minus the measure by `base`, both (R, len(FIELDS)). It is None if
    the measure is undefined for one of them, because all its weights are 0."""
    return differences(scores, base, [measure], samples)[measure]


def differences(
    scores: Floats, base: Floats, measures: Sequence[str], samples: int = SAMPLES
) -> dict[str, Difference | None]:
    """The `difference` of each measure. All share the same samples, which take most of the time."""
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
    drawn = np.concatenate([times @ columns for times in _resample(len(columns), samples)])
    for i, name in enumerate(defined):
        own = slice(4 * i, 4 * i + 4)
        gaps = _differences(drawn[:, own])
        low, high = np.quantile(gaps[np.isfinite(gaps)], [0.025, 0.975]).tolist()
        found[name] = Difference(float(_differences(columns[:, own].sum(axis=0))), low, high)
    return found


def _grouped(columns: Floats) -> Floats:
    """Sums over groups of consecutive rows, so that there are MOST_RESAMPLED rows at most."""
    size = -(-len(columns) // MOST_RESAMPLED)
    if size <= 1:
        return columns
    found: Floats = np.add.reduceat(columns, np.arange(0, len(columns), size))
    return found


@kernel
def _draw(first: int, times: Floats) -> None:
    """Draw n samples, and write how often each has each of the R rounds to `times` (n, R). A sample
    is R draws with replacement. The samples have the numbers from `first` on, and each depends on
    its number only, not on n. A draw needs no state: SplitMix64 (Steele, Lea and Flood 2014) hashes
    the number of a pair of draws, and each half of the hash, scaled to R, is a draw."""
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


def _resample(rounds: int, samples: int) -> Iterator[Floats]:
    """Yield arrays (n, R): how often each of n samples has each of R rounds. They have `samples`
    rows in all. Each array overwrites the one before."""
    times = np.empty((min(samples, max(1, CHUNK // rounds)), rounds))
    for first in range(0, samples, len(times)):
        some = times[: samples - first]
        _draw(first, some)
        yield some


def value_sums(scores: Floats, measure: str) -> tuple[Floats, Floats]:
    """(R,) each round's terms in the numerator of the average, and (R,) in the denominator."""
    values, weights = values_and_weights(scores, measure)
    return values * weights, weights


def _differences(sums: Floats) -> Floats:
    """(...) the differences between the averages of two systems. `sums` (..., 4) has numerator and
    denominator of the first system, then those of the second."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3]
    return found
