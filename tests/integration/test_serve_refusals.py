"""What `serve` refuses: each mistake by its code, its place and the cure; floods, slow clients, the
token; and what its answers promise to caches and browsers."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
import pytest

from local.servers import Addresses
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.serve.bodies import MOST_BODY_BYTES
from stream_rater.serve.problems import KINDS
from tests import real
from tests.contract.test_serve_index import an_event
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.serving import Serve, ask, followed, publish_few, serves
from tests.integration.topics import Bytes, produce
from tests.waits import HANGS_S

AT = "/v1/ladders/eu"
LOOKUP, PREDICT, BALANCE = f"{AT}/players:lookup", f"{AT}/predict", f"{AT}/balance"
WHAT_IF = f"{AT}/what-if"
TOKEN = "s3cr3t"


class Place(NamedTuple):
    """A place with a few events, and what starts `serve` there."""

    settings: Settings
    start: Serve

    def serve(self, **changes: Any) -> WorkerProcess:
        """A `serve` with these settings."""
        return self.start(msgspec.structs.replace(self.settings, **changes))


@pytest.fixture(scope="module")
def place(addresses: Addresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Three listed players, and a provisional one."""
    with real.a_place(addresses) as at, serves(tmp_path_factory.mktemp("serve")) as start:
        publish_few(at)
        yield Place(at, start)


