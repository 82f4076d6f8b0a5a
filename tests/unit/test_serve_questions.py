"""What `serve` answers by an incomplete index, what it refuses, and how it limits slow clients."""

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import msgspec
import pytest

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import DEFAULT_RATING, Ladder, Ladders, Page, any_ladder
from stream_rater.config.settings import Settings
from stream_rater.config.views import Listing
from stream_rater.index import reader
from stream_rater.index.entries import IndexedPlayer, LadderSummary
from stream_rater.index.log import Watcher
from stream_rater.runtime import connections
from stream_rater.serve import bodies
from stream_rater.serve.card import draw_card
from stream_rater.serve.door.following import DoorParts
from stream_rater.serve.http import limits
from stream_rater.serve.http.page import page_routes
from stream_rater.serve.problems import KINDS, Refused
from stream_rater.serve.questions import Questions
from stream_rater.serve.service import MakeParts, Parts
from tests.builders import indexes
from tests.builders.cases import cases
from tests.builders.indexes import an_event
from tests.builders.serves import IndexThread, ServeThread
from tests.integration.serving import ask
from tests.waits import HANGS_S

ANN = IndexedPlayer(1600.0, 80.0, 1520.0, 7, False, "2026-01-01T00:00:00Z", 5)


class Index(reader.IndexReader):
    """An index of one ladder, with one player, that may be lost."""

    def __init__(self) -> None:
        super().__init__(0)
        self.lost = self.absent = False
        self.board = reader.PageView([reader.RankedRow(1, "ann", 1520.0)], False, 1)

    def _check(self) -> None:
        if self.lost:
            raise reader.Incomplete
        if self.absent:
            raise reader.AbsentLadder

    async def ladders(self) -> list[str]:
        self._check()
        return ["l"]

    async def ladder(self, ladder: str) -> reader.LadderView | None:
        if self.absent or ladder != "l":
            return None
        self._check()
        return reader.LadderView(LadderSummary(1, 5, ANN.completed_at), 1, {1500: 1})

    async def players(self, ladder: str, players: Sequence[str]) -> list[IndexedPlayer | None]:
        self._check()
        return [ANN if each == "ann" else None for each in players]

    async def player(self, ladder: str, player: str) -> reader.PlayerView | None:
        self._check()
        return reader.PlayerView(ANN, 1, 1) if player == "ann" else None

    async def history(self, *_: Any) -> tuple[()]:
        self._check()
        return ()

    async def begun_by(self, *_: Any) -> list[tuple[str, IndexedPlayer]]:
        self._check()
        return [("ann", ANN)]

    async def rounds(self, *_: Any) -> tuple[list[reader.PastRound], None]:
        self._check()
        return [], None

    async def page(self, *_: Any) -> reader.PageView:
        self._check()
        return self.board

    async def around(self, *_: Any) -> reader.PageView | None:
        return await self.page()


class Place:
    """An index, and what is asked of it; `complete` says whether it follows the topic."""

    def __init__(self, ladders: Ladders | None = None) -> None:
        self.index, self.complete = Index(), True
        ladders = ladders or any_ladder(DEFAULT_RATING)
        self.ask = Questions(
            self.index, ladders, lambda: self.complete, lambda: 0.0, self._computed, lambda: 0.0
        )

    async def _computed(self, work: Callable[[], Any]) -> Any:
        return work()


def sides(*names: str) -> list[bodies.SideQuestion]:
    return [bodies.SideQuestion(players=[each]) for each in names]


KNOWN: dict[str, Callable[[Questions], Any]] = {
    "ladders": lambda ask: ask.ladders(), "ladder": lambda ask: ask.ladder("l"),
    "player": lambda ask: ask.player("l", "ann"), "lookup": lambda ask: ask.lookup("l", ["ann"]),
    "history": lambda ask: ask.history("l", "ann", 5, None),
    "page": lambda ask: ask.leaderboard("l", 5, None, None),
    "around": lambda ask: ask.leaderboard("l", 5, None, "ann"),
    "players": lambda ask: ask.begun_by("l", "a", 5),
    "rounds": lambda ask: ask.rounds("l", "ann", 5, None),
}  # fmt: skip
"""Questions about who is there."""
UNKNOWN: dict[str, Callable[[Questions], Any]] = {
    "lookup": lambda ask: ask.lookup("l", ["ann", "eve"]),
    "predict": lambda ask: ask.predict("l", bodies.PredictQuestion(sides=sides("ann", "eve"))),
    "balance": lambda ask: ask.balance("l", bodies.BalanceQuestion(players=["ann", "eve"])),
}
"""Questions about somebody who is not there, too: a newcomer, or lost."""


