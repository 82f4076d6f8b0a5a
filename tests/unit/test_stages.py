"""Stages: items come in order, from a thread or a process, and so do failures."""

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator

import pytest

from stream_rater.lab.stages import AHEAD, ahead, elsewhere
from stream_rater.standings import Invalid

WAYS = [lambda make: ahead(make()), elsewhere]
Way = Callable[[Callable[[], Iterator[object]]], Iterator[object]]

forks = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is a thread")


@pytest.mark.parametrize("way", WAYS, ids=["thread", "process"])
def test_items_come_as_they_were_made(way: Way) -> None:
    """In order, all of them, however many."""
    assert list(way(lambda: iter(range(10 * AHEAD)))) == list(range(10 * AHEAD))


@pytest.mark.parametrize("way", WAYS, ids=["thread", "process"])
@pytest.mark.parametrize("error", [OSError("unreadable"), Invalid("bad-id", "unreadable")])
def test_a_failure_is_raised_where_the_items_are_used(way: Way, error: Exception) -> None:
    """After those made before it, with its message."""

    def failing() -> Iterator[int]:
        yield 1
        raise error

    items = way(failing)
    assert next(items) == 1
    with pytest.raises(type(error), match=r"^unreadable$"):
        next(items)


def test_a_stage_is_not_far_ahead() -> None:
    """What nobody takes is not made: the queue has a bound."""
    made = itertools.count()
    items = ahead(iter(made.__next__, None))
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert next(made) <= AHEAD + 3


@forks
def test_a_process_that_nobody_listens_to_ends() -> None:
    """However many items it still has."""
    items = elsewhere(lambda: ((os.getpid(), number) for number in itertools.count()))
    pid, _ = next(items)
    items.close()  # type: ignore[attr-defined]  # joins it
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@forks
def test_a_process_that_is_killed_is_missed() -> None:
    """Its items do not just end early."""

    def killed() -> Iterator[int]:
        yield 1
        os.kill(os.getpid(), signal.SIGKILL)

    items = elsewhere(killed)
    assert next(items) == 1
    with pytest.raises(EOFError, match="was ended"):
        next(items)
