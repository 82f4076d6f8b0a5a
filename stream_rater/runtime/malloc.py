"""Settings of the C library's allocator and of the garbage collector for a worker.

A worker allocates and frees some megabytes with every batch. By default the C library returns them
to the system each time, and the system clears them again. It also keeps freed small blocks in
lists, and merges all of them whenever a large block is wanted: Kafka's client, which allocates
seven small blocks and a large one per event, spent a quarter of its time on that. In addition,
Python searches all objects for unreachable cycles, which our code does not make.
"""

import ctypes
import gc

MAX_FAST, TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = 1, -1, -2, -3
"""The options of glibc's `mallopt`."""
KEPT_BYTES = 128 * 2**20  # Free memory per thread that is not returned to the system.
AHEAD_BYTES = 16 * 2**20
LARGEST_BLOCK = 32 * 2**20  # The greatest value that glibc allows.
NONE = 0  # The greatest size in bytes of freed blocks that are not merged at once.

OBJECTS_PER_COLLECTION = 1_000_000
"""Objects allocated and not freed between two searches for cycles. At 700, the default, searching
takes a fifth of a worker's time, at 50,000 a tenth."""

OBJECTS_OF_REQUESTS = 20_000
"""The same of a process that answers requests. It is smaller, because its libraries may make
cycles."""


def settle() -> None:
    """Leave what exists now out of all later searches for cycles. Call it once, when a process that
    answers requests has started: each search stops all answers."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(max(OBJECTS_OF_REQUESTS, gc.get_threshold()[0]))


def configure() -> None:
    """Apply the settings of a worker to this process."""
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries lack it
        for option, size in (
            (MAX_FAST, NONE), (TRIM_THRESHOLD, KEPT_BYTES), (TOP_PAD, AHEAD_BYTES),
            (MMAP_THRESHOLD, LARGEST_BLOCK),
        ):  # fmt: skip
            mallopt(option, size)
