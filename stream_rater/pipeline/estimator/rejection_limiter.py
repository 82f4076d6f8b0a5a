"""Limits rejections: it names the partitions to pause because too many of their records are
invalid.

Each partition has a leaky bucket. Each rejection adds one, and the bucket leaks `per_second`. A
partition is not read while its bucket holds more than BURST_S seconds' worth. So a faulty producer
causes no more than that rate of rejections in the long run, and other partitions are not slowed.
"""

from collections.abc import Callable, Iterable

BURST_S = 10.0
"""A burst of this many seconds' worth of rejections is allowed."""


class RejectionLimiter:
    """Counts the rejections of one worker. `per_second` 0 means no limit."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._filled: dict[int, tuple[float, float]] = {}
        """By partition, the level of its bucket and the time of that level."""
        self.at_rest = frozenset[int]()
        """The paused partitions, as of the last call of `rest`."""

    def rejected(self, partition: int, now_s: float) -> None:
        """Count one rejection."""
        if self._per_second:
            self._filled[partition] = (self._level(partition, now_s) + 1.0, now_s)

    def resting(self, now_s: float) -> frozenset[int]:
        """The partitions whose bucket is too full now."""
        most = self._per_second * BURST_S
        return frozenset(p for p in self._filled if self._level(p, now_s) > most)

    def rest(self, now_s: float, tell: Callable[[frozenset[int]], None]) -> None:
        """Update `at_rest`, and report it through `tell` if it changed."""
        resting = self.resting(now_s)
        if resting != self.at_rest:
            self.at_rest = resting
            tell(resting)

    def forget(self, partitions: Iterable[int]) -> None:
        """Empty the buckets of these partitions, which were lost or gained."""
        for partition in partitions:
            self._filled.pop(partition, None)

    def _level(self, partition: int, now_s: float) -> float:
        level, then_s = self._filled.get(partition, (0.0, now_s))
        return max(0.0, level - self._per_second * (now_s - then_s))
