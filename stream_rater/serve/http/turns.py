"""Work that takes long, in threads: a bounded queue with fair turns.

Each address has a queue of its own, and the addresses take turns. So whoever asks much waits for
itself. If too many wait, the address with the most loses its newest; without room a question is
refused at once, and is told to come again.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, TypeVar

from stream_rater.serve.problems import Refused

T = TypeVar("T")

asker: ContextVar[str] = ContextVar("asker", default="")
"""The address whose request is being answered."""


class _Job(NamedTuple):
    """Work that waits for a thread."""

    work: Callable[[], Any]
    done: "asyncio.Future[Any]"


class Turns:
    """Threads, and who waits for them. It is for one event loop."""

    def __init__(self, name: str, threads: int, most: int) -> None:
        """`most`: so many may wait."""
        self._pool = ThreadPoolExecutor(threads, name)
        self._free, self._most, self._waiting = threads, most, 0
        self._queues: OrderedDict[str, deque[_Job]] = OrderedDict()
        """By address, in the order of their turns; none is empty."""

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns, or raises. Raises Refused if too many wait."""
        who = asker.get()
        job = _Job(work, asyncio.get_running_loop().create_future())
        if self._waiting >= self._most:
            self._make_room(who)
        self._queues.setdefault(who, deque()).append(job)
        self._waiting += 1
        self._begin()
        try:
            result: T = await job.done
        except asyncio.CancelledError:
            self._leave(who, job)
            raise
        return result

    def _begin(self) -> None:
        """Have threads that are free work on those whose turn it is."""
        while self._free and self._queues:
            who, queue = self._queues.popitem(last=False)
            job = queue.popleft()
            self._waiting -= 1
            if queue:
                self._queues[who] = queue
            self._free -= 1
            given = asyncio.get_running_loop().run_in_executor(self._pool, job.work)
            given.add_done_callback(partial(self._end, job))

    def _end(self, job: _Job, told: "asyncio.Future[Any]") -> None:
        self._free += 1
        error = told.exception()
        if not job.done.done():  # who asked may have gone
            if error is None:
                job.done.set_result(told.result())
            else:
                job.done.set_exception(error)
        self._begin()

    def _make_room(self, who: str) -> None:
        """Refuse the newest of whoever has the most waiting; if that is who asks, the question."""
        queue = max(self._queues.values(), key=len)
        if len(queue) <= len(self._queues.get(who, ())) + 1:
            raise _busy(self._most)
        self._waiting -= 1
        queue.pop().done.set_exception(_busy(self._most))

    def _leave(self, who: str, job: _Job) -> None:
        """Nobody waits for it any more."""
        queue = self._queues.get(who)
        if queue is not None and job in queue:
            queue.remove(job)
            self._waiting -= 1
            if not queue:
                del self._queues[who]


def _busy(most: int) -> Refused:
    return Refused("busy", f"{most} questions that take long wait here: try again")
