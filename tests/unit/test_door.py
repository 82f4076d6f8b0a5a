"""The door: what it answers to requests that send rounds or corrections, and what it writes."""

import asyncio
import tracemalloc
from contextlib import suppress
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from stream_rater.config.ladders import ANY_LADDER, DEFAULT_RATING, Change, Ladder, Ladders, Limits
from stream_rater.contract.events import CorrectionCause
from stream_rater.contract.record import NotAppended, RecordPlace, RejectedRecord, header
from stream_rater.serve.door.accept import elements_in, lines_in
from stream_rater.serve.door.validating import Validator
from stream_rater.serve.http.limits import Shares
from stream_rater.serve.problems import Refused
from stream_rater.serve.questions import Questions
from tests.builders.cases import cases
from tests.builders.doors import PARTITIONS, TOKEN, Client, DoorPlace, a_round, at_door, home
from tests.builders.indexes import an_event

AT = "/v1/ladders/eu/rounds"
VOID = {"event_type": "round-voided", "round_id": "r1"}


@at_door()
async def test_a_round_is_written_as_it_was_sent(place: DoorPlace, client: Client) -> None:
    """With the ladder of the path, in the ladder's partition, with the headers of `submit`."""
    sent = b' {"round_id":"r1", "completed_at":"2026-05-01T20:00:00Z","standings":' + (
        b'[{"player":"ann","rank":1},{"player":"bob","rank":2}],"extra":1.50} \n'
    )
    answer = await client.post(AT, sent)
    assert (answer.status, answer.json) == (202, {
        "ladder": "eu", "round_id": "r1", "partition": home("eu"), "offset": 0, "status": 202,
        "warnings": ["extra: unknown field"],
    })  # fmt: skip
    assert (await client.get(answer.headers["location"])).json["state"] == "pending"
    (record,) = place.log.records[home("eu")]
    assert record.key == b"eu"
    assert record.value == b'{"ladder":"eu",' + sent.strip()[1:]
    assert header(record.headers, "ce_id") == "r1"
    assert header(record.headers, "content-type") == "application/json"
    assert place.posted("written") == 1


def test_terms_may_change_before_the_offset() -> None:
    """The log may be longer than is known, so all terms from here on must refuse an event."""
    limits, heavy = Limits(corrections="refused"), Limits(max_weight=1e6)
    changes = Change(from_offset=2, limits=heavy), Change(from_offset=4, limits=limits)
    changing = Ladder(rating=DEFAULT_RATING, limits=limits, changes=changes)
    late = Ladder(rating=DEFAULT_RATING, from_offset=2)
    place = DoorPlace(Ladders(ladders={"eu": changing, "late": late}))
    void = "/v1/ladders/eu/corrections"

    async def story(client: Client) -> None:
        assert (await client.post("/v1/ladders/late/rounds", a_round())).status == 202
        assert (await client.post(AT, a_round(weight=1e5))).status == 202
        assert (await client.post(AT, a_round("bad", weight=1e7))).code == "bad-weight"
        assert (await client.post(void, VOID)).status == 202
        place.log.records[home("eu")] += place.log.all * 4
        assert (await client.post(AT, a_round("bad", weight=1e5))).code == "bad-weight"
        assert (await client.post(void, VOID)).code == "corrections-refused"

    place.play(story)


