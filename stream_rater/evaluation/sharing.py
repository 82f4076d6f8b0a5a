"""Work on many items in several processes, with something large that all of it needs."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any

Share = Callable[[Callable[[Any, Any], Any], Iterable[Any]], Iterator[Any]]
"""Takes a function of a module and items; gives what it makes of the shared thing and each item,
in their order."""

_shared: list[Any] = []
"""In a worker process: the thing. It is sent once, not with each item."""


def _receive(thing: Any) -> None:
    _shared[:] = [thing]


def _call(work: Callable[[Any, Any], Any], item: Any) -> Any:
    return work(_shared[0], item)


@contextmanager
def sharing(thing: Any, workers: int) -> Iterator[Share]:
    """`workers` processes that all have this thing; with one, this process."""
    if workers <= 1:
        yield lambda work, items: (work(thing, each) for each in items)
        return
    context = get_context("spawn")  # kernels run threads, which do not survive a fork
    with ProcessPoolExecutor(workers, context, _receive, (thing,)) as pool:
        yield lambda work, items: pool.map(partial(_call, work), items)
