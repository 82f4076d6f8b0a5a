"""Arrays in whole vectors of a processor, each of which lies within one line of its cache.

A vector across two lines is two accesses, and what is left over of a loop after its last whole
vector goes one by one.
"""

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel

VECTOR = 8
"""Floats of a cache line, and of the widest vector."""


@kernel
def whole(n: int) -> int:
    """n floats, filled up to whole vectors."""
    return (n + VECTOR - 1) // VECTOR * VECTOR


@kernel
def aligned(n: int) -> Floats:
    """(n,) floats, not set, the first of which begins a cache line."""
    room = np.empty(n + VECTOR - 1)
    first = -(room.ctypes.data // 8) % VECTOR
    return room[first : first + n]