@at_door()
async def test_each_round_of_a_batch_is_answered(place: DoorPlace, client: Client) -> None:
    """Valid rounds (1,000 at most) are written in order. Mistakes of others have their place."""
    bodies = [a_round("a", ladder="eu"), a_round("", ladder="eu"), a_round("b", ladder="eu")]
    answer = await client.post("/v1/rounds", bodies)
    assert answer.status == 200
    results = answer.json["results"]
    assert [each["status"] for each in results] == [202, 422, 202]
    assert [each.get("offset") for each in results] == [0, None, 1]
    assert results[1]["code"] == "bad-id" and results[1]["place"] == "body[1].round_id"
    assert len(place.log.all) == 2
    lines = b'{"x\n\n' + b"\n".join(
        b'{"ladder":"eu","round_id":"r%d","completed_at":"2026-05-01T20:00:00Z","standings":'
        b'[{"player":"a","rank":1},{"player":"b","rank":1}]}' % i for i in range(3)
    )  # fmt: skip
    answer = await client.post("/v1/rounds", lines, content_type="application/x-ndjson")
    assert [each["status"] for each in answer.json["results"]] == [422, 202, 202, 202]
    assert len(place.log.all) == 5
    good = [line.replace(b':"r', b':"s]') for line in lines.splitlines()[2:]]
    bad = b"nul", b'{"a":1,}', b'{"a":"\\x"}', b"[" * 2000 + b"]" * 2000, b"", b'"\x01"'
    array = b" [%s] " % b" , ".join([*bad, *good])
    answer = await client.post("/v1/rounds", array)
    assert [each["status"] for each in answer.json["results"]] == [422] * 6 + [202] * 3
    assert len(place.log.all) == 8
    for whole in (array[:-3], array + b"]", b"nul", b"[" + array, b'["a]'):
        answer = await client.post("/v1/rounds", whole)
        assert (answer.status, answer.code) == (400, "bad-request")
    for bodies in ([], [a_round(str(i), ladder="eu") for i in range(1001)]):
        answer = await client.post("/v1/rounds", bodies)
        assert (answer.status, answer.code) == (422, "invalid")
    answer = await client.post("/v1/rounds", {"round_id": "r"})
    assert (answer.status, answer.code) == (400, "bad-request")
    assert len(place.log.all) == 8


def test_unknown_ladders_are_refused() -> None:
    """Unless they have a rating. The answer has the nearest name, and an index that lacks some
    cannot say. A misspelt field is named in the answer to a round that is taken."""
    ladders = Ladders(
        ladders={each: Ladder(rating=DEFAULT_RATING) for each in ("*", "eu")},
        unknown_ladders="refused",
    )
    index, complete = Mock(ladders=AsyncMock(return_value=["old"])), [True]
    asked = Questions(index, ladders, lambda: complete[0], *[Mock()] * 3)
    place = DoorPlace(ladders, questions=asked)

    async def story(client: Client) -> None:
        for path in ("rounds", "corrections"):
            answer = await client.post(f"/v1/ladders/eeu/{path}", a_round())
            assert (answer.status, answer.code) == (422, "unknown-ladder")
            assert "write 'eu'" in answer.json["detail"] and answer.json["place"] == "path.ladder"
        assert (await client.post("/v1/rounds", [a_round(ladder="new")])).status == 200
        batch = [a_round(str(i), ladder=each) for i, each in enumerate(("eu", "new", "old", ""))]
        results = (await client.post("/v1/rounds", batch)).json["results"]
        assert [each["status"] for each in results] == [202, 422, 202, 422]
        assert results[1]["place"] == "body[1].ladder" and results[3]["code"] == "bad-id"
        complete[0] = False
        assert (await client.post("/v1/ladders/eeu/rounds", a_round())).code == "not-ready"
        entries = [{"player": "ann", "rank": 1, "seet": "home"}, {"player": "bob", "rank": 2}]
        answer = await client.post(AT, a_round(wieght=2, standings=entries))
        assert answer.json["warnings"] == [
            "standings[0].seet: unknown field: did you mean seat?",
            "wieght: unknown field: did you mean weight?",
        ]

    place.play(story)
    assert place.posted("invalid") == 3 and len(place.log.all) == 3


