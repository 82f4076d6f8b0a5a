"""Takes rounds, corrections and seeds from clients, and answers what became of a round.

Of a round that this process knows by its id, nothing is written again, and the answer is the place
of the first record; it is 409 if that one says something else. So a client that had no answer sends
the round once more. After a restart of this process the workers' duplicate window does the same.
"""

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from stream_rater.config.ladders import Ladders
from stream_rater.contract.corrections import EVENT_TYPE, KINDS
from stream_rater.contract.errors import Denied, Trouble
from stream_rater.contract.events import ROUND_COMPLETED, RatingChanged, cloud_event_headers
from stream_rater.contract.record import (
    Appended,
    Headers,
    NewRecord,
    NotAppended,
    RecordPlace,
    Trace,
)
from stream_rater.contract.seeds import MOST_SEED_BYTES, SEEDS, SeededPlayer
from stream_rater.rounds.seed_records import seed_messages
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime.engine import RoundLog
from stream_rater.serve.bodies import (
    CorrectionTaken,
    RoundsTaken,
    RoundStateAnswer,
    RoundTaken,
)
from stream_rater.serve.door import validating
from stream_rater.serve.door.outcomes import RoundOutcome, RoundState, RoundStates, Waiting
from stream_rater.serve.problems import Refused, refused_record
from stream_rater.serve.routes import JSON_LINES

MOST_AT_ONCE = 1000  # The most rounds in one request.
RETRY_LATER_S = 2
"""The seconds after which a client may try again if the log did not acknowledge a record."""

Posted = Callable[[str], None]
"""Receives the outcome of each record that a client sends: `written`, `known`, `invalid`, `busy` or
`unavailable`."""


