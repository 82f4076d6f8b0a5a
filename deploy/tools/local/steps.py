"""Runs steps of a set-up: one set-up of a tree at a time, with independent parts in parallel."""

import fcntl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from local.tools import SERVERS, LocalServerError


def run(ensure: Callable[[], None]) -> int:
    """Do what is not done. Returns 0, or 1 after one line on standard error if that fails."""
    try:
        with one_at_a_time():
            ensure()
    except LocalServerError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; run it again to go on")
        return 130
    except (OSError, subprocess.SubprocessError) as error:
        say(f"failed: {error}")
        return 1
    return 0


def say(text: str) -> None:
    """Print a line on standard error."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def side_by_side(*parts: Callable[[], None]) -> None:
    """Run all parts at once, each in a thread; return when all have ended.

    Each part spends its time in processes of its own (pip, Maven, Go), so threads are enough. If
    parts fail, the error of the first of them is raised.
    """
    with ThreadPoolExecutor(len(parts)) as pool:
        futures = [pool.submit(part) for part in parts]
    for future in futures:
        future.result()


@contextmanager
def in_a_thread(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Let `work` run until the end of the block, which sets its event."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let two set-ups of the same tree wait for each other."""
    SERVERS.mkdir(exist_ok=True)
    with (SERVERS / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another setup of this tree")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