def test_a_ladder_with_nearly_the_name_of_another_one() -> None:
    """Its rounds are taken with a warning, until it has a rating. An index that is not complete
    keeps no round out."""
    rated, complete = ["duel"], [True]
    index = Mock(ladders=AsyncMock(return_value=rated))
    place = DoorPlace(questions=Questions(index, ANY_LADDER, lambda: complete[0], *[Mock()] * 3))
    warning = ["ladder 'deul' is new: did you mean 'duel'?"]

    async def story(client: Client) -> None:
        async def warned(ladder: str) -> Any:
            answer = await client.post(f"/v1/ladders/{ladder}/rounds", a_round())
            assert answer.status == 202
            return answer.json.get("warnings")

        assert [await warned(each) for each in ("deul", "duel", "xy")] == [warning, None, None]
        batch = [a_round("b", ladder="deul"), a_round("", ladder="deul")]
        results = (await client.post("/v1/rounds", batch)).json["results"]
        assert [each.get("warnings") for each in results] == [warning, None]
        complete[0] = False
        assert await warned("deul") is None
        rated.append("deul")
        complete[0] = True
        assert await warned("deul") is None

    place.play(story)


@at_door()
async def test_a_correction_has_a_place_and_a_state(place: DoorPlace, client: Client) -> None:
    """At `Location`, as a round has."""
    place.states.began([0] * PARTITIONS)
    await client.post(AT, a_round())
    where = (await client.post("/v1/ladders/eu/corrections", VOID)).headers["location"]
    assert (await client.get(where)).json["state"] == "pending"
    place.states.settled([2] * PARTITIONS)
    assert (await client.get(where)).json["state"] == "accepted"
    at = RecordPlace(home("eu"), 1)
    place.states.rejected(RejectedRecord(at, "already-voided", "why", "", ""))
    state = (await client.get(where)).json
    assert (state["state"], state["code"], state["detail"]) == ("rejected", "already-voided", "why")


@at_door()
async def test_a_mistake_has_its_cure(place: DoorPlace, client: Client) -> None:
    """What to send where, which methods there are, and which round of a batch it is."""
    said = (await client.post("/v1/rounds", a_round())).json["detail"]
    assert "application/x-ndjson" in said and "/v1/ladders/LADDER/rounds" in said
    packed = await client.post(AT, b"\x1f\x8b", **{"content-encoding": "gzip"})
    assert (packed.status, packed.json["place"]) == (415, "header.Content-Encoding")
    refused = await client._ask("PUT", AT, b"", TOKEN, "")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, POST")
    twice = [{"player": "ann", "rank": 1}, {"player": "ann", "rank": 2}]
    bodies = [a_round("r7", ladder="eu", standings=twice), a_round("r8", ladder="eu", standings=[])]
    results = (await client.post("/v1/rounds", bodies)).json["results"]
    assert [each["round_id"] for each in results] == ["r7", "r8"]
    assert (results[0]["code"], results[0]["place"]) == ("duplicate-player", "body[0].standings")


