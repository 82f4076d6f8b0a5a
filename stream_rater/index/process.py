"""Runs the follower in a process of its own, beside the process that answers and has the folder's
lock. In one process, both would compete for the interpreter lock: answers would wait while events
are processed."""

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from stream_rater.contract.errors import Unrecoverable
from stream_rater.index import folder
from stream_rater.index.follower import Follower
from stream_rater.index.log import Watcher

END_TIMEOUT_S = 10.0  # The seconds within which the process must end.
STATE_INTERVAL_S = 1.0  # The longest time between two reports of the state.

MakeFollower = Callable[[Watcher], Follower]  # Makes the follower; it is picklable.


class IndexProcess:
    """The process of the follower, and its last report."""

    def __init__(
        self, where: Path, make: MakeFollower, watcher: Watcher, most_lag: int = 0
    ) -> None:
        """Take the lock of the folder, and prepare the process without starting it. `make` is
        called in that process. `most_lag`: with a greater lag, `unready` says so; 0: it never does.
        Raises Unrecoverable."""
        self._hold, self._watcher = folder.Hold(where), watcher
        self._most_lag, self._behind = most_lag, False
        context = multiprocessing.get_context("spawn")
        self._reports, child_end = context.Pipe(duplex=True)
        self._child_end: Connection | None = child_end
        self._process = context.Process(
            target=_follow, args=(make, child_end), name="index", daemon=True
        )
        self.caught_up = False  # This and the next two are those of `Follower`, as last reported.
        self.lag = 0
        self.oldest_reader_s = 0.0
        self.last_report_s = time.monotonic()
        self._stopping = False

    def listen(self) -> None:
        """Start the process, and pass on its reports until it ends. Raises what ended it."""
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
            again = ""
            if code in folder.CRASHES:
                folder.discard(self._hold.path)
                again = ": the index was damaged: the next start makes it again"
            raise Unrecoverable(f"the index's process ended with exit code {code}{again}")

    def _pass_on(self) -> Exception | None:
        """Pass on reports until the process ends. Returns the exception that ended it, if known."""
        while True:
            try:
                kind, *given = self._reports.recv()
            except (EOFError, OSError):
                return None
            self.last_report_s = time.monotonic()
            if kind == "failed":
                failure: Exception = given[0]
                return failure
            if kind == "polled":
                self.caught_up, self.lag, self.oldest_reader_s = given
            else:
                getattr(self._watcher, kind)(*given)

    def behind(self) -> int:
        """The number of records that are not in the index yet."""
        return self.lag

    def reported_s(self) -> float:
        """When the process last reported, monotonic seconds."""
        return self.last_report_s

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
        """Why the index is too old: its lag was above `most_lag`, and is still above half of it."""
        self._behind = self.lag > (self._most_lag // 2 if self._behind else self._most_lag)
        behind = self._behind and self._most_lag > 0
        return [f"the index is {self.lag:,} events behind"] if behind else []

    def end(self) -> None:
        """Kill the process if it has not ended in time."""
        if self._process.pid is not None:
            self._process.join(END_TIMEOUT_S)
            self._process.kill()
        self._hold.close()


# --- in the process ------------------------------------------------------------------------------


class _Reporter(Watcher):
    """Sends each report to the other process: the name of the method, and its arguments."""

    def __init__(self, connection: Connection) -> None:
        for name in ("opened", "begun", "read", "checkpointed", "trouble", "skipped"):
            setattr(self, name, partial(self._send, name))
        self._connection = connection
        self._state: Any = None
        self._state_s = 0.0

    def _send(self, *message: object) -> None:
        self._connection.send(message)

    def polled(self, caught_up: bool, lag: int, oldest_reader_s: float) -> None:
        state, now_s = (caught_up, lag), time.monotonic()
        if state != self._state or now_s - self._state_s >= STATE_INTERVAL_S:
            self._state, self._state_s = state, now_s
            self._send("polled", *state, oldest_reader_s)


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
        with suppress(BrokenPipeError):  # the other process has ended
            follower.run()
    except Exception as error:
        connection.send(("failed", error))
