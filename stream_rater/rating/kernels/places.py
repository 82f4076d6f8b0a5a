"""Tie groups as positions in the order of a round, and the scores that follow from them."""

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.model import Places


@kernel
def tie_bounds(place: Places) -> tuple[Ints, Ints]:
    """(lo, hi), each (n,): the 0-based first and last position of each entry's tie group. Entries
    that did not finish tie with each other."""
    n = len(place)
    lo, hi = np.empty(n, np.int64), np.empty(n, np.int64)
    first = 0
    while first < n:
        end = first + 1
        while end < n and place[end] == place[first]:
            end += 1
        lo[first:end] = first
        hi[first:end] = end - 1
        first = end
    return lo, hi


@kernel
def scores(lo: Ints, hi: Ints, weight: Floats) -> tuple[Floats, float]:
    """(n,) the weight of all entries that each entry beat, plus half that of its tie group; and the
    total weight."""
    n = len(weight)
    found, worse = np.empty(n), 0.0
    end = n
    while end > 0:
        first, tied = lo[end - 1], 0.0
        for j in range(first, end):
            tied += weight[j]
        found[first:end] = worse + 0.5 * tied
        worse += tied
        end = first
    return found, worse
