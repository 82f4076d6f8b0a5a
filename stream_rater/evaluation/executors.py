"""Where trials run: in this process, in processes of this machine, on a Dask cluster, or on
whatever executor of `concurrent.futures` a caller gives.

All workers need the same large object, pickled. Those of this machine read it from a temporary
file, once each. Dask gets it once, as the result of a task, which its workers copy from each other
and compute again when it is lost. Results come in the order of the items, so they do not depend on
the choice.
"""

import logging
import os
import pickle
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import Any

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.errors import BadConfiguration, Failed, MissingExtra, TrialsFailed, extra

Where = int | str
"""Where trials run: in so many processes of this machine, of which one is this process; or on the
Dask cluster whose scheduler has this address, HOST:PORT."""

Work = Callable[[Any, Any], Any]
Share = Callable[[Work, Iterable[Any]], Iterator[Any]]
"""Calls a function at the top level of a module with the shared object and each item. Yields the
results in the order of the items."""

JOIN_S = 30.0
"""A scheduler must answer, and have a worker, within this time."""

FORMS = "give processes, processes:N or dask://HOST:PORT"


def parse_executor(text: str, workers: int | None) -> Where:
    """Parse `--executor` and the number of `--workers`, or None. Raises BadConfiguration."""
    form = r"processes(?::([1-9]\d{0,4}))?|dask://((?:[^/:@\[\]\s]+|\[[\da-fA-F:.]+\]):\d{1,5})/?"
    if (found := re.fullmatch(form, text)) is None:
        raise BadConfiguration(f"--executor {text}: {FORMS}")
    if workers is not None and text != "processes":
        raise BadConfiguration(
            f"--workers {workers} with --executor {text}: it has its own number: leave one out"
        )
    processes, address = found.groups()
    return address or int(processes or workers or os.cpu_count() or 1)


@contextmanager
def trials_on(where: Where) -> Iterator[Executor | None]:
    """The executor, open in this block; None for this process alone. Raises Failed if a package is
    missing, or if the trials cannot be run there."""
    try:
        if where == 1:
            yield None
        elif isinstance(where, str):
            with _dask(where) as executor:
                yield executor
        else:
            # Kernels run threads, which do not survive a fork.
            with ProcessPoolExecutor(where, get_context("spawn")) as pool:
                yield pool
    except (MissingExtra, TrialsFailed) as error:
        raise Failed(str(error)) from None


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    """The executor of a Dask cluster that has a worker at least."""
    with extra("dask"):
        from distributed import Client
    # When a cluster is lost it would write whole tracebacks beside our line.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        try:
            connect: Any = Client
            client = stack.enter_context(connect(address, timeout=JOIN_S, set_as_default=False))
            client.wait_for_workers(1, timeout=JOIN_S)
        except (OSError, ValueError) as error:
            raise TrialsFailed(
                f"dask://{address}: no Dask scheduler with a worker answers there within "
                f"{JOIN_S:g} s ({_first_line(error)}): start them by `dask scheduler` and "
                f"`dask worker {address} --nthreads 1`"
            ) from None
        yield client.get_executor(pure=False)


@contextmanager
def sharing(thing: Any, executor: Executor | None) -> Iterator[Share]:
    """A function that shares work among the workers of an executor, which all have `thing`. If
    `executor` is None, the work is done in this process.

    The function raises TrialsFailed if the executor cannot do the work.
    """
    if executor is None:
        yield lambda work, items: (work(thing, each) for each in items)
    elif _of_dask(executor):
        client = executor._client  # type: ignore[attr-defined]
        with _failures(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # once
            shared = client.submit(bytes, pickle.dumps(thing), pure=False)
            client.replicate([shared])
        yield partial(_results, executor, shared)
    else:
        with ExitStack() as stack:
            with _file_failures():
                file = stack.enter_context(NamedTemporaryFile())
                pickle.dump(thing, file, pickle.HIGHEST_PROTOCOL)
                file.flush()
            yield partial(_results, executor, file.name)


def _results(executor: Executor, shared: Any, work: Work, items: Iterable[Any]) -> Iterator[Any]:
    """Yield the results in order. Tasks that are not needed any more are cancelled."""
    tasks: list[Future[Any]] = []
    try:
        with _failures():
            for item in items:
                tasks.append(executor.submit(_do, shared, KERNEL_VERSION, work, item))
            for task in tasks:
                yield task.result()
    finally:
        for task in tasks:
            task.cancel()


@contextmanager
def _failures() -> Iterator[None]:
    """Raise TrialsFailed where the executor failed, and not the work."""
    try:
        yield
    except BrokenExecutor:
        raise TrialsFailed(
            "a worker process ended while it tried a configuration: if memory is short, use fewer "
            'workers; in a script, call this below `if __name__ == "__main__":`'
        ) from None
    except ModuleNotFoundError as error:
        raise TrialsFailed(
            f"a worker cannot import {error.name}: install in the workers what is installed here"
        ) from None
    except Exception as error:
        if not isinstance(error, CancelledError) and not _of_dask(error):
            raise
        raise TrialsFailed(
            f"the executor dropped a trial ({_first_line(error)}): its workers, or the connection "
            "to them, were lost; see their logs, as memory may be short, and run this again"
        ) from None


_lock = Lock()
"""A worker may have several threads."""


def _do(shared: bytes | str, kernels: int, work: Work, item: Any) -> Any:
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


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
