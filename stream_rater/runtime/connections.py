"""HTTP connections for the API and the probes, with time-outs that no client can evade.

By itself, uvicorn waits without end for a request that comes byte by byte, for the rest of a body
whose request is already answered, and for a client that does not read its answer. Here a timer runs
whenever the server waits for the client:

- for the head of a request, and while a client does not read: STEP_S;
- from the head to the end of the body: REQUEST_S (the API answers after 10 s);
- for the rest of a body after the answer: LINGER_S;
- between two requests: KEEP_ALIVE_S, whatever the client sends that is not a request.

A new connection is always accepted; beyond the limit, an idle one is closed (`OpenConnections`).
"""

import asyncio
import errno
import ipaddress
import logging
import os
import resource
import socket
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

STEP_S = 10.0
REQUEST_S = 15.0
LINGER_S = 2.0
KEEP_ALIVE_S = 30.0
OTHER_FILES = 200  # Files that a process needs besides its connections.
MOST_HEADERS = 1000  # The most headers of a request.
MOST_PIPELINED = 100  # The most requests of a connection that wait for their turn.

HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)


class ConnectionLimits(NamedTuple):
    """The limits for all clients of a server together, and for each client."""

    connections: int  # The number of open connections.
    per_address: int  # The number of open connections of one client address; 0: no limit.
    head_bytes: int
    """The most bytes of a request's head. As many may stand before, between and behind the parts
    of a body: the sizes of chunks with their extensions, and trailers."""
    answer_s: float | None = None
    """Seconds that making an answer may take; a connection that waits for its answer may be closed
    to make room. None: no limit, and such a connection is never closed to make room."""
    stop_s: int = 5  # Seconds for sending answers after `Server.stop`.


