"""Where trials run: in this process, in processes of this machine, or on a Dask cluster.

All three are executors of `concurrent.futures`, and so is whatever else a caller gives. The result
of a search does not depend on the choice: `sharing` returns results in the order of the items.
"""

import logging
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, TypeVar

from stream_rater.config.errors import BadConfiguration, TrialsFailed
from stream_rater.config.extras import extra

T = TypeVar("T")

ANSWER_S = 10.0
"""A scheduler must answer within this time."""
JOIN_S = 30.0
"""A worker must have joined the cluster within this time."""
LOST_S = 60.0
"""A cluster without any worker for so long is given up."""

FORMS = "give processes, processes:N or dask://HOST:PORT"


@dataclass(frozen=True)
class Processes:
    """So many processes of this machine. One: this process."""

    count: int


@dataclass(frozen=True)
class Dask:
    """The Dask cluster whose scheduler has this address, HOST:PORT."""

    address: str


Where = Processes | Dask | Executor
"""Where trials run. An executor that is given stays open."""


def parse_executor(text: str, workers: int | None) -> Where:
    """Parse `--executor` and the number of `--workers`, or None. Raises BadConfiguration."""
    if text == "processes":
        return Processes(workers or os.cpu_count() or 1)
    processes = re.fullmatch(r"processes:([1-9]\d{0,4})", text)
    cluster = re.fullmatch(r"dask://((?:[^/:@\[\]\s]+|\[[\da-fA-F:.]+\]):\d{1,5})/?", text)
    if not processes and not cluster:
        raise BadConfiguration(f"--executor {text}: {FORMS}")
    if workers is not None:
        whose = "the number stands there already" if processes else "the cluster has its own"
        raise BadConfiguration(f"--workers {workers} with --executor {text}: {whose}: leave it out")
    return Processes(int(processes[1])) if processes else Dask(cluster[1] if cluster else "")


@contextmanager
def opened(where: Where) -> Iterator[Executor | None]:
    """The executor, open in this block; None for this process alone.

    Raises MissingExtra if Dask is wanted and not installed, and TrialsFailed if its scheduler does
    not answer, or has no workers.
    """
    if isinstance(where, Executor):
        yield where
    elif isinstance(where, Dask):
        with extra("dask"):
            from distributed import Client
        with _without_log(), _connected(Client, where.address) as client:
            yield DaskExecutor(client, where.address)
    elif where.count == 1:
        yield None
    else:
        # Kernels run threads, which do not survive a fork.
        with ProcessPoolExecutor(where.count, get_context("spawn")) as pool:
            yield pool


@contextmanager
def _without_log() -> Iterator[None]:
    """Dask's client logs nothing in this block. When a cluster is lost it would write whole
    tracebacks beside our line."""
    log = logging.getLogger("distributed.client")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


@contextmanager
def _connected(make: Callable[..., Any], address: str) -> Iterator[Any]:
    """A client of the scheduler at this address, which has a worker at least."""
    try:
        client = make(address, timeout=ANSWER_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise TrialsFailed(
            f"dask://{address}: no Dask scheduler answers there within {ANSWER_S:g} s "
            f"({_first_line(error)}): start one by `dask scheduler`"
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=JOIN_S)
        except TimeoutError:
            raise TrialsFailed(
                f"dask://{address}: no worker has joined within {JOIN_S:g} s: start some by "
                f"`dask worker {address} --nthreads 1`"
            ) from None
        yield client


class DaskExecutor(Executor):
    """An executor on the workers of a Dask cluster: the executor of its client, which also knows
    when the cluster is lost."""

    def __init__(self, client: Any, address: str) -> None:
        self._client, self._address = client, address
        self._executor = client.get_executor(pure=False)
        self._last_seen_s = time.monotonic()
        """When a worker was last seen."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Call a function in a worker."""
        with warnings.catch_warnings():
            # Rounds are large, and few tasks carry them: one a worker. Dask would rather store them
            # in its workers beforehand, but then they would be lost with these workers.
            warnings.filterwarnings("ignore", "Sending large graph")
            task: Future[T] = self._executor.submit(fn, *args, **kwargs)
        return task

    def check(self) -> None:
        """Raise TrialsFailed if the scheduler is lost, or has had no worker for LOST_S."""
        if self._client.status not in ("running", "connecting"):
            raise TrialsFailed(f"dask://{self._address}: the connection was lost: run this again")
        now_s, known = time.monotonic(), {}
        with suppress(OSError):  # it is being connected again
            known = self._client.scheduler_info()
        if known.get("workers"):
            self._last_seen_s = now_s
        if now_s - self._last_seen_s > LOST_S:
            raise TrialsFailed(
                f"dask://{self._address}: all workers have been gone for {LOST_S:g} s: see why "
                "they ended, and run this again"
            )

    def explained(self, error: Exception) -> str | None:
        """What an error of Dask means."""
        if not type(error).__module__.startswith("distributed"):
            return None
        return (
            f"dask://{self._address}: the cluster gave up a trial: {_first_line(error)}: see the "
            "logs of its workers, which may be short of memory"
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work. The cluster goes on."""
        self._executor.shutdown(wait, cancel_futures=cancel_futures)


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
