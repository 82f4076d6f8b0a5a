"""A running `serve`: the main thread's event loop answers, and a process of its own follows
`rating-changed`."""

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata

from stream_rater.adapters.index_follower import NewEvent, Watcher
from stream_rater.adapters.index_reader import IndexReader
from stream_rater.config import Ladders, Settings
from stream_rater.runtime import log
from stream_rater.runtime.api import Api
from stream_rater.runtime.api_beliefs import BeliefQuestions
from stream_rater.runtime.api_connections import Server
from stream_rater.runtime.api_feed import Hub
from stream_rater.runtime.api_metrics import ApiMetrics
from stream_rater.runtime.index_process import LAST_S, IndexProcess
from stream_rater.serving.questions import Questions

SILENT_S = 30.0
"""A follower that has told nothing for so long hangs."""
SWITCH_S = 0.0005
"""A thread that computes a prediction lets the one that answers have its turn so often."""


class Serve(Watcher):
    """One `serve` of the read side."""

    def __init__(self, settings: Settings, ladders: Ladders) -> None:
        """Listens at once. Raises OSError or ValueError if it cannot."""
        self.log = log.logger("serve")
        self.metrics, self._hub = ApiMetrics(self.log), Hub()
        self._index = IndexProcess(settings, self)
        self.metrics.caught_up.set_function(lambda: self._index.caught_up)
        self.metrics.lag.set_function(lambda: self._index.lag)
        self._reader = index = IndexReader(settings)
        questions = Questions(
            index, ladders, lambda: self._index.caught_up, time.monotonic, asyncio.to_thread
        )
        beliefs = BeliefQuestions(settings, ladders, index)
        api = Api(
            settings, metadata.version("stream-rater"), questions, beliefs, self._hub, self.metrics,
            self.unhealthy, self.unready,
        )  # fmt: skip
        self.server = Server(api.application, settings.serve)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Follow and answer until `stop`, or until SIGTERM or SIGINT. Raises what ended the
        follower."""
        asyncio.run(self._run())
        if self._failure is not None:
            raise self._failure

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        sys.setswitchinterval(SWITCH_S)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.stop)
        thread = threading.Thread(target=self._follow, name="follower", daemon=True)
        thread.start()
        self.log.info("http", port=self.server.port)
        await self.server.listen()
        await self._reader.close()
        self._index.stop()
        await asyncio.to_thread(thread.join, LAST_S)
        self._index.end()
        self.log.info("stopped")

    def stop(self) -> None:
        """End `run` soon; for the event loop's thread."""
        self._hub.close()
        self.server.stop()

    def _follow(self) -> None:
        try:
            self._index.listen()
        except BaseException as error:
            self._failure = error
            self._call(self.stop)

    # --- what the index's process tells, in the thread of `_follow` ---

    def begun(self, positions: Sequence[int]) -> None:
        self.log.info("reading", positions=list(positions))
        self._call(self._hub.begin, list(positions))

    def read(self, events: Sequence[NewEvent]) -> None:
        self.metrics.events.inc(len(events))
        self._call(self._hub.publish, events)

    def trouble(self, why: str) -> None:
        self.metrics.troubles.inc()
        self.log.warning("trouble", error=why)

    def skipped(self, partition: int, offset: int) -> None:
        self.metrics.skipped.inc()
        self.log.warning("no event", partition=partition, offset=offset)

    def _call(self, action: Callable[..., None], *given: object) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(action, *given)

    # --- probes ---

    def unhealthy(self) -> list[str]:
        """Why the process should be restarted."""
        silent_s = time.monotonic() - self._index.last_told_s
        if self._index.caught_up and silent_s > SILENT_S:
            return [f"rating-changed was not read for {silent_s:.0f} s"]
        return []

    def unready(self) -> list[str]:
        """Why no requests should be sent here."""
        if not self._index.caught_up:
            return ["the index is not complete: rating-changed is still being read"]
        return self.unhealthy()
