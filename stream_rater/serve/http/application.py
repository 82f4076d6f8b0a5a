"""The application of the API: admits requests, answers them, and turns errors into problems (RFC
9457)."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar, assert_never
from urllib.parse import quote, unquote

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from stream_rater.config.ladders import PLAIN, Page
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.errors import Denied, StoreTrouble
from stream_rater.contract.events import to_json
from stream_rater.contract.record import PARENT, STATE, RecordPlace, trace_of
from stream_rater.index.reader import Incomplete
from stream_rater.rounds.validation import with_cure
from stream_rater.runtime.http import Reasons, probe
from stream_rater.serve import routes as api
from stream_rater.serve.bodies import RoundsTaken
from stream_rater.serve.door import accept
from stream_rater.serve.door.accept import Beginnings, Door
from stream_rater.serve.door.read_your_writes import Ask, FreshAnswers
from stream_rater.serve.door.validating import ladder_in
from stream_rater.serve.http import limits
from stream_rater.serve.http.beliefs import BeliefQuestions
from stream_rater.serve.http.event_stream import Hub
from stream_rater.serve.http.limits import Sites, Tokens
from stream_rater.serve.http.metrics import ApiMetrics
from stream_rater.serve.http.page import PICTURE_HEADERS, page_routes
from stream_rater.serve.openapi import document
from stream_rater.serve.problems import MEDIA_TYPE, Refused
from stream_rater.serve.questions import Questions

MOST_ANSWERED = 2000
"""The most requests answered at once, half of them of one address. Followers are not counted."""

Endpoint = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")


class Api:
    """Answers requests, in the event loop's thread."""

    def __init__(
        self, settings: Settings, version: str, questions: Questions, beliefs: BeliefQuestions,
        hub: Hub, metrics: ApiMetrics, unhealthy: Reasons,
        unready: Callable[[], Awaitable[list[str]]], clock: Callable[[], float] = time.monotonic,
        *, door: Door | None = None, fresh: FreshAnswers | None = None, page: Page = PLAIN,
    ) -> None:  # fmt: skip
        """`door` takes rounds; None if writing is off. `fresh` answers questions with `min_offset`;
        None if nothing does. `page`: how the page looks."""
        self._questions, self._hub, self._metrics, self._clock = questions, hub, metrics, clock
        self._beliefs, self._unready = beliefs, unready
        self._rate = limits.RateLimit(settings.serve_rate)
        self._answered = limits.Shares(MOST_ANSWERED, "requests are being answered: try again")
        most_bytes = max(limits.MOST_BODIES_BYTES, 2 * door.largest if door else 0)
        self._bodies = limits.Shares(most_bytes, "bytes are being taken: try again")
        self._door, self._fresh = door, fresh
        self._refuses_unknown = door is not None and door.refuses_unknown
        self._tokens = Tokens(settings.serve_token, settings.serve_write_token)
        self._needs_token = bool(settings.serve_token)
        origins = [each.strip() for each in settings.serve_cors.split(",") if each.strip()]
        self._sites = Sites(settings.serve, origins)
        self._open_door = door is not None and not door.needs_token
        tokens = {"token": self._needs_token, "write_token": not self._open_door}
        self._openapi = msgspec.json.encode(document(version, **tokens))
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {
            each.name: msgspec.json.Decoder(each.body)
            for each in api.OPERATIONS
            if each.body and not each.writes
        }
        endpoints = [
            Route("/healthz", self._here(_probe(unhealthy))),
            Route("/readyz", self._here(_probe(unready))),
            Route("/metrics", self._here(self._scrape)), Route("/openapi.json", self._describe),
        ]  # fmt: skip
        routes = [
            Route(each.path, self._endpoint(each), methods=[each.method]) for each in api.OPERATIONS
        ]
        self.application: ASGIApp = RawPaths(
            Starlette(
                routes=[*routes, *endpoints, *page_routes(page, settings.ladders)],
                middleware=list(_cors(origins)),
                exception_handlers={404: _not_found, 405: _not_allowed},
            )
        )  # fmt: skip

    def _endpoint(self, operation: api.Operation) -> Endpoint:
        async def answer(request: Request) -> Response:
            began_s = self._clock()
            response = await self._answer_or_problem(operation, request)
            self._metrics.record_request(
                operation.name, response.status_code, self._clock() - began_s
            )
            return response

        return answer

    def _here(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint of a page that needs no token."""

        async def answer(request: Request) -> Response:
            try:
                self._sites.check_reading(request.headers)
            except Refused as refused:
                return _problem_response(refused)
            return await endpoint(request)

        return answer

    async def _answer_or_problem(self, operation: api.Operation, request: Request) -> Response:
        try:
            self._admit(operation, request)
            with self._answered.taking(1), self._bodies.taking() as take:
                return await self._answer(operation, request, take)
        except Refused as error:
            refused = error
        except Incomplete as why:
            refused = Refused("not-ready", str(why))
        except (StoreTrouble, Denied) as trouble:
            refused = Refused("index-unavailable", f"{trouble}: try again")
        except asyncio.CancelledError:  # by the server, which ends
            code = "not-acknowledged" if operation.writes else "not-ready"
            refused = Refused(code, "the process ends: send it again")
        except ClientDisconnect:
            return Response(status_code=400)  # the client is gone and does not read it
        except Exception:
            self._metrics.failed(operation.name)
            refused = Refused("internal", "the log of `serve` has the cause")
        self._metrics.refused.labels(refused.problem.code).inc()
        return _problem_response(refused)

    def _admit(self, operation: api.Operation, request: Request) -> None:
        """Raise Refused if the client asks too often (writers may), or lacks the right to ask."""
        address = request.client.host if request.client else ""
        rights = self._tokens.rights(request.headers.get("authorization", ""))
        may_write = rights == "write" or (self._open_door and operation.of_writers)
        limits.client_address.set(address)
        limits.client_writes.set(may_write)
        if not may_write:
            self._rate.take(address, self._clock())
        if operation.writes and self._open_door:
            self._sites.check_writing(request.headers, request.scope["http_version"])
        elif rights == "none" and not (operation.writes or self._needs_token):
            self._sites.check_reading(request.headers)
        if operation.writes and self._door is not None and self._door.needs_token:
            self._tokens.check_writing(rights)
        else:
            self._tokens.check_reading(rights)

    async def _answer(
        self, operation: api.Operation, request: Request, take: Callable[[int], None]
    ) -> Response:
        """Answer a request. `take` takes the bytes of its body from their share."""
        path = {name: _decoded(name, text) for name, text in request.path_params.items()}
        query = api.read_query(operation, request.query_params.multi_items())
        if operation.name == "changes":
            return await self._follow(path["ladder"], request.headers.get("last-event-id"))
        given: Any = None
        if operation.body is not None and "upgrade" in request.headers:
            raise Refused(
                "bad-request", "the body is not read if an upgrade is asked for: use HTTP/1.1 "
                "without the header", "header.Upgrade",
            )  # fmt: skip
        if operation.body is not None and "content-encoding" in request.headers:
            cure = "send the body as it is, without this header"
            raise Refused("compressed-body", cure, "header.Content-Encoding")
        if operation.writes:
            given = await self._to_write(request, take)
        elif operation.body is not None:
            given = self._parsed(operation.name, await limits.receive(request, take))
        answer = await self._ask(operation.name, path, query, given)
        body = answer.encode() if operation.produces == api.SVG else to_json(answer)
        headers = {"Cache-Control": "no-cache"}
        if operation.success == 202:  # its state is there after a restart, too
            sent = answer.event_type if operation.name == "correct" else answer.round_id
            where = f"{request.scope['path'].rpartition('/')[0]}/rounds/{quote(sent, '')}"
            headers["Location"] = f"{where}?partition={answer.partition}&offset={answer.offset}"
        headers |= PICTURE_HEADERS if operation.produces == api.SVG else {}
        if operation.method == "GET":
            headers["ETag"] = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
            asked = request.headers.get("if-none-match", "")
            if headers["ETag"] in [tag.strip().removeprefix("W/") for tag in asked.split(",")]:
                return Response(status_code=304, headers=headers)
        return Response(body, operation.success, headers, operation.produces)

    async def _to_write(self, request: Request, take: Callable[[int], None]) -> accept.Sent:
        """The body of a request that writes, as it was sent."""
        body = await limits.receive(request, take, self._opened_door().largest)
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        names = PARENT, STATE
        headers = [(each, request.headers.get(each, "").encode()) for each in names]
        return accept.Sent(body, media_type, trace_of(headers))

    def _opened_door(self) -> Door:
        """The door. Raises Refused if writing is off."""
        if self._door is None:
            raise Refused("writing-off", f"set {PREFIX}SERVE_WRITE_TOKEN to switch it on")
        return self._door

    async def _ask(
        self, name: api.Answered, path: dict[str, str], query: dict[str, Any], given: Any
    ) -> Any:
        """Perform an operation and return its answer. `given` is the request's decoded body."""
        ask, ladder = self._questions, path.get("ladder", "")
        match name:
            case "ladders":
                return await ask.ladders()
            case "ladder":
                return await ask.ladder(ladder)
            case "player":
                who = path["player"]
                return await self._asked(ladder, query, [who], lambda ask: ask.player(ladder, who))
            case "lookup":
                some = given.players
                return await self._asked(ladder, query, some, lambda ask: ask.lookup(ladder, some))
            case "history":
                return await ask.history(ladder, path["player"], query["limit"], query["before"])
            case "leaderboard":
                rows = query["limit"], query["cursor"], query["around"], query["recent"]
                return await self._asked(
                    ladder, query, None, lambda ask: ask.leaderboard(ladder, *rows)
                )
            case "players":
                return await ask.begun_by(ladder, query["prefix"] or "", query["limit"])
            case "card":
                return await ask.card(ladder, path["player"])
            case "rounds":
                return await ask.rounds(ladder, query["player"], query["limit"], query["before"])
            case "predict":
                return await ask.predict(ladder, given)
            case "balance":
                return await ask.balance(ladder, given)
            case "what-if":
                return await self._beliefs.what_if(ladder, given)
            case "explain":
                return await self._beliefs.explain(ladder, path["player"])
            case "seasons":
                return await self._questions.seasons(ladder, self._beliefs.started_seasons)
            case "season":
                page = query["limit"], query["cursor"], query["around"]
                return await self._questions.season(ladder, path["season"], *page)
            case "send-round":
                if self._refuses_unknown:
                    await self._check_known(ladder)
                begin = self._beginnings(ladder, query)
                doubts = await ask.misspelt([ladder])
                taken = await self._opened_door().round(ladder, given.body, given.trace, begin)
                return taken.doubted(doubts) if doubts else taken
            case "send-rounds":
                lines = given.media_type == api.JSON_LINES
                bodies = accept.lines_in(given.body) if lines else accept.elements_in(given.body)
                sent = {ladder_in(each) for each in bodies}
                refuses = self._refuses_unknown and sent
                refused = await ask.strangers(sent, "body.ladder") if refuses else {}
                doubts = {} if refuses else await ask.misspelt(sent)
                some = (await self._opened_door().rounds(bodies, given.trace, refused)).results
                return RoundsTaken(results=[x.doubted(doubts) for x in some] if doubts else some)
            case "correct":
                if self._refuses_unknown:
                    await self._check_known(ladder)
                return await self._opened_door().correction(ladder, given.body, given.trace)
            case "round":
                place, wait_s = _place(query), float(query["wait"])
                return await self._opened_door().state(ladder, path["round_id"], place, wait_s)
            case _:
                assert_never(name)

    async def _check_known(self, ladder: str) -> None:
        """Raise Refused for a ladder without a table and a rating."""
        for refused in (await self._questions.strangers([ladder], "path.ladder")).values():
            raise refused

    def _beginnings(self, ladder: str, query: dict[str, Any]) -> Beginnings | None:
        """What finds ratings with which players begin; None if none is wanted. Raises Refused."""
        source, more = query["seed_from"], float(query["seed_sigma"])
        if source is None:
            if more:
                raise Refused("bad-request", "it needs `seed_from`", "query.seed_sigma")
            return None
        if source == ladder:
            raise Refused("bad-request", "it is the ladder of the round", "query.seed_from")
        find = partial(self._beliefs.beginnings, ladder, source, more)
        return Beginnings(source, find)

    async def _asked(
        self, ladder: str, query: dict[str, Any], players: Sequence[str] | None, ask: Ask[T]
    ) -> T:
        """The answer to a question. It includes all records up to `min_offset`, if that is given.
        `players` are those in the answer; None: all."""
        offset = query["min_offset"]
        if offset is None:
            return await ask(self._questions)
        if self._fresh is None:
            raise Refused("log-unavailable", "this process cannot wait for an offset")
        return await self._fresh.answer(ladder, offset, players, float(query["wait"]), ask)

    def _parsed(self, name: str, body: bytes) -> Any:
        try:
            return self._decoders[name].decode(body)
        except msgspec.ValidationError as error:
            mistake, _, rest = with_cure(str(error)).partition(" - at `$")
            place, _, cure = rest.partition("`")
            raise Refused("invalid", mistake + cure, "body" + place) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused("bad-request", f"no JSON: {error}", "body") from None

    async def _follow(self, ladder: str, last_id: str | None) -> Response:
        if reasons := await self._unready():
            raise Refused("not-ready", reasons[0])
        await self._questions.check_ladder(ladder)
        stream = self._hub.follow(ladder, last_id, limits.client_address.get())
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, media_type=api.EVENT_STREAM, headers=headers)

    async def _scrape(self, _: Request) -> Response:
        page = generate_latest(self._metrics.registry)
        return Response(page, media_type=CONTENT_TYPE_LATEST)

    async def _describe(self, _: Request) -> Response:
        return Response(self._openapi, media_type="application/json")


