"""Ranges of rows: columns whose rows belong to groups of different sizes."""

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.kernels import kernel


@kernel
def bounds(sizes: Ints) -> Ints:
    """(n + 1,) the first row of each of n consecutive groups, and the end of the last one."""
    found = np.zeros(len(sizes) + 1, np.int64)
    for i in range(len(sizes)):
        found[i + 1] = found[i] + sizes[i]
    return found


@kernel
def spread(firsts: Ints, sizes: Ints) -> Ints:
    """The numbers firsts[i], firsts[i] + 1, … (sizes[i] of them), for each i in turn."""
    out = np.empty(sizes.sum(), np.int64)
    at = 0
    for i in range(len(sizes)):
        for k in range(sizes[i]):
            out[at + k] = firsts[i] + k
        at += sizes[i]
    return out
