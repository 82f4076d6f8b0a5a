"""A running `serve`: the main thread answers requests, another process follows the events."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, StoreTrouble
from stream_rater.index.folder import default_path
from stream_rater.index.follower import Follower
from stream_rater.index.log import NewEvent, Watcher
from stream_rater.index.process import END_TIMEOUT_S, IndexProcess, MakeFollower
from stream_rater.index.reader import Incomplete, IndexReader
from stream_rater.places import check_not_half, log_to_follow, place_of
from stream_rater.places.port import Place
from stream_rater.runtime import http, log, startup
from stream_rater.runtime.connections import ConnectionLimits, Server
from stream_rater.runtime.engine import round_log_of
from stream_rater.serve.door.calibration import Calibrations
from stream_rater.serve.door.following import DoorParts, Doorway
from stream_rater.serve.door.read_your_writes import FreshAnswers
from stream_rater.serve.http.application import Api
from stream_rater.serve.http.beliefs import BeliefQuestions
from stream_rater.serve.http.event_stream import Hub
from stream_rater.serve.http.limits import FairExecutor
from stream_rater.serve.http.metrics import ApiMetrics
from stream_rater.serve.questions import Questions

API_LIMITS = ConnectionLimits(connections=2000, per_address=0, head_bytes=256 * 1024)
"""The limits of the API's server. The setting SERVE_CONNECTIONS replaces `per_address`."""
TIMEOUT_S = 5.0  # The time-out of requests to servers while clients wait.
PROGRESS_TIMEOUT_S = 2.0  # The time-out of a request about the workers' progress.
READY_POLL_S = 0.05  # The interval at which a starting process asks itself whether it is ready.
STALLED_S = 30.0  # How long the follower or the event loop may go without a report.
BEAT_S = 1.0  # The interval at which the event loop shows that it runs.
READY_S = 2.0  # Seconds in which the event loop must answer a probe of another thread.
MOST_REPORTS = 16  # The most reports that wait for the event loop. Then the follower waits.
MOST_PREDICTIONS = 64  # The most predictions of an address that may wait for a thread.
SWITCH_S = 0.0005  # The interval at which a thread that computes lets the event loop run.


class Parts(NamedTuple):
    """What a process of the API answers from."""

    following: IndexProcess
    reader: IndexReader
    connect: Callable[[], Place]  # Connects to the workers' beliefs.
    door: DoorParts


MakeParts = Callable[[Watcher, ApiMetrics], Parts]  # Makes the parts, which report to the watcher.


def follower_of(
    settings: Settings, ladders: Ladders, where: Path, data: Path | None = None
) -> MakeFollower:
    """What makes the follower of the index in the folder `where`. `data`: the data file whose log
    it follows; None: the log of the settings."""
    return partial(
        Follower, where, partial(log_to_follow, settings, data), settings.serve_history,
        ladders=ladders,
    )  # fmt: skip


def parts_of_service(settings: Settings, ladders: Ladders) -> MakeParts:
    """A function that makes the parts of a process beside workers, Kafka and Redis."""

    def make(watcher: Watcher, _: ApiMetrics) -> Parts:
        check_not_half(settings)
        where = Path(settings.index) if settings.index else default_path(settings.serve)
        rounds = round_log_of(settings, watcher.trouble) if settings.serve_write_token else None
        return Parts(
            IndexProcess(where, follower_of(settings, ladders, where), watcher, settings.serve_lag),
            IndexReader(settings.serve_history, ladders),
            partial(place_of, settings, timeout_s=TIMEOUT_S),
            DoorParts(rounds, partial(place_of, settings, timeout_s=PROGRESS_TIMEOUT_S)),
        )  # fmt: skip

    return make


