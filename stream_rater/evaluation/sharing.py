"""Evaluates many items on an executor, whose workers all need the same large object.

The executor is one of `concurrent.futures`: processes of this machine, or the workers of a cluster.
Such an executor cannot say how many workers it has, nor give each of them an object. So a worker
asks for the object. A task names it by its digest. A worker that does not have it answers so, and
the item is sent again with the pickled object. No more objects are under way than workers have
asked. A worker keeps the last object that it got. So each worker gets it once, also a worker that
joins later, or that replaces another one.

Results come in the order of the items, whichever worker computed them, and when.
"""

import hashlib
import os
import pickle
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple, Protocol, runtime_checkable

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.errors import TrialsFailed

Work = Callable[[Any, Any], Any]
"""A function at the top level of a module. It is called with the shared object and an item."""

Share = Callable[[Work, Iterable[Any]], Iterator[Any]]
"""Calls a function with the shared object and each item. Yields the results in the order of the
items."""

CHECK_S = 5.0
"""An executor of a cluster is checked whenever no task has ended for so long."""


@runtime_checkable
class Cluster(Protocol):
    """What an executor of a cluster can do in addition."""

    def check(self) -> None:
        """Raise TrialsFailed if the tasks will never end."""

    def explained(self, error: Exception) -> str | None:
        """What an error of the cluster means, in one line; None for any other error."""


@contextmanager
def sharing(thing: Any, executor: Executor | None) -> Iterator[Share]:
    """A function that shares work among the workers of an executor, which all have `thing`. If
    `executor` is None, the work is done in this process.

    The function raises TrialsFailed if the executor cannot do the work.
    """
    if executor is None:
        yield lambda work, items: (work(thing, each) for each in items)
        return
    pickled = pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)
    parcel = _Parcel(hashlib.blake2b(pickled).hexdigest(), pickled)
    yield lambda work, items: _Run(executor, parcel, work, items).results()


class _Parcel(NamedTuple):
    """A pickled object."""

    digest: str
    pickled: bytes


class _Task(NamedTuple):
    """An item that is being worked on."""

    item: int
    """The index of the item."""
    number: int
    """The number of the task, from 1."""


class _Run:
    """The items of one call."""

    def __init__(
        self, executor: Executor, parcel: _Parcel, work: Work, items: Iterable[Any]
    ) -> None:
        self._executor, self._parcel, self._work = executor, parcel, work
        self._items = list(items)
        self._running: dict[Future[_Answer], _Task] = {}
        self._carrying: set[Future[_Answer]] = set()
        """The tasks that carry the object."""
        self._returned: deque[int] = deque()
        """The items that came back from a worker without the object."""
        self._asking: dict[str, None] = {}
        """The workers that asked for the object and have not got it yet, the first one first."""
        self._had_at: dict[str, int] = {}
        """For each worker that had the object, the number of tasks that were sent until it was
        known. What it answered to one of these tasks before it got the object says nothing."""
        self._sent = 0

    def results(self) -> Iterator[Any]:
        """Yield the results in order. Tasks that are not needed any more are cancelled."""
        done: dict[int, Any] = {}
        try:
            for i in range(len(self._items)):
                self._send(i, None)
            for i in range(len(self._items)):
                while i not in done:
                    self._receive(done)
                yield done.pop(i)
        finally:
            for each in self._running:
                each.cancel()

    def _send(self, i: int, pickled: bytes | None) -> Future["_Answer"]:
        self._sent += 1
        with _failures(self._executor):
            task = self._executor.submit(
                _answer, self._parcel.digest, KERNEL_VERSION, pickled, self._work, self._items[i],
                self._sent,
            )  # fmt: skip
        self._running[task] = _Task(i, self._sent)
        return task

    def _receive(self, done: dict[int, Any]) -> None:
        """Wait until a task has ended, and send what came back."""
        ended, _ = wait(self._running, CHECK_S, FIRST_COMPLETED)
        if not ended and isinstance(self._executor, Cluster):
            self._executor.check()
        for task in ended:
            self._take(task, self._running.pop(task), done)
        while self._returned and len(self._carrying) < len(self._asking):
            self._carrying.add(self._send(self._returned.popleft(), self._parcel.pickled))
        while self._returned and not self._asking:
            self._send(self._returned.popleft(), None)

    def _take(self, task: "Future[_Answer]", sent: _Task, done: dict[int, Any]) -> None:
        """Take the answer to a task."""
        with _failures(self._executor):
            answer = task.result()
        if not answer.has_object:
            self._returned.append(sent.item)
            if sent.number > self._had_at.get(answer.worker, 0):
                self._asking.setdefault(answer.worker)
            return
        done[sent.item] = answer.value
        self._had_at[answer.worker] = self._sent
        served = answer.worker
        if task in self._carrying:
            self._carrying.remove(task)
            if served not in self._asking:  # who asked first may be gone; if not, it asks again
                served = next(iter(self._asking), served)
        self._asking.pop(served, None)


class _Answer(NamedTuple):
    """What a worker answers."""

    worker: str
    has_object: bool
    """Whether it had the object, and so did the work."""
    value: Any


_kept: dict[str, Any] = {}
"""The last object of this worker, by its digest."""
_lock = Lock()
"""A worker may have several threads."""


def _answer(
    digest: str, kernels: int, pickled: bytes | None, work: Work, item: Any, _: int
) -> _Answer:
    """Do the work on an item, in a worker. The last argument makes each task another one, because
    an executor may answer equal tasks only once."""
    worker = f"{socket.gethostname()}:{os.getpid()}"
    if kernels != KERNEL_VERSION:
        raise TrialsFailed(
            f"worker {worker} has rating kernels {KERNEL_VERSION}, and this process {kernels}: "
            "install the same release of stream-rater in all workers"
        )
    with _lock:
        if digest not in _kept:
            if pickled is None:
                return _Answer(worker, has_object=False, value=None)
            _kept.clear()
            _kept[digest] = pickle.loads(pickled)
        thing = _kept[digest]
    return _Answer(worker, has_object=True, value=work(thing, item))


@contextmanager
def _failures(executor: Executor) -> Iterator[None]:
    """Raise TrialsFailed where the executor failed, and not the work."""
    try:
        yield
    except BrokenExecutor:
        raise TrialsFailed(
            "a worker process ended while it tried a configuration: if memory is short, use fewer "
            'workers; in a script, call this below `if __name__ == "__main__":`'
        ) from None
    except CancelledError:
        raise TrialsFailed(
            "the executor dropped a trial: its workers, or the connection to them, were lost; run "
            "this again when they are back"
        ) from None
    except ModuleNotFoundError as error:
        raise TrialsFailed(
            f"a worker cannot import {error.name}: install in the workers what is installed here"
        ) from None
    except Exception as error:
        why = executor.explained(error) if isinstance(executor, Cluster) else None
        if why is None:
            raise
        raise TrialsFailed(why) from None