class Door:
    """Takes rounds and corrections. It is for one event loop. The methods raise Refused."""

    def __init__(
        self, ladders: Ladders, log: RoundLog, waiting: Waiting, states: RoundStates | None = None,
        posted: Posted = lambda _: None, acknowledged: Callable[[float], None] = lambda _: None,
        clock: Callable[[], float] = time.time, *, needs_token: bool = True,
    ) -> None:  # fmt: skip
        """`posted` receives the outcome of each record, `acknowledged` the seconds until the log
        acknowledged records. `clock` returns Unix seconds. `needs_token`: whether clients need the
        token for writing; without it, only programs of this machine may write."""
        self.needs_token = needs_token
        self._ladders, self._log, self._waiting, self._clock = ladders, log, waiting, clock
        self.states = RoundStates() if states is None else states
        self._posted, self._acknowledged = posted, acknowledged
        self._validator: validating.Validator | None = None
        self._sending: dict[tuple[str, str], _Writing] = {}  # By ladder and round id.
        self._requests: list[_Request] = []  # The requests whose rounds are not validated yet.
        self._tasks: set[asyncio.Task[None]] = set()  # The tasks that write.

    def warm(self) -> None:
        """Compile what validation needs. Another thread may call this."""
        validating.Validator(self._ladders, 1, lambda _: 0).warm()

    @property
    def largest(self) -> int:
        """The most bytes of a round or a correction."""
        return self._ladders.limits.max_bytes

    async def round(
        self, ladder: str, body: bytes, trace: Trace | None = None,
        beginnings: "Beginnings | None" = None,
    ) -> RoundTaken:  # fmt: skip
        """Take one round, whose ladder is in the path. With `beginnings`, a seed for some of its
        players is stored before it."""
        if beginnings is not None:
            await self._begin(ladder, body, trace, beginnings)
        (found,) = await self._take([body], ladder, trace)
        if isinstance(found, Refused):
            raise found
        return found

    @property
    def refuses_unknown(self) -> bool:
        """Whether the ladders file refuses rounds of unknown ladders."""
        return self._ladders.unknown_ladders == "refused"

    async def rounds(
        self, bodies: Sequence[bytes], trace: Trace | None = None,
        refused: Mapping[str, Refused] = MappingProxyType({}),
    ) -> RoundsTaken:  # fmt: skip
        """Take many rounds. Each has its own answer, a refusal where its ladder is refused."""
        if not 1 <= len(bodies) <= MOST_AT_ONCE:
            raise _too_many()
        why = [refused.get(validating.ladder_in(each)) if refused else None for each in bodies]
        both = zip(bodies, why, strict=True)
        taken = iter(await self._take([body for body, no in both if no is None], "", trace))
        found = [next(taken) if no is None else no for no in why]
        for _ in range(len(found) - why.count(None)):
            self._posted("invalid")
        return RoundsTaken(
            results=[
                each if isinstance(each, RoundTaken) else _refused_one(each, i, bodies[i])
                for i, each in enumerate(found)
            ]
        )

    async def correction(
        self, ladder: str, body: bytes, trace: Trace | None = None
    ) -> CorrectionTaken:
        """Take a correction, a seed or a reset, whose ladder is in the path."""
        try:
            valid = self._ready().correction(body, ladder, self._clock())
        except (Invalid, validating.PathMismatch) as invalid:
            self._posted("invalid")
            raise _refused(invalid) from None
        (place,) = await self._write_corrections([valid], trace)
        return CorrectionTaken(ladder=ladder, event_type=valid.kind, **place._asdict())

    async def state(
        self, ladder: str, round_id: str, place: RecordPlace | None, wait_s: float
    ) -> RoundStateAnswer:
        """The state of a round, by its place or by its id. Waits for an end state up to so long."""
        deadline_s = asyncio.get_running_loop().time() + wait_s
        while True:
            found = (
                self.states.of(ladder, round_id) if place is None
                else self.states.at(place, ladder, round_id)
            )  # fmt: skip
            if found is not None and found.status != "pending":
                break
            if not wait_s:
                self._waiting.kick()
                break
            if not await self._waiting.until(deadline_s):
                break
        if found is None:
            if (ladder, round_id) in self._sending:
                raise Refused("not-acknowledged", "the round is being written: ask again")
            raise Refused("unknown-round", _unknown(round_id, place), "path.round_id")
        return _answer(found, ladder, round_id)

    # --- writing ---

    async def _begin(
        self, ladder: str, body: bytes, trace: Trace | None, beginnings: "Beginnings"
    ) -> None:
        """Send a seed for those players of a round who begin with a rating of another ladder. For
        an invalid round, and for one that was sent before, nothing is sent."""
        (valid,) = self._ready().rounds([(body, ladder)], self._clock())
        if isinstance(valid, Invalid | validating.PathMismatch):
            return
        name = valid.ladder, valid.round_id
        if self.states.standing(*name) is not None or name in self._sending:
            return
        players = await beginnings.find([*validating.ranks_in(valid.value)])
        if not players:
            return
        source = f"ladder {beginnings.ladder}"
        most = min(MOST_SEED_BYTES, self.largest)
        messages = seed_messages(valid.ladder, valid.completed_at, source, players, most)
        validator, now_s = self._ready(), self._clock()
        try:
            seeds = [validator.correction(each.value, valid.ladder, now_s) for each in messages]
        except Invalid as invalid:
            self._posted("invalid")
            raise refused_record(invalid.code, str(invalid), "query.seed_from") from None
        await self._write_corrections(seeds, trace)

    async def _write_corrections(
        self, valid: Sequence[validating.ValidCorrection], trace: Trace | None
    ) -> list[RecordPlace]:
        """Append corrections, seeds and resets. Returns their places."""
        now, places = datetime.fromtimestamp(self._clock(), UTC).isoformat(), list[RecordPlace]()
        records = [
            NewRecord(each.partition, each.ladder.encode(), each.value,
                      _headers(each.kind, now, trace))
            for each in valid
        ]  # fmt: skip
        outcomes = await asyncio.shield(asyncio.ensure_future(self._append(records)))
        for each, outcome in zip(valid, outcomes, strict=True):
            if isinstance(outcome, NotAppended):
                raise self._not_appended(outcome)
            self._posted("written")
            self.states.corrected(
                outcome, each.ladder, each.kind, each.round_id, batched=each.batched
            )
            places.append(outcome)
        return places

    async def _take(
        self, bodies: Sequence[bytes], ladder: str, trace: Trace | None
    ) -> list[RoundTaken | Refused]:
        """Take rounds. Returns an answer for each."""
        self._ready()
        loop = asyncio.get_running_loop()
        request = _Request(bodies, ladder, trace, loop.create_future())
        self._requests.append(request)
        if len(self._requests) == 1:
            loop.call_soon(self._take_requests)
        found: list[RoundTaken | Refused] = []
        for valid, answer in await request.answers:
            if not isinstance(answer, _Writing):
                found.append(answer)
                continue
            assert valid is not None
            outcome, content = await asyncio.shield(answer.outcome), answer.round_.content
            found.append(
                _refused_by_log(outcome) if isinstance(outcome, NotAppended)
                else _known(valid, RoundState(outcome, "", "", content=content))
            )  # fmt: skip
        return found

    def _take_requests(self) -> None:
        """Validate the rounds of all requests that have come, in one call, and begin to write
        them."""
        requests, self._requests = self._requests, []
        try:
            self._answer(requests)
        except Exception:  # one of them cannot be validated: the others are answered
            for each in requests:
                try:
                    self._answer([each])
                except Exception as error:
                    if not each.answers.done():
                        each.answers.set_exception(error)

    def _answer(self, requests: Sequence["_Request"]) -> None:
        """Answer these requests. If the rounds cannot be validated, this raises, and has answered
        none."""
        answers = iter(self._answers_to(requests))
        for each in requests:
            own = list(islice(answers, len(each.bodies)))
            if not each.answers.done():
                each.answers.set_result(own)

    def _answers_to(self, requests: Sequence["_Request"]) -> list["_Answer"]:
        """The answer for each round of these requests, or its outcome that is still to come."""
        bodies = [(body, each.ladder) for each in requests for body in each.bodies]
        traces = [each.trace for each in requests for _ in each.bodies]
        answers: list[_Answer] = []
        own: list[_Writing] = []
        for each, trace in zip(self._ready().rounds(bodies, self._clock()), traces, strict=True):
            if isinstance(each, Invalid | validating.PathMismatch):
                self._posted("invalid")
                answers.append((None, _refused(each)))
                continue
            name = each.ladder, each.round_id
            if (first := self.states.standing(*name)) is not None:
                self._posted("known")
                answers.append((None, _known(each, first)))
                continue
            if (writing := self._sending.get(name)) is not None:
                self._posted("known")
            else:
                future = asyncio.get_running_loop().create_future()
                writing = self._sending[name] = _Writing(each, trace, future)
                own.append(writing)
            answers.append((each, writing))
        if own:
            # If a client goes away, the records are written and their states stored all the same.
            task = asyncio.ensure_future(self._write(own))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return answers

    async def _write(self, rounds: Sequence["_Writing"]) -> None:
        """Append rounds, and set their outcomes."""
        none = NotAppended("unavailable", "it was not written")
        outcomes: Sequence[Appended] = [none] * len(rounds)
        try:
            outcomes = await self._append([_record(each, trace) for each, trace, _ in rounds])
        finally:
            for (each, _, future), outcome in zip(rounds, outcomes, strict=True):
                if isinstance(outcome, NotAppended):
                    self._not_appended(outcome)
                else:
                    self._posted("written")
                    self.states.posted(
                        outcome, each.ladder, each.round_id, each.players, each.content
                    )
                del self._sending[each.ladder, each.round_id]
                future.set_result(outcome)
            self._waiting.notify()

    async def _append(self, records: Sequence[NewRecord]) -> list[Appended]:
        began_s = time.monotonic()
        outcomes = await self._log.append(records)
        if any(isinstance(each, RecordPlace) for each in outcomes):
            self._acknowledged(time.monotonic() - began_s)
        return outcomes

    def _not_appended(self, outcome: NotAppended) -> Refused:
        self._posted("invalid" if outcome.cause == "too-large" else outcome.cause)
        return _refused_by_log(outcome)

    def _ready(self) -> validating.Validator:
        """The validator. Raises Refused while the log's partitions are not known."""
        if self._validator is None:
            try:
                partitions = self._log.partitions
            except (Trouble, Denied) as trouble:
                self._posted("unavailable")
                raise Refused(
                    "log-unavailable", f"{trouble}: send it again", retry_after_s=RETRY_LATER_S
                ) from None
            self._validator = validating.Validator(self._ladders, partitions, self._log.end_of)
        return self._validator

    # --- what becomes known ---

    def changed(self, events: Sequence[RatingChanged]) -> None:
        """Take in events of `rating-changed`."""
        for event in events:
            self.states.changed(event)
        self._waiting.notify()


