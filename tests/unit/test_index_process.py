"""The process of the follower: when the index is too old, and how the process ends."""

import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stream_rater.contract.errors import Unrecoverable
from stream_rater.index import folder
from stream_rater.index.follower import Watcher
from stream_rater.index.process import IndexProcess
from tests.builders.indexes import Index, an_event


def test_a_process_that_lags_is_not_ready(tmp_path: Path) -> None:
    """From a lag above the bound on, until it is at most half of it."""
    nothing: Any = None
    process = IndexProcess(tmp_path / "index", nothing, Watcher(), 10)
    found = []
    for lag in (0, 10, 11, 6, 5, 10, 11):
        process.lag = lag
        found.append(bool(process.unready()))
    assert found == [False, False, True, True, False, False, True]
    assert process.unready() == ["the index is 11 events behind"]
    process.end()
    process = IndexProcess(tmp_path / "index", nothing, Watcher())
    process.lag = 1_000_000
    assert process.unready() == []
    process.end()


def killed_by(number: int, _: Watcher) -> Any:
    """In the place of what makes a follower: the process ends by a signal."""
    os.kill(os.getpid(), number)


class Killed:
    """`killed_by` a signal, so that it can be sent to the process."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, watcher: Watcher) -> Any:
        return killed_by(self._number, watcher)


@pytest.mark.parametrize("number", [signal.SIGBUS, signal.SIGSEGV, signal.SIGKILL])
def test_the_signal_of_a_damaged_map(tmp_path: Path, number: int) -> None:
    """After it the index is made again; after a kill a first reading must be able to go on."""
    where = tmp_path / "index"
    with closing(Index(where)) as index:
        index.apply([an_event("ann", 1)])
    process = IndexProcess(where, Killed(number), Watcher())
    with pytest.raises(Unrecoverable, match=f"ended with exit code -{number.numerator}"):
        process.listen()
    process.end()
    assert (folder.trusted(where) is None) == (number != signal.SIGKILL)