def outcome(place: Place, question: Callable[[Questions], Any]) -> str:
    """The code of the problem, `incomplete`, or `answered`."""

    async def asked() -> str:
        try:
            await question(place.ask)
        except Refused as refused:
            return refused.problem.code
        except reader.Incomplete:
            return "incomplete"
        return "answered"

    return asyncio.run(asked())


def test_rows_have_percentiles_where_the_listing_says_so() -> None:
    """As a player has it, on a page from the start and around somebody; else they are left out."""
    displays: dict[Any, list[Any]] = {"percentile": [87.5, 75.0], "rating": [msgspec.UNSET] * 2}
    rows = [reader.RankedRow(1, "ann", 1520.0), reader.RankedRow(2, "bob", 9.0)]
    for display, wanted in displays.items():
        ladder = Ladder(rating=DEFAULT_RATING, listing=Listing(display=display))
        place = Place(Ladders(ladders={"l": ladder}))
        place.index.board = reader.PageView(rows, False, 8)
        for around in (None, "ann"):
            found = asyncio.run(place.ask.leaderboard("l", 5, None, around))
            assert [row.percentile for row in found.rows] == wanted
            assert (b"percentile" in msgspec.json.encode(found)) == (display == "percentile")
        one = asyncio.run(place.ask.player("l", "ann"))
        assert one.percentile == 0.0  # the only one who is listed
        assert asyncio.run(place.ask.ladder("l")).listing.display == display


def outcomes(place: Place, names: Iterable[str]) -> dict[str, str]:
    return {name: outcome(place, (KNOWN | UNKNOWN)[name]) for name in names}


def test_an_index_that_is_lost() -> None:
    """No question is answered. An absent ladder is unknown; an absent player may have played."""
    place, names = Place(), KNOWN | UNKNOWN
    assert outcomes(place, names) == dict.fromkeys(names, "answered")
    place.index.lost = True
    assert outcomes(place, names) == dict.fromkeys(names, "incomplete")
    place.index.lost = False
    assert outcomes(place, names) == dict.fromkeys(names, "answered")
    for name in (KNOWN | UNKNOWN).keys() - {"ladders"}:
        place = Place()
        assert outcomes(place, [name]) == {name: "answered"}
        place.index.absent = True
        assert outcomes(place, [name]) == {name: "unknown-ladder"}
    place = Place()
    place.complete = False
    for name, question in UNKNOWN.items():
        assert outcome(place, question) == "incomplete", name
    for name, question in KNOWN.items():
        assert outcome(place, question) == "answered", name
    assert outcome(place, lambda ask: ask.player("l", "eve")) == "incomplete"
    assert outcome(place, lambda ask: ask.ladder("other")) == "incomplete"


# --- what is refused ------------------------------------------------------------------------------

AT = "/v1/ladders/eu"
LOOKUP, PREDICT, BALANCE = f"{AT}/players:lookup", f"{AT}/predict", f"{AT}/balance"
WHAT_IF = f"{AT}/what-if"
TOKEN = "s3cr3t"
SHORT_S = 0.2  # A time of a client that a test waits for, instead of 10 s and more.


class Still:
    """Follows nothing: the index is complete."""

    def __init__(self, watcher: Any) -> None:
        watcher.polled(True, 0, 0.0)
        self._ends = threading.Event()
        self.run, self.stop = self._ends.wait, self._ends.set


