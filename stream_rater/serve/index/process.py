"""The follower of `rating-changed` in a process of its own, beside the one that answers.

In one process the two would take the interpreter from each other: while a batch of events is
worked on, each answer would wait for its turn several times.
"""

import multiprocessing
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from stream_rater.config.settings import Settings
from stream_rater.contract.errors import CannotGoOn
from stream_rater.serve.index.follower import Follower, NewEvent, Watcher

LAST_S = 10.0
"""The process has so long to end."""
STATE_S = 1.0
"""So often it tells where it is, if nothing has changed."""


class IndexProcess:
    """The process, and what it told last."""

    def __init__(self, settings: Settings, watcher: Watcher) -> None:
        """Starts nothing yet."""
        self._watcher = watcher
        context = multiprocessing.get_context("spawn")
        self._told, telling = context.Pipe(duplex=True)
        self._telling: Connection | None = telling
        self._process = context.Process(
            target=_follow, args=(settings, telling), name="index", daemon=True
        )
        self.caught_up = False
        """Whether the index had everything that was there when reading began."""
        self.lag = 0
        """Records of `rating-changed` that were there at the last look and are not read yet."""
        self.last_told_s = time.monotonic()
        self._stopping = False

    def listen(self) -> None:
        """Start the process, and pass on what it tells until it ends. Raises what ended it."""
        assert self._telling is not None
        self._process.start()
        self._telling.close()  # so that its death ends the reading
        self._telling = None
        failure = self._passed_on()
        self._process.join(LAST_S)
        if failure is not None:
            raise failure
        if not self._stopping:
            code = self._process.exitcode
            raise CannotGoOn(f"the index's process ended with exit code {code}")

    def _passed_on(self) -> Exception | None:
        """Pass on what is told until the process ends, or tells what ended it."""
        while True:
            try:
                kind, *told = self._told.recv()
            except (EOFError, OSError):
                return None
            self.last_told_s = time.monotonic()
            match kind:
                case "polled":
                    self.caught_up, self.lag = told
                case "failed":
                    failure: Exception = told[0]
                    return failure
                case _:
                    getattr(self._watcher, kind)(*told)

    def stop(self) -> None:
        """Let the process end; then `listen` ends, too."""
        self._stopping = True
        with suppress(OSError):  # it has ended
            self._told.send(None)

    def end(self) -> None:
        """Kill the process if it has not ended in time."""
        if self._process.pid is not None:
            self._process.join(LAST_S)
            self._process.kill()


# --- in the process ------------------------------------------------------------------------------


class _Teller(Watcher):
    """Tells the other process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._state: Any = None
        self._state_s = 0.0

    def _tell(self, *message: object) -> None:
        self._connection.send(message)

    def begun(self, positions: Sequence[int]) -> None:
        self._tell("begun", list(positions))

    def read(self, events: Sequence[NewEvent]) -> None:
        self._tell("read", events)

    def noted(self, positions: Sequence[int]) -> None:
        self._tell("noted", list(positions))

    def trouble(self, why: str) -> None:
        self._tell("trouble", why)

    def skipped(self, partition: int, offset: int) -> None:
        self._tell("skipped", partition, offset)

    def polled(self, caught_up: bool, lag: int) -> None:
        state, now_s = (caught_up, lag), time.monotonic()
        if state != self._state or now_s - self._state_s >= STATE_S:
            self._state, self._state_s = state, now_s
            self._tell("polled", caught_up, lag)


def _follow(settings: Settings, connection: Connection) -> None:
    """Follow until the other process says so, or has ended."""
    for number in (signal.SIGINT, signal.SIGTERM):  # which the other process gets, too
        signal.signal(number, signal.SIG_IGN)
    follower = Follower(settings, _Teller(connection))

    def wait() -> None:
        with suppress(EOFError, OSError):
            connection.recv()
        follower.stop()

    threading.Thread(target=wait, daemon=True).start()
    try:
        follower.run()
    except BrokenPipeError:
        pass  # the other process has ended
    except Exception as error:
        connection.send(("failed", error))
