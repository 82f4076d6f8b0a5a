"""What is measured of a role while it works: how long its records wait, how long a trouble lasts,
and how far the work on corrections is.

The first record of each poll is followed, because it has waited longest. That costs nothing, and
under little load it is every record. A record arrives at its time in the log: by the broker's clock
if the topic has LogAppendTime, as round-completed does, else by the producer's.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from stream_rater.contract.record import Record
from stream_rater.pipeline.ports import Effect, Poll

MOST_FOLLOWED = 1000
"""The number of records of a partition that are followed at the same time."""

Observe = Callable[[float], None]


class LatencyTracker:
    """Follows records of one role; `clock` gives Unix seconds.

    `waited` is called with the seconds that each finished record waited. `ahead` is called with the
    seconds by which a record's time was ahead of the clock when it was read: 0 unless the clocks
    disagree.
    """

    def __init__(self, waited: Observe, ahead: Observe, clock: Callable[[], float]) -> None:
        self._waited = waited
        self._ahead = ahead
        self._clock = clock
        self._followed: dict[int, deque[tuple[int, float]]] = {}
        """By partition, (offset, arrival) of the followed records."""
        ahead(0.0)

    def polled(self, records: Sequence[Record], next_offsets: Mapping[int, int]) -> None:
        """Follow the first of these records, unless it is finished and was only read again for its
        round id."""
        if not records:
            return
        first = records[0]
        if first.received_s <= 0.0 or first.offset < next_offsets.get(first.partition, 0):
            return
        self._ahead(max(0.0, first.received_s - self._clock()))
        followed = self._followed.setdefault(first.partition, deque())
        if len(followed) < MOST_FOLLOWED and (not followed or followed[-1][0] < first.offset):
            followed.append((first.offset, first.received_s))

    def finished(self, next_offsets: Mapping[int, int]) -> None:
        """All records before these offsets are finished."""
        for partition, end in next_offsets.items():
            followed = self._followed.get(partition, ())
            while followed and followed[0][0] < end:
                self._waited(max(0.0, self._clock() - followed.popleft()[1]))

    def keep_only(self, partitions: Collection[int]) -> None:
        """Forget the records of all other partitions: other workers finish them."""
        self._followed = {p: each for p, each in self._followed.items() if p in partitions}


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


LOG_EVERY_S = 10.0
"""The least interval between two log lines about the progress of a correction."""

NONE_LEFT = 1.0
"""The progress of a partition without a correction."""

MAX_UNFINISHED = 0.99
"""The greatest progress of a correction before all of its parts are sent."""


@dataclass(slots=True)
class _CorrectionProgress:
    """The work on one correction."""

    offset: int
    begun_s: float
    logged_s: float
    progress: float = 0.0


class CorrectionReports:
    """The corrections that one estimator is applying, at most one per partition."""

    def __init__(self, log: structlog.stdlib.BoundLogger, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._in_progress: dict[int, _CorrectionProgress] = {}
        """By partition, the work on its correction."""

    def progress(self, partition: int) -> float:
        """The share of the work on a partition's correction that is done; 1 if it has none."""
        work = self._in_progress.get(partition)
        return NONE_LEFT if work is None else work.progress

    def progressed(self, ladder: str, partition: int, offset: int, progress: float) -> None:
        """The work on a correction has reached this share."""
        now_s, work = self._clock(), self._in_progress.get(partition)
        if work is None or work.offset != offset:
            work = self._in_progress[partition] = _CorrectionProgress(offset, now_s, now_s)
            self._log.info("correcting", ladder=ladder, partition=partition, offset=offset)
        elif now_s - work.logged_s >= LOG_EVERY_S:
            work.logged_s = now_s
            self._log.info(
                "correcting", ladder=ladder, partition=partition, offset=offset,
                done=f"{progress:.0%}",
            )  # fmt: skip
        work.progress = min(progress, MAX_UNFINISHED)

    def done(self, ladder: str, partition: int, offset: int, refused: int) -> None:
        """The work is done; `refused` corrections were rejected."""
        work = self._in_progress.pop(partition, None)
        took_s = 0.0 if work is None else self._clock() - work.begun_s
        self._log.info(
            "corrected", ladder=ladder, partition=partition, offset=offset, refused=refused,
            took_s=round(took_s, 3),
        )  # fmt: skip

    def keep_only(self, partitions: Collection[int]) -> None:
        """Forget the work on all other partitions: other workers do it."""
        self._in_progress = {p: work for p, work in self._in_progress.items() if p in partitions}
