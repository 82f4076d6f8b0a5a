"""Follows the parameters that predict best as rounds come in, since those tuned on first rounds, of
newcomers, need not suit later ones. A handful of tried points, good and unlike each other, rate all
rounds; each of PARTS parts of the scored rounds is predicted by the point with the least total loss
before the part plus the prior's penalty, the first part by that of `validation`. So no round has a
say in its own prediction. A point may join later (`Candidate.since`)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints

PARTS = 30  # The number of parts of the rounds that are scored.
CANDIDATES = 10
"""At most so many are followed from the first part on; the first guess and the tuned point are."""
APART = 0.12  # Two of the other points are at least so far from each other, in the unit cube.


def distinct(
    wanted: Sequence[Sequence[float]], others: Iterable[Sequence[float]], count: int = CANDIDATES,
    apart: float = APART,
) -> list[list[float]]:  # fmt: skip
    """The `wanted`, each once, and up to `count` the first `others` `apart` from all before."""
    found: list[list[float]] = []
    for point in wanted:
        if list(point) not in found:
            found.append(list(point))
    for point in others:
        if len(found) >= count:
            break
        if min(float(np.linalg.norm(np.subtract(point, each))) for each in found) >= apart:
            found.append(list(point))
    return found


class Candidate(NamedTuple):
    """A point that is followed."""

    point: Sequence[float]
    cost: float
    """The total loss of the rounds before those that are scored, and the prior's penalty."""
    losses: Floats  # (R,) the losses of the rounds that are scored, in the order of the season.
    since: int = 0
    """The index of the first round that it may predict: it was found on the rounds before it."""


def followed(candidates: Sequence[Candidate], first: int, numbers: Ints) -> Ints:
    """(R,) the index of each round's candidate, `first` for the first part. `numbers` ascend."""
    chosen = np.full(len(numbers), first)
    sums = np.cumsum([each.losses for each in candidates], axis=1)
    costs = np.array([each.cost for each in candidates])
    since = np.array([each.since for each in candidates])
    for start, end in parts_of(numbers)[1:]:
        total = np.where(since <= start, costs + sums[:, start - 1], np.inf)
        chosen[start:end] = np.argmin(total)
    return chosen


def parts_of(numbers: Ints) -> list[tuple[int, int]]:
    """First index of each part, and that after its last; rounds of one number stay together."""
    if not len(numbers):
        return []
    wanted = np.linspace(0, len(numbers), PARTS + 1)[:-1].astype(np.int64)
    starts = np.unique(np.searchsorted(numbers, numbers[wanted]))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(numbers)], strict=True))