def test_a_round_that_breaks_the_validator_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that come together are validated in one call."""
    place, rounds = DoorPlace(), Validator.rounds

    def broken(self: Validator, bodies: Any, now_s: float) -> Any:
        if any(b"poison" in body for body, _ in bodies):
            raise ZeroDivisionError
        return rounds(self, bodies, now_s)

    monkeypatch.setattr(Validator, "rounds", broken)

    async def story(client: Client) -> None:
        posts = [client.post(AT, a_round(name)) for name in ("a", "poison", "b")]
        assert [each.status for each in await asyncio.gather(*posts)] == [202, 500, 202]

    place.play(story)
    assert len(place.log.all) == 2


@at_door()
async def test_a_server_that_ends_says_so(place: DoorPlace, client: Client) -> None:
    """To whoever still waits: for the place of a round, or for its rating."""
    await client.post(AT, a_round("x"))
    place.log.gate = asyncio.Event()
    asked = [client.post(AT, a_round("y")), client.get(f"{AT}/x?wait=30", TOKEN)]
    both = [asyncio.ensure_future(each) for each in asked]
    while not (place.door._sending and sum(place.api._answered._used.values()) == 4):
        await asyncio.sleep(0)
    for each in both:
        each.cancel()
    answers = [await each for each in both]
    assert [each.status for each in answers] == [503, 503]
    assert [each.code for each in answers] == ["not-acknowledged", "not-ready"]
    assert all("retry-after" in each.headers for each in answers)


@at_door()
async def test_a_known_round_is_not_written_again(place: DoorPlace, client: Client) -> None:
    """The answer is the place of the first record, also for a batch, and if both come at once."""
    first = await client.post(AT, a_round())
    again = await client.post(AT, a_round())
    assert again.json == first.json and again.status == 202
    batch = [a_round("x", ladder="eu"), a_round("x", ladder="eu"), a_round(ladder="eu")]
    results = (await client.post("/v1/rounds", batch)).json["results"]
    assert [each["offset"] for each in results] == [1, 1, 0]
    place.log.gate = asyncio.Event()
    both = [asyncio.ensure_future(client.post(AT, a_round("y"))) for _ in range(2)]
    while not place.door._sending:
        await asyncio.sleep(0)
    place.log.gate.set()
    assert {(await each).json["offset"] for each in both} == {2}
    assert len(place.log.all) == 3
    assert place.posted("known") == 4


OTHERS: dict[str, dict[str, Any]] = {
    "other-ranks": {"standings": [{"player": "ann", "rank": 2}, {"player": "bob", "rank": 1}]},
    "other-player": {"standings": [{"player": "ann", "rank": 1}, {"player": "cy", "rank": 2}]},
    "not-finished": {"standings": [{"player": "ann", "rank": 1}, {"player": "bob", "dnf": True}]},
    "a-team": {"standings": [{"team": ["ann", "cy"], "rank": 1}, {"player": "bob", "rank": 2}]},
    "a-seat": {"standings": [{"player": "ann", "rank": 1, "seat": "home"},
                             {"player": "bob", "rank": 2}]},
    "a-score": {"standings": [{"player": "ann", "rank": 1, "score": 3},
                              {"player": "bob", "rank": 2, "score": 0}]},
    "other-weight": {"weight": 2.0},
    "a-ceiling": {"performance_ceiling": 1800.0},
    "other-time": {"completed_at": "2026-05-01T20:00:01Z"},
}  # fmt: skip


@cases("other", OTHERS.values())
@at_door()
async def test_a_known_id_with_another_content(
    place: DoorPlace, client: Client, other: dict[str, Any]
) -> None:
    """The answer has the place of the first round and the cure. Nothing is written."""
    await client.post(AT, a_round())
    answer = await client.post(AT, a_round(**other))
    assert (answer.status, answer.code) == (409, "other-content")
    assert (answer.json["partition"], answer.json["offset"]) == (home("eu"), 0)
    assert "round-amended" in answer.json["detail"]
    batch = [
        a_round("x", ladder="eu"), a_round("x", ladder="eu", **other),
        a_round(ladder="eu", **other),
    ]  # fmt: skip
    results = (await client.post("/v1/rounds", batch)).json["results"]
    said = [(each["status"], each.get("code"), each["offset"]) for each in results]
    assert said == [(202, None, 1), (409, "other-content", 1), (409, "other-content", 0)]
    assert len(place.log.all) == 2


@at_door()
async def test_a_known_id_in_another_spelling(place: DoorPlace, client: Client) -> None:
    """The order and the form of the time do not matter. Others' rounds are known by events."""
    team = {"team": ["bob", "cy"], "shares": [1.0, 0.5], "rank": 2}
    turned = {"team": ["cy", "bob"], "shares": [0.5, 1], "rank": 2}
    await client.post(AT, a_round(standings=[{"player": "ann", "rank": 1}, team]))
    again = a_round(
        completed_at="2026-05-01T22:00:00+02:00", standings=[turned, {"player": "ann", "rank": 1}],
        weight=1, extra=True,
    )  # fmt: skip
    answer = await client.post(AT, again)
    assert (answer.status, answer.json["offset"]) == (202, 0)
    place.log.broken = NotAppended("unavailable", "away")
    batch = [a_round("y", ladder="eu"), a_round("y", ladder="eu", weight=2)]
    results = (await client.post("/v1/rounds", batch)).json["results"]
    assert [each["code"] for each in results] == ["not-acknowledged", "not-acknowledged"]
    place.states.began([0] * PARTITIONS)
    for name in ("ann", "merged-into"):
        place.door.changed([an_event(name, 9, ladder="eu", round_id="z", rank=1)])
    assert (await client.post(AT, a_round("z"))).json["offset"] == 9
    other = await client.post(AT, a_round("z", **OTHERS["other-ranks"]))
    assert (other.code, other.json["offset"]) == ("other-content", 9)


