"""The pages /healthz, /readyz and /metrics of a process. No client can block the answers to others,
or make the process use much memory:

- The server runs in an event loop and a thread of its own, and limits connections and the time of
  each step: request, answer, reading it (`runtime.connections`). It accepts each new connection.
- A connection ends with its first answer, so it never holds more than one page.
- The body of a request is never read.
- Metrics are collected in threads of their own, so a probe does not wait for a scrape.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app

from stream_rater.runtime import connections, log

LIMITS = connections.ConnectionLimits(
    connections=100, per_address=0, head_bytes=8192, answer_s=connections.STEP_S, stop_s=1
)
SCRAPES = 2  # The number of scrapes that are answered at the same time.
METHODS = ("GET", "HEAD")
PROBES = ("/healthz", "/readyz")
Reasons = Callable[[], list[str] | Awaitable[list[str]]]  # The reasons why a probe fails.
Headers = list[tuple[str, str]]
Page = tuple[str, Headers, bytes]  # The status with its phrase, the headers, and the body.
Application = Callable[[Any, Any, Any], Awaitable[None]]
PLAIN = [("Content-Type", "text/plain; charset=utf-8")]


class ProbeServer:
    """Serves an application in a thread of its own, at each address of the host."""

    def __init__(self, address: str, app: Application) -> None:
        """Listens at once. Raises OSError or ValueError if that fails."""
        self._server = connections.Server(app, address, LIMITS)
        self.port = self._server.port
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._server.listen()), name="http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and close all connections."""
        self._server.stop()
        self._thread.join()


def application(
    registry: CollectorRegistry, unhealthy: Reasons, unready: Reasons, address: str = ""
) -> Application:
    """The ASGI application. A probe answers 200, or 503 with a reason per line. If `address` is of
    this machine alone, requests that name another host get no answer: a page of another site could
    read by a name of its own that leads here."""
    local = connections.is_local(address)
    metrics = _MetricsPage(registry)
    probes = dict(zip(PROBES, (unhealthy, unready), strict=True))

    async def page(scope: Any) -> Page:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if local and not all(map(connections.is_loopback, filter(None, hosts))):
            return "403 Forbidden", PLAIN, b"ask for localhost or 127.0.0.1\n"
        if scope["method"] not in METHODS:
            allow = [*PLAIN, ("Allow", ", ".join(METHODS))]
            return "405 Method Not Allowed", allow, b"GET or HEAD\n"
        if scope["path"] == "/metrics":
            return await metrics.page(scope)
        if (reasons := probes.get(scope["path"])) is None:
            return "404 Not Found", PLAIN, b"/healthz, /readyz or /metrics\n"
        status, text = await probe(reasons)
        return ("503 Service Unavailable" if status == 503 else "200 OK"), PLAIN, text.encode()

    async def answer(scope: Any, _: Any, send: Any) -> None:
        try:
            status, headers, body = await page(scope)
        except Exception:
            log.logger("http").exception("page failed", path=scope["path"])
            status, headers, body = "500 Internal Server Error", PLAIN, b"see the log\n"
        headers = [*headers, ("Content-Length", str(len(body))), ("Connection", "close")]
        raw = [(name.encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": int(status[:3]), "headers": raw})
        await send({"type": "http.response.body", "body": body})

    return answer


async def probe(reasons: Reasons) -> tuple[int, str]:
    """The status and the text of a probe."""
    found = reasons()
    lines = await found if inspect.isawaitable(found) else found
    return (503 if lines else 200), "".join(f"{each}\n" for each in lines or ["ok"])


class _MetricsPage:
    """The page /metrics, for one event loop."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._scrape = make_wsgi_app(registry)
        self._threads = asyncio.Semaphore(SCRAPES)
        self._waiting = 0

    async def page(self, scope: Any) -> Page:
        """The metrics, in the format that the client accepts."""
        if self._waiting >= LIMITS.connections:  # some of them may have disconnected
            return "503 Service Unavailable", PLAIN, b"too many scrapes at once: try again\n"
        self._waiting += 1
        try:
            async with self._threads:
                return await _in_thread(lambda: self._scraped(scope))
        finally:
            self._waiting -= 1

    def _scraped(self, scope: Any) -> Page:
        environ = {
            f"HTTP_{name.decode('latin-1').upper().replace('-', '_')}": value.decode("latin-1")
            for name, value in scope["headers"]
        }
        query = scope["query_string"].decode("latin-1")
        environ |= {"REQUEST_METHOD": "GET", "PATH_INFO": "/metrics", "QUERY_STRING": query}
        head: list[Any] = []

        def respond(status: str, headers: Headers) -> None:
            head.extend((status, headers))

        parts: Iterable[bytes] = self._scrape(environ, respond)
        return head[0], head[1], b"".join(parts)


async def _in_thread(work: Callable[[], Page]) -> Page:
    """The result of `work` from a thread that does not keep the process from ending."""
    done: Future[Page] = Future()
    done.set_running_or_notify_cancel()  # a caller that stops waiting does not stop the thread

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="scrape", daemon=True).start()
    return await asyncio.wrap_future(done)
