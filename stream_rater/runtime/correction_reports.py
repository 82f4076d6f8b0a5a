"""The progress of corrections, for the log and the metrics."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import structlog

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