class _Writing(NamedTuple):
    """A round that is being written, and its outcome."""

    round_: validating.ValidRound
    trace: Trace | None
    outcome: "asyncio.Future[Appended]"


_Answer = tuple[None, RoundTaken | Refused] | tuple[validating.ValidRound, _Writing]
"""The answer for a round; or the round, and that of its id whose outcome is still to come."""


class _Request(NamedTuple):
    """A request with rounds. `ladder` is that of the path; empty if the path has none."""

    bodies: Sequence[bytes]
    ladder: str
    trace: Trace | None
    answers: "asyncio.Future[list[_Answer]]"  # The answer for each round, once all are validated.


class Beginnings(NamedTuple):
    """The ratings with which players of a round begin on its ladder."""

    ladder: str  # The ladder from which they come.
    find: Callable[[Sequence[str]], Awaitable[list[SeededPlayer]]]
    """Finds those of these players who begin with a rating, and the ratings. Raises Refused."""


class Sent(NamedTuple):
    """The body of a request that writes."""

    body: bytes
    media_type: str
    trace: Trace | None


def lines_in(body: bytes) -> list[bytes]:
    """The rounds in a body of JSON lines, without empty ones, up to the first that is too many."""
    return [each[0] for each in islice(re.finditer(rb"\S[^\n]*", body), MOST_AT_ONCE + 1)]


