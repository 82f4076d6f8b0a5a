"""Waits for the log, in slices: whoever waits may be asked to stop meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from stream_rater.adapters.access import trouble_of
from stream_rater.pipeline.ports import LogTrouble

T = TypeVar("T")

SLICE_S = 0.25
"""Waits are cut into slices of this, to notice that the worker is asked to stop."""

LAST_MOMENTS_S = 3.0
"""What a wait may still take once the worker is asked to stop."""


def _may_be_repeated(error: KafkaException) -> bool:
    """The time of one call was over, whatever it was waiting for."""
    inner = error.args[0]
    return isinstance(inner, KafkaError) and (
        inner.code() == KafkaError._TIMED_OUT or inner.retriable()
    )


class Patience:
    """Waits in slices: to the time-out, or only a little longer once asked to stop."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()

    def slices(self, timeout_s: float) -> Iterator[float]:
        """Seconds to wait, again and again, until it has been long enough."""
        end_s = time.monotonic() + timeout_s
        hurried = False
        while (left_s := end_s - time.monotonic()) > 0.0:
            if self._stop.is_set() and not hurried:
                hurried = True
                left_s = min(left_s, LAST_MOMENTS_S)
                end_s = time.monotonic() + left_s
            yield min(SLICE_S, left_s)

    def call(self, timeout_s: float, action: Callable[[float], T]) -> T:
        """The outcome of a call that may be repeated when it times out; failures are LogTrouble."""
        trouble: Exception = LogTrouble("kafka: no time left")
        for slice_s in self.slices(timeout_s):
            next_s = time.monotonic() + slice_s
            try:
                return action(slice_s)
            except KafkaException as error:
                trouble = trouble_of(error)
                if not _may_be_repeated(error):
                    break
            time.sleep(max(0.0, next_s - time.monotonic()))  # if it came back at once
        raise trouble
