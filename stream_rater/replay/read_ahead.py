"""Runs the stages of a pipeline in parallel: each stage makes items before the next stage needs
them."""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

MOST_AHEAD = 16
"""The most items that a stage makes ahead of the next one."""

ITEM, END, ERROR = "item", "end", "error"


def prefetched(items: Iterable[T], most: int = MOST_AHEAD) -> Iterator[T]:
    """Yield the items. A thread begins to make them immediately, and stays up to `most` items
    ahead.

    Raises the exceptions that are raised while the items are made.
    """
    ready_items: queue.Queue[tuple[str, T | BaseException | None]] = queue.Queue(most)
    stopped = threading.Event()

    def put(kind: str, what: T | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                return ready_items.put((kind, what), timeout=0.5)
            except queue.Full:
                continue

    def run() -> None:
        try:
            for item in items:
                put(ITEM, item)
                if stopped.is_set():
                    return
            put(END, None)
        except BaseException as error:
            put(ERROR, error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return _taken(ready_items, stopped)


def _taken(
    ready_items: "queue.Queue[tuple[str, T | BaseException | None]]", stopped: threading.Event
) -> Iterator[T]:
    try:
        while (taken := ready_items.get())[0] == ITEM:
            yield taken[1]  # type: ignore[misc]
        if isinstance(taken[1], BaseException):
            raise taken[1]
    finally:
        stopped.set()
