"""Where the trials of a command run: in processes of this machine, or on a Dask cluster."""

import logging
import os
import re
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from typing import Any

from stream_rater.config.errors import BadConfiguration, Failed, MissingExtra, TrialsFailed, extra
from stream_rater.evaluation.executors import first_line

Where = int | str  # The number of processes of this machine, or HOST:PORT of Dask.
JOIN_S = 30.0  # A scheduler must answer, and have a worker, within this time.
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
    """The executor, open in this block; None for this process. Raises Failed."""
    try:
        with ExitStack() as stack:
            if where == 1:
                yield None
            elif isinstance(where, str):
                yield _dask(where, stack)
            else:  # by spawn: kernels run threads, which do not survive a fork
                yield stack.enter_context(ProcessPoolExecutor(where, get_context("spawn")))
    except (MissingExtra, TrialsFailed) as error:
        raise Failed(str(error)) from None


def _dask(address: str, stack: ExitStack) -> Executor:
    """The executor of a Dask cluster with at least one worker. `stack` closes its client."""
    with extra("dask"):
        from distributed import Client
    # When a cluster is lost it would write whole tracebacks beside our line.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    connect: Any = Client
    try:
        client = stack.enter_context(connect(address, timeout=JOIN_S, set_as_default=False))
        client.wait_for_workers(1, timeout=JOIN_S)
    except (OSError, ValueError) as error:
        raise TrialsFailed(
            f"dask://{address}: no Dask scheduler with a worker answers there within "
            f"{JOIN_S:g} s ({first_line(error)}): start them by `dask scheduler` and "
            f"`dask worker {address} --nthreads 1`"
        ) from None
    executor: Executor = client.get_executor(pure=False)
    return executor
