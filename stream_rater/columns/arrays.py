"""Types of the arrays that columns are made of, and ranges of their rows: columns whose rows belong
to groups of different sizes."""

import numpy as np
import numpy.typing as npt

from stream_rater.columns.kernels import kernel

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]  # Hashes of 64 bits.


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
