"""Types of the arrays that columns are made of."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]  # Hashes of 64 bits.
