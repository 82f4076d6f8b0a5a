"""What ListOffsets says while a partition has no leader is no offset."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from stream_rater.adapters.kafka.topics import offset_of
from stream_rater.contract.errors import LogTrouble


def delivered(offset: int) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(SimpleNamespace(offset=offset))
    return future


def test_an_offset_is_one() -> None:
    """Zero, too: an empty partition begins and ends there."""
    assert [offset_of(delivered(offset)) for offset in (0, 7)] == [0, 7]


@pytest.mark.parametrize("offset", [-1, -1001])
def test_no_offset_is_trouble(offset: int) -> None:
    """Seen with three brokers of which one was killed (`make chaos`): taken for the end of the log,
    it made a worker refuse its shard."""
    with pytest.raises(LogTrouble, match="leader"):
        offset_of(delivered(offset))
