"""Limits the requests to the API: their rate, their number at the same time, and their time.

The limits of connections are in `runtime.connections`.
"""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import AsyncIterable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, TypeVar

from stream_rater.serve.bodies import MOST_BODY_BYTES
from stream_rater.serve.problems import Refused

BODY_S = 10.0
"""The seconds within which a body must be complete."""
MOST_BODIES_BYTES = 64 * 1024 * 1024
"""The most bytes of all bodies together that are being received at the same time."""
BURST_S = 2.0
"""The size of a full bucket: an address may send the requests of this many seconds at once."""
MOST_ADDRESSES = 10_000
"""The most buckets that are stored. With more, the bucket that was used longest ago is dropped,
because it is full again by then."""

T = TypeVar("T")

client_address: ContextVar[str] = ContextVar("client_address", default="")
"""The address of the client whose request is being answered."""


class RateLimit:
    """A token bucket for each address: `per_second` requests a second, and BURST_S times as many at
    once. It is for one thread."""

    def __init__(self, per_second: float) -> None:
        """`per_second` is the number of requests per second; 0 means no limit."""
        self._per_second = per_second
        self._full = max(1.0, BURST_S * per_second)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """For each address, the number of tokens that were left when its bucket was last used, and
        the time of that, in seconds."""

    def take(self, address: str, now_s: float) -> None:
        """Take a token from the bucket of an address. Raises Refused if it has none."""
        if not self._per_second:
            return
        left, at_s = self._left.pop(address, (self._full, now_s))
        left = min(self._full, left + (now_s - at_s) * self._per_second)
        allowed = left >= 1.0
        self._left[address] = (left - allowed, now_s)
        if len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        if not allowed:
            wait_s = (1.0 - left) / self._per_second
            raise Refused(
                "too-many-requests", f"{address} asks too often: wait {wait_s:.2g} s",
                retry_after_s=math.ceil(wait_s),
            )  # fmt: skip


class BodyReceiver:
    """Receives the bodies of requests, each within its time and size. It is for one event loop."""

    def __init__(self) -> None:
        self._bytes = 0
        """The number of received bytes of all incomplete bodies."""

    async def receive(
        self, stream: AsyncIterable[bytes], most_bytes: int = MOST_BODY_BYTES
    ) -> bytes:
        """Receive a whole body of at most `most_bytes`. Raises Refused if it is too large or too
        slow, or if too many bodies are being received."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(BODY_S):
                async for part in stream:
                    size += len(part)
                    self._bytes += len(part)
                    if size > most_bytes:
                        raise Refused(
                            "body-too-large", f"send {most_bytes:,} bytes at most", "body"
                        )
                    if self._bytes > MOST_BODIES_BYTES:
                        raise Refused("busy", "too much is being sent at once: try again")
                    parts.append(part)
        except TimeoutError:
            raise Refused("body-too-slow", f"send it within {BODY_S:g} s", "body") from None
        finally:
            self._bytes -= size
        return b"".join(parts)


class _Job(NamedTuple):
    """Work that waits for a thread."""

    work: Callable[[], Any]
    done: "asyncio.Future[Any]"


class FairExecutor:
    """Threads for long computations, with a bounded queue. It is for one event loop.

    Each address has its own queue, and the queues are served in turn. So a client that asks many
    questions delays only its own. If too many questions wait, the newest question of the address
    with the most waiting questions is refused. If no address has more than that of the new
    question, counting the new question, then the new question is refused.
    """

    def __init__(self, name: str, threads: int, max_waiting: int) -> None:
        """`threads` is the number of threads, and `max_waiting` the most questions that may
        wait."""
        self._pool = ThreadPoolExecutor(threads, name)
        self._free, self._max_waiting, self._waiting = threads, max_waiting, 0
        self._queues: OrderedDict[str, deque[_Job]] = OrderedDict()
        """The waiting jobs of each address. Addresses are in the order in which they are served
        next. No queue is empty."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread, and return or raise its outcome. Raises Refused if too many
        questions wait."""
        address = client_address.get()
        job = _Job(work, asyncio.get_running_loop().create_future())
        if self._waiting >= self._max_waiting:
            self._make_room(address)
        self._queues.setdefault(address, deque()).append(job)
        self._waiting += 1
        self._start()
        try:
            result: T = await job.done
        except asyncio.CancelledError:
            self._cancel(address, job)
            raise
        return result

    def _start(self) -> None:
        """Give the next jobs to the free threads."""
        while self._free and self._queues:
            address, queue = self._queues.popitem(last=False)
            job = queue.popleft()
            self._waiting -= 1
            if queue:
                self._queues[address] = queue
            self._free -= 1
            running = asyncio.get_running_loop().run_in_executor(self._pool, job.work)
            running.add_done_callback(partial(self._end, job))

    def _end(self, job: _Job, finished: "asyncio.Future[Any]") -> None:
        self._free += 1
        error = finished.exception()
        if not job.done.done():  # the client may have disconnected
            if error is None:
                job.done.set_result(finished.result())
            else:
                job.done.set_exception(error)
        self._start()

    def _make_room(self, address: str) -> None:
        """Refuse the newest job of the address with the most waiting jobs. If that address has no
        more than `address`, counting its new question, raise Refused for the new question."""
        queue = max(self._queues.values(), key=len)
        if len(queue) <= len(self._queues.get(address, ())) + 1:
            raise _busy(self._max_waiting)
        self._waiting -= 1
        queue.pop().done.set_exception(_busy(self._max_waiting))

    def _cancel(self, address: str, job: _Job) -> None:
        """Drop a job whose client has disconnected, if the job still waits."""
        queue = self._queues.get(address)
        if queue is not None and job in queue:
            queue.remove(job)
            self._waiting -= 1
            if not queue:
                del self._queues[address]


def _busy(max_waiting: int) -> Refused:
    return Refused("busy", f"{max_waiting} questions that take long wait here: try again")
