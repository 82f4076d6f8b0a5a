"""The door of a process, and the threads by which it follows the workers."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from typing import NamedTuple

from stream_rater.config.ladders import Ladders
from stream_rater.contract.errors import Denied, TopicMismatch, Trouble, Unusable
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.contract.record import RejectedRecord, WorkersProgress
from stream_rater.index.log import NewEvent
from stream_rater.pipeline.ports import pause_s
from stream_rater.places.port import Place
from stream_rater.runtime.engine import RoundLog
from stream_rater.serve.door.accept import Door
from stream_rater.serve.door.outcomes import RoundStates
from stream_rater.serve.door.read_your_writes import FreshAnswers
from stream_rater.serve.http.metrics import ApiMetrics

PAUSE_S = 0.03  # The pause between two reads of the progress while a request waits.
IDLE_S = 2.0  # The pause while rounds are pending and no request waits.
FAILURES = Trouble, Denied, TopicMismatch, Unusable  # A place is asked again after these.


class DoorParts(NamedTuple):
    """What the door has of the log."""

    log: RoundLog | None  # The log to which rounds are appended; None if writing is off.
    connect: Callable[[], Place]  # Opens the place. Each thread has its own.
    needs_token: bool = True  # Whether clients need the token for writing.
    known_from: Sequence[int] | None = None
    """By partition of `round-completed`, the offset from which on the threads get every event and
    rejection; None if that is still to be found out."""


class Doorway:
    """The door, if writing is on, and the threads that follow the workers. They read the progress
    when it is needed, and, if there is a door, the rejections. The threads run the methods at the
    end; all others are for the event loop."""

    def __init__(
        self, parts: DoorParts, ladders: Ladders, metrics: ApiMetrics, fresh: FreshAnswers,
        trouble: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`fresh` receives the workers' progress; `trouble` receives why it cannot be read."""
        self._log, self._connect = parts.log, parts.connect
        self._fresh, self._troubled = fresh, trouble
        self._states = RoundStates()
        self.door: Door | None = None  # None if writing is off.
        if (log := parts.log) is not None:
            metrics.unacknowledged.set_function(lambda: log.waiting)
            self.door = Door(
                ladders, log, fresh.waiting, self._states,
                lambda outcome: metrics.posted.labels(outcome).inc(), metrics.acknowledged.observe,
                needs_token=parts.needs_token,
            )  # fmt: skip
        if parts.known_from is not None:
            self._states.began(parts.known_from)
        self._positions: list[int] = []  # Where the index reads; empty before it has begun.
        self._rejected_to: list[int] = []  # The same for `round-rejected`.
        self._stop = threading.Event()
        self._ends_wanted = threading.Event()
        self._pending = threading.Event()  # Set while the newest round may be pending.
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the threads, whose reports go to this event loop."""
        self._loop = loop
        targets = [self._follow_progress]
        if self._log is not None:
            targets += [self._connect_log, self._follow_rejections]
        for target in targets:
            threading.Thread(target=target, name=target.__name__, daemon=True).start()

    def close(self) -> None:
        """Deliver the rounds that were taken, and let the threads end soon."""
        self._stop.set()
        if self._log is not None:
            self._log.close()

    # --- reports of the index's follower ---

    def begun(self, positions: Sequence[int]) -> None:
        """The follower of `rating-changed` begins to read at these offsets."""
        self._positions = list(positions)
        self._want_ends()

    def read(self, events: Sequence[NewEvent]) -> None:
        """These events are in the index."""
        if self._log is None:
            return
        for event in events:
            self._states.changed(rating_changed_from_json(event.value))
            self._positions[event.partition] = event.offset + 1
        self._fresh.waiting.notify()

    def checkpointed(self, positions: Sequence[int]) -> None:
        """Everything before these positions is in the index."""
        self._positions = [max(pair) for pair in zip(positions, self._positions, strict=True)]
        self._settle()

    # --- reports of the threads ---

    def _observed(self, progress: WorkersProgress) -> None:
        self._fresh.observed(progress)
        self._settle()
        if self._fresh.waiting.count:
            self._fresh.hurry()

    def _rejected(self, records: Sequence[RejectedRecord], positions: Sequence[int]) -> None:
        first, self._rejected_to = not self._rejected_to, list(positions)
        for record in records:
            self._states.rejected(record)
        if first:
            self._want_ends()
        self._settle()

    def _want_ends(self) -> None:
        """Once both topics are being read, ask for the ends of the rounds: of rounds before them,
        events and rejections may have been missed."""
        if self._positions and self._rejected_to and not self._states.begun:
            self._ends_wanted.set()

    def _settle(self) -> None:
        """Find out which rounds are settled, and wake the requests that wait."""
        settled = self._fresh.settled
        if settled.shards and self._log is not None:
            self._states.settled(settled.read(self._positions, self._rejected_to))
            if self._states.unsettled:
                self._pending.set()
            else:
                self._pending.clear()
        self._fresh.waiting.notify()

    def _fail(self, why: str, denied: bool) -> None:
        if why != self._fresh.trouble:
            self._troubled(why)
        self._fresh.failed(why, denied)

    # --- the threads ---

    def _connect_log(self) -> None:
        """Compile what validation needs, and only then connect: rounds are refused until then."""
        assert self._log is not None and self.door is not None and self._loop is not None
        self.door.warm()
        self._log.start(self._loop)

    def _follow_progress(self) -> None:
        failures, place, waiting = 0, None, self._fresh.waiting
        with ExitStack() as connected:
            while not self._stop.is_set():
                wanted = waiting.wanted.wait(IDLE_S) or self._ends_wanted.is_set()
                if self._stop.is_set() or not (wanted or self._pending.is_set()):
                    continue
                try:
                    if place is None:
                        place = connected.enter_context(closing(self._connect()))
                    if self._ends_wanted.is_set():
                        ends = place.ends()
                        self._ends_wanted.clear()
                        self._call(self._states.began, ends)
                    self._call(self._observed, place.progress())
                    failures = 0
                except FAILURES as error:
                    failures += 1
                    self._call(self._fail, str(error), not isinstance(error, Trouble))
                    self._stop.wait(pause_s(failures))
                self._stop.wait(PAUSE_S)

    def _follow_rejections(self) -> None:
        failures, positions, reported = 0, list[int](), list[int]()
        while not self._stop.is_set():
            try:
                with closing(self._connect()) as place:
                    for records in place.follow_rejections(positions):
                        if self._stop.is_set():
                            return
                        if records or positions != reported:
                            reported = list(positions)
                            self._call(self._rejected, records, reported)
            except FAILURES as error:
                failures += 1
                self._troubled(str(error))
                self._stop.wait(pause_s(failures))

    def _call(self, action: Callable[..., None], *given: object) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(action, *given)
