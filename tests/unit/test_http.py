"""The endpoints: what they answer, and that no client keeps others from an answer."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings
from stream_rater.operations import run
from stream_rater.runtime import http
from tests.waits import HANGS_S, Watch

"""Who has no answer by then gets none."""
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"
BODY_BYTES = 199_000_000


class Scraped(Collector):
    """Metrics that are ready when `ready` is set; with a name of so many bytes."""

    def __init__(self, length: int = 1) -> None:
        self.ready = threading.Event()
        self._name = "m" * length

    def collect(self) -> Iterator[Metric]:
        """The metrics, in a scrape's thread."""
        self.ready.wait()
        yield Metric(self._name, "", "gauge")

    def describe(self) -> list[Metric]:
        """Nothing, so that nobody collects when this is registered."""
        return []


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


@contextmanager
def serving(scraped: Scraped | None = None, clock: Clock | None = None) -> Iterator[http.Server]:
    """A server whose probes are well."""
    registry = CollectorRegistry()
    if scraped is None:
        scraped = Scraped()
        scraped.ready.set()
    registry.register(scraped)
    app = http.application(registry, list, list)
    with closing(http.Server("127.0.0.1:0", app, **({"clock": clock} if clock else {}))) as server:
        try:
            yield server
        finally:
            scraped.ready.set()


def connected(server: http.Server) -> socket.socket:
    """A client's connection."""
    return socket.create_connection(("127.0.0.1", server.port), HANGS_S)


def ask(server: http.Server, path: str = "/healthz", method: str = "GET") -> tuple[int, str]:
    """The status of an answer, and its body."""
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=HANGS_S)) as client:
        client.request(method, path)
        answer = client.getresponse()
        return answer.status, answer.read().decode()


def rest(client: socket.socket) -> bytes:
    """All that comes until the connection is closed."""
    got = b""
    try:
        while more := client.recv(1 << 20):
            got += more
    except ConnectionResetError:
        pass
    return got


# --- nobody is kept out ---------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", SCRAPE[:20], SCRAPE], ids=["idle", "half", "unanswered"])
def test_the_probes_answer_beside_500_connections(sent: bytes) -> None:
    """That have sent nothing, half a request, or one that is not answered yet."""
    with serving(Scraped()) as server, ExitStack() as held:
        for _ in range(500):
            held.enter_context(connected(server)).sendall(sent)
        assert [ask(server, path) for path in http.PROBES] == [(200, "ok\n")] * 2


def test_a_new_connection_takes_the_place_of_the_oldest() -> None:
    """Beyond the bound; the second oldest is still served."""
    with serving() as server, ExitStack() as held:
        clients = [held.enter_context(connected(server)) for _ in range(http.CONNECTIONS + 1)]
        assert rest(clients[0]) == b""
        clients[1].sendall(SCRAPE)
        assert rest(clients[1]).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_probe_does_not_wait_for_scrapes() -> None:
    """As many as there are threads, and more."""
    with serving(Scraped()) as server, ExitStack() as held:
        for _ in range(5 * http.THREADS):
            held.enter_context(connected(server)).sendall(SCRAPE)
        assert ask(server) == (200, "ok\n")


def test_nobody_wakes_a_server_that_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread may see that it is to stop before `close` wakes it; the answer of a scrape may
    come later still. The number of the pipe may be another file's by then."""
    with serving() as server:
        listener = server._listeners[0]
        wake, pipe = listener.pull_trigger, listener.trigger.trigger

        def late() -> None:
            os.write(pipe, b"x")
            server._thread.join(HANGS_S)
            assert not server._thread.is_alive()
            wake()

        monkeypatch.setattr(listener, "pull_trigger", late)
    wake()


# --- time -----------------------------------------------------------------------------------------


def test_a_connection_is_closed_that_does_not_send_its_request_in_time() -> None:
    """Even if a byte of it comes now and then."""
    clock = Clock()
    with serving(clock=clock) as server, connected(server) as client:
        client.sendall(SCRAPE[:1])
        ask(server)  # connections are accepted in turn: that of the client is, too
        clock.now_s = http.STEP_S
        client.sendall(SCRAPE[1:2])
        assert rest(client) == b""


