"""Entries of a round by rating, and how many pairs of them stand the other way round in it.

Both take time proportional to the number of entries, for what rounds are like. Ratings are dealt
into as many buckets as there are entries; a bucket into which many fell is sorted by merging, so
that none of them takes more than n log n steps. Inversions are counted on two levels: of each LANES
neighbours by rating one vector of counters, and one counter for all of them. To note an entry is to
add one to all in front of it, which takes a few instructions on each level (up to a thousand for a
million entries), and to count is to look up two numbers.
"""

import numpy as np
import numpy.typing as npt

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import giving, inlined, kernel
from stream_rater.rating.model import Places

Counters = npt.NDArray[np.int32]
Lanes = npt.NDArray[np.uint8]

LANES = 64
"""Neighbours that are counted together: so many counters of a byte are one vector."""

FEW = 24
"""Up to so many in a bucket are sorted by insertion."""

LEAST = 1e-200
"""No difference of ratings is taken to be smaller: 1 over it is finite."""


@inlined
def _insert(keys: Floats, at: Ints, first: int, end: int) -> None:
    """Sort [first, end) by falling key, stably."""
    for i in range(first + 1, end):
        key, index = keys[i], at[i]
        j = i
        while j > first and keys[j - 1] < key:
            keys[j], at[j] = keys[j - 1], at[j - 1]
            j -= 1
        keys[j], at[j] = key, index


@kernel
def sort_by_merging(keys: Floats, at: Ints) -> None:
    """Sort by falling key, stably, and `at` along with it."""
    n, width = len(keys), FEW
    for first in range(0, n, width):
        _insert(keys, at, first, min(first + width, n))
    left, left_at = np.empty(n), np.empty(n, np.int64)
    while width < n:
        for first in range(0, n - width, 2 * width):
            middle, end = first + width, min(first + 2 * width, n)
            i, j = 0, middle
            left[:width], left_at[:width] = keys[first:middle], at[first:middle]
            for k in range(first, end):
                if i < width and (j == end or left[i] >= keys[j]):
                    keys[k], at[k] = left[i], left_at[i]
                    i += 1
                elif i < width:
                    keys[k], at[k] = keys[j], at[j]
                    j += 1
        width *= 2


@giving
def _deal(mu: Floats, keys: Floats, at: Ints) -> Ints:
    """Ratings into `keys`, entries into `at`, by buckets, in which they stay in order.

    Returns where each bucket ends; the first has the highest ratings.
    """
    n = len(mu)
    low = high = mu[0]
    for i in range(n):
        low, high = min(low, mu[i]), max(high, mu[i])
    scale = (n - 1) / max(high - low, LEAST)
    bucket, ends = np.empty(n, np.int64), np.zeros(n + 1, np.int64)
    for i in range(n):
        bucket[i] = int((high - mu[i]) * scale)
    for i in range(n):
        ends[bucket[i] + 1] += 1
    for k in range(n):
        ends[k + 1] += ends[k]
    for i in range(n):
        to = ends[bucket[i]]
        keys[to], at[to] = mu[i], i
        ends[bucket[i]] += 1
    return ends[:n]


@kernel
def by_rating(mu: Floats) -> Ints:
    """(n,) entries by falling rating; those of equal ones stay in order."""
    n = len(mu)
    keys, at = np.empty(n), np.empty(n, np.int64)
    first = 0
    for end in _deal(mu, keys, at):
        if end - first > FEW:
            sort_by_merging(keys[first:end], at[first:end])
        first = end
    _insert(keys, at, 0, n)
    return at


@inlined
def _note(position: int, near: Lanes, far: Counters) -> None:
    """Count an entry among those behind all that are in front of its position."""
    block = position // LANES
    own, others = position - block * LANES, near[block * LANES : (block + 1) * LANES]
    for k in range(LANES):
        others[k] += k < own
    for k in range(len(far)):
        far[k] += k < block


@kernel
def inversions(place: Places, position: Ints) -> int:
    """Pairs not tied in place that stand the other way in `position`, a permutation of [0, n).

    Entries in order of place.
    """
    n, first, total = len(place), 0, 0
    blocks = n // LANES + 1
    far, near = np.zeros((blocks + 15) // 16 * 16, np.int32), np.zeros(LANES * blocks, np.uint8)
    for i in range(n):
        if place[i] != place[first]:
            for j in range(first, i):
                _note(position[j], near, far)
            first = i
        total += far[position[i] // LANES] + near[position[i]]
    return total