@at_door()
async def test_a_corrected_round(place: DoorPlace, client: Client) -> None:
    """A voided round is not taken again. Its state is final once the correction is decided."""
    place.states.began([0] * PARTITIONS)
    await client.post(AT, a_round())
    for name, rank in (("ann", 1), ("bob", 2)):
        place.door.changed([an_event(name, 0, ladder="eu", round_id="r1", rank=rank)])
    rated = (await client.get(f"{AT}/r1")).json
    assert (rated["state"], len(rated["changes"]), rated.get("corrected_at")) == ("rated", 2, None)
    await client.post("/v1/ladders/eu/corrections", VOID | {"batched": True})
    assert (await client.get(f"{AT}/r1")).json == rated
    await client.post("/v1/ladders/eu/corrections", VOID)
    assert (await client.get(f"{AT}/r1")).json["state"] == "pending"
    place.states.settled([3] * PARTITIONS)
    state = (await client.get(f"{AT}/r1")).json
    assert (state["state"], state["changes"], state["corrected_at"]) == ("voided", [], 2)
    answer = await client.post(AT, a_round())
    assert (answer.status, answer.code) == (409, "other-content")
    assert "voided at offset 2" in answer.json["detail"]
    at = RecordPlace(home("eu"), 2)
    place.states.rejected(RejectedRecord(at, "already-voided", "why", "", ""))
    assert (await client.get(f"{AT}/r1")).json == rated
    assert (await client.post(AT, a_round())).status == 202
    applied = CorrectionCause(cause="corrections-applied", offset=3, round_id="")
    place.door.changed([an_event("ann", 3, ladder="eu", round_id="", correction=applied)])
    state = (await client.get(f"{AT}/r1")).json
    assert (state["state"], state["corrected_at"]) == ("voided", 3)
    assert "round-voided at offset 1" in (await client.post(AT, a_round())).json["detail"]


@at_door()
async def test_a_rejected_round_says_why(place: DoorPlace, client: Client) -> None:
    """It may be sent again. Waiting ends with the state at that time. Half a place is no place."""
    await client.post(AT, a_round())
    at = RecordPlace(home("eu"), 0)
    place.states.rejected(RejectedRecord(at, "bad-time", "completed_at: x", "eu", "r1"))
    answer = (await client.get(f"{AT}/r1")).json
    assert (answer["state"], answer["code"]) == ("rejected", "bad-time")
    assert answer["detail"] == "completed_at: x"
    assert (await client.post(AT, a_round())).json["offset"] == 1
    assert (await client.get(f"{AT}/r1?wait=1")).json["state"] == "pending"
    unknown = await client.get(f"{AT}/r9")
    assert (unknown.status, unknown.code) == (404, "unknown-round")
    assert "?partition=&offset=" in unknown.json["detail"]
    assert (await client.get(f"{AT}/r9?offset=1")).code == "bad-request"


