"""Runs the follower of `rating-changed` in a process of its own, beside the process that answers.

In one process, both would compete for the interpreter lock: while a batch of events is processed,
each answer would wait for the lock several times.
"""

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Protocol

from stream_rater.contract.errors import Unrecoverable
from stream_rater.serve.index.follower import NewEvent, Watcher

END_TIMEOUT_S = 10.0
"""The seconds within which the process must end."""
STATE_INTERVAL_S = 1.0
"""The interval at which the process reports its state if nothing has changed."""


class EventFollower(Protocol):
    """Follows `rating-changed`, and writes the index."""

    def run(self) -> None:
        """Follow until `stop`."""

    def stop(self) -> None:
        """Make `run` return soon."""

    def hurry(self) -> None:
        """Report soon that what was published is in the index. Another thread may call this."""


MakeFollower = Callable[[Watcher], EventFollower]
"""Makes a follower that reports to the watcher. It must be picklable."""


class IndexProcess:
    """The process of the follower, and its last report."""

    def __init__(self, make: MakeFollower, watcher: Watcher) -> None:
        """Prepare the process without starting it. `make` makes the follower there. `watcher`
        receives its reports."""
        self._watcher = watcher
        context = multiprocessing.get_context("spawn")
        self._reports, child_end = context.Pipe(duplex=True)
        self._child_end: Connection | None = child_end
        self._process = context.Process(
            target=_follow, args=(make, child_end), name="index", daemon=True
        )
        self.caught_up = False
        """Whether the index has every event that existed when reading began."""
        self.lag = 0
        """The number of records of `rating-changed` that existed at the last report and were not
        read yet."""
        self.last_report_s = time.monotonic()
        self._stopping = False

    def listen(self) -> None:
        """Start the process, and pass on its reports until it ends. Raises the exception that ended
        it."""
        assert self._child_end is not None
        self._process.start()
        self._child_end.close()  # so that `recv` fails when the process ends
        self._child_end = None
        failure = self._pass_on()
        self._process.join(END_TIMEOUT_S)
        if failure is not None:
            raise failure
        if not self._stopping:
            code = self._process.exitcode
            raise Unrecoverable(f"the index's process ended with exit code {code}")

    def _pass_on(self) -> Exception | None:
        """Pass on reports until the process ends. Returns the exception that ended it, if known."""
        while True:
            try:
                kind, *given = self._reports.recv()
            except (EOFError, OSError):
                return None
            self.last_report_s = time.monotonic()
            match kind:
                case "polled":
                    self.caught_up, self.lag = given
                case "failed":
                    failure: Exception = given[0]
                    return failure
                case _:
                    getattr(self._watcher, kind)(*given)

    def stop(self) -> None:
        """Ask the process to end; then `listen` ends, too."""
        self._stopping = True
        with suppress(OSError):  # it has ended
            self._reports.send("stop")

    def hurry(self) -> None:
        """Ask the process to report soon that what was published is in the index."""
        with suppress(OSError):
            self._reports.send("hurry")

    def unready(self) -> list[str]:
        """Nothing: the workers have their own probes."""
        return []

    def end(self) -> None:
        """Kill the process if it has not ended in time."""
        if self._process.pid is not None:
            self._process.join(END_TIMEOUT_S)
            self._process.kill()


# --- in the process ------------------------------------------------------------------------------


class _Reporter(Watcher):
    """Sends reports to the other process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._state: Any = None
        self._state_s = 0.0

    def _send(self, *message: object) -> None:
        self._connection.send(message)

    def begun(self, positions: Sequence[int]) -> None:
        self._send("begun", list(positions))

    def read(self, events: Sequence[NewEvent]) -> None:
        self._send("read", events)

    def checkpointed(self, positions: Sequence[int]) -> None:
        self._send("checkpointed", list(positions))

    def trouble(self, why: str) -> None:
        self._send("trouble", why)

    def skipped(self, partition: int, offset: int) -> None:
        self._send("skipped", partition, offset)

    def polled(self, caught_up: bool, lag: int) -> None:
        state, now_s = (caught_up, lag), time.monotonic()
        if state != self._state or now_s - self._state_s >= STATE_INTERVAL_S:
            self._state, self._state_s = state, now_s
            self._send("polled", caught_up, lag)


def _follow(make: MakeFollower, connection: Connection) -> None:
    """Follow until the other process sends the request to stop, or has ended."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the other process gets them, too
        signal.signal(number, signal.SIG_IGN)
    follower = make(_Reporter(connection))

    def wait() -> None:
        with suppress(EOFError, OSError):
            while connection.recv() == "hurry":
                follower.hurry()
        follower.stop()

    threading.Thread(target=wait, daemon=True).start()
    try:
        follower.run()
    except BrokenPipeError:
        pass  # the other process has ended
    except Exception as error:
        connection.send(("failed", error))
