"""Stages of a pipeline that run side by side: each makes items a little ahead of who takes them."""

import multiprocessing
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import TypeVar

T = TypeVar("T")

AHEAD = 8
"""Items that a stage may be ahead of the next one."""

ITEM, END, ERROR = "item", "end", "error"


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The items, made by a thread that is up to AHEAD of them ahead; it raises what they raise."""
    line: queue.Queue[tuple[str, T | BaseException | None]] = queue.Queue(AHEAD)
    enough = threading.Event()

    def put(kind: str, what: T | BaseException | None) -> None:
        while not enough.is_set():
            try:
                return line.put((kind, what), timeout=0.5)
            except queue.Full:
                continue

    def run() -> None:
        try:
            for item in items:
                put(ITEM, item)
                if enough.is_set():
                    return
            put(END, None)
        except BaseException as error:
            put(ERROR, error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield from _taken(line.get)
    finally:
        enough.set()


def elsewhere(make: Callable[[], Iterable[T]]) -> Iterator[T]:
    """The items that `make` makes, by a process of its own, from now on; it raises what they raise.

    For items whose making keeps Python itself busy: a thread would only take turns with the others.
    Begin before there are threads, which do not survive a fork; where there is none, it is a thread
    all the same.
    """
    if sys.platform != "linux":
        return ahead(make())
    context = multiprocessing.get_context("fork")
    taking, giving = context.Pipe(duplex=False)
    process = context.Process(target=_give, args=(make, taking, giving), daemon=True)
    process.start()
    giving.close()

    def taken() -> Iterator[T]:
        try:
            yield from _taken(taking.recv)
        except EOFError:
            raise EOFError("the process that read the rounds was ended") from None
        finally:
            taking.close()
            process.join()

    return taken()


def _give(make: Callable[[], Iterable[T]], taking: Connection, giving: Connection) -> None:
    """What the process does: all items, until nobody takes them."""
    taking.close()  # so that the pipe breaks when the other end goes
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        try:
            for item in make():
                giving.send((ITEM, item))
            giving.send((END, None))
        except BrokenPipeError:
            raise
        except Exception as error:
            giving.send((ERROR, error))
    except BrokenPipeError:
        return


def _taken(take: Callable[[], tuple[str, T | BaseException | None]]) -> Iterator[T]:
    """The items of a line, up to its end or its error."""
    while True:
        kind, what = take()
        if kind == ITEM:
            yield what  # type: ignore[misc]
        elif kind == END:
            return
        else:
            assert isinstance(what, BaseException)
            raise what
