"""`stream-rater serve` as a process, and a client of it."""

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged
from tests.builders.indexes import an_event
from tests.integration.processes import Answering, Start, WorkerProcess, commands
from tests.integration.topics import Bytes, produce
from tests.waits import STILL_S, wait_until

Serve = Start


class Answered(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(api: Answering, path: str, body: Any = None, method: str = "", **headers: str) -> Answered:
    """Ask once. A body other than bytes is sent as JSON. Headers' names have `_` for `-`."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    at = urlsplit(api.url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=STILL_S)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with suppress(BrokenPipeError):  # it may answer before it has read a body that is too large
            connection.request(method or ("GET" if body is None else "POST"), path, data, named)
        answer = connection.getresponse()
        text = answer.read().decode()
        return Answered(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)
    finally:
        connection.close()


def first(
    asked: Callable[[], Answered], what: str, is_it: Callable[[Answered], bool] | None = None
) -> Answered:
    """Ask until `is_it` holds for an answer (by default: it is no 503). Returns that answer."""
    found: list[Answered] = []

    def holds() -> bool:
        found.append(asked())
        return is_it(found[-1]) if is_it else found[-1].status != 503

    wait_until(holds, what, every_s=0.1)
    return found[-1]


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


def serves(folder: Path) -> AbstractContextManager[Serve]:
    return commands(folder, "serve")


def index_process(serve: WorkerProcess) -> int:
    threads = Path(f"/proc/{serve.pid}/task").iterdir()  # each knows those that it started
    children = [int(pid) for each in threads for pid in (each / "children").read_text().split()]
    (found,) = filter(is_index, children)
    return found


def is_index(pid: int) -> bool:
    """Whether a process with this id runs, and is one that keeps an index."""
    with suppress(OSError):
        return "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()
    return False


def publish(at: Settings, *events: RatingChanged) -> None:
    values = [Bytes(msgspec.json.encode(each), partition=0) for each in events]
    produce(at, values, Topics.of(at).changed)


def publish_few(at: Settings) -> None:
    """Publish events of three listed players of the ladder `eu`, and of a provisional one."""
    Admin(at).create_topics()
    listed = (an_event(f"p{i}", i, 1500.0 + i, ladder="eu") for i in range(3))
    publish(at, *listed, an_event("new", 3, 900.0, ladder="eu", rounds=1, provisional=True))