class Server:
    """An index of three listed players, and a provisional one; and what starts `serve` there."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._index = folder, indexes.Index(folder / "index", kept=20)
        events = [an_event(f"p{i}", i, 1500.0 + i, ladder="eu") for i in range(3)]
        self._index.apply(
            [*events, an_event("new", 3, 900.0, ladder="eu", rounds=1, provisional=True)]
        )
        self._started: list[ServeThread] = []

    def _parts(self, settings: Settings, ladders: Ladders) -> MakeParts:
        nothing: Any = None

        def make(watcher: Watcher, _: Any) -> Parts:
            views = reader.IndexReader(20, ladders)
            views.use(self._index.store.path)
            door = DoorParts(None, nothing)
            still: Any = Still
            where = self._folder / str(len(self._started))
            return Parts(IndexThread(where, still, watcher), views, nothing, door)

        return make

    def serve(self, **changes: Any) -> ServeThread:
        """A `serve` with these settings, that has no limit of rate."""
        usual = Settings(serve="127.0.0.1:0", serve_rate=0.0)
        found = ServeThread(msgspec.structs.replace(usual, **changes), self._parts)
        self._started.append(found)
        found.wait_ready()
        return found

    def close(self) -> None:
        for each in self._started:
            each.close()
        self._index.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("serve"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def api(server: Server) -> ServeThread:
    return server.serve()


def of_players(*names: Any) -> dict[str, Any]:
    return {"players": list(names)}


def of_sides(*sides: Any) -> dict[str, Any]:
    return {"sides": [each if isinstance(each, dict) else of_players(*each) for each in sides]}


@cases("path, body, code, where, words", [
    ("/v1/nothing", None, "not-found", "path", "openapi.json"),
    (f"{AT}/players/p1", {}, "method-not-allowed", "method", "openapi.json"),
    ("/v1/ladders/asia", None, "unknown-ladder", "path.ladder", "/v1/ladders lists"),
    ("/v1/ladders/asia/players:lookup", of_players("a"), "unknown-ladder", "path.ladder", ""),
    (f"{AT}/players/eve", None, "unknown-player", "path.player", "players:lookup"),
    (f"{AT}/players/%ff", None, "bad-request", "path.player", "UTF-8"),
    (f"{AT}/leaderboard?around=eve", None, "unknown-player", "path.player", ""),
    (f"{AT}/rounds?player=eve", None, "unknown-player", "path.player", "no round that counts"),
    (f"{AT}/players?prefix=p&limit=51", None, "bad-request", "query.limit", "50"),
    (f"{AT}/leaderboard?recent=9&limit=101", None, "bad-request", "query.limit", "100 at most"),
    (f"{AT}/leaderboard?around=new", None, "not-listed", "query.around", ""),
    (f"{AT}/leaderboard?limit=1001", None, "bad-request", "query.limit", "1000"),
    (f"{AT}/leaderboard?limit=%C2%B2", None, "bad-request", "query.limit", "whole"),
    (f"{AT}/leaderboard?limit=1&limit=2", None, "bad-request", "query.limit", "give it once"),
    (f"{AT}/leaderboard?limits=1", None, "bad-request", "query.limits", "limit, cursor, around"),
    (f"{AT}/players/p1/history?before=-1", None, "bad-request", "query.before", "from 0"),
    (f"{AT}/leaderboard?cursor=gaga", None, "bad-cursor", "query.cursor", "`next`"),
    (f"{AT}/leaderboard?cursor={'a' * 300}", None, "bad-cursor", "query.cursor", "`next`"),
    (f"{AT}/leaderboard?cursor=gaga&around=p1", None, "bad-request", "query.cursor", "not both"),
    (f"{AT}/changes", None, "bad-event-id", "header.Last-Event-ID", "as it came"),
    (LOOKUP, b"{", "bad-request", "body", "no JSON"),
    (LOOKUP, b"[" * 100_000, "invalid", "body", "object"),
    (LOOKUP, {}, "invalid", "body", "`players`"),
    (LOOKUP, of_players(), "invalid", "body.players", "length >= 1"),
    (LOOKUP, of_players(*map(str, range(1001))), "invalid", "body.players", "length <= 1000"),
    (LOOKUP, of_players("a", 7), "invalid", "body.players[1]", "so quote it"),
    (PREDICT, of_sides(["a"], [7.5]), "invalid", "body.sides[1].players[0]", "so quote it"),
    (LOOKUP, of_players("a" * 129), "invalid", "body.players[", "<= 128"),
    (LOOKUP, {"players": ["a"], "ids": []}, "invalid", "body", "`ids`"),
    (LOOKUP, b"[" + b" " * bodies.MOST_BODY_BYTES, "body-too-large", "body",
     f"{bodies.MOST_BODY_BYTES:,}"),
    (BALANCE, {"players": ["a", "b"], "teams": 3}, "invalid", "body.teams", "ask for fewer"),
    (BALANCE, {"players": ["a", "b"], "teams": 1}, "invalid", "body.teams", ">= 2"),
    (BALANCE, {"players": ["a", "b"], "groups": [["a", "b"]]}, "invalid", "body.groups[0]", "2 pl"),
    (BALANCE, of_players("a", "b") | {"groups": [["c"]]}, "invalid", "body.groups[0]", "none of"),
    (BALANCE, of_players("a", "b", "a"), "invalid", "body.players[2]", "once"),
    (BALANCE, of_players(*map(str, range(101))), "invalid", "body.players", "<= 100"),
    (WHAT_IF, of_sides("ab", "c") | {"ranks": [1, 2, 3]}, "invalid", "body.ranks", "one for each"),
    (WHAT_IF, of_sides("a", "b") | {"ranks": [1, 0]}, "invalid", "body.ranks[", ">= 1"),
    (WHAT_IF, of_sides("a", "a") | {"ranks": [1, 2]}, "invalid", "body.sides[1].players[0]",
     "once"),
    (WHAT_IF, of_sides("a", "b") | {"ranks": [1, 2], "completed_at": "noon"}, "invalid",
     "body.completed_at", "bad-time"),
    (PREDICT, of_sides(["a"], ["b"]) | {"variance_factor": 0.0}, "invalid", "body.variance_factor",
     "> 0"),
    (PREDICT, of_sides(["a"]), "invalid", "body.sides", "length >= 2"),
    (PREDICT, of_sides(["a"], []), "invalid", "body.sides[", "length >= 1"),
    (PREDICT, of_sides(["a", "b"], ["c", "a"]), "invalid", "body.sides[1].players[1]",
     "body.sides[0].players[0]"),
    (PREDICT, of_sides({"players": ["a", "b"], "shares": [1.0]}, ["c"]), "invalid",
     "body.sides[0].shares", "1 shares of 2 players"),
    (PREDICT, of_sides({"players": ["a"], "shares": [0.0]}, ["c"]), "invalid", "body.sides[", ">="),
    (PREDICT, of_sides(map(str, range(600)), map(str, range(600, 1200))), "invalid", "body.sides",
     "1,000 at most"),
], ids=lambda case: case[::2])  # fmt: skip
def test_each_mistake_is_reported(
    api: ServeThread, path: str, body: Any, code: str, where: str, words: str
) -> None:
    """As a problem of RFC 9457, in one line."""
    found = ask(api, path, body, **({"Last_Event_ID": "1,2"} if code == "bad-event-id" else {}))
    problem, kind = found.json, KINDS[code]
    assert found.headers["content-type"] == "application/problem+json"
    assert (found.status, problem["status"]) == (kind.status, kind.status)
    assert (problem["code"], problem["title"]) == (code, kind.title)
    assert problem["type"] == "urn:stream-rater:problem:" + code
    assert problem["place"].startswith(where)
    assert words in problem["detail"] and "\n" not in problem["detail"]


def test_rows_and_rounds_have_what_a_page_shows(api: ServeThread) -> None:
    """Rows have sigma, rounds and the last changes if asked. A round has its players by rank."""
    plain, rich = (ask(api, f"{AT}/leaderboard{q}").json["rows"][0] for q in ("", "?recent=5"))
    assert set(rich) - set(plain) == {"sigma", "rounds", "recent"} and rich["sigma"] == 80.0
    assert rich["recent"] == [{"completed_at": "2026-01-01T00:00:02Z", "rank": 1, "rating": 1502.0}]
    rounds = ask(api, f"{AT}/rounds?limit=2").json
    assert [each["round_id"] for each in rounds["rounds"]] == ["r3", "r2"] and rounds["next"] == 2
    (one,) = ask(api, f"{AT}/rounds?player=p1").json["rounds"]
    assert one["players"] == [
        {"player": "p1", "rank": 1, "previous_rating": 0.0, "rating": 1501.0}
    ] and not one["more"]  # fmt: skip
    found = ask(api, f"{AT}/players?prefix=P").json["players"]
    assert [each["player"] for each in found] == ["p0", "p1", "p2"]


def test_a_card_is_a_picture(server: Server, api: ServeThread) -> None:
    """Ids stand in it as text alone, whatever characters they have. It needs the token, too."""
    found = ask(api, "/card/eu/p1")
    assert (found.status, found.headers["content-type"]) == (200, "image/svg+xml")
    assert "sandbox" in found.headers["content-security-policy"] and "1501" in found.text
    assert ask(api, "/card/eu/eve").json["code"] == "unknown-player"
    assert ask(server.serve(serve_token=TOKEN), "/card/eu/p1").status == 401
    for name in ("<script>alert(1)</script>&\"'", "a\x00\x1b\uffff", "x" * 128):
        player = bodies.RankedPlayer(name, 1.0, 2.0, 3.0, 4, False, None, 5, None, rank=None,
                                     listed=0, percentile=None, unlisted=None)  # fmt: skip
        for ratings in ([], [1.0], [1.0, 2.0]):
            drawn = ElementTree.fromstring(draw_card(name, player, ratings, Page()))
            kinds = [each.tag.rpartition("}")[2] for each in drawn.iter()]
            assert kinds == ["svg", "title", "rect", "rect", *["text"] * 4, "polyline"]


def test_the_page_looks_as_the_ladders_file_says(tmp_path: Path) -> None:
    """Its name, colour and logo change neither the fingerprint of a ladder nor what is stored."""
    plain, page = any_ladder(DEFAULT_RATING), Page(name="Arena", colour="#0a7d4f", logo="l.svg")
    other = msgspec.structs.replace(plain, page=page)
    assert other.history("l") == plain.history("l") and b"page" not in msgspec.json.encode(plain)
    for wrong in ({"colour": "red"}, {"logo": "../l.svg"}, {"logo": "l.js"}, {"name": ""}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, Page)
    with pytest.raises(BadConfiguration, match=r"page.logo: l.svg: No such file"):
        list(page_routes(page, str(tmp_path / "ladders.toml")))
    (tmp_path / "l.svg").write_text("<svg/>")
    found = {route.path: route for route in page_routes(page, str(tmp_path / "ladders.toml"))}
    assert {"/", "/status", "/page/logo", "/page/look.json"} < found.keys()
    assert Place(other).ask.page == page and Place().ask.page == Page()


def test_the_largest_questions_are_answered(api: ServeThread) -> None:
    """1,000 ids of 128 bytes; a round of 1,000 players; a cursor that nobody is behind."""
    names = [f"{i:0128}" for i in range(1000)]
    assert len(ask(api, LOOKUP, of_players(*names)).json["players"]) == 1000
    sides = ask(api, PREDICT, of_sides(*([name] for name in names))).json["sides"]
    assert sum(each["win"] for each in sides) == pytest.approx(1.0)


# --- who may ask, and how often ------------------------------------------------------------------


def test_a_flood_is_slowed_down(server: Server) -> None:
    """Twice the rate at once; then 429 with Retry-After. Probes are not counted."""
    api = server.serve(serve_rate=0.01)
    assert ask(api, AT).status == 200
    found = ask(api, AT)
    assert (found.status, found.json["code"]) == (429, "too-many-requests")
    assert 90 <= int(found.headers["retry-after"]) <= 100
    assert ask(api, "/readyz").status == ask(api, "/metrics").status == 200
    assert api.metric("stream_rater_serve_requests_total", operation="ladder", status="429") == 1


def test_headers_of_a_request_count(server: Server, api: ServeThread) -> None:
    """The token, origins and their preflights, and tags: 304 answers what has not changed."""
    origin = "https://game.example"
    guarded = server.serve(serve_token=TOKEN, serve_cors=origin)
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
    """Its connection is closed by us; and if the body does not come, it is refused as well."""
    monkeypatch.setattr(connections, "STEP_S", SHORT_S)
    for first in (b"", b"GET / HT", b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /"):
        with opened(api, first) as connection:
            assert is_closed(connection)
    monkeypatch.undo()
    monkeypatch.setattr(limits, "BODY_S", SHORT_S)
    head = f"POST {LOOKUP} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{{"
    with opened(api, head.encode()) as connection:
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 408 ") and b"body-too-slow" in answer


UNWANTED = (
    "POST /nowhere", "POST /healthz", "PUT /v1/ladders", "GET /openapi.json", "GET /healthz",
    f"GET {AT}/changes", f"POST {AT}/predict?x=1", "POST /v1/ladders/%ff/predict",
)  # fmt: skip
"""Requests that are answered before their body has come."""


def test_a_body_that_nobody_waits_for(api: ServeThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a byte of it the connection is closed. A client whose body comes is served on."""
    waits = b"POST /nowhere HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
    with opened(api, waits) as connection:
        assert b" 404 " in connection.makefile("rb").read()
    for head in UNWANTED:
        problem = f"{head} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n".encode()
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
            connection.sendall(b"123456789GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while b"200 OK" not in answer:
                more = connection.recv(65536)
                assert more, (head, answer)
                answer += more


def test_connections_of_one_address(server: Server) -> None:
    """Beyond the limit the one that was idle longest goes, the new one is answered and counted."""
    api = server.serve(serve_connections=3)
    some = [opened(api, b"") for _ in range(3)]
    assert ask(api, AT).status == 200
    assert some[0].recv(10) == b""
    ask_again = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for each in some[1:]:
        each.sendall(ask_again)
        assert each.recv(10).startswith(b"HTTP/1.1 2")
        each.close()
    some[0].close()
    assert api.metric("stream_rater_serve_room_total", cause="address") >= 1


def test_probes_by_themselves(server: Server) -> None:
    """At an address of their own, as those of a worker; nothing else is there."""
    api = server.serve(serve_probes="127.0.0.1:0")
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
