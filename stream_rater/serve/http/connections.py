"""HTTP connections of the API that nobody can hold open for nothing.

uvicorn by itself waits without end for a request that comes byte by byte, for the rest of a body
whose request is answered already, and for a client that does not read its answer. Here a timer runs
whenever we wait for the client:

- for a request's head, and for a client that reads nothing: STEP_S;
- from the head to the end of the body: REQUEST_S (the application answers after 10 s);
- for the rest of a body once its request is answered, as a refusal is: LINGER_S;
- between two requests: KEEP_ALIVE_S, whatever comes that is no request.

A probe always gets in: beyond CONNECTIONS, the one that was idle longest makes room (`Crowd`).
"""

import asyncio
import logging
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stream_rater.serve.http.crowd import Crowd

STEP_S = 10.0
REQUEST_S = 15.0
LINGER_S = 2.0
KEEP_ALIVE_S = 30.0
CONNECTIONS = 2000
OTHER_FILES = 200
"""Files that a process needs besides its connections."""
STOP_S = 5
"""Answers that are being sent have so long once the process is to stop."""


class Connection(HttpToolsProtocol):
    """A connection whose present step is timed."""

    def __init__(self, crowd: Crowd, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._crowd = crowd
        self._step: asyncio.TimerHandle | None = None
        """Runs while we wait for the client's request."""
        self._unread: asyncio.TimerHandle | None = None
        """Runs while the client does not read."""
        self._in_head = self._in_body = False
        """Whether a request's head has begun, or its body, and has not ended."""

    def drop(self) -> None:
        """Close it at once."""
        self.transport.abort()

    # --- what asyncio and the parser call ---

    def connection_made(self, transport: Any) -> None:
        """A client connected: its request's head has STEP_S seconds."""
        # Without it the body of an answer waits 40 ms, until the client has acknowledged the
        # head. asyncio sets it only where a socket names its protocol; accepted ones do not.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._wait(STEP_S)
        self._crowd.came(self, self.client[0] if self.client else "")

    def on_message_begin(self) -> None:
        """The first byte of a request has come."""
        super().on_message_begin()
        self._in_head = True
        self._wait(STEP_S)

    def on_headers_complete(self) -> None:
        """The head of a request is there: its body has REQUEST_S seconds."""
        self._in_head, self._in_body = False, True
        self._wait(REQUEST_S)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request has come as a whole."""
        super().on_message_complete()
        self._in_body = False
        if self.cycle.response_complete:  # the rest of a body that nobody wanted
            self._idle()
        else:
            self._work()

    def on_response_complete(self) -> None:
        """A request is answered, perhaps before its body has come."""
        super().on_response_complete()
        if self.transport.is_closing() or not self.cycle.response_complete:
            return  # another request waits for its answer
        if not self._in_body:
            if not self._in_head:
                self._idle()
        elif self.expect_100_continue:
            self.transport.close()  # the body may never come: what follows may be a request
        else:
            self._unset_keepalive_if_required()
            self._wait(LINGER_S)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._unread = self.loop.call_later(STEP_S, self.transport.abort)
        self._crowd.waits(self)

    def resume_writing(self) -> None:
        """The client has read."""
        self._end_unread()
        if not self._in_body and not self.cycle.response_complete:
            self._crowd.works(self)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._end_step()
        self._end_unread()
        self._crowd.left(self)
        super().connection_lost(exc)

    def _idle(self) -> None:
        self._unset_keepalive_if_required()  # any byte would end it
        self._wait(KEEP_ALIVE_S)
        self._crowd.waits(self)

    def _work(self) -> None:
        self._end_step()
        self._crowd.works(self)

    def _wait(self, seconds: float) -> None:
        """We wait for the client, but not for longer."""
        self._end_step()
        self._step = self.loop.call_later(seconds, self.transport.abort)

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.cancel()
            self._step = None

    def _end_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


class Server(uvicorn.Server):
    """Serves an application until `stop`. Signals are the caller's."""

    def __init__(
        self, application: Any, address: str, of_one: int, made_room: Callable[[str], None]
    ) -> None:
        """Listen. `of_one`: connections of one address, 0 means no limit; `made_room` is told why
        one had to go. Raises OSError or ValueError."""
        logger = logging.getLogger("uvicorn")
        logger.addHandler(logging.NullHandler())  # clients' mistakes are no news
        logger.propagate = False
        self.crowd = Crowd(_most_connections(), of_one, made_room)
        connection: Any = partial(Connection, self.crowd)
        super().__init__(
            uvicorn.Config(
                application, http=connection,
                lifespan="off", log_config=None, access_log=False, server_header=False, ws="none",
                timeout_graceful_shutdown=STOP_S, proxy_headers=False,
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


def _most_connections() -> int:
    """CONNECTIONS, or fewer where the process may not open so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, soft - OTHER_FILES)
    return CONNECTIONS
