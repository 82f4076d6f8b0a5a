"""Stages: items come in order, from a thread, and so do failures."""

import itertools
import threading
from collections.abc import Iterator

import pytest

from stream_rater.replay.read_ahead import MOST_AHEAD, prefetched
from stream_rater.rounds.validation import Invalid
from tests.builders.cases import cases
from tests.waits import HANGS_S


def test_items_come_as_they_were_made() -> None:
    """In order, all of them. A stage begins before anybody takes an item, and is not far ahead: the
    queue has a bound."""
    assert list(prefetched(range(10 * MOST_AHEAD))) == list(range(10 * MOST_AHEAD))
    began = threading.Event()

    def items() -> Iterator[int]:
        began.set()
        yield 1

    stage = prefetched(items())
    assert began.wait(HANGS_S) and list(stage) == [1]
    made = itertools.count()
    ahead = prefetched(iter(made.__next__, None))
    assert next(ahead) == 0
    ahead.close()  # type: ignore[attr-defined]
    assert next(made) <= MOST_AHEAD + 3


@cases("error", [OSError("unreadable"), Invalid("bad-id", "unreadable")])
def test_a_failure_is_raised_where_the_items_are_used(error: Exception) -> None:
    """After those made before it, with its message."""

    def failing() -> Iterator[int]:
        yield 1
        raise error

    items = prefetched(failing())
    assert next(items) == 1
    with pytest.raises(type(error), match=r"^unreadable$"):
        next(items)
