"""Finds out when a role works again after trouble with Kafka or Redis."""

from collections.abc import Callable
from typing import Any

from stream_rater.pipeline.ports import Effect, Poll

QUIET_S = 10.0
"""The time without trouble after which a role counts as working again in any case."""


class Recovery:
    """Watches a role's effects, and reports once when it works again and how long it did not.

    It works again once an effect of the kind that failed last has succeeded, and a poll that reads
    has succeeded after it. A poll alone proves nothing: Kafka answers while Redis is down.
    """

    def __init__(self, clock: Callable[[], float], report: Callable[[float], None]) -> None:
        self._clock = clock
        self._report = report
        self._since_s: float | None = None
        self._last_s = 0.0
        self._failing: type | None = None

    def failed(self, effect: Effect[Any]) -> None:
        """Record that this effect failed."""
        self._last_s = self._clock()
        if self._since_s is None:
            self._since_s = self._last_s
        self._failing = type(effect)

    def succeeded(self, effect: Effect[Any]) -> None:
        """Record that this effect succeeded."""
        if self._since_s is None:
            return
        if type(effect) is self._failing:
            self._failing = None
        reads = isinstance(effect, Poll) and not effect.no_fetch
        now_s = self._clock()
        if reads and (self._failing is None or now_s - self._last_s >= QUIET_S):
            self._report(now_s - self._since_s)
            self._since_s = self._failing = None
