"""The endpoints: no client keeps others from an answer, and no other site's page may write."""

import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.datastructures import Headers
from structlog.testing import capture_logs

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings
from stream_rater.runtime import connections, http
from stream_rater.runtime.service import _serve_http
from stream_rater.serve.http.limits import Sites
from stream_rater.serve.problems import Refused
from tests.builders.cases import cases
from tests.waits import HANGS_S, Watch

SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"
BODY_BYTES = 199_000_000
STEP_S = 0.2


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


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has STEP_S seconds of this file for each of its steps."""
    monkeypatch.setattr(connections, "STEP_S", STEP_S)


@contextmanager
def serving(scraped: Scraped | None = None) -> Iterator[http.ProbeServer]:
    """A server whose probes succeed."""
    registry = CollectorRegistry()
    if scraped is None:
        scraped = Scraped()
        scraped.ready.set()
    registry.register(scraped)
    app = http.application(registry, list, list)
    with closing(http.ProbeServer("127.0.0.1:0", app)) as server:
        try:
            yield server
        finally:
            scraped.ready.set()


def connected(server: http.ProbeServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), HANGS_S)


def ask(server: http.ProbeServer, path: str = "/healthz", method: str = "GET") -> tuple[int, str]:
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=HANGS_S)) as client:
        client.request(method, path)
        answer = client.getresponse()
        return answer.status, answer.read().decode()


def rest(client: socket.socket) -> bytes:
    got = b""
    try:
        while more := client.recv(1 << 20):
            got += more
    except ConnectionResetError:
        pass
    return got


def test_the_probes_answer_beside_500_connections() -> None:
    """They have sent nothing, half a request, or a scrape. A few threads serve scrapes."""
    for sent in (b"", SCRAPE[:20], SCRAPE):
        with serving(Scraped()) as server, ExitStack() as stack:
            for _ in range(500):
                stack.enter_context(connected(server)).sendall(sent)
            assert [ask(server, path) for path in http.PROBES] == [(200, "ok\n")] * 2, sent


def test_a_new_connection_takes_the_place_of_the_oldest() -> None:
    """Beyond the bound; the second oldest is still served."""
    with serving() as server, ExitStack() as stack:
        clients = [
            stack.enter_context(connected(server)) for _ in range(http.LIMITS.connections + 1)
        ]
        assert rest(clients[0]) == b""
        clients[1].sendall(SCRAPE)
        assert rest(clients[1]).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_scrape_may_end_after_the_server() -> None:
    """The server does not wait for it, and the thread of the scrape ends without an error."""
    scraped, before = Scraped(), threading.active_count()
    with serving(scraped) as server, connected(server) as client:
        client.sendall(SCRAPE)
        ask(server)  # by now the scrape has begun
        server.close()
        assert threading.active_count() == before + 1
    watch = Watch("the thread of the scrape ends")
    while threading.active_count() > before:
        watch.look()


@pytest.mark.usefixtures("short_steps")
def test_a_request_has_its_time() -> None:
    """Even if a byte of it comes now and then."""
    with serving() as server, connected(server) as client, pytest.raises(ConnectionError):
        while True:
            client.sendall(b"x")
            sleep(STEP_S / 10.0)


def test_making_an_answer_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the connection is closed."""
    monkeypatch.setattr(http, "LIMITS", http.LIMITS._replace(answer_s=STEP_S))
    with serving(Scraped()) as server, connected(server) as client:
        client.sendall(SCRAPE)
        assert rest(client) == b""


@pytest.mark.usefixtures("short_steps")
def test_reading_an_answer_has_its_time() -> None:
    """A client that comes too late gets less than was promised."""
    length = 30_000_000
    scraped = Scraped(length)
    scraped.ready.set()
    with serving(scraped) as server, connected(server) as client:
        client.sendall(SCRAPE)
        assert client.recv(15) == b"HTTP/1.1 200 OK"
        watch = Watch("the connection is closed")
        while len(server._server.open):
            watch.look()
        assert len(rest(client)) < length


