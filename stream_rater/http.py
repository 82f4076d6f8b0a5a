"""/healthz, /readyz and /metrics."""

import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app
from waitress import wasyncore
from waitress.server import BaseWSGIServer, create_server

PLAIN = [("Content-Type", "text/plain; charset=utf-8")]

Reasons = Callable[[], list[str]]


def application(
    registry: CollectorRegistry, unhealthy: Reasons, unready: Reasons
) -> Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]:
    """The WSGI application; each probe answers 200, or 503 with the reasons, a line each."""
    metrics: Any = make_wsgi_app(registry)
    probes = {"/healthz": unhealthy, "/readyz": unready}

    def serve(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            page: Iterable[bytes] = metrics(environ, respond)
            return page
        if path not in probes:
            respond("404 Not Found", PLAIN)
            return [b"/healthz, /readyz or /metrics\n"]
        reasons = probes[path]()
        respond("503 Service Unavailable" if reasons else "200 OK", PLAIN)
        return ["".join(f"{each}\n" for each in reasons or ["ok"]).encode()]

    return serve


class Server:
    """Serves an application in a thread of its own, at each address that the host has."""

    def __init__(self, address: str, app: Any) -> None:
        host, _, port = address.rpartition(":")
        self._open: dict[int, Any] = {}
        """Everything the thread waits for, by file descriptor."""
        self._server: Any = create_server(
            app, self._open, host=host or "127.0.0.1", port=int(port), threads=2
        )
        one = next(each for each in self._open.values() if isinstance(each, BaseWSGIServer))
        self.port: int = one.effective_port
        self._wake = one.trigger
        self._thread = threading.Thread(target=self._server.run, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. What the thread waits for it closes itself: closed under it, a number
        may be another's file by the time it looks."""
        self._server.task_dispatcher.shutdown()
        self._wake.pull_trigger(lambda: wasyncore.close_all(self._open, ignore_all=True))
        self._thread.join()
