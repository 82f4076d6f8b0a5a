"""Sorts the entries of a round by rating, and counts inversions between ratings and places.

Both take time proportional to the number of entries for typical rounds. Ratings are distributed
into as many buckets as there are entries. A bucket with many entries is sorted by merging, so that
the sort never takes more than order n log n steps. Inversions are counted on two levels: one vector
of counters for each block of LANES neighbours by rating, and one counter for each block. Recording
an entry adds one to all counters in front of it, which takes few instructions on each level (up to
a thousand for a million entries). The count for an entry is the sum of two counters.
"""

import numpy as np
import numpy.typing as npt

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import giving, inlined, kernel
from stream_rater.rating.model import Places

Counters = npt.NDArray[np.int32]
Lanes = npt.NDArray[np.uint8]

LANES = 64  # The number of neighbours in a block. A vector has this many one-byte counters.
FEW = 24  # Buckets of up to this many entries are sorted by insertion.
LEAST = 1e-200  # The least range of ratings that is assumed, so that its reciprocal is finite.


@inlined
def _insert(keys: Floats, at: Ints, first: int, end: int) -> None:
    """Sort [first, end) of `keys` by descending key, stably, and `at` along with it."""
    for i in range(first + 1, end):
        key, index = keys[i], at[i]
        j = i
        while j > first and keys[j - 1] < key:
            keys[j], at[j] = keys[j - 1], at[j - 1]
            j -= 1
        keys[j], at[j] = key, index


@kernel
def sort_by_merging(keys: Floats, at: Ints) -> None:
    """Sort `keys` in descending order, stably, and `at` along with it."""
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
    """Write the ratings to `keys` and the entries to `at`, bucket by bucket. Entries of a bucket
    keep their order. Returns (n,) the end of each bucket. The first bucket has the highest
    ratings."""
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
    """(n,) the entries by descending rating. Entries of equal rating keep their order."""
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
    """Add one to the counters of all positions in front of this one."""
    block = position // LANES
    own, others = position - block * LANES, near[block * LANES : (block + 1) * LANES]
    for k in range(LANES):
        others[k] += k < own
    for k in range(len(far)):
        far[k] += k < block


@kernel
def inversions(place: Places, position: Ints) -> int:
    """The number of pairs that do not tie in place and whose order by `position` is the opposite of
    their order by place. `position` is a permutation of [0, n). Entries come in order of place."""
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