@pytest.fixture(scope="module")
def api(place: Place) -> WorkerProcess:
    """One that has no limit of rate."""
    return place.serve(serve_rate=0.0)


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
    "ladder of changes": (
        "/v1/ladders/asia/changes", None, "unknown-ladder", "path.ladder", "",
    ),
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
    "no rank": (
        WHAT_IF, of_sides("a", "b") | {"ranks": [1, 0]}, "invalid", "body.ranks[", ">= 1",
    ),
    "what-if twice": (
        WHAT_IF, of_sides("a", "a") | {"ranks": [1, 2]}, "invalid", "body.sides[1].players[0]",
        "once",
    ),
    "no time": (
        WHAT_IF, of_sides("a", "b") | {"ranks": [1, 2], "completed_at": "noon"}, "invalid",
        "body.completed_at", "bad-time",
    ),
    "no ratings in Redis": (
        WHAT_IF, of_sides("a", "b") | {"ranks": [1, 2]}, "no-beliefs", None, "STREAM_RATER_REDIS",
    ),
    "nothing to explain": (
        f"{AT}/players/p1/explain", None, "no-beliefs", None, "that of the workers",
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


@pytest.mark.parametrize("name", WRONG)
def test_each_mistake_is_reported(api: WorkerProcess, name: str) -> None:
    """As a problem of RFC 9457, in one line."""
    path, body, code, where, words = WRONG[name]
    more = {"Last_Event_ID": "1,2"} if name == "event id" else {}
    found = ask(api, path.replace("²", "%C2%B2"), body, **more)
    problem = found.json
    assert found.headers["content-type"] == "application/problem+json"
    assert (found.status, problem["code"]) == (KINDS[code].status, code), problem
    assert problem["status"] == found.status and problem["title"] == KINDS[code].title
    assert problem["type"].startswith("docs/reference/api.md")
    assert str(problem["place"]).startswith(str(where)) and words in problem["detail"], problem
    assert "\n" not in problem["detail"]


def test_the_largest_questions_are_answered(api: WorkerProcess) -> None:
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


@pytest.mark.parametrize("given", [None, "Bearer", "Bearer other", f"Basic {TOKEN}"])
def test_a_token_is_asked_for(place: Place, guarded: WorkerProcess, given: str | None) -> None:
    """All but probes, metrics and the document need the very token."""
    headers = {"Authorization": given} if given else {}
    found = ask(guarded, AT, **headers)
    assert (found.status, found.json["code"]) == (401, "unauthorized")
    assert found.headers["www-authenticate"] == "Bearer" and TOKEN not in found.text
    assert ask(guarded, AT, Authorization=f"Bearer {TOKEN}").status == 200
    for page in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert ask(guarded, page).status == 200
    assert TOKEN not in guarded.log()


@pytest.fixture(scope="module")
def guarded(place: Place) -> WorkerProcess:
    """One with a token, for the pages of one origin."""
    return place.serve(serve_token=TOKEN, serve_cors="https://game.example")


def test_other_origins(api: WorkerProcess, guarded: WorkerProcess) -> None:
    """Pages of an origin may ask only if it is set; a preflight needs no token."""
    origin = "https://game.example"
    assert "access-control-allow-origin" not in ask(api, AT, Origin=origin).headers
    for asked in (origin, "https://other.example"):
        found = ask(
            guarded, AT, method="OPTIONS", Origin=asked, Access_Control_Request_Method="GET"
        )
        allowed = found.headers.get("access-control-allow-origin")
        assert allowed == (origin if asked == origin else None)


def test_a_change_is_seen_by_its_tag(api: WorkerProcess) -> None:
    """What has not changed is answered by 304."""
    found = ask(api, f"{AT}/players/p1")
    tag = found.headers["etag"]
    same = ask(api, f"{AT}/players/p1", If_None_Match=f'"other", W/{tag}')
    assert (same.status, same.text, same.headers["etag"]) == (304, "", tag)
    assert ask(api, f"{AT}/players/p2", If_None_Match=tag).status == 200


# --- slow clients --------------------------------------------------------------------------------


def opened(api: WorkerProcess, first: bytes) -> socket.socket:
    """A connection on which so much was sent."""
    at = urlsplit(api.url)
    connection = socket.create_connection((at.hostname, at.port), timeout=HANGS_S)
    connection.sendall(first)
    return connection


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [b"", b"GET / HT", b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\nGET /"]
)
def test_a_request_that_does_not_come(api: WorkerProcess, first: bytes) -> None:
    """Its connection is closed by us, the first request's and a later one's."""
    with opened(api, first) as connection:
        while connection.recv(65536):
            pass


@pytest.mark.slow
def test_a_body_that_does_not_come(api: WorkerProcess) -> None:
    """It is refused, and the connection closed."""
    head = f"POST {LOOKUP} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{"
    with opened(api, head.encode()) as connection:
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 408 ") and b"body-too-slow" in answer


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        "POST /nowhere", "POST /healthz", "PUT /v1/ladders", "GET /openapi.json", "GET /healthz",
        f"GET {AT}/changes", f"POST {AT}/predict?x=1", "POST /v1/ladders/%ff/predict",
    ],
)  # fmt: skip
def test_a_body_that_nobody_waits_for(api: WorkerProcess, head: str) -> None:
    """However a request is answered before its body has come: after a byte of it the connection is
    closed by us. Whose body comes is served on."""
    problem = f"{head} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n".encode()
    with opened(api, problem) as connection:
        first = connection.recv(65536)
        assert first.startswith(b"HTTP/1.1 ")
        connection.sendall(b"x")
        while connection.recv(65536):
            pass
    if "changes" in head:
        return  # is an answer without an end
    with opened(api, problem) as connection:
        assert connection.recv(65536)
        connection.sendall(b"123456789GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while b"200 OK" not in answer:
            more = connection.recv(65536)
            assert more, answer
            answer += more


def test_a_body_that_was_not_asked_for(api: WorkerProcess) -> None:
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
    (problem,) = [each for each in api.events() if each["event"] == "http"]
    own = urlsplit(api.url)._replace(netloc=f"127.0.0.1:{problem['probes']}").geturl()
    for path, words in (
        ("/healthz", "ok"), ("/readyz", "ok"), ("/metrics", "stream_rater_serve_connections"),
    ):  # fmt: skip
        with urllib.request.urlopen(own.rstrip("/") + path, timeout=20.0) as answer:
            assert answer.status == 200 and words in answer.read().decode()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{own.rstrip('/')}{AT}", timeout=20.0)
    assert refused.value.code == 404
    api.terminate()
    assert api.wait() == 0


def test_who_follows_and_does_not_read(place: Place) -> None:
    """A client that takes nothing is dropped once 1,000 events wait; another one is not."""
    api = place.serve()
    slow = opened(api, f"GET {AT}/changes HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with slow, followed(api, f"{AT}/changes") as events:
        next(events)
        count = 30_000
        values = [
            Bytes(msgspec.json.encode(an_event("p0", i, ladder="eu", round_id="r" * 128)),
                  partition=0)
            for i in range(10, 10 + count)
        ]  # fmt: skip
        for begin in range(0, count, 500):
            produce(place.settings, values[begin : begin + 500], Topics.of(place.settings).changed)
            problem = [next(events) for _ in range(500)]
            assert json.loads(problem[-1].data)["offset"] == begin + 509
        wait_until(
            lambda: api.metric("stream_rater_serve_followers") <= 1, "the slow client is dropped"
        )
