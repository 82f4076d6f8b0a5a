"""The parts of `serve` that follow the workers: threads that read, and the event loop's state.

`ServeProcess` and a standalone process give it their own log and readers.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from stream_rater.adapters.kafka.topics import TopicMismatch
from stream_rater.contract.errors import Denied, Trouble
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.contract.submissions import Progress, RejectedRecord
from stream_rater.index.follower import NewEvent
from stream_rater.pipeline.ports import pause_s
from stream_rater.serve.door.door import Waiting
from stream_rater.serve.door.log import ProgressReader
from stream_rater.serve.door.settled import Settled
from stream_rater.serve.door.status import RoundStates
from stream_rater.serve.questions import Questions

PAUSE_S = 0.03
"""The pause between two reads of the progress while a request waits."""
IDLE_S = 2.0
"""The interval at which the progress is read while rounds are pending and no request waits."""

RejectionsRun = Callable[
    [Callable[[], None], Callable[[Sequence[RejectedRecord], Sequence[int]], None]], None
]
"""Follows the rejections until the process ends; see `RejectionReader.run`."""


class WorkersFollower:
    """Follows the workers' progress, on demand, and the states of rounds. The methods are for the
    event loop, except those of the threads."""

    def __init__(
        self, progress: ProgressReader, states: RoundStates, waiting: Waiting,
        after: Callable[[dict[int, int]], Questions], hurry: Callable[[], None],
        troubled: Callable[[str], None] = lambda _: None,
        rejections: RejectionsRun | None = None, stop: threading.Event | None = None,
    ) -> None:  # fmt: skip
        """`after` gives the questions that are answered only by an index with these positions.
        `hurry` asks for the positions of the index to be stored soon. `rejections` follows the
        rejections; None if the states of rounds are not asked for."""
        self.settled, self.waiting, self.trouble = Settled(), waiting, ""
        self.denied = False
        self._progress, self._states = progress, states
        self.after, self.hurry = after, hurry
        self._troubled, self._rejections = troubled, rejections
        self._stop = threading.Event() if stop is None else stop
        self._positions: list[int] = []
        self._rejected_positions: list[int] = []
        self._index_begun = self._rejections_begun = False
        self._ends_wanted = threading.Event()
        self._pending = threading.Event()
        """Set while the newest round may be pending."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the threads, whose reports go to this event loop."""
        self._loop = loop
        targets = [self._follow_progress]
        if self._rejections is not None:
            targets.append(self._follow_rejections)
        for each in targets:
            threading.Thread(target=each, name=each.__name__, daemon=True).start()

    def stop(self) -> None:
        """End the threads soon."""
        self._stop.set()

    # --- reports of the index's follower ---

    def begun(self, positions: Sequence[int]) -> None:
        """The follower of `rating-changed` begins to read at these offsets."""
        self._positions = list(positions)
        self._index_begun = True
        self._begin()

    def read(self, events: Sequence[NewEvent]) -> None:
        """These events are in the index."""
        if self._rejections is None:
            return
        for each in events:
            self._states.changed(rating_changed_from_json(each.value))
            self._positions[each.partition] = each.offset + 1
        self.waiting.notify()

    def checkpointed(self, positions: Sequence[int]) -> None:
        """Everything before these positions is in the index."""
        self._positions = [max(pair) for pair in zip(positions, self._positions, strict=True)]
        self._settle()

    # --- reports of the threads ---

    def _observed(self, progress: Progress) -> None:
        self.trouble, self.denied = "", False
        self.settled.observe(progress)
        self._settle()
        if self.waiting.count:
            self.hurry()

    def _rejected(self, records: Sequence[RejectedRecord], positions: Sequence[int]) -> None:
        for each in records:
            self._states.rejected(each)
        self._rejected_positions = list(positions)
        self._settle()

    def _begin(self) -> None:
        if self._index_begun and self._rejections_begun and not self._states.begun:
            self._ends_wanted.set()

    def _begun_rejections(self) -> None:
        self._rejections_begun = True
        self._begin()

    def _settle(self) -> None:
        """Find out which rounds are settled, and wake the requests that wait."""
        if self.settled.shards and self._rejections is not None:
            read = self.settled.read(self._positions, self._rejected_positions)
            self._states.settled(read)
            if self._states.unsettled:
                self._pending.set()
            else:
                self._pending.clear()
        self.waiting.notify()

    # --- the threads ---

    def _follow_progress(self) -> None:
        failures = 0
        while not self._stop.is_set():
            wanted = self.waiting.wanted.wait(IDLE_S)
            if self._stop.is_set():
                return
            if not (wanted or self._pending.is_set() or self._ends_wanted.is_set()):
                continue
            try:
                if self._ends_wanted.is_set():
                    ends = self._progress.ends()
                    self._ends_wanted.clear()
                    self._call(self._states.began, ends)
                self._call(self._observed, self._progress.read())
                failures = 0
            except (Trouble, Denied, TopicMismatch) as error:
                failures += 1
                self._call(self._fail, str(error), not isinstance(error, Trouble))
                self._stop.wait(pause_s(failures))
            self._stop.wait(PAUSE_S)

    def _follow_rejections(self) -> None:
        assert self._rejections is not None
        failures = 0
        while not self._stop.is_set():
            try:
                self._rejections(
                    lambda: self._call(self._begun_rejections),
                    lambda records, positions: self._call(self._rejected, records, positions),
                )
            except (Trouble, Denied, TopicMismatch) as error:
                failures += 1
                self._troubled(str(error))
                self._stop.wait(pause_s(failures))

    def _fail(self, why: str, denied: bool) -> None:
        if why != self.trouble:
            self._troubled(why)
        self.trouble, self.denied = why, denied
        if denied:
            self.waiting.notify()

    def _call(self, action: Callable[..., None], *given: object) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(action, *given)
