"""/healthz, /readyz and /metrics.

No client can keep others from a probe's answer, or make the process hold more than a little:

- A new connection always gets in. Beyond CONNECTIONS at an address, the one is closed whose last
  step is longest ago.
- Each step of a connection has STEP_S seconds: the client sends its request, we make the answer,
  the client takes it.
- A connection ends with its first answer. So no more than one page is ever held for it.
- A request of more than a few KiB is refused before its body is read.
- The probes have threads of their own. So they wait for no scrape.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

CONNECTIONS = 100
"""At most so many are open at each address."""
STEP_S = 10.0
MOST_HEADER_BYTES, MOST_BODY_BYTES = 8192, 4096
THREADS = 2
"""So many answer probes, and as many everything else."""
LOOK_EVERY_S = 1.0
"""At least so often connections are closed that take too long."""

PLAIN = [("Content-Type", "text/plain; charset=utf-8")]
METHODS = ("GET", "HEAD")
PROBES = ("/healthz", "/readyz")

Reasons = Callable[[], list[str]]
Clock = Callable[[], float]
Page = Callable[[WSGIEnvironment, Any], Iterable[bytes]]


# --- the application ------------------------------------------------------------------------------


def application(
    registry: CollectorRegistry, unhealthy: Reasons, unready: Reasons
) -> WSGIApplication:
    """The WSGI application; each probe answers 200, or 503 with the reasons, a line each."""
    pages: dict[str, Page] = {
        "/healthz": _probe(unhealthy), "/readyz": _probe(unready),
        "/metrics": make_wsgi_app(registry),
    }  # fmt: skip

    def serve(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        if method not in METHODS:
            respond("405 Method Not Allowed", [*PLAIN, ("Allow", ", ".join(METHODS))])
            return [b"GET or HEAD\n"]
        head: list[Any] = []
        page = pages.get(environ.get("PATH_INFO", ""), _nowhere)
        body = b"".join(page(environ | {"REQUEST_METHOD": "GET"}, lambda *told: head.extend(told)))
        status, headers = head
        respond(status, [*headers, ("Content-Length", str(len(body)))])
        return [body] if method == "GET" else []

    return serve


def _probe(problems: Reasons) -> Page:
    def serve(_: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        reasons = problems()
        respond("503 Service Unavailable" if reasons else "200 OK", PLAIN)
        return ["".join(f"{each}\n" for each in reasons or ["ok"]).encode()]

    return serve


def _nowhere(_: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
    respond("404 Not Found", PLAIN)
    return [b"/healthz, /readyz or /metrics\n"]


# --- the server -----------------------------------------------------------------------------------


class _Request(HTTPRequestParser):  # type: ignore[misc]
    """A request after whose answer the connection is closed, whatever the client asks for."""

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        self.headers["CONNECTION"] = "close"

    def received(self, data: bytes) -> int:
        taken: int = super().received(data)
        if self.error is not None:
            self.expect_continue = False  # or waitress would ask for the body that it refuses
        return taken


class _Connection(HTTPChannel):  # type: ignore[misc]
    """A connection that knows when it began its present step."""

    parser_class = _Request

    def __init__(self, server: "_Listener", *rest: Any, **named: Any) -> None:
        super().__init__(server, *rest, **named)
        self.step()

    def step(self) -> None:
        """Begin a step, which has STEP_S seconds."""
        self.since_s: float = self.server.clock()

    def service(self) -> None:
        """Make the answer, in a thread."""
        super().service()
        self.step()

    def handle_expt(self) -> None:
        """Close: the client has sent urgent data. Nobody reads it, and as long as it is there, no
        wait lasts."""
        self.handle_close()


class _Listener(TcpWSGIServer):  # type: ignore[misc]
    """Accepts the connections at one address, and closes those that are too many or too slow.

    waitress by itself accepts none when there are `connection_limit`, keeps a connection for as
    long as a byte comes now and then, and never closes one whose client does not read.
    """

    channel_class = _Connection

    def __init__(self, clock: Clock, others: ThreadedTaskDispatcher, *rest: Any, **named: Any):
        super().__init__(*rest, **named)
        self.clock = clock
        self._others = others
        self._waking, self._stopped = threading.Lock(), False

    def readable(self) -> bool:
        """Whether to accept: always."""
        return True

    def pull_trigger(self) -> None:
        """Wake the server's thread; nothing once it has stopped. By then the number of the pipe
        may be another file's."""
        with self._waking:
            if not self._stopped:
                super().pull_trigger()

    def stop(self) -> None:
        """Close what wakes the thread: only the thread itself may, and nobody wakes it then."""
        with self._waking:
            self._stopped = True
            self.trigger.close()

    def prune(self) -> None:
        """Close the connections that are too many or too slow."""
        oldest_first = sorted(self.active_channels.values(), key=lambda each: each.since_s)
        too_many = len(oldest_first) - CONNECTIONS
        late_s = self.clock() - STEP_S
        for i, each in enumerate(oldest_first):
            if i < too_many or each.since_s <= late_s:
                each.handle_close()

    def add_task(self, connection: _Connection) -> None:
        """Have a request answered that has arrived whole."""
        connection.step()
        request = connection.requests[0]
        quick = request.error is not None or request.path in PROBES
        (self.task_dispatcher if quick else self._others).add_task(connection)


class Server:
    """Serves an application in a thread of its own, at each address that the host has."""

    def __init__(self, address: str, app: WSGIApplication, clock: Clock = time.monotonic) -> None:
        host, _, port = address.rpartition(":")
        settings = Adjustments(
            host=host or "127.0.0.1",
            port=int(port),
            max_request_header_size=MOST_HEADER_BYTES,
            max_request_body_size=MOST_BODY_BYTES,
        )
        self._open: dict[int, Any] = {}
        """Everything the thread waits for, by file descriptor."""
        self._pools = probes, others = ThreadedTaskDispatcher(), ThreadedTaskDispatcher()
        self._listeners = [
            _Listener(
                clock, others, app, self._open, dispatcher=probes, adj=settings, sockinfo=each
            )
            for each in settings.listen
        ]
        self.port: int = self._listeners[0].effective_port
        self._closing = False
        for pool in self._pools:
            pool.set_thread_count(THREADS)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing:
            # Only between two looks at the events: the number of a closed connection soon is that
            # of a new one, and an event would be taken for the other's.
            for listener in self._listeners:
                listener.prune()
            # poll, not select: a worker may have more than the 1,024 files that select knows.
            wasyncore.loop(LOOK_EVERY_S, use_poll=True, map=self._open, count=1)
        for listener in self._listeners:
            listener.stop()
        wasyncore.close_all(self._open, ignore_all=True)

    def close(self) -> None:
        """Stop listening. What the thread waits for it closes itself: closed under it, a number
        may be another's file by the time it looks."""
        for pool in self._pools:
            pool.shutdown()
        self._closing = True
        self._listeners[0].pull_trigger()
        self._thread.join()
