"""Waits for Kafka in slices, so that a worker that is asked to stop does not wait much longer."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from stream_rater.adapters.access import trouble_of
from stream_rater.contract.errors import LogTrouble

T = TypeVar("T")
SLICE_S = 0.25
"""The length of a slice. A wait notices within this time that the worker is asked to stop."""
STOP_GRACE_S = 3.0  # The longest time that a wait continues after the worker is asked to stop.
ABANDON_S = 10.0
"""How long a call of the client may take beyond its time-out, until it counts as hanging."""


def _is_retriable(error: KafkaException) -> bool:
    """Whether the error means only that one call timed out, or that it may be retried."""
    inner = error.args[0]
    return isinstance(inner, KafkaError) and (
        inner.code() == KafkaError._TIMED_OUT or inner.retriable()
    )


def call_or_abandon(action: Callable[[], T], timeout_s: float) -> T:
    """Call `action` in a thread of its own, which is left behind if it does not return within
    `timeout_s` and ABANDON_S. Raises LogTrouble then, and what `action` raises.

    librdkafka's `send_offsets_to_transaction` may hang after a broken connection (its issue 5456),
    whatever time-out it is given. Its producer must not be used again.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(action())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="send-offsets", daemon=True).start()
    try:
        return outcome.result(timeout_s + ABANDON_S)
    except TimeoutError:
        raise LogTrouble(
            f"kafka: a call did not return within {timeout_s + ABANDON_S:g} s"
        ) from None


class Deadlines:
    """Waits up to a time-out, or up to STOP_GRACE_S once the worker is asked to stop."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()

    def slices(self, timeout_s: float) -> Iterator[float]:
        """Yield the seconds of each slice until the time-out is over."""
        end_s = time.monotonic() + timeout_s
        is_stopping = False
        while (left_s := end_s - time.monotonic()) > 0.0:
            if self._stop.is_set() and not is_stopping:
                is_stopping = True
                left_s = min(left_s, STOP_GRACE_S)
                end_s = time.monotonic() + left_s
            yield min(SLICE_S, left_s)

    def call(self, timeout_s: float, action: Callable[[float], T]) -> T:
        """Call `action` with a slice until it succeeds. Raises LogTrouble or Denied."""
        trouble: Exception = LogTrouble("kafka: no time was left for the call")
        for slice_s in self.slices(timeout_s):
            next_s = time.monotonic() + slice_s
            try:
                return action(slice_s)
            except KafkaException as error:
                trouble = trouble_of(error)
                if not _is_retriable(error):
                    break
            time.sleep(max(0.0, next_s - time.monotonic()))  # where the call returned early
        raise trouble