@pytest.mark.usefixtures("short_steps")
def test_urgent_data_is_no_request() -> None:
    """The connection is closed as if its client had sent nothing."""
    with serving() as server, connected(server) as client:
        client.send(b"!", socket.MSG_OOB)
        assert rest(client) == b""


def test_a_body_is_not_read() -> None:
    """The answer comes before the body, and the connection is closed."""
    length = f"Content-Length: {BODY_BYTES}\r\n"
    for header in (
        f"{length}\r\n", f"{length}Expect: 100-continue\r\n\r\n",
        f"Transfer-Encoding: chunked\r\n\r\n{BODY_BYTES:x}\r\n{'x' * 4096}",
    ):  # fmt: skip
        with serving() as server, connected(server) as client:
            client.sendall(f"POST /healthz HTTP/1.1\r\nHost: here\r\n{header}".encode())
            assert client.recv(12) == b"HTTP/1.1 405", header
            with pytest.raises(ConnectionError):
                client.sendall(bytes(BODY_BYTES))


def test_a_large_header_is_refused() -> None:
    """Before it is complete."""
    with serving() as server, connected(server) as client:
        client.sendall(SCRAPE[:-2] + b"X: " + b"x" * http.LIMITS.head_bytes)
        assert client.recv(12) == b"HTTP/1.1 431"


async def patient(scope: Any, receive: Any, send: Any) -> None:
    """Answers behind the body, by the names of the headers that it was given."""
    while (await receive()).get("more_body"):
        pass
    names = b" ".join(name for name, _ in scope["headers"])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": names})


CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGE = 2 * http.LIMITS.head_bytes


