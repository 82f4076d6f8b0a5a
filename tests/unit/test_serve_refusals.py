"""What `serve` refuses, without servers: each mistake by its code, its place and the cure; floods,
slow clients, the token; and what its answers promise to caches and browsers."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.events import to_json
from stream_rater.runtime import connections
from stream_rater.serve.bodies import MOST_BODY_BYTES
from stream_rater.serve.door.doorway import DoorParts
from stream_rater.serve.http import limits
from stream_rater.serve.http.event_stream import MOST_WAITING
from stream_rater.serve.index.file_index import FileIndexReader, FileIndexWriter
from stream_rater.serve.index.follower import NewEvent, Watcher
from stream_rater.serve.index.reader import ReadPositions
from stream_rater.serve.problems import KINDS
from stream_rater.serve.seasons import NoSeasons
from stream_rater.serve.service import MakeParts, Parts
from tests.builders.serves import IndexThread, ServeThread
from tests.contract.test_serve_index import an_event
from tests.integration.serving import ask, followed
from tests.waits import HANGS_S, wait_until

AT = "/v1/ladders/eu"
LOOKUP, PREDICT, BALANCE = f"{AT}/players:lookup", f"{AT}/predict", f"{AT}/balance"
WHAT_IF = f"{AT}/what-if"
TOKEN = "s3cr3t"
SHORT_S = 0.2
"""A time of a client that a test waits for, instead of 10 s and more."""


class Still:
    """Follows nothing: the index is complete, and what is published is given to the watcher."""

    def __init__(self, watcher: Any) -> None:
        watcher.polled(True, 0)
        self._ends = threading.Event()
        self.run, self.stop = self._ends.wait, self._ends.set


class Place:
    """An index of three listed players, and a provisional one; and what starts `serve` there."""

    def __init__(self, folder: Path) -> None:
        self._index, self._kept = folder / "index", 20
        writer = FileIndexWriter(self._index, self._kept)
        writer.begin("data", 4)
        events = [an_event(f"p{i}", i, 1500.0 + i, ladder="eu") for i in range(3)]
        writer.apply(
            [*events, an_event("new", 3, 900.0, ladder="eu", rounds=1, provisional=True)], 4
        )
        writer.close()
        self._started: list[ServeThread] = []
        self.watchers: list[Watcher] = []

    def _parts(self, settings: Settings, ladders: Ladders) -> MakeParts:
        nothing: Any = None

        def make(watcher: Watcher, positions: ReadPositions, _: Any) -> Parts:
            self.watchers.append(watcher)
            positions.all_read([4])
            reader = FileIndexReader(self._index, self._kept, positions, ladders)
            door = DoorParts(None, nothing, None, threading.Event())
            still: Any = Still
            following = IndexThread(still, watcher)
            return Parts(following, reader, nothing, door, NoSeasons())

        return make

    def serve(self, **changes: Any) -> ServeThread:
        """A `serve` with these settings, that has no limit of rate."""
        usual = Settings(serve="127.0.0.1:0", serve_rate=0.0)
        found = ServeThread(msgspec.structs.replace(usual, **changes), self._parts)
        self._started.append(found)
        found.wait_ready()
        return found

    def close(self) -> None:
        """End all of them."""
        for each in self._started:
            each.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    found = Place(tmp_path_factory.mktemp("serve"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def api(place: Place) -> ServeThread:
    return place.serve()


def of_players(*names: Any) -> dict[str, Any]:
    return {"players": list(names)}


def of_sides(*sides: Any) -> dict[str, Any]:
    return {"sides": [each if isinstance(each, dict) else of_players(*each) for each in sides]}


WRONG = {
    "path": ("/v1/nothing", None, "not-found", "path", "openapi.json"),
    "method": (f"{AT}/players/p1", {}, "method-not-allowed", "method", "openapi.json"),
    "ladder": ("/v1/ladders/asia", None, "unknown-ladder", "path.ladder", "/v1/ladders lists"),
    "ladder of a lookup": (
        "/v1/ladders/asia/players:lookup", of_players("a"), "unknown-ladder", "path.ladder", "",
    ),
    "ladder of changes": ("/v1/ladders/asia/changes", None, "unknown-ladder", "path.ladder", ""),
    "player": (f"{AT}/players/eve", None, "unknown-player", "path.player", "players:lookup"),
    "player's history": (f"{AT}/players/eve/history", None, "unknown-player", "path.player", ""),
    "player's ladder": ("/v1/ladders/asia/players/p1", None, "unknown-ladder", "path.ladder", ""),
    "no UTF-8": (f"{AT}/players/%ff", None, "bad-request", "path.player", "UTF-8"),
    "around a stranger": (
        f"{AT}/leaderboard?around=eve", None, "unknown-player", "path.player", "",
    ),
    "around a newcomer": (f"{AT}/leaderboard?around=new", None, "not-listed", "query.around", ""),
    "limit too large": (f"{AT}/leaderboard?limit=1001", None, "bad-request", "query.limit", "1000"),
    "limit of nothing": (f"{AT}/leaderboard?limit=0", None, "bad-request", "query.limit", "from 1"),
    "limit in words": (f"{AT}/leaderboard?limit=²", None, "bad-request", "query.limit", "whole"),
    "limit twice": (
        f"{AT}/leaderboard?limit=1&limit=2", None, "bad-request", "query.limit", "give it once",
    ),
    "unknown parameter": (
        f"{AT}/leaderboard?limits=1", None, "bad-request", "query.limits", "limit, cursor, around",
    ),
    "before": (f"{AT}/players/p1/history?before=-1", None, "bad-request", "query.before", "from 0"),
    "cursor": (f"{AT}/leaderboard?cursor=gaga", None, "bad-cursor", "query.cursor", "`next`"),
    "long cursor": (
        f"{AT}/leaderboard?cursor={'a' * 300}", None, "bad-cursor", "query.cursor", "`next`",
    ),
    "cursor and around": (
        f"{AT}/leaderboard?cursor=gaga&around=p1", None, "bad-request", "query.cursor", "not both",
    ),
    "event id": (f"{AT}/changes", None, "bad-event-id", "header.Last-Event-ID", "as it came"),
    "no JSON": (LOOKUP, b"{", "bad-request", "body", "no JSON"),
    "deep JSON": (LOOKUP, b"[" * 100_000, "invalid", "body", "object"),
    "no players": (LOOKUP, {}, "invalid", "body", "`players`"),
    "an empty list": (LOOKUP, of_players(), "invalid", "body.players", "length >= 1"),
    "too many ids": (
        LOOKUP, of_players(*map(str, range(1001))), "invalid", "body.players", "length <= 1000",
    ),
    "a number": (LOOKUP, of_players("a", 7), "invalid", "body.players[1]", "so quote it"),
    "a number in a side": (
        PREDICT, of_sides(["a"], [7.5]), "invalid", "body.sides[1].players[0]", "so quote it",
    ),
    "a number in a what-if": (
        WHAT_IF, of_sides(["a"], [7]) | {"ranks": [1, 2]}, "invalid", "body.sides[1].players[0]",
        "`int`: ids are texts, so quote it",
    ),
    "a number in teams": (
        BALANCE, {"players": [7, "a"]}, "invalid", "body.players[0]", "so quote it",
    ),
    "a number for a list": (LOOKUP, {"players": 7}, "invalid", "body.players", "`array`"),
    "a long id": (LOOKUP, of_players("a" * 129), "invalid", "body.players[", "<= 128"),
    "unknown field": (LOOKUP, {"players": ["a"], "ids": []}, "invalid", "body", "`ids`"),
    "large body": (
        LOOKUP, b"[" + b" " * MOST_BODY_BYTES, "body-too-large", "body", f"{MOST_BODY_BYTES:,}",
    ),
    "more teams than players": (
        BALANCE, {"players": ["a", "b"], "teams": 3}, "invalid", "body.teams", "ask for fewer",
    ),
    "one team": (BALANCE, {"players": ["a", "b"], "teams": 1}, "invalid", "body.teams", ">= 2"),
    "balanced twice": (BALANCE, of_players("a", "b", "a"), "invalid", "body.players[2]", "once"),
    "a crowd to balance": (
        BALANCE, of_players(*map(str, range(101))), "invalid", "body.players", "<= 100",
    ),
    "too few ranks": (
        WHAT_IF, of_sides("ab", "c") | {"ranks": [1, 2, 3]}, "invalid", "body.ranks",
        "one for each",
    ),
    "no rank": (WHAT_IF, of_sides("a", "b") | {"ranks": [1, 0]}, "invalid", "body.ranks[", ">= 1"),
    "what-if twice": (
        WHAT_IF, of_sides("a", "a") | {"ranks": [1, 2]}, "invalid", "body.sides[1].players[0]",
        "once",
    ),
    "no time": (
        WHAT_IF, of_sides("a", "b") | {"ranks": [1, 2], "completed_at": "noon"}, "invalid",
        "body.completed_at", "bad-time",
    ),
    "no variance": (
        PREDICT, of_sides(["a"], ["b"]) | {"variance_factor": 0.0}, "invalid",
        "body.variance_factor", "> 0",
    ),
    "one side": (PREDICT, of_sides(["a"]), "invalid", "body.sides", "length >= 2"),
    "an empty side": (PREDICT, of_sides(["a"], []), "invalid", "body.sides[", "length >= 1"),
    "a player twice": (
        PREDICT, of_sides(["a", "b"], ["c", "a"]), "invalid", "body.sides[1].players[1]",
        "body.sides[0].players[0]",
    ),
    "shares": (
        PREDICT, of_sides({"players": ["a", "b"], "shares": [1.0]}, ["c"]), "invalid",
        "body.sides[0].shares", "1 shares of 2 players",
    ),
    "no share": (
        PREDICT, of_sides({"players": ["a"], "shares": [0.0]}, ["c"]), "invalid", "body.sides[",
        ">=",
    ),
    "many players": (
        PREDICT, of_sides(map(str, range(600)), map(str, range(600, 1200))), "invalid",
        "body.sides", "1,000 at most",
    ),
}  # fmt: skip
"""Path, body, and of the problem: code, place, and a part of the detail."""


def mistakes_in(api: ServeThread, name: str) -> Iterator[object]:
    """What is wrong with the problem that is reported."""
    path, body, code, where, words = WRONG[name]
    more = {"Last_Event_ID": "1,2"} if name == "event id" else {}
    found = ask(api, path.replace("\u00b2", "%C2%B2"), body, **more)
    problem = found.json
    if found.headers["content-type"] != "application/problem+json":
        yield found.headers
    if (found.status, problem["code"]) != (KINDS[code].status, code):
        yield problem
    if (problem["status"], problem["title"]) != (found.status, KINDS[code].title):
        yield problem
    if not problem["type"].startswith("docs/reference/api.md"):
        yield problem["type"]
    if not str(problem["place"]).startswith(str(where)):
        yield problem["place"]
    if words not in problem["detail"] or "\n" in problem["detail"]:
        yield problem["detail"]


def test_each_mistake_is_reported(api: ServeThread) -> None:
    """As a problem of RFC 9457, in one line."""
    found = {name: list(mistakes_in(api, name)) for name in WRONG}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_the_largest_questions_are_answered(api: ServeThread) -> None:
    """1,000 ids of 128 bytes; a round of 1,000 players; a cursor that nobody is behind."""
    names = [f"{i:0128}" for i in range(1000)]
    assert len(ask(api, LOOKUP, of_players(*names)).json["players"]) == 1000
    sides = ask(api, PREDICT, of_sides(*([name] for name in names))).json["sides"]
    assert sum(each["win"] for each in sides) == pytest.approx(1.0)


# --- who may ask, and how often ------------------------------------------------------------------


def test_a_flood_is_slowed_down(place: Place) -> None:
    """Twice the rate at once; then 429 with Retry-After. Probes are not counted."""
    api = place.serve(serve_rate=0.01)
    assert ask(api, AT).status == 200
    found = ask(api, AT)
    assert (found.status, found.json["code"]) == (429, "too-many-requests")
    assert 90 <= int(found.headers["retry-after"]) <= 100
    assert ask(api, "/readyz").status == ask(api, "/metrics").status == 200
    assert api.metric("stream_rater_serve_requests_total", operation="ladder", status="429") == 1


def test_a_token_is_asked_for(place: Place) -> None:
    """All but probes, metrics and the document need the very token. Pages of an origin may ask only
    if it is set; a preflight needs no token."""
    origin = "https://game.example"
    guarded = place.serve(serve_token=TOKEN, serve_cors=origin)
    for given in (None, "Bearer", "Bearer other", f"Basic {TOKEN}"):
        headers = {"Authorization": given} if given else {}
        found = ask(guarded, AT, **headers)
        assert (found.status, found.json["code"]) == (401, "unauthorized"), given
        assert found.headers["www-authenticate"] == "Bearer" and TOKEN not in found.text
    assert ask(guarded, AT, Authorization=f"Bearer {TOKEN}").status == 200
    for page in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert ask(guarded, page).status == 200
    for asked in (origin, "https://other.example"):
        found = ask(
            guarded, AT, method="OPTIONS", Origin=asked, Access_Control_Request_Method="GET"
        )
        allowed = found.headers.get("access-control-allow-origin")
        assert allowed == (origin if asked == origin else None)


def test_a_change_is_seen_by_its_tag(api: ServeThread) -> None:
    """What has not changed is answered by 304. No other origin may ask."""
    assert "access-control-allow-origin" not in ask(api, AT, Origin="https://a.b").headers
    found = ask(api, f"{AT}/players/p1")
    tag = found.headers["etag"]
    same = ask(api, f"{AT}/players/p1", If_None_Match=f'"other", W/{tag}')
    assert (same.status, same.text, same.headers["etag"]) == (304, "", tag)
    assert ask(api, f"{AT}/players/p2", If_None_Match=tag).status == 200


# --- slow clients --------------------------------------------------------------------------------


def opened(api: ServeThread, first: bytes) -> socket.socket:
    """A connection on which so much was sent."""
    at = urlsplit(api.url)
    connection = socket.create_connection((at.hostname, at.port), timeout=HANGS_S)
    connection.sendall(first)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """True, once it is closed by us, whatever comes before."""
    while connection.recv(65536):
        pass
    return True


def test_a_request_that_does_not_come(api: ServeThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is closed by us, the first request's and a later one's. A body that does not
    come is refused, and the connection closed."""
    monkeypatch.setattr(connections, "STEP_S", SHORT_S)
    for first in (b"", b"GET / HT", b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\nGET /"):
        with opened(api, first) as connection:
            assert is_closed(connection)
    monkeypatch.undo()
    monkeypatch.setattr(limits, "BODY_S", SHORT_S)
    head = f"POST {LOOKUP} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{"
    with opened(api, head.encode()) as connection:
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 408 ") and b"body-too-slow" in answer


UNWANTED = (
    "POST /nowhere", "POST /healthz", "PUT /v1/ladders", "GET /openapi.json", "GET /healthz",
    f"GET {AT}/changes", f"POST {AT}/predict?x=1", "POST /v1/ladders/%ff/predict",
)  # fmt: skip
"""Requests that are answered before their body has come."""


def test_a_body_that_nobody_waits_for(api: ServeThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a request is answered before its body has come: after a byte of it the connection is
    closed by us. Whose body comes is served on."""
    for head in UNWANTED:
        problem = f"{head} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n".encode()
        for name in ("LINGER_S", "REQUEST_S"):
            monkeypatch.setattr(connections, name, SHORT_S)
        with opened(api, problem) as connection:
            assert connection.recv(65536).startswith(b"HTTP/1.1 "), head
            connection.sendall(b"x")
            assert is_closed(connection)
        monkeypatch.undo()
        if "changes" in head:
            continue  # is an answer without an end
        monkeypatch.setattr(connections, "LINGER_S", HANGS_S)
        with opened(api, problem) as connection:
            assert connection.recv(65536)
            connection.sendall(b"123456789GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while b"200 OK" not in answer:
                more = connection.recv(65536)
                assert more, (head, answer)
                answer += more


def test_a_body_that_was_not_asked_for(api: ServeThread) -> None:
    """A client that waits for `100 Continue` and is refused may send no body: what follows might be
    a request, so the connection is closed."""
    head = "POST /nowhere HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
    with opened(api, head.encode()) as connection:
        assert b" 404 " in connection.makefile("rb").read()


def test_connections_of_one_address(place: Place) -> None:
    """Beyond the limit the one goes that was idle longest, and the new one is answered; it is
    counted."""
    api = place.serve(serve_connections=3)
    some = [opened(api, b"") for _ in range(3)]
    assert ask(api, AT).status == 200
    assert some[0].recv(10) == b""
    ask_again = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    for each in some[1:]:
        each.sendall(ask_again)
        assert each.recv(10).startswith(b"HTTP/1.1 2")
        each.close()
    some[0].close()
    assert api.metric("stream_rater_serve_room_total", cause="address") >= 1


def test_probes_by_themselves(place: Place) -> None:
    """At an address of their own, as those of a worker; nothing else is there."""
    api = place.serve(serve_probes="127.0.0.1:0")
    own = api.probes_url
    for path, words in (
        ("/healthz", "ok"), ("/readyz", "ok"), ("/metrics", "stream_rater_serve_connections"),
    ):  # fmt: skip
        with urllib.request.urlopen(own + path, timeout=HANGS_S) as answer:
            assert answer.status == 200 and words in answer.read().decode()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{own}{AT}", timeout=HANGS_S)
    assert refused.value.code == 404
    api.close()


@pytest.mark.slow  # the Hub in test_serve_feed, the connection in test_http
def test_who_follows_and_does_not_read(place: Place) -> None:
    """A client that takes nothing is dropped, though more events wait than a stream keeps; another
    one gets them all."""
    api = place.serve()
    watcher, long, many = place.watchers[-1], "x" * 8000, 100
    watcher.begun([4])
    slow = opened(api, f"GET {AT}/changes HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with slow, followed(api, f"{AT}/changes") as events:
        next(events)
        for begin in range(4, 3 * MOST_WAITING, many):
            some = [an_event("p0", begin + i, ladder="eu", round_id=long) for i in range(many)]
            watcher.read([NewEvent(0, e.offset, "eu", to_json(e)) for e in some])
            read = [next(events) for _ in range(many)]
            assert msgspec.json.decode(read[-1].data)["offset"] == begin + many - 1
        wait_until(
            lambda: api.metric("stream_rater_serve_followers") <= 1, "the slow client is dropped"
        )
