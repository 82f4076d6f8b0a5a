"""Arrays that consist of whole vectors, aligned to cache lines.

A vector across two cache lines costs two accesses, and the rest of a loop after its last whole
vector runs one element at a time.
"""

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel

VECTOR = 8
"""The number of floats in a cache line, and in the widest vector."""


@kernel
def whole(n: int) -> int:
    """n rounded up to whole vectors."""
    return (n + VECTOR - 1) // VECTOR * VECTOR


@kernel
def aligned(n: int) -> Floats:
    """(n,) uninitialised floats, the first of which begins a cache line."""
    room = np.empty(n + VECTOR - 1)
    first = -(room.ctypes.data // 8) % VECTOR
    return room[first : first + n]