class ServeProcess(Watcher):
    """A process that answers requests about ratings."""

    def __init__(
        self, settings: Settings, ladders: Ladders, make_parts: MakeParts,
        on_ready: Callable[[str], None] = lambda address: None,
    ) -> None:  # fmt: skip
        """Begin to listen at once. `on_ready` is called with the address once `/readyz` answers
        200. Raises OSError or ValueError if it cannot listen."""
        self.log, self._on_ready = log.logger("serve"), on_ready
        self.metrics, self._hub = ApiMetrics(self.log), Hub()
        self._index, self._reader, connect, door = make_parts(self, self.metrics)
        index = self._reader
        executor = FairExecutor("predictions", min(4, os.cpu_count() or 1), MOST_PREDICTIONS)
        questions = Questions(
            index, ladders, lambda: self._index.caught_up, time.monotonic, executor.run, time.time,
            Calibrations(index, ladders, connect, self.trouble, time.monotonic).of,
        )  # fmt: skip
        beliefs = BeliefQuestions(ladders, index, connect)
        fresh = FreshAnswers(
            questions, lambda needed: questions.of(index.after(needed)), self._index.hurry
        )
        self._doorway = Doorway(door, ladders, self.metrics, fresh, self.trouble)
        api = Api(
            settings, metadata.version("stream-rater"), questions, beliefs, self._hub, self.metrics,
            self.unhealthy, self.unready, door=self._doorway.door,
            fresh=fresh, page=questions.page,
        )  # fmt: skip
        self.server = Server(
            api.application, settings.serve,
            API_LIMITS._replace(per_address=settings.serve_connections),
            lambda cause: self.metrics.closed_for_room.labels(cause).inc(),
        )  # fmt: skip
        self._set_gauges()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._report_slots = threading.Semaphore(MOST_REPORTS)
        self._heartbeat_s = time.monotonic()
        self._failure: BaseException | None = None
        self._probes: http.ProbeServer | None = None
        if settings.serve_probes:  # probes and metrics have an address of their own
            pages = http.application(
                self.metrics.registry, self.unhealthy, self._unready_in_another_loop,
                settings.serve_probes,
            )  # fmt: skip
            self._probes = http.ProbeServer(settings.serve_probes, pages)

    def _set_gauges(self) -> None:
        self.metrics.caught_up.set_function(lambda: self._index.caught_up)
        self.metrics.lag.set_function(self._index.behind)
        self.metrics.oldest_reader.set_function(lambda: self._index.oldest_reader_s)
        self.metrics.followers.set_function(lambda: len(self._hub))
        self.metrics.connections.set_function(lambda: len(self.server.open))

    def run(self) -> None:
        """Follow and answer until `stop`, SIGTERM or SIGINT. Raises the follower's failure."""
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
        self._doorway.start(self._loop)
        self._heartbeat(self._loop)
        probes = {} if self._probes is None else {"probes": self._probes.port}
        startup.settle()
        self.log.info("http", port=self.server.port, **probes)
        starting = asyncio.create_task(self._start())
        await self.server.listen()
        starting.cancel()
        await asyncio.to_thread(self._doorway.close)
        self._reader.close()
        self._index.stop()
        await asyncio.to_thread(thread.join, END_TIMEOUT_S)
        self._index.end()
        if self._probes is not None:
            await asyncio.to_thread(self._probes.close)
        self.log.info("stopped")

    async def _start(self) -> None:
        while await self.unready():
            await asyncio.sleep(READY_POLL_S)
        host, port = self.server.sockets[0].getsockname()[:2]
        self._on_ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    def _heartbeat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._heartbeat_s = time.monotonic()
        loop.call_later(BEAT_S, self._heartbeat, loop)

    def stop(self) -> None:
        """End `run` soon. Only the event loop's thread may call this."""
        self._hub.close()
        self.server.stop()

    def _follow(self) -> None:
        try:
            self._index.listen()
        except BaseException as error:
            self._failure = error
            self._call(self.stop)

    # --- reports of the index's process, in the thread of `_follow` ---

    def opened(self, path: Path) -> None:
        self.log.info("index", path=str(path))
        self._call(self._use, path)

    def _use(self, path: Path) -> None:
        try:
            self._reader.use(path)
        except StoreTrouble as trouble:
            self.trouble(str(trouble))

    def begun(self, positions: Sequence[int]) -> None:
        self.log.info("reading", positions=list(positions))
        self._call(self._hub.begin, list(positions))
        self._call(self._doorway.begun, list(positions))

    def read(self, events: Sequence[NewEvent]) -> None:
        self.metrics.events.inc(len(events))
        self._call(self._publish, events)

    def _publish(self, events: Sequence[NewEvent]) -> None:
        self._hub.publish(events)
        self._doorway.read(events)

    def checkpointed(self, positions: Sequence[int], ends: Sequence[int]) -> None:
        self._call(self._hub.checkpointed, ends)
        self._call(self._doorway.checkpointed, positions)

    def trouble(self, why: str) -> None:
        self.metrics.troubles.inc()
        self.log.warning("trouble", error=why)

    def skipped(self, partition: int, offset: int) -> None:
        self.metrics.skipped.inc()
        self.log.warning("no event", partition=partition, offset=offset)

    def _call(self, action: Callable[..., None], *given: object) -> None:
        """Call `action` in the event loop soon. Wait while too many calls are pending."""
        loop = self._loop
        assert loop is not None
        while not self._report_slots.acquire(timeout=BEAT_S):
            if loop.is_closed():
                return

        def act() -> None:
            self._report_slots.release()
            action(*given)

        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(act)

    # --- probes ---

    def unhealthy(self) -> list[str]:
        """The reasons why the process should be restarted."""
        now_s = time.monotonic()
        if self._loop is not None and now_s - self._heartbeat_s > STALLED_S:
            return [f"nothing was answered for {now_s - self._heartbeat_s:.0f} s"]
        stalled_s = now_s - self._index.reported_s()
        if self._index.caught_up and stalled_s > STALLED_S:
            return [f"rating-changed was not read for {stalled_s:.0f} s"]
        return []

    async def unready(self) -> list[str]:
        """The reasons why no requests should be sent to this process."""
        if not self._index.caught_up:
            return ["the index is not complete: rating-changed is still being read"]
        try:
            await self._reader.check_complete()
        except Incomplete:
            return ["the index is not complete: it is made again"]
        except (StoreTrouble, Denied) as trouble:
            return [str(trouble)]
        return self.unhealthy() or self._index.unready()

    async def _unready_in_another_loop(self) -> list[str]:
        """The same as `unready`, called from the event loop of the probes."""
        if self._loop is None:
            return ["it is starting"]
        probe = asyncio.run_coroutine_threadsafe(self.unready(), self._loop)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(probe), READY_S)
        except TimeoutError:
            return [f"the index did not answer within {READY_S:g} s"]
