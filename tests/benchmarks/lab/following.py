"""Follows the parameters that predict best as rounds come in.

Parameters that were tuned on the first rounds of a game need not suit its later rounds: nearly
everyone there is a newcomer, and pools change. So a handful of points that the search tried, unlike
each other and good, rate all rounds side by side. The rounds that are scored are divided into PARTS
parts of equal count. Each part is predicted by the point with the least loss until then:

    total loss of the rounds before the part + the prior's penalty

A point's choice depends on earlier rounds alone, so no round has a say in its own prediction. The
first part is predicted by the point that `validation` chose. This repeats what an operator can do:
tune again from time to time, and rate all rounds again by what was found.

A point may join later, when a search on the rounds so far has found it (`Candidate.since`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints

PARTS = 30  # The number of parts of the rounds that are scored.
CANDIDATES = 10
"""The most points that are followed from the first part on. They include the first guess and the
tuned point."""
APART = 0.12  # Two of the other points are at least so far from each other, in the unit cube.


def distinct(
    wanted: Sequence[Sequence[float]], others: Iterable[Sequence[float]], count: int = CANDIDATES,
    apart: float = APART,
) -> list[list[float]]:  # fmt: skip
    """The `wanted` points, each once, and as many of the `others` as make up `count` points. The
    first ones of these are taken that are `apart` from all points taken before."""
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
    """(R,) the index of the candidate that predicts each round. The candidate `first` predicts the
    first part. `numbers` (R,) are the numbers of the rounds in the season, in ascending order:
    rounds of one number are in the same part."""
    chosen = np.full(len(numbers), first)
    sums = np.cumsum([each.losses for each in candidates], axis=1)
    costs = np.array([each.cost for each in candidates])
    since = np.array([each.since for each in candidates])
    for start, end in parts_of(numbers)[1:]:
        total = np.where(since <= start, costs + sums[:, start - 1], np.inf)
        chosen[start:end] = np.argmin(total)
    return chosen


def parts_of(numbers: Ints) -> list[tuple[int, int]]:
    """The first index of each part, and the index after its last. `numbers` (R,) are in ascending
    order; rounds of one number are in the same part."""
    if not len(numbers):
        return []
    wanted = np.linspace(0, len(numbers), PARTS + 1)[:-1].astype(np.int64)
    starts = np.unique(np.searchsorted(numbers, numbers[wanted]))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(numbers)], strict=True))
