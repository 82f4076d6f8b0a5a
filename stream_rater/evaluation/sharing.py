"""Processes many items in several processes that all need the same large object."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any

Share = Callable[[Callable[[Any, Any], Any], Iterable[Any]], Iterator[Any]]
"""Takes a function at the top level of a module, and items. Calls the function with the shared
object and each item, and yields the results in the order of the items."""

_shared: list[Any] = []
"""The shared object of a worker process, in a list. It is sent once, not with each item."""


def _receive(thing: Any) -> None:
    _shared[:] = [thing]


def _call(work: Callable[[Any, Any], Any], item: Any) -> Any:
    return work(_shared[0], item)


@contextmanager
def sharing(thing: Any, workers: int) -> Iterator[Share]:
    """Start `workers` processes that all have `thing`, and give a function that shares work among
    them. With one worker, the work is done in this process."""
    if workers <= 1:
        yield lambda work, items: (work(thing, each) for each in items)
        return
    context = get_context("spawn")  # kernels run threads, which do not survive a fork
    with ProcessPoolExecutor(workers, context, _receive, (thing,)) as pool:
        yield lambda work, items: pool.map(partial(_call, work), items)
