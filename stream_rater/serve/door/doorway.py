"""The door of a process: its log, its followers, and their life."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from stream_rater.config.ladders import Ladders
from stream_rater.serve.door.door import Door, Waiting
from stream_rater.serve.door.log import ProgressReader, RoundLog
from stream_rater.serve.door.process import RejectionsRun, WorkersFollower
from stream_rater.serve.door.status import RoundStates
from stream_rater.serve.http.metrics import ApiMetrics
from stream_rater.serve.questions import Questions


class StartedLog(RoundLog, Protocol):
    """A log that lives as long as the process."""

    @property
    def waiting(self) -> int:
        """The number of records whose outcome is not known yet."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connect. Outcomes go to this event loop."""

    def close(self) -> None:
        """End. Records that still wait are delivered, or fail, within seconds."""


class DoorParts(NamedTuple):
    """What the door has of the log."""

    log: StartedLog | None
    """The log to which rounds are appended; None if writing is off."""
    progress: ProgressReader
    rejections: RejectionsRun | None
    """Follows the rejections; None if writing is off."""
    stop: threading.Event
    """Set when `rejections` must end."""
    needs_token: bool = True
    """Whether clients need the token for writing."""
    known_from: Sequence[int] | None = None
    """By partition of `round-completed`, the offset from which on the followers get every event and
    every rejection; None if that is to be found out."""


class Doorway:
    """The door, if writing is on, and the follower of the workers in any case."""

    def __init__(
        self, parts: DoorParts, ladders: Ladders, metrics: ApiMetrics, hurry: Callable[[], None],
        after: Callable[[dict[int, int]], Questions], trouble: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`hurry` and `after` are those of `WorkersFollower`."""
        states, waiting, log = RoundStates(), Waiting(), parts.log
        self._log = log
        self.door: Door | None = None
        """The door; None if writing is off."""
        if log is not None:
            metrics.unacknowledged.set_function(lambda: log.waiting)
            self.door = Door(
                ladders, log, waiting, states,
                lambda outcome: metrics.posted.labels(outcome).inc(), metrics.acknowledged.observe,
                needs_token=parts.needs_token,
            )  # fmt: skip
        if parts.known_from is not None:
            states.began(parts.known_from)
        self.follower = WorkersFollower(
            parts.progress, states, waiting, after, hurry, trouble, parts.rejections, parts.stop
        )

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the threads, whose reports go to this event loop."""
        if self._log is not None:
            threading.Thread(target=self._warm, args=(loop,), daemon=True).start()
        self.follower.start(loop)

    def _warm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Compile what validation needs, and only then connect: rounds are refused until then."""
        assert self._log is not None and self.door is not None
        self.door.warm()
        self._log.start(loop)

    def close(self) -> None:
        """Deliver what was taken, and end the threads."""
        self.follower.stop()
        if self._log is not None:
            self._log.close()
