"""A worker says in its log when it is ready."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from stream_rater.runtime.service import Service


class Starting(Service):
    """A service without roles, ready when it is asked for the third time."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._roles = []
        self.said: list[tuple[int, str]] = []
        """How often it had been asked, and what it said then."""
        self.asked = 0
        log: Any = SimpleNamespace(info=lambda event: self.said.append((self.asked, event)))
        self.log = log

    def unready(self) -> list[str]:
        """Why not, twice."""
        self.asked += 1
        return ["updater: not opened yet: [1]"] if self.asked < 3 else []


def test_ready_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """When /readyz would say so for the first time, and not before."""
    starting = Starting()
    monkeypatch.setattr(starting._stop, "wait", stop_after(10))
    assert starting._wait_for([]) == []
    assert starting.said == [(3, "ready")]


def stop_after(slices: int) -> Any:
    """The event's `wait`, which ends the loop after so many slices."""
    left = iter(range(slices))
    return lambda _: next(left, None) is None
