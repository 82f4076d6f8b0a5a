"""A flood of rejections: which partitions rest because too many of their records are no rounds.

A bucket for each partition that each rejection fills by one and that leaks `per_second`. While it
holds more than BURST_S seconds' worth, its partition is not read. So a producer gone mad costs no
more than that rate in the long run, and its neighbours on other partitions nothing.
"""

from collections.abc import Callable, Iterable

BURST_S = 10.0
"""So many seconds' worth of rejections may come at once."""


class Flood:
    """Counts one worker's rejections. `per_second` 0: there is no limit."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._filled: dict[int, tuple[float, float]] = {}
        """Level, and when it was that, by partition."""
        self.at_rest = frozenset[int]()
        """The partitions that are not read, as `rest` found them."""

    def rejected(self, partition: int, now_s: float) -> None:
        """One more."""
        if self._per_second:
            self._filled[partition] = (self._level(partition, now_s) + 1.0, now_s)

    def resting(self, now_s: float) -> frozenset[int]:
        """The partitions not to be read now."""
        most = self._per_second * BURST_S
        return frozenset(p for p in self._filled if self._level(p, now_s) > most)

    def rest(self, now_s: float, tell: Callable[[frozenset[int]], None]) -> None:
        """Who rests from now on; a change is told."""
        resting = self.resting(now_s)
        if resting != self.at_rest:
            self.at_rest = resting
            tell(resting)

    def forget(self, partitions: Iterable[int]) -> None:
        """These are another worker's, or begin anew."""
        for partition in partitions:
            self._filled.pop(partition, None)

    def _level(self, partition: int, now_s: float) -> float:
        level, then_s = self._filled.get(partition, (0.0, now_s))
        return max(0.0, level - self._per_second * (now_s - then_s))