def test_a_connection_is_closed_whose_client_does_not_take_the_answer_in_time() -> None:
    """The client gets less of it than was promised."""
    length, clock = 30_000_000, Clock()
    scraped = Scraped(length)
    scraped.ready.set()
    with serving(scraped, clock) as server:
        alone = len(server._open)
        with connected(server) as client:
            client.sendall(SCRAPE)
            assert client.recv(15) == b"HTTP/1.1 200 OK"
            watch = Watch("the connection is closed")
            while len(server._open) > alone:
                watch.look()
                clock.now_s += http.STEP_S
                ask(server)
            assert len(rest(client)) < length


def test_urgent_data_closes_the_connection() -> None:
    """Nobody reads it; as long as it is there, the server's thread would find no rest."""
    with serving() as server, connected(server) as client:
        client.send(b"!", socket.MSG_OOB)
        assert rest(client) == b""


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        f"Content-Length: {BODY_BYTES}\r\n\r\n",
        f"Content-Length: {BODY_BYTES}\r\nExpect: 100-continue\r\n\r\n",
        f"Transfer-Encoding: chunked\r\n\r\n{BODY_BYTES:x}\r\n{'x' * http.MOST_BODY_BYTES}",
    ],
    ids=["length", "expect", "chunked"],
)
def test_a_large_body_is_refused_before_it_is_sent(header: str) -> None:
    """And not read by whom it is sent to nevertheless."""
    with serving() as server, connected(server) as client:
        client.sendall(f"POST /healthz HTTP/1.1\r\nHost: here\r\n{header}".encode())
        assert client.recv(12) == b"HTTP/1.1 413"
        with pytest.raises(ConnectionError):
            client.sendall(bytes(BODY_BYTES))


def test_a_large_header_is_refused() -> None:
    """More than any scraper sends."""
    with serving() as server, connected(server) as client:
        client.sendall(SCRAPE[:-2] + b"X: " + b"x" * http.MOST_HEADER_BYTES + b"\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.0 431"


def test_a_connection_has_one_answer() -> None:
    """However many it asks for at once: they would all be held until they are read."""
    with serving() as server, connected(server) as client:
        client.sendall(SCRAPE * 20 + SCRAPE[:-2] + b"Connection: close\r\n\r\n")
        assert rest(client).count(b"HTTP/1.1 200 OK") == 1


# --- answers --------------------------------------------------------------------------------------

PATHS = ("/metrics", *http.PROBES)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_what_neither_gets_nor_asks_for_the_head_is_refused(method: str, path: str) -> None:
    """By the code that says so."""
    with serving() as server:
        assert ask(server, path, method) == (405, "GET or HEAD\n")


@pytest.mark.parametrize("path", [*PATHS, "/elsewhere"])
def test_a_head_is_that_of_the_page(path: str) -> None:
    """Line by line but for the time; and nothing follows it."""
    heads = []
    with serving() as server:
        for method in http.METHODS:
            with connected(server) as client:
                lines = f"{method} {path} HTTP/1.1", "Host: here", "Connection: close\r\n\r\n"
                client.sendall("\r\n".join(lines).encode())
                head, _, body = rest(client).partition(b"\r\n\r\n")
            heads.append([line for line in head.split(b"\r\n") if not line.startswith(b"Date: ")])
    assert heads[0] == heads[1] and body == b""


def test_a_probe_says_why() -> None:
    """By 503, a line for each reason; the other probe may be well."""
    app = http.application(CollectorRegistry(), list, lambda: ["shard 1: refused", "behind"])
    with closing(http.Server("127.0.0.1:0", app)) as server:
        assert ask(server, "/readyz") == (503, "shard 1: refused\nbehind\n")
        assert ask(server, "/healthz") == (200, "ok\n")


def test_a_port_that_is_taken_is_told_with_the_cure() -> None:
    """As by a second worker on one machine."""
    service: Any = SimpleNamespace(
        metrics=SimpleNamespace(registry=CollectorRegistry()), unhealthy=list, unready=list
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BadConfiguration) as refused:
            run._serve(Settings(http=address), service)
    assert str(refused.value).endswith(
        "Address already in use: set STREAM_RATER_HTTP to another host:port; port 0 picks a free "
        "one"
    )
