"""What the log and the metrics tell of corrections that are worked in."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import structlog

LOG_EVERY_S = 10.0
"""How often the share of a correction's work that is done is logged at most."""

NONE_LEFT = 1.0
"""The progress of a partition that no correction of is worked in."""

AT_MOST = 0.99
"""The progress of one whose parts are not all sent, at most."""


@dataclass(slots=True)
class _Begun:
    """A correction that is worked in."""

    offset: int
    begun_s: float
    logged_s: float
    progress: float = 0.0


class CorrectionReports:
    """The corrections that one estimator works in, one a partition."""

    def __init__(self, log: structlog.stdlib.BoundLogger, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._begun: dict[int, _Begun] = {}
        """By partition."""

    def progress(self, partition: int) -> float:
        """The share of the work on a partition's correction that is done: below 1 while there is
        one."""
        work = self._begun.get(partition)
        return NONE_LEFT if work is None else work.progress

    def goes_on(self, ladder: str, partition: int, offset: int, progress: float) -> None:
        """A piece of the work on a correction was done, and so this share of all."""
        now_s, work = self._clock(), self._begun.get(partition)
        if work is None or work.offset != offset:
            work = self._begun[partition] = _Begun(offset, now_s, now_s)
            self._log.info("correcting", ladder=ladder, partition=partition, offset=offset)
        elif now_s - work.logged_s >= LOG_EVERY_S:
            work.logged_s = now_s
            self._log.info(
                "correcting", ladder=ladder, partition=partition, offset=offset,
                done=f"{progress:.0%}",
            )  # fmt: skip
        work.progress = min(progress, AT_MOST)

    def done(self, ladder: str, partition: int, offset: int, refused: int) -> None:
        """The work is done; so many corrections were refused in it."""
        work = self._begun.pop(partition, None)
        took_s = 0.0 if work is None else self._clock() - work.begun_s
        self._log.info(
            "corrected", ladder=ladder, partition=partition, offset=offset, refused=refused,
            took_s=round(took_s, 3),
        )  # fmt: skip

    def keep(self, partitions: Collection[int]) -> None:
        """Forget the work on all other partitions: others do it."""
        self._begun = {p: work for p, work in self._begun.items() if p in partitions}