@cases(("outcome", "status", "code"), [
    (NotAppended("busy", "full"), 503, "busy"),
    (NotAppended("unavailable", "kafka: timed out"), 503, "not-acknowledged"),
    (NotAppended("too-large", "too large"), 422, "too-large"),
])  # fmt: skip
@at_door()
async def test_what_was_not_acknowledged_says_so(
    place: DoorPlace, client: Client, outcome: NotAppended, status: int, code: str
) -> None:
    """And when to try again; the round is not known afterwards, so that it is written then."""
    place.log.broken = outcome
    for path, body in ((AT, a_round()), ("/v1/ladders/eu/corrections", VOID)):
        answer = await client.post(path, body)
        assert (answer.status, answer.code) == (status, code)
        assert ("retry-after" in answer.headers) == (status == 503)
    batch = await client.post("/v1/rounds", [a_round(ladder="eu")])
    (result,) = batch.json["results"]
    assert (result["status"], result["code"]) == (status, code)
    place.log.broken = None
    assert (await client.post(AT, a_round())).status == 202


@at_door()
async def test_no_log_yet(place: DoorPlace, client: Client) -> None:
    """Nothing is taken before the log is known. An upgrade is refused, as its body is not read."""
    place.log.away = True
    answer = await client.post(AT, a_round())
    assert (answer.status, answer.code) == (503, "log-unavailable")
    assert answer.headers["retry-after"]
    place.log.away = False
    assert (await client.post(AT, a_round())).status == 202
    answer = await client.post(AT, b"", upgrade="h2c")
    assert (answer.status, answer.code) == (400, "bad-request")
    assert "HTTP/1.1" in answer.json["detail"]


# --- how much at once ---

MILLION = 10**6


@cases(
    ("read", "body"),
    [
        (elements_in, b"[" + b"0," * MILLION + b"0]"), (lines_in, b"0\n" * MILLION),
        (elements_in, b"[" + b"[]," * MILLION + b"0]"), (lines_in, b"12\n" * MILLION),
        (lines_in, b"\n" * MILLION), (lines_in, b" \n" * MILLION),
    ],
    ids=lambda case: bytes(case[1][:9]),
)  # fmt: skip
def test_too_many_rounds_are_counted_before_they_are_made(read: Any, body: bytes) -> None:
    """Small elements and lines would take many times their bytes."""
    tracemalloc.start()
    try:
        with suppress(Refused):
            assert len(read(body)) in (0, 1001)
        assert tracemalloc.get_traced_memory()[1] < len(body) / 4
    finally:
        tracemalloc.stop()


@at_door(serve_token="r-token")
async def test_one_client_keeps_no_other_from_waiting(place: DoorPlace, client: Client) -> None:
    """An address may have half of what may wait, the next half of the rest. Writers are apart."""
    place.waiting._shares = Shares(8, "requests wait here: ask without `wait`")
    await client.post(AT, a_round())
    waiting: list[Any] = []

    async def wait(address: str, token: str, wanted: int) -> None:
        client.address = address
        for _ in range(wanted):
            waiting.append(asyncio.ensure_future(client.get(f"{AT}/r1?wait=30", token)))
            count = place.waiting.count
            while place.waiting.count == count:
                await asyncio.sleep(0)
        refused = await client.get(f"{AT}/r1?wait=30", token)
        assert (refused.status, refused.code) == (503, "busy"), address

    for address, token, wanted in (
        ("10.0.0.1", "r-token", 4), ("10.0.0.2", "r-token", 2), ("10.0.0.3", "r-token", 1),
        ("10.0.0.1", TOKEN, 4),
    ):  # fmt: skip
        await wait(address, token, wanted)
    place.states.rejected(RejectedRecord(RecordPlace(home("eu"), 0), "bad-time", "x", "eu", "r1"))
    place.waiting.notify()
    assert {(await each).json["state"] for each in waiting} == {"rejected"}
    assert not place.waiting.count and not any(place.waiting._shares._used.values())


