"""`stream-rater serve` as a process, and a client of it."""

import http.client
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged
from tests.contract.test_serve_index import an_event
from tests.integration.processes import Answering, WorkerProcess
from tests.integration.topics import Bytes, produce
from tests.waits import STILL_S

Serve = Callable[..., WorkerProcess]


class Answered(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(
    serve: Answering, path: str, body: Any = None, method: str = "", **headers: str
) -> Answered:
    """Ask once. A body that is no bytes is sent as JSON; `_` in the names of headers is `-`."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    at = urlsplit(serve.url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=STILL_S)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method or ("GET" if body is None else "POST"), path, data, named)
        answer = connection.getresponse()
        text = answer.read().decode()
        return Answered(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)
    finally:
        connection.close()


class StreamedEvent(NamedTuple):
    id: str
    kind: str
    data: str


@contextmanager
def followed(serve: Answering, path: str, **headers: str) -> Iterator[Iterator[StreamedEvent]]:
    """The server-sent events of a path, as they come."""
    at = urlsplit(serve.url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=STILL_S)
    try:
        connection.request(
            "GET", path, headers={name.replace("_", "-"): v for name, v in headers.items()}
        )
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        yield _events(answer)
    finally:
        connection.close()


def _events(answer: http.client.HTTPResponse) -> Iterator[StreamedEvent]:
    found: dict[str, str] = {}
    for line in answer:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            found[name] = value
        elif found:
            yield StreamedEvent(found.get("id", ""), found.get("event", ""), found.get("data", ""))
            found = {}


@contextmanager
def serves(folder: Path) -> Iterator[Serve]:
    """Starts `stream-rater serve`: `start(settings, ready=True)`. All are killed at the end."""
    started: list[WorkerProcess] = []

    def start(settings: Settings, *, ready: bool = True) -> WorkerProcess:
        words = [sys.executable, "-m", "stream_rater", "serve"]
        started.append(WorkerProcess(settings, folder / f"serve-{len(started)}.log", command=words))
        if ready:
            started[-1].wait_ready()
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            each.close()


def few_events() -> list[RatingChanged]:
    """Events of three listed players of the ladder `eu`, and of a provisional one."""
    listed = [an_event(f"p{i}", i, 1500.0 + i, ladder="eu") for i in range(3)]
    return [*listed, an_event("new", 3, 900.0, ladder="eu", rounds=1, provisional=True)]


def publish_few(at: Settings) -> None:
    Admin(at).create_topics()
    values = [Bytes(msgspec.json.encode(each), partition=0) for each in few_events()]
    produce(at, values, Topics.of(at).changed)
