"""What a worker asks of the memory beneath Python: that it keep what it will need again.

A worker makes and drops some megabytes with every batch. By default the C library gives them back
to the system each time and has them cleared again. It puts small pieces aside as they are freed,
and whenever a large one is wanted joins all that were put aside: Kafka's client, which asks for
seven small pieces and a large one an event, waited for that a quarter of its time. And Python looks
through all that waits for unreachable cycles, which our code does not make.
"""

import ctypes
import gc

SET_ASIDE, TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = 1, -1, -2, -3
"""Of glibc's `mallopt`."""
KEPT_BYTES = 128 * 2**20
"""Free memory that is not given back, for each thread."""
AHEAD_BYTES = 16 * 2**20
LARGEST_PIECE = 32 * 2**20
"""More glibc does not allow."""
NONE = 0
"""Pieces of how many bytes, at most, are put aside and not joined at once."""

OFTEN_ENOUGH = 1_000_000
"""Objects made, and not freed, between two looks for cycles. At 700, the default, they are a fifth
of a worker's time, at 50,000 a tenth."""


def keep() -> None:
    """From now on, in this process."""
    gc.set_threshold(OFTEN_ENOUGH)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # another C library has no such thing
        for option, size in (
            (SET_ASIDE, NONE), (TRIM_THRESHOLD, KEPT_BYTES), (TOP_PAD, AHEAD_BYTES),
            (MMAP_THRESHOLD, LARGEST_PIECE),
        ):  # fmt: skip
            mallopt(option, size)
