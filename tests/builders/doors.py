"""The door of the API in front of a log in memory, without servers."""

import asyncio
import inspect
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, cast
from unittest.mock import AsyncMock, Mock

import msgspec
import structlog

from stream_rater.columns.sharding import partition_of
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import Appended, NewRecord, NotAppended, RecordPlace
from stream_rater.runtime.engine import RoundLog
from stream_rater.serve.door.accept import Door
from stream_rater.serve.door.outcomes import Waiting
from stream_rater.serve.http.application import Api
from stream_rater.serve.http.event_stream import Hub
from stream_rater.serve.http.metrics import ApiMetrics

PARTITIONS = 4
TOKEN = "w-token"
NOTHING: Any = Mock(misspelt=AsyncMock(return_value={}))
NOW_S = 1_777_777_777.0  # May 2026.


class LogInMemory(RoundLog):
    """Records by partition. Each append waits for `gate` and has the outcome `broken`, if set."""

    waiting = 0

    def __init__(self) -> None:
        self.records: list[list[NewRecord]] = [[] for _ in range(PARTITIONS)]
        self.broken: NotAppended | None = None
        self.away = False
        self.gate: asyncio.Event | None = None

    @property
    def partitions(self) -> int:
        if self.away:
            raise LogTrouble("kafka: away")
        return PARTITIONS

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""

    def end_of(self, partition: int) -> int:
        return len(self.records[partition])

    async def append(self, records: Sequence[NewRecord]) -> list[Appended]:
        if self.gate is not None:
            await self.gate.wait()
        if self.broken is not None:
            return [self.broken] * len(records)
        found: list[Appended] = []
        for each in records:
            found.append(RecordPlace(each.partition, len(self.records[each.partition])))
            self.records[each.partition].append(each)
        return found

    @property
    def all(self) -> list[NewRecord]:
        return [each for partition in self.records for each in partition]


class Answered(NamedTuple):
    status: int
    headers: Mapping[str, str]
    json: Any

    @property
    def code(self) -> str | None:
        return cast("str | None", self.json.get("code"))


class DoorPlace:
    """The API in front of a log in memory. `play` runs a coroutine with a client."""

    def __init__(
        self, ladders: Ladders = ANY_LADDER, beliefs: Any = NOTHING, questions: Any = NOTHING,
        **settings: Any,
    ) -> None:  # fmt: skip
        self.log, self.waiting = LogInMemory(), Waiting()
        self.metrics = ApiMetrics(structlog.get_logger())
        usual = Settings(serve_write_token=TOKEN, serve_rate=0.0)
        given = msgspec.structs.replace(usual, **settings)
        self.door = Door(
            ladders, self.log, self.waiting,
            posted=lambda outcome: self.metrics.posted.labels(outcome).inc(),
            clock=lambda: NOW_S,
        )  # fmt: skip
        self.api = Api(
            given, "0", questions, beliefs, Hub(), self.metrics, list, NOTHING,
            door=self.door if given.serve_write_token else None,
        )  # fmt: skip
        self.states = self.door.states

    def play(self, story: Callable[["Client"], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(story(Client(self.api.application)))

    def posted(self, outcome: str) -> float:
        """How many records had this outcome, by the metric."""
        return self.metrics.posted.labels(outcome)._value.get()


class Client:
    """Sends requests with the token for writing, as an ASGI server passes them on."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self.address = "127.0.0.1"

    async def post(
        self, path: str, body: Any, token: str = TOKEN, content_type: str = "application/json",
        **headers: str,
    ) -> Answered:  # fmt: skip
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self._ask("POST", path, data, token, content_type, **headers)

    async def get(self, path: str, token: str = "", **headers: str) -> Answered:
        return await self._ask("GET", path, b"", token, "", **headers)

    async def _ask(
        self, method: str, path: str, body: bytes, token: str, content_type: str, **more: str
    ) -> Answered:
        at, _, query = path.partition("?")
        headers = [(b"content-type", content_type.encode())]
        headers += [(name.encode(), value.encode()) for name, value in more.items()]
        headers += [(b"authorization", f"Bearer {token}".encode())] if token else []
        scope = {
            "type": "http", "method": method, "path": at, "raw_path": at.encode(),
            "query_string": query.encode(), "headers": headers, "client": (self.address, 1),
            "http_version": "1.1", "scheme": "http", "server": ("door", 80), "root_path": "",
        }  # fmt: skip
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._application(scope, receive, send)
        start, *rest = sent
        text = b"".join(each.get("body", b"") for each in rest)
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answered(start["status"], found, json.loads(text))


def at_door(ladders: Ladders = ANY_LADDER, beliefs: Any = NOTHING, **settings: Any) -> Any:
    """Makes a test of a coroutine that takes a DoorPlace, its client, and the test's fixtures."""

    def of(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        def test(**given: Any) -> None:
            place = DoorPlace(ladders, beliefs, **settings)
            asyncio.run(story(place, Client(place.api.application), **given))

        signature = inspect.signature(story)
        left = list(signature.parameters.values())[2:]
        test.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        test.__name__, test.__doc__ = story.__name__, story.__doc__
        test.__module__, test.__qualname__ = story.__module__, story.__qualname__
        return test

    return of


def home(ladder: str) -> int:
    return partition_of(ladder, PARTITIONS)


def a_round(round_id: str = "r1", **fields: Any) -> dict[str, Any]:
    """A round of two players, without its ladder."""
    standings = [{"player": "ann", "rank": 1}, {"player": "bob", "rank": 2}]
    given = {"round_id": round_id, "completed_at": "2026-05-01T20:00:00Z", "standings": standings}
    return given | fields
