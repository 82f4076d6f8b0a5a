"""Shares trials among the workers of any executor of `concurrent.futures`, Dask's among them.

All workers need the same large object, pickled. Those of Dask get it as the result of a task, which
Dask computes again when it is lost; others read it from a temporary file. Results come in the order
of the items, so they do not depend on the choice.
"""

import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from itertools import repeat
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import Any

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.errors import TrialsFailed

Share = Callable[[Callable[[Any, Any], Any], Iterable[Any]], Iterator[Any]]
"""Calls a function at the top level of a module with the shared object and each item. Yields the
results in the order of the items."""


@contextmanager
def sharing(thing: Any, executor: Executor | None) -> Iterator[Share]:
    """A function that shares work among the workers of an executor, which all have `thing`. If
    `executor` is None, the work is done in this process. The function raises TrialsFailed if the
    executor cannot do the work."""
    if executor is None:
        yield lambda work, items: (work(thing, each) for each in items)
    elif _of_dask(executor):
        client = executor._client  # type: ignore[attr-defined]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # once
            shared = client.submit(bytes, pickle.dumps(thing), pure=False)
        yield partial(_results, executor, shared)
    else:
        with ExitStack() as stack:
            with _file_failures():
                file = stack.enter_context(NamedTemporaryFile())
                pickle.dump(thing, file, pickle.HIGHEST_PROTOCOL)
                file.flush()
            yield partial(_results, executor, file.name)


def _results(executor: Executor, shared: Any, work: Any, items: Iterable[Any]) -> Iterator[Any]:
    """Yield the results in order. Raises TrialsFailed where the executor failed, not the work."""
    given = repeat(shared), repeat(KERNEL_VERSION), repeat(work)
    try:
        yield from Executor.map(executor, _do, *given, items)
        return
    except BrokenExecutor:
        why = (
            "a worker process ended while it tried a configuration: if memory is short, use fewer "
            'workers; in a script, call this below `if __name__ == "__main__":`'
        )
    except ModuleNotFoundError as error:
        why = f"a worker cannot import {error.name}: install in the workers what is installed here"
    except Exception as error:
        if not isinstance(error, CancelledError) and not _of_dask(error):
            raise
        why = (
            f"the executor dropped a trial ({first_line(error)}): its workers, or the connection "
            "to them, were lost; see their logs, as memory may be short, and run this again"
        )
    raise TrialsFailed(why)


_lock = Lock()  # Only one thread of a worker reads the object; the others wait.


def _do(shared: bytes | str, kernels: int, work: Any, item: Any) -> Any:
    """Do the work on an item, in a worker."""
    if kernels != KERNEL_VERSION:
        raise TrialsFailed(
            f"a worker has rating kernels {KERNEL_VERSION}, and this process {kernels}: install "
            "the same release of stream-rater in all workers"
        )
    with _lock, _file_failures():
        thing = _read(shared)
    return work(thing, item)


@lru_cache(maxsize=1)
def _read(shared: bytes | str) -> Any:
    """The object that was pickled, or is in the file of this name. A worker keeps the last."""
    return pickle.loads(shared if isinstance(shared, bytes) else Path(shared).read_bytes())


@contextmanager
def _file_failures() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TrialsFailed(
            f"workers get the rounds by a temporary file: {error}: let TMPDIR be a folder that has "
            "room, and that all workers read"
        ) from None


def _of_dask(thing: object) -> bool:
    return type(thing).__module__.startswith("distributed")


def first_line(error: Exception) -> str:
    """The first line of the error's text, or the error's name if it has none."""
    return next(iter(str(error).splitlines()), type(error).__name__)