@at_door()
async def test_bodies_count_until_they_are_answered(place: DoorPlace, client: Client) -> None:
    """A body stays in memory until the log has answered. Its announced size is taken at once."""
    body = a_round("r1", filler="x" * 300)
    place.api._bodies = Shares(4 * 500, "bytes are being taken: try again")
    place.log.gate = asyncio.Event()
    length = {"content-length": "900"}
    posts = [client.post(AT, body | {"round_id": f"r{i}"}) for i in range(3)]
    asked = []
    for post in [*posts, client.post(AT, a_round("r4"), **length)]:
        asked.append(asyncio.ensure_future(post))
        for _ in range(100):
            await asyncio.sleep(0)
        client.address = "127.0.0.1" if len(asked) < 3 else "10.0.0.2"
    assert [each.done() for each in asked] == [False, False, True, True]
    place.log.gate.set()
    answers = [await each for each in asked]
    assert [each.status for each in answers] == [202, 202, 503, 503]
    assert {each.code for each in answers[2:]} == {"busy"}
    assert (await client.post(AT, a_round("r4"), **length)).status == 202


# --- tokens ---


@at_door(serve_token="")
async def test_a_foreign_name_reads_nothing_without_a_token(
    place: DoorPlace, client: Client
) -> None:
    """Another site's page may have a name that leads to this machine. With a token it may read."""
    foreign = {"host": "games.example:9109"}
    for path in (f"{AT}/r1", "/v1/ladders", "/healthz", "/readyz", "/metrics"):
        answer = await client.get(path, **foreign)
        assert (answer.status, answer.code) == (403, "foreign-page"), path
    assert (await client.get(f"{AT}/r1", host="localhost:9109")).code == "unknown-round"
    assert (await client.get(f"{AT}/r1", TOKEN, **foreign)).code == "unknown-round"
    assert (await client.post(AT, a_round(), **foreign)).status == 202


@at_door(serve_token="r-token")
async def test_the_token_for_reading_does_not_allow_writing(
    place: DoorPlace, client: Client
) -> None:
    """And the token for writing allows both."""
    answers = [await client.post(AT, a_round(), token) for token in ("", "x", "r-token")]
    assert [each.status for each in answers] == [401, 401, 403]
    assert answers[2].code == "read-only"
    assert place.log.all == []
    assert (await client.post(AT, a_round())).status == 202
    asked = [await client.get(f"{AT}/r1", token) for token in ("", "r-token", TOKEN)]
    assert [each.status for each in asked] == [401, 200, 200]


@at_door(serve_rate=0.001)
async def test_the_rate_does_not_limit_writers(place: DoorPlace, client: Client) -> None:
    """A backend sends all its rounds from one address."""
    for i in range(5):
        assert (await client.post(AT, a_round(str(i)))).status == 202
    assert [(await client.post(AT, a_round(), "x")).status for _ in range(2)] == [401, 429]


@at_door()
async def test_a_round_is_pending_until_it_is_rated(place: DoorPlace, client: Client) -> None:
    """A request may wait for the end state; the changes of all players come with it."""
    place.states.began([0] * PARTITIONS)
    await client.post(AT, a_round())
    pending = await client.get(f"{AT}/r1")
    assert (pending.json["state"], pending.json["changes_complete"]) == ("pending", False)
    waiting = asyncio.ensure_future(client.get(f"{AT}/r1?wait=30"))
    while not place.waiting.count:
        await asyncio.sleep(0)
    for player in ("ann", "bob"):
        place.door.changed([an_event(player, 0, ladder="eu", round_id="r1")])
    answer = (await waiting).json
    assert (answer["state"], answer["changes_complete"]) == ("rated", True)
    assert {each["player"] for each in answer["changes"]} == {"ann", "bob"}
    assert (answer["partition"], answer["offset"]) == (home("eu"), 0)