class RawPaths:
    """Passes the path on undecoded, so that an id may contain a slash (`%2F`)."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI specifies."""
        if scope["type"] == "http" and (raw := scope.get("raw_path")):
            scope = {**scope, "path": raw.decode("ascii", "replace")}
        await self._application(scope, receive, send)


def _cors(origins: Sequence[str]) -> Iterable[Middleware]:
    if origins:
        yield Middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
            expose_headers=["ETag", "Location", "Retry-After"],
        )  # fmt: skip


def _probe(reasons: Reasons) -> Endpoint:
    async def answer(_: Request) -> Response:
        status, text = await probe(reasons)
        return PlainTextResponse(text, status)

    return answer


def _decoded(name: str, text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise Refused("bad-request", "percent-encode UTF-8", f"path.{name}") from None


def _place(query: dict[str, Any]) -> RecordPlace | None:
    given = query["partition"], query["offset"]
    if (given[0] is None) != (given[1] is None):
        raise Refused("bad-request", "give `partition` and `offset`, or neither", "query.offset")
    return None if given[0] is None else RecordPlace(*given)


def _problem_response(refused: Refused) -> Response:
    # The body is incomplete, and the server does not wait for the rest.
    close = {"Connection": "close"} if refused.problem.status in (408, 413) else {}
    headers = refused.headers | close
    return Response(refused.body, refused.problem.status, headers, MEDIA_TYPE)


async def _not_found(request: Request, _: Exception) -> Response:
    return _problem_response(Refused("not-found", "see /openapi.json for what there is", "path"))


async def _not_allowed(request: Request, _: Exception) -> Response:
    refused = Refused("method-not-allowed", "see /openapi.json for what there is", "method")
    routes: list[Route] = request.app.routes
    some = [one for one in routes if one.matches(request.scope)[0] != Match.NONE]
    refused.headers["Allow"] = ", ".join(sorted({*chain(*(one.methods or () for one in some))}))
    return _problem_response(refused)
