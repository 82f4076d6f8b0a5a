"""What a process does at its start: it sets the allocator and the garbage collector, and checks its
ladders file against the ladder events.

A worker allocates and frees some megabytes with every batch. By default the C library returns them
to the system each time, and the system clears them again. It also merges freed small blocks
whenever a large one is wanted: Kafka's client, which allocates seven small blocks and a large one
per event, spent a quarter of its time on that. And Python searches all objects for unreachable
cycles, which our code does not make.
"""

import ctypes
import gc
import uuid
from collections.abc import Callable, Mapping, Sequence

from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import FILE_LIMITS, TEMPLATE, Ladders
from stream_rater.contract.errors import LadderEventsMismatch
from stream_rater.pipeline import ladder_history

MAX_FAST, TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = 1, -1, -2, -3  # Options of glibc's `mallopt`.
KEPT_BYTES = 128 * 2**20  # Free memory per thread that is not returned to the system.
AHEAD_BYTES = 16 * 2**20
LARGEST_BLOCK = 32 * 2**20  # The greatest value that glibc allows.
NONE = 0  # The greatest size in bytes of freed blocks that are not merged at once.
OBJECTS_PER_COLLECTION = 1_000_000
"""Objects allocated and not freed between two searches for cycles. At 700, the default, searching
takes a fifth of a worker's time; at 50,000 it takes a tenth."""
OBJECTS_OF_REQUESTS = 20_000  # The same where requests are answered: libraries may make cycles.


def settle() -> None:
    """Leave what exists now out of later searches for cycles, during which no request is answered.
    Call it once, when the process has started."""
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


def check_ladders(
    ladders: Ladders, ladder_events: ladder_history.LadderEventLog,
    ends: Callable[[], Sequence[int]], committed: Callable[[], Mapping[int, int | None]],
) -> None:  # fmt: skip
    """Check the ladders file against the ladder events, and these against the log of rounds. Then
    announce the file's changes. `ends`, `committed`: the ends and the committed offsets of the
    rounds, by partition. Raises BadConfiguration."""
    ladder_log = ladder_events.read()
    # After a rebuild with a file that lacks a ladder, the ladder has no ladder events. Then it may
    # be missing from the file.
    missing = [each for each in ladder_log.ladders if not ladders.find(each)]
    if missing and TEMPLATE not in ladders.ladders:
        others = {1: "", 2: " (and 1 other)"}.get(len(missing), f" (and {len(missing) - 1} others)")
        raise BadConfiguration(
            f"ladder {missing[0]!r}{others} was rated and is not in the ladders file: its rounds "
            "would be rejected and its ratings stay as they are; put it back, or, to remove it "
            "with its ratings, stop all workers and run `stream-rater rebuild --replace`"
        )
    named = (each for each in ladders.ladders if each != TEMPLATE)
    every = dict.fromkeys((*named, *ladder_log.unknown, FILE_LIMITS))
    histories = dict(zip(every, map(ladders.by_table(ladders.history), every), strict=True))

    def end_of(ladder: str, known: Sequence[int] = ()) -> int:
        known = known or ends()
        return known[partition_of(ladder, len(known))]

    def finished_of(ladder: str) -> int:
        return committed().get(partition_of(ladder, len(ends()))) or 0

    now = ends()
    for ladder, corrections in ladder_log.corrections.items():
        last = max((max(each.place) for each in corrections), default=-1)
        if last >= end_of(ladder, now):
            raise BadConfiguration(str(LadderEventsMismatch(ladder, last)))
    try:
        ladder_history.announce(histories, ladder_events, end_of, uuid.uuid4().hex, finished_of)
    except ladder_history.LadderContradiction as error:
        raise BadConfiguration(str(error)) from None