class Server(uvicorn.Server):
    """Serves an application until `stop`. It leaves signals to the caller."""

    def __init__(
        self, application: Any, address: str, limits: ConnectionLimits,
        made_room: Callable[[str], None] = lambda cause: None,
    ) -> None:  # fmt: skip
        """Listens at once at all addresses of the host. `made_room` is called with `address` or
        `all` when a connection is closed to make room. Raises OSError or ValueError."""
        logger = logging.getLogger("uvicorn")
        logger.addHandler(logging.NullHandler())  # errors of clients are not logged
        logger.propagate = False
        max_total = _allowed_connections(limits.connections)
        self.open = OpenConnections(max_total, limits.per_address, made_room)
        connection: Any = partial(ClientConnection, self.open, limits)
        super().__init__(
            uvicorn.Config(
                application, http=connection,
                lifespan="off", log_config=None, access_log=False, server_header=False, ws="none",
                timeout_graceful_shutdown=limits.stop_s, proxy_headers=False,
            )
        )  # fmt: skip
        self.sockets = _listening(address)
        self.port: int = self.sockets[0].getsockname()[1]

    async def listen(self) -> None:
        """Answer requests until `stop`."""
        await self.serve(self.sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """End `listen` soon. Any thread may call this."""
        self.should_exit = True


def _listening(address: str) -> list[socket.socket]:
    """A socket for each address of HOST:PORT. An empty HOST is 127.0.0.1, `*` is every address."""
    host, _, text = address.rpartition(":")
    host, port = host.strip("[]") or "127.0.0.1", int(text)
    addresses = socket.getaddrinfo(
        None if host == "*" else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    unavailable = OSError()
    for family, at in dict.fromkeys((family, at) for family, *_, at in addresses):
        try:
            sockets.append(socket.create_server((at[0], port), family=family, backlog=1024))
        except OSError as error:
            unavailable = OSError(error.errno, os.strerror(error.errno or 0))
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise unavailable from None  # else the host has a name for IPv6, and IPv6 is off
        if sockets:
            port = sockets[0].getsockname()[1]
    if not sockets:
        raise unavailable
    return sockets


def is_loopback(name: str) -> bool:
    """Whether a name (HOST or HOST:PORT) is one of this machine that others do not reach."""
    try:
        found = urlsplit(f"//{name}")
        host = found.hostname if found.netloc == name and "@" not in name else None
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def is_local(address: str) -> bool:
    """Whether a server that listens at HOST:PORT is reached from this machine alone."""
    return is_loopback(f"127.0.0.1{address}" if address.startswith(":") else address)


def _allowed_connections(wanted: int) -> int:
    """`wanted`, or fewer if the process may not open as many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= files:
        return wanted
    soft = files if hard == resource.RLIM_INFINITY else min(files, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, soft - OTHER_FILES)


class ClientConnection(HttpToolsProtocol):
    """A connection with a timer for its present step."""

    def __init__(
        self, connections: "OpenConnections", limits: ConnectionLimits, *given: Any, **named: Any
    ) -> None:
        super().__init__(*given, **named)
        self._open, self._limits = connections, limits
        self._step: asyncio.TimerHandle | None = None
        """The timer of the client's request, or of making the answer."""
        self._unread: asyncio.TimerHandle | None = None  # The timer of a client that does not read.
        self._in_head = self._in_body = False  # Whether a request's head or body is unfinished.
        self._beside = 0  # The bytes received in a row that belong to no body.

    def drop(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    # --- callbacks of asyncio and the parser ---

    def connection_made(self, transport: Any) -> None:
        # Without TCP_NODELAY the body of an answer waits 40 ms until the client has acknowledged
        # the head. asyncio sets it only on sockets that name their protocol; accepted ones do not.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._wait(STEP_S)
        self._open.add(self, self.client[0] if self.client else "")

    def data_received(self, data: bytes) -> None:
        """Parse data in pieces. Ends the connection after too much that belongs to no body."""
        while data and not self.transport.is_closing():
            if not (self._in_head or self._in_body):
                self._beside = 0
            if (room := self._limits.head_bytes - self._beside) <= 0:
                self.transport.write(HEAD_TOO_LARGE)
                return self._close()
            piece, data = data[:room], data[room:]
            self._beside += len(piece)
            super().data_received(piece)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._wait(STEP_S)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of a request, or a trailer, which is dropped. Too many end the connection."""
        if self._in_head:
            if len(self.headers) == MOST_HEADERS:
                raise httptools.HttpParserError("too many headers")
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) == MOST_PIPELINED:
            raise httptools.HttpParserError("too many requests at once")
        self._in_head, self._in_body, self._beside = False, True, 0
        self._wait(REQUEST_S)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._beside = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_body, self._beside = False, 0
        if self.cycle.response_complete:  # this was the rest of an unwanted body
            self._idle()
        else:
            self._answer()

    def on_response_complete(self) -> None:
        """A request is answered, perhaps before its body is complete."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif not self.cycle.response_complete:
            return  # the next request waits for its answer
        elif not self._in_body:
            if not self._in_head:
                self._idle()
        elif self.expect_100_continue:
            self._close()  # the client may send no body: what follows may be a request
        else:
            self._unset_keepalive_if_required()
            self._wait(LINGER_S)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(STEP_S, self.transport.abort)
        self._open.idle(self)

    def resume_writing(self) -> None:
        self._end_unread()
        if self.transport.is_closing():
            self._wait(STEP_S)
        elif not self._in_body and not self.cycle.response_complete:
            self._busy()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_step()
        self._end_unread()
        self._open.remove(self)
        super().connection_lost(exc)

    # --- steps ---

    def _answer(self) -> None:
        """The application makes the answer."""
        self._end_step()
        if self._limits.answer_s is not None:
            self._wait(self._limits.answer_s)
        self._busy()

    def _busy(self) -> None:
        if self._limits.answer_s is None:
            self._open.busy(self)
        else:
            self._open.idle(self)

    def _idle(self) -> None:
        """The connection waits for the next request."""
        self._unset_keepalive_if_required()  # uvicorn's timer would end with any byte
        self._wait(KEEP_ALIVE_S)
        self._open.idle(self)

    def _close(self) -> None:
        """Close the connection after the client has read all written data."""
        self.transport.close()
        if self._unread is None:
            self._wait(STEP_S)
        self._open.idle(self)

    def _wait(self, seconds: float) -> None:
        """Close the connection unless the next step begins within these seconds."""
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


# --- which connection makes room ------------------------------------------------------------------


class OpenConnections:
    """The open connections of a server, for one thread. A connection is idle while the server waits
    for its client: for a request, or until the answer is read. It is busy while its request is
    answered, or while it follows changes. To make room, the connection is closed that has been idle
    longest; busy connections stay."""

    def __init__(self, max_total: int, per_address: int, made_room: Callable[[str], None]) -> None:
        """`max_total`, `per_address` (0: no limit): the most connections. `made_room`: see
        Server."""
        self._max_total, self._per_address, self._made_room = max_total, per_address, made_room
        self._address_of: dict[ClientConnection, str] = {}
        self._counts: Counter[str] = Counter()  # By address, the number of its connections.
        self._idle: OrderedDict[ClientConnection, None] = OrderedDict()  # The longest wait first.

    def __len__(self) -> int:
        """The number of open connections."""
        return len(self._address_of)

    def add(self, connection: ClientConnection, address: str) -> None:
        """Add a connection. If there are too many, close an idle one; if none is idle, this one."""
        self._address_of[connection] = address
        self._counts[address] += 1
        if self._per_address and self._counts[address] > self._per_address:
            idle_of_address = (each for each in self._idle if self._address_of[each] == address)
            self._close(next(idle_of_address, connection), "address")
        elif len(self) > self._max_total:
            self._close(next(iter(self._idle), connection), "all")
        self.idle(connection)

    def idle(self, connection: ClientConnection) -> None:
        """The server begins to wait for the client."""
        if connection in self._address_of:
            self._idle[connection] = None
            self._idle.move_to_end(connection)

    def busy(self, connection: ClientConnection) -> None:
        """The client begins to wait for the server."""
        self._idle.pop(connection, None)

    def remove(self, connection: ClientConnection) -> None:
        """The connection is closed."""
        self._idle.pop(connection, None)
        if (address := self._address_of.pop(connection, None)) is not None:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

    def _close(self, connection: ClientConnection, cause: str) -> None:
        self._made_room(cause)
        self.remove(connection)
        connection.drop()