@cases(
    ("sent", "status"),
    [
        (CHUNKED + b"0\r\nTrailer: 1\r\n\r\n", b"200"),
        (CHUNKED + b"0\r\nTrailer: " + b"x" * LARGE + b"\r\n\r\n", b"431"),
        (CHUNKED + b"0\r\n" + b"a:\r\n" * (LARGE // 4) + b"\r\n", b"431"),
        (CHUNKED + b"1;" + b"x" * LARGE + b"\r\nx\r\n0\r\n\r\n", b"431"),
        (CHUNKED + b"1\r\nx\r\n" * LARGE + b"0\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 1001 + b"\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n" * 200, b"400"),
    ],
    ids=len,
)
def test_what_stands_beside_a_body_has_the_limits_of_a_head(sent: bytes, status: bytes) -> None:
    """Trailers are dropped. The number of parts, headers and requests is large, but limited."""
    with closing(http.ProbeServer("127.0.0.1:0", patient)) as server, connected(server) as client:
        client.sendall(sent)
        assert client.recv(12) == b"HTTP/1.1 " + status
        if status == b"200":
            client.shutdown(socket.SHUT_WR)
            assert rest(client).endswith(b"\r\ntransfer-encoding\r\n0\r\n\r\n")


def test_a_connection_has_one_answer() -> None:
    """Even if the client sends many requests at once."""
    with serving() as server, connected(server) as client:
        client.sendall(SCRAPE * 20 + SCRAPE[:-2] + b"Connection: close\r\n\r\n")
        assert rest(client).count(b"HTTP/1.1 200 OK") == 1


PATHS = ("/metrics", *http.PROBES)


def test_what_neither_gets_nor_asks_for_the_head_is_refused() -> None:
    """By 405."""
    methods = "POST", "PUT", "DELETE", "OPTIONS", "TRACE"
    with serving() as server:
        found = {(path, each): ask(server, path, each) for path in PATHS for each in methods}
    assert found == dict.fromkeys(found, (405, "GET or HEAD\n"))


def test_a_head_is_that_of_the_page() -> None:
    """Line by line, except for the date; no body follows."""
    with serving() as server:
        for path in (*PATHS, "/elsewhere"):
            heads = []
            for method in http.METHODS:
                with connected(server) as client:
                    lines = f"{method} {path} HTTP/1.1", "Host: here", "Connection: close\r\n\r\n"
                    client.sendall("\r\n".join(lines).encode())
                    head, _, body = rest(client).partition(b"\r\n\r\n")
                lines_of_it = head.split(b"\r\n")
                heads.append([line for line in lines_of_it if not line.startswith(b"date: ")])
            assert heads[0] == heads[1] and body == b"", path


def test_a_probe_says_why() -> None:
    """By 503, with one line per reason; the other probe may succeed."""
    app = http.application(CollectorRegistry(), list, lambda: ["shard 1: refused", "behind"])
    with closing(http.ProbeServer("127.0.0.1:0", app)) as server:
        assert ask(server, "/readyz") == (503, "shard 1: refused\nbehind\n")
        assert ask(server, "/healthz") == (200, "ok\n")


def test_a_probe_that_fails_is_logged() -> None:
    """It answers 500, and later requests are answered as usual."""

    def broken() -> list[str]:
        raise ValueError("broken")

    application = http.application(CollectorRegistry(), broken, list)
    with capture_logs() as logged, closing(http.ProbeServer("127.0.0.1:0", application)) as server:
        assert ask(server) == (500, "see the log\n")
        assert ask(server, "/readyz") == (200, "ok\n")
    assert [(each["event"], each["exc_info"]) for each in logged] == [("page failed", True)]


def test_scrapes_are_answered_as_asked() -> None:
    """In the format and the encoding that the client accepts; only the metrics that it names."""
    registry = CollectorRegistry()
    for name in ("first", "second"):
        Counter(name, "", registry=registry)
    wanted = {"Accept": "application/openmetrics-text; version=1.0.0", "Accept-Encoding": "gzip"}
    with closing(http.ProbeServer("127.0.0.1:0", http.application(registry, list, list))) as server:
        with closing(HTTPConnection("127.0.0.1", server.port, timeout=HANGS_S)) as client:
            client.request("GET", "/metrics", headers=wanted)
            answer = client.getresponse()
            assert answer.headers["content-type"].startswith("application/openmetrics-text")
            assert gzip.decompress(answer.read()).endswith(b"# EOF\n")
        _, text = ask(server, "/metrics?name[]=first_total")
    assert "first_total" in text and "second_total" not in text


def test_a_port_in_use_is_reported_with_the_cure() -> None:
    """As for a second worker on one machine."""
    service: Any = SimpleNamespace(
        metrics=SimpleNamespace(registry=CollectorRegistry()), unhealthy=list, unready=list
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BadConfiguration) as refused:
            _serve_http(Settings(http=address), service)
    assert str(refused.value).endswith(
        "Address already in use: set STREAM_RATER_HTTP to another host:port; port 0 picks a free "
        "one"
    )


HERE = "127.0.0.1:9109"


def headed(*lines: str) -> Headers:
    """Headers, each as `name: value`. They may repeat."""
    parts = [each.partition(": ") for each in lines]
    return Headers(raw=[(name.encode(), value.encode()) for name, _, value in parts])


@cases(
    "sent",
    [
        [f"host: {HERE}"], ["host: localhost:9109"], ["host: [::1]:9109"],
        [f"host: {HERE}", f"origin: http://{HERE}"], [f"host: {HERE}", "sec-fetch-site: none"],
        [f"host: {HERE}", f"origin: http://{HERE}", "sec-fetch-site: same-origin"],
    ],
)  # fmt: skip
def test_own_pages_and_programs_may_write(sent: list[str]) -> None:
    """Programs send no origin, and the process' own page sends its own."""
    Sites(HERE, []).check_writing(headed(*sent), "1.1")


@cases(
    ("sent", "code"),
    [
        ([], "foreign-page"), (["host: games.example:9109"], "foreign-page"),
        ([f"host: {HERE}", "origin: http://games.example"], "foreign-page"),
        (["host: games.example:9109", "origin: http://games.example:9109"], "foreign-page"),
        ([f"host: {HERE}", "origin: http://127.0.0.1:80"], "foreign-page"),
        ([f"host: {HERE}", "origin: null"], "foreign-page"),
        ([f"host: {HERE}", f"origin: chrome-extension://{HERE}"], "foreign-page"),
        (["host: 127.0.0.1.games.example"], "foreign-page"),
        (["host: games.example@127.0.0.1"], "foreign-page"),
        (["host: 127.0.0.1#.games.example"], "foreign-page"), (["host: ["], "foreign-page"),
        (["host: 0.0.0.0:9109"], "foreign-page"),
        ([f"host: {HERE}", "host: games.example"], "foreign-page"),
        ([f"host: {HERE}", f"origin: http://{HERE}", "origin: http://a.example"], "foreign-page"),
        ([f"host: {HERE}", "sec-fetch-site: cross-site"], "foreign-page"),
        ([f"host: {HERE}", "sec-fetch-site: same-site"], "foreign-page"),
        ([f"host: {HERE}", "via: 1.1 nginx"], "writing-off"),
        ([f"host: {HERE}", "x-forwarded-for: 203.0.113.9"], "writing-off"),
        ([f"host: {HERE}", "forwarded: for=203.0.113.9"], "writing-off"),
        ([f"host: {HERE}", "x-real-ip: 203.0.113.9"], "writing-off"),
    ],
)  # fmt: skip
def test_others_may_not_write(sent: list[str], code: str) -> None:
    """Neither a form or a name of another site, nor whoever comes by a proxy on this machine."""
    with pytest.raises(Refused, match="SERVE_WRITE_TOKEN") as refused:
        Sites(HERE, []).check_writing(headed(*sent), "1.1")
    assert refused.value.problem.code == code


def test_a_proxy_that_adds_no_header_is_seen_by_its_version() -> None:
    """Programs of today speak HTTP/1.1."""
    with pytest.raises(Refused, match=r"a proxy sends it \(HTTP/1.0\)"):
        Sites(HERE, []).check_writing(headed(f"host: {HERE}"), "1.0")


@cases(
    ("address", "origins", "hosts", "allowed"),
    [
        (HERE, [], [], True), (HERE, [], [HERE], True), (":9109", [], ["localhost"], True),
        (HERE, [], ["games.example:9109"], False), (":9109", [], ["games.example:9109"], False),
        (HERE, [], [HERE, "games.example"], False),
        (HERE, ["https://games.example"], ["games.example"], True),
        (HERE, ["https://games.example"], ["a.example"], False), (HERE, ["*"], ["a.example"], True),
        ("0.0.0.0:9109", [], ["games.example"], True),
    ],
)  # fmt: skip
def test_names_under_which_this_machine_is_read(
    address: str, origins: list[str], hosts: list[str], allowed: bool
) -> None:
    """A process that others reach does not know its names."""
    headers = headed(*(f"host: {each}" for each in hosts))
    if allowed:
        Sites(address, origins).check_reading(headers)
    else:
        with pytest.raises(Refused, match=r"SERVE_CORS.*SERVE_TOKEN"):
            Sites(address, origins).check_reading(headers)


def test_a_name_of_another_site_gets_no_page_of_a_worker() -> None:
    """If the worker listens for this machine alone."""
    for address, status in (("127.0.0.1:0", 403), ("0.0.0.0:0", 200)):
        app = http.application(CollectorRegistry(), list, list, address)
        with closing(http.ProbeServer(address, app)) as server:
            assert ask(server)[0] == 200
            with closing(HTTPConnection("127.0.0.1", server.port, timeout=HANGS_S)) as client:
                client.request("GET", "/metrics", headers={"Host": "games.example"})
                assert client.getresponse().status == status


def test_what_only_this_machine_can_reach() -> None:
    """An empty host is 127.0.0.1, as where the server listens."""
    here = ["127.0.0.1:0", "[::1]:9109", "localhost", ":9109"]
    others = ["0.0.0.0:9109", "[::]:9109", "games.example:9109", "*:9109", ""]
    assert [each for each in [*here, *others] if connections.is_local(each)] == here
