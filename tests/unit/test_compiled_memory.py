"""What kernels allocate they free: pieces that count no references could leak, or free twice."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from numba.core import runtime as numba_runtime

from stream_rater.config.ladders import Ladder, any_ladder
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.pool import Pool
from stream_rater.runtime import selfcheck
from tests.rounds import Reader

RUNTIME: Any = numba_runtime
"""Numba's runtime, whose counters it does not export."""

SIZES = (2, 7, 7, 33, 60, 2000)
"""Each goes another way through stage 1."""


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    """Allocations are counted during the test."""
    RUNTIME._nrt_python.memsys_enable_stats()
    yield
    RUNTIME._nrt_python.memsys_disable_stats()


def in_use() -> int:
    """Pieces of memory that are allocated and not freed."""
    stats = RUNTIME.rtsys.get_allocation_stats()
    return int(stats.alloc - stats.free)


def rate(config: RatingConfig) -> None:
    """Some rounds with ties, a team and who did not finish."""
    reader, pool = Reader(any_ladder(config)), Pool(Ladder(rating=config))
    for number, size in enumerate(SIZES):
        pool.rate(reader.read(selfcheck._round(number, max(size, 3)), received_s=math.inf), number)


@pytest.mark.parametrize("history", [4, "full"])
@pytest.mark.parametrize("config", selfcheck.SYSTEMS, ids=lambda each: type(each).__name__)
def test_nothing_leaks(config: RatingConfig, history: int | str) -> None:
    """As many pieces are freed as were allocated, by every system."""
    config = msgspec.structs.replace(config, history=history)
    rate(config)  # what is kept for good
    before = in_use()
    rate(config)
    assert in_use() == before
