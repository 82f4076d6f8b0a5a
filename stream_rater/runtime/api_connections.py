"""HTTP connections of the API that nobody can hold open for nothing.

uvicorn by itself waits without end for a request that comes byte by byte, and for a client that
does not read its answer. Here each of these has STEP_S seconds; the application bounds the time of
a body. A connection between two requests is closed after KEEP_ALIVE_S.
"""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

STEP_S = 10.0
KEEP_ALIVE_S = 30
CONNECTIONS = 2000
"""Beyond so many, a request is answered by 503."""
STOP_S = 5
"""Answers that are being sent have so long once the process is to stop."""


class Connection(HttpToolsProtocol):
    """A connection whose present step is timed."""

    _step: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client connected: its request's head has STEP_S seconds."""
        # Without it the body of an answer waits 40 ms, until the client has acknowledged the
        # head. asyncio sets it only where a socket names its protocol; accepted ones do not.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._begin_step()

    def on_message_begin(self) -> None:
        """The first byte of a request has come."""
        super().on_message_begin()
        self._begin_step()

    def on_headers_complete(self) -> None:
        """The head of a request is there."""
        self._end_step()
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._begin_step()

    def resume_writing(self) -> None:
        """The client has read."""
        self._end_step()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._end_step()
        super().connection_lost(exc)

    def _begin_step(self) -> None:
        self._end_step()
        self._step = self.loop.call_later(STEP_S, self.transport.abort)

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.cancel()
            self._step = None


class Server(uvicorn.Server):
    """Serves an application until `stop`. Signals are the caller's."""

    def __init__(self, application: Any, address: str) -> None:
        """Listen. Raises OSError or ValueError."""
        logger = logging.getLogger("uvicorn")
        logger.addHandler(logging.NullHandler())  # clients' mistakes are no news
        logger.propagate = False
        super().__init__(
            uvicorn.Config(
                application, http=Connection, lifespan="off", log_config=None, access_log=False,
                server_header=False, timeout_keep_alive=KEEP_ALIVE_S, ws="none",
                limit_concurrency=CONNECTIONS, timeout_graceful_shutdown=STOP_S,
                proxy_headers=False,
            )
        )  # fmt: skip
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server(
            (host.strip("[]") or "127.0.0.1", int(port)), family=family, backlog=1024
        )
        self.port: int = self._socket.getsockname()[1]

    async def listen(self) -> None:
        """Answer until `stop`."""
        await self.serve([self._socket])

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals as they are."""
        yield

    def stop(self) -> None:
        """End `listen` soon."""
        self.should_exit = True
