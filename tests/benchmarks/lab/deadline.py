"""Bounds the time that a system may take on a game."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stream_rater.evaluation.fits import System
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import Run
from stream_rater.rating.systems.common import Dimension


class OutOfTime(Exception):
    """A system did not finish in time."""


@dataclass
class Bounded:
    """A system that may take so much of this thread's processor time, looked at each session."""

    system: System
    seconds: float
    now: Callable[[], float] = time.thread_time
    _until_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._until_s = self.now() + self.seconds

    @property
    def name(self) -> str:
        """The name of the system."""
        return self.system.name

    @property
    def space(self) -> tuple[Dimension, ...]:
        """The dimensions that can be tuned."""
        return self.system.space

    def config(self, values: Mapping[str, float]) -> Any:
        """The configuration with these values of the dimensions."""
        return self.system.config(values)

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        """Rate a season with this configuration. Raises OutOfTime."""
        return self.system.play(self._in_time(sessions), config)

    def described(self, config: Any) -> dict[str, Any]:
        """The configuration as a table for a report."""
        return self.system.described(config)

    def _in_time(self, sessions: Iterable[Session]) -> Iterator[Session]:
        for session in sessions:
            if self.now() > self._until_s:
                raise OutOfTime(f"{self.name} did not finish within {self.seconds:g} s")
            yield session
