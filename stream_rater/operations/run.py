"""`stream-rater run`: runs a worker process."""

import faulthandler
import signal

from stream_rater.config.errors import BadConfiguration, named_failures
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.runtime import http, malloc, selfcheck
from stream_rater.runtime.service import Service

STOP_TIMEOUT_S = 9.5
"""The longest time that a process takes to end after a signal to stop, or after one of its roles
has failed, in seconds."""


def run(settings: Settings, roles: frozenset[str]) -> None:
    """Run these roles of the service until SIGTERM or SIGINT. Raises BadConfiguration or Failed."""
    ladders = ladders_of_settings(settings)
    with named_failures():
        selfcheck.check()  # before it joins a group, so kernels are compiled by then
        service = Service(settings, ladders, roles)
        service.on_stop = _end_in_time
        malloc.configure()
        server = _serve_http(settings, service)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: service.stop())
        try:
            service.run()
        finally:
            if server is not None:
                server.close()


def _end_in_time() -> None:
    """Let the process end in time, even if a client library hangs and holds the interpreter's lock:
    librdkafka may do so if a consumer is closed while a rebalance begins."""
    faulthandler.dump_traceback_later(STOP_TIMEOUT_S, exit=True)


def _serve_http(settings: Settings, service: Service) -> http.Server | None:
    if not settings.http:
        return None
    registry = service.metrics.registry
    app = http.application(registry, service.unhealthy, service.unready, settings.http)
    try:
        server = http.Server(settings.http, app)
    except (OSError, ValueError) as error:
        raise BadConfiguration(
            f"http {settings.http!r}: {error}: set {PREFIX}HTTP to another host:port; port 0 picks "
            "a free one"
        ) from None
    service.log.info("http", port=server.port)
    return server
