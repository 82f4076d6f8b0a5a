"""Where entries stand: tie groups as positions in the order of the round."""

import numpy as np

from stream_rater.rating.compiled import kernel
from stream_rater.rating.model import Ints, Places


@kernel
def tie_bounds(place: Places) -> tuple[Ints, Ints]:
    """(lo, hi): 0-based first and last position of each entry's tie group. Unfinished ones tie."""
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