LINES_OR_ONE = (
    f"JSON lines need the content type {JSON_LINES}; one round goes to /v1/ladders/LADDER/rounds"
)
_fields = [(f"round{i}", msgspec.Raw, msgspec.Raw()) for i in range(MOST_AT_ONCE)]
_array = msgspec.json.Decoder(
    msgspec.defstruct("_Rounds", _fields, array_like=True, forbid_unknown_fields=True)
).decode
"""Decodes an array. With too many elements it fails before it makes an object for each."""


def elements_in(body: bytes) -> list[bytes]:
    """The rounds in a body that is a JSON array. Raises Refused."""
    try:
        found = map(bytes, msgspec.structs.astuple(_array(body)))
        return [each for each in found if each]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if "at most length" in str(error):
            raise _too_many() from None
        if (split := _split(body)) is not None:
            return split
        why = LINES_OR_ONE if body.lstrip().startswith(b"{") else error
        raise Refused("bad-request", f"no JSON array: {why}", "body") from None


MOST_SIGNS = 500_000  # The most brackets and commas that the event loop looks at in a row.
_sign = re.compile(rb'(?:[^"\[\]{},]++|"(?:[^"\\]|\\.)*+")*+([\[\]{},])', re.DOTALL)


def _split(body: bytes) -> list[bytes] | None:
    """The elements of an array of which some are not valid JSON, divided by the brackets and commas
    outside of texts. None if the brackets do not match, or are too many."""
    text, found, first, at, depth = body.strip(), list[bytes](), 1, 0, 0
    for _ in range(MOST_SIGNS):
        if not (sign := _sign.match(text, at)):
            break
        at = sign.end()
        depth += (sign[1] in b"[{") - (sign[1] in b"]}")
        if depth == (sign[1] == b","):
            found.append(text[first : at - 1])
            first = at
        if len(found) > MOST_AT_ONCE:
            raise _too_many()
        if depth == 0:
            break
    return found if depth == 0 and first == len(text) and text.startswith(b"[") else None


