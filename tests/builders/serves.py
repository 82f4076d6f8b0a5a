"""`serve` and standalone processes as threads of the test's process, on real servers or files. (A
process of its own would import everything twice, since its index is a process, too.)"""

import asyncio
import gc
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import structlog

from stream_rater.config.settings import Settings
from stream_rater.index import follower
from stream_rater.index.follower import Follower
from stream_rater.index.log import Watcher
from stream_rater.index.process import IndexProcess, MakeFollower
from stream_rater.places import ladders_of
from stream_rater.runtime import http, log
from stream_rater.serve import service, standalone
from stream_rater.serve.service import MakeParts, ServeProcess, parts_of_service
from stream_rater.serve.standalone import parts_of_file
from tests.integration.processes import Answering, wait_until

CHECKPOINT_S = 0.2
"""How often the index reports its positions. Tests wait for this; a real process waits 2 s."""

ServeHere = Callable[..., "ServeThread"]


class IndexThread(IndexProcess):
    """Does what `IndexProcess` does, but in the thread that calls `listen`."""

    def __init__(
        self, where: Path, make: MakeFollower, watcher: Watcher, most_lag: int = 0
    ) -> None:
        super().__init__(where, make, watcher, most_lag)
        self._make = make
        self._to_watcher: Any = SimpleNamespace(
            opened=watcher.opened, begun=watcher.begun, read=watcher.read,
            checkpointed=watcher.checkpointed, trouble=watcher.trouble, skipped=watcher.skipped,
            polled=self._polled,
        )  # fmt: skip
        self._follower: Follower | None = None

    def _polled(self, caught_up: bool, lag: int, oldest_reader_s: float) -> None:
        self.caught_up, self.lag, self.oldest_reader_s = caught_up, lag, oldest_reader_s
        self.last_report_s = time.monotonic()

    def listen(self) -> None:
        self._follower = self._make(self._to_watcher)
        if not self._stopping:
            self._follower.run()

    def stop(self) -> None:
        self._stopping = True
        if self._follower is not None:
            self._follower.stop()

    def hurry(self) -> None:
        if self._follower is not None:
            self._follower.hurry()

    def end(self) -> None:
        self._hold.close()


class _StandaloneThread(standalone.Standalone, IndexThread):
    """A standalone process whose index runs in the thread that calls `listen`."""


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that leaves signals to the main thread."""

    def add_signal_handler(self, *_: Any) -> None:  # type: ignore[override]
        pass


class _Service(ServeProcess):
    def run(self) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(self._run())
        if self._failure is not None:
            raise self._failure

    @property
    def probes(self) -> http.ProbeServer | None:
        return self._probes

    def end(self) -> None:
        wait_until(lambda: self._loop is not None, "it has begun")
        assert self._loop is not None
        with suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self.stop)


def _logger(role: str) -> Any:
    """A logger that prints: an earlier command's logger may have a file that is closed by now."""
    return structlog.wrap_logger(structlog.PrintLogger(), role=role)


class ServeThread(Answering):
    """A running `serve`, or a standalone process if `parts` makes those of a data file."""

    def __init__(
        self, settings: Settings, parts: Callable[..., MakeParts] = parts_of_service,
        data: Path | None = None,
    ) -> None:  # fmt: skip
        self._made = parts is parts_of_service and not settings.index
        if self._made:
            index = tempfile.mkdtemp(prefix="stream-rater-index-")
            settings = msgspec.structs.replace(settings, index=index)
        ladders = ladders_of(msgspec.structs.replace(settings, data=str(data or "")))
        self.settings = settings
        self.failure: BaseException | None = None
        """The error that ended it, if one did."""
        with (
            mock.patch.object(log, "logger", _logger),
            mock.patch.object(service, "IndexProcess", IndexThread),
            mock.patch.object(standalone, "Standalone", _StandaloneThread),
        ):
            self._service = _Service(settings, ladders, parts(settings, ladders))
        self._thread = threading.Thread(target=self._run, name="serve", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._service.run()
        except BaseException as error:
            self.failure = error

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._service.server.port}"

    @property
    def probes_url(self) -> str:
        """The address of the server for probes, if it has one of its own."""
        assert self._service.probes is not None
        return f"http://127.0.0.1:{self._service.probes.port}"

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def moves(self) -> object:
        return self.metric("stream_rater_serve_events_total") if self.running else None

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.running, f"it ended: {self.failure!r}"
            return self.get("/readyz")[0] == 200

        wait_until(ready, "it is ready", moves=self.moves)

    def wait(self) -> str:
        """Wait until it has ended by itself. Returns its error, or an empty text if it had none."""
        wait_until(lambda: not self.running, "it ends")
        return "" if self.failure is None else str(self.failure)

    def close(self) -> None:
        if self.running:
            self._service.end()
        self.wait()
        if self._made:
            shutil.rmtree(self.settings.index, ignore_errors=True)


@contextmanager
def serves_here() -> Iterator[ServeHere]:
    """Starts `serve`; with `data`, a standalone process on this file. All end after the test."""
    started: list[ServeThread] = []
    switch_s = sys.getswitchinterval()

    def start(settings: Settings, *, ready: bool = True, data: Path | None = None) -> ServeThread:
        parts = partial(parts_of_file, path=data) if data else parts_of_service
        started.append(ServeThread(settings, parts, data))
        if ready:
            started[-1].wait_ready()
        return started[-1]

    try:
        with mock.patch.object(follower, "CHECKPOINT_S", CHECKPOINT_S):
            yield start
    finally:
        for each in started:
            each.close()
        sys.setswitchinterval(switch_s)
        gc.unfreeze()
