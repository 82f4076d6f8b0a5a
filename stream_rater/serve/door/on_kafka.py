"""The door of `serve` on Kafka: its log, its followers, and their life."""

import asyncio
import threading
from collections.abc import Callable

from stream_rater.adapters.kafka.progress import KafkaProgress, RejectionReader
from stream_rater.adapters.kafka.round_log import KafkaRoundLog
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.serve.door.door import Door, DoorAccess, Waiting
from stream_rater.serve.door.process import WorkersFollower
from stream_rater.serve.door.status import RoundStates
from stream_rater.serve.http.metrics import ApiMetrics
from stream_rater.serve.questions import Questions


class Doorway:
    """The door, if there is a token for writing, and the follower of the workers in any case."""

    def __init__(
        self, settings: Settings, ladders: Ladders, metrics: ApiMetrics,
        trouble: Callable[[str], None], hurry: Callable[[], None],
        after: Callable[[dict[int, int]], Questions],
    ) -> None:  # fmt: skip
        """`hurry` and `after` are those of `WorkersFollower`."""
        stop, states, waiting = threading.Event(), RoundStates(), Waiting()
        self._log: KafkaRoundLog | None = None
        self.access: DoorAccess | None = None
        """The door and who may use it; None if writing is off."""
        rejections = None
        if settings.serve_write_token:
            self._log = KafkaRoundLog(settings, trouble)
            metrics.unacknowledged.set_function(lambda: self._log.waiting if self._log else 0)
            door = Door(
                ladders, self._log, waiting, states,
                lambda outcome: metrics.posted.labels(outcome).inc(), metrics.acknowledged.observe,
            )  # fmt: skip
            self.access = DoorAccess(door)
            rejections = RejectionReader(settings, stop).run
        self.follower = WorkersFollower(
            KafkaProgress(settings), states, waiting, after, hurry, trouble, rejections, stop
        )

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the threads, whose reports go to this event loop."""
        if self._log is not None and self.access is not None:
            threading.Thread(target=self._warm, args=(loop,), daemon=True).start()
        self.follower.start(loop)

    def _warm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Compile what validation needs, and only then connect: rounds are refused until then."""
        assert self._log is not None and self.access is not None
        self.access.door.warm()
        self._log.start(loop)

    def close(self) -> None:
        """Deliver what was taken, and end the threads."""
        self.follower.stop()
        if self._log is not None:
            self._log.close()