def _too_many() -> Refused:
    return Refused("invalid", f"send from 1 to {MOST_AT_ONCE:,} rounds", "body")


def _refused_one(refused: Refused, index: int, body: bytes) -> RoundTaken:
    """The answer of a batch about a round that was refused."""
    problem = refused.problem
    rest = (problem.place or "body").removeprefix("body")
    partition, offset = refused.at or (None, None)
    return RoundTaken(
        partition=partition, offset=offset, status=problem.status, code=problem.code,
        detail=problem.detail, place=f"body[{index}]{rest}",
        ladder=validating.ladder_in(body) or None, round_id=validating.id_in(body) or None,
    )  # fmt: skip


def _headers(kind: str, now: str, trace: Trace | None) -> Headers:
    """The headers of a record that holds no round."""
    own = [*cloud_event_headers(uuid.uuid4().hex, kind, now), (EVENT_TYPE, kind.encode())]
    return [*own, *(trace.headers() if trace else ())]


def _record(each: validating.ValidRound, trace: Trace | None) -> NewRecord:
    headers = cloud_event_headers(each.round_id, ROUND_COMPLETED, each.completed_at)
    headers += trace.headers() if trace else ()
    return NewRecord(each.partition, each.ladder.encode(), each.value, headers)


def _known(each: validating.ValidRound, state: RoundState) -> RoundTaken | Refused:
    """The answer about a round for whose id this record stands. If another process has sent that
    one, only the ranks in its events are compared."""
    events = [] if state.content else [*state.changes.values()]
    ranks = validating.ranks_in(each.value) if events else {}
    same = state.content in (0, each.content) and all(
        ranks.get(event.player, event.rank) == event.rank for event in events
    )  # a player whom a correction has merged has another id in the event
    if why := state.why_not(same=same):
        return Refused("other-content", why, "body.round_id", at=state.place)
    return RoundTaken(
        ladder=each.ladder, round_id=each.round_id, **state.place._asdict(), status=202,
        warnings=each.warnings,
    )  # fmt: skip


def _refused(invalid: Invalid | validating.PathMismatch) -> Refused:
    if isinstance(invalid, validating.PathMismatch):
        return Refused("invalid", str(invalid), "body.ladder")
    return refused_record(invalid.code, str(invalid), validating.place_in(invalid))


def _refused_by_log(outcome: NotAppended) -> Refused:
    if outcome.cause == "too-large":
        return refused_record("too-large", outcome.detail, "body")
    if outcome.cause == "busy":
        return Refused("busy", outcome.detail, retry_after_s=RETRY_LATER_S)
    return Refused(
        "not-acknowledged", f"{outcome.detail}: send it again; it counts once",
        retry_after_s=RETRY_LATER_S,
    )  # fmt: skip


def _unknown(round_id: str, place: RecordPlace | None) -> str:
    if place is None:
        return (
            f"this process does not know round {round_id!r}: ask with `?partition=&offset=` as "
            "the answer to its post gave them, or send it again"
        )
    return (
        f"this process does not know a record of round {round_id!r} at partition "
        f"{place.partition}, offset {place.offset}, or no longer: the players' own answers have "
        "its effect"
    )


def _answer(found: RoundOutcome, ladder: str, round_id: str) -> RoundStateAnswer:
    state, rated = found.state, found.status == "rated"
    beside = rated and not state.players and round_id in KINDS | SEEDS
    return RoundStateAnswer(
        ladder=ladder, round_id=round_id,
        state="accepted" if beside else found.status,  # type: ignore[arg-type]
        partition=state.place.partition, offset=state.place.offset, code=state.code or None,
        detail=state.detail or None,
        changes=[*state.changes.values()] if rated else [],
        changes_complete=found.complete, corrected_at=found.corrected_at,
    )  # fmt: skip
