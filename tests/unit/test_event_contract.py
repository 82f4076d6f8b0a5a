"""deploy/asyncapi.yaml: the events that the service reads and sends; ids, times and headers."""

import copy
import math
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import event_contract
import msgspec
import numpy as np
import pytest
import yaml

from local.tools import ROOT
from stream_rater.adapters.kafka.envelopes import change_headers, next_offset_of, rejection_headers
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract import events
from stream_rater.contract.corrections import KINDS, ROUND, RoundAmended
from stream_rater.contract.record import Record, header
from stream_rater.contract.season_ended import SEASON_ENDED
from stream_rater.contract.seeds import SEEDS
from stream_rater.pipeline.ports import Rejection
from stream_rater.pipeline.updater.belief_changes import correction_events
from stream_rater.rating.model import HEADER
from stream_rater.rounds.batch import MAX_TIME_LENGTH
from stream_rater.rounds.correction_records import amended_message, decode_correction, decode_seed
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime.engine import EmbeddedEngine
from tests import tools
from tests.builders.cases import cases
from tests.builders.machines import RULE
from tests.rounds import Reader, as_json, as_msgpack, event
from tests.unit.test_validation import REFUSED, VALID, second
from tests.waits import HANGS_S

DOCUMENT = yaml.safe_load(event_contract.DOCUMENT.read_text())
MESSAGES: dict[str, Any] = DOCUMENT["components"]["messages"]

UNSAYABLE = {
    "unknown-ladder", "too-many-entries", "duplicate-player", "duplicate-round", "wrong-partition",
}  # fmt: skip
"""What no schema of one message can know: other files, limits and rounds, and names elsewhere."""

BEYOND = [
    second(player="bob", rank=2.0),  # to JSON Schema 2.0 is an integer
    second(team=["x", "y"], rank=2, shares=[1]), second(team=["x", "y"], rank=2, shares=[1, 1, 1]),
    second(player="é" * 64 + "x", rank=2),  # bytes, not characters
    second(player="\U0001f600" * 33, rank=2), {"ladder": "é" * 65},
]  # fmt: skip
"""What a schema could say, if at all, only at the price of being read by nobody."""


def has_unchecked_time(fields: dict[str, Any]) -> bool:
    """Whether the time is a text. The schema states its format, but few libraries check it."""
    time = fields.get("completed_at")
    return isinstance(time, str) and 0 < len(time) < MAX_TIME_LENGTH


def validator(schema: dict[str, Any]) -> Any:
    """Of a schema within the document; AsyncAPI's own are those of draft 7."""
    from jsonschema import Draft7Validator  # seconds, which a process without these tests spares

    whole = {**schema, "components": DOCUMENT["components"]}
    return Draft7Validator(whole)


def payload(message: str) -> Any:
    return validator({"allOf": [MESSAGES[message]["payload"]]})


def headers(message: str) -> Any:
    return validator(MESSAGES[message]["headers"])


def test_it_is_what_is_written() -> None:
    """It is what `make contract` writes now. Its channels are the public topics."""
    assert event_contract.DOCUMENT.read_text() == event_contract.text(), "make contract"
    assert {channel["address"] for channel in DOCUMENT["channels"].values()} == {
        events.ROUND_COMPLETED, events.RATING_CHANGED, events.ROUND_REJECTED, SEASON_ENDED
    }  # fmt: skip


@pytest.mark.slow
def test_asyncapis_parser_reads_it() -> None:
    """`make contract-check`: no error and no warning, and each operation."""
    npm = shutil.which("npm")
    tools.needed(Path(npm) if npm else None, "npm", hint=": AsyncAPI's parser wants it")
    done = subprocess.run(
        ["make", "contract-check"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.endswith(f"deploy/asyncapi.yaml: {', '.join(DOCUMENT['operations'])}\n")


def test_the_types_schemas_are_in_it() -> None:
    """Additions only narrow the schemas of rounds. Our own events only get descriptions."""
    corrections = (*KINDS.values(), *SEEDS.values(), *event_contract.OF_SEASONS.values())
    _, documented = msgspec.json.schema_components(
        [events.RoundCompleted, events.RatingChanged, *corrections],
        ref_template=event_contract.SCHEMAS + "{name}",
    )
    found = DOCUMENT["components"]["schemas"]
    assert found.keys() == documented.keys()
    for name, schema in documented.items():
        assert found[name]["properties"].keys() == schema["properties"].keys()
        assert found[name]["required"] == schema["required"]
        strict = schema.get("additionalProperties")
        assert found[name].get("additionalProperties") is strict
    for name in ("RatingChanged", "CorrectionCause"):
        ours = copy.deepcopy(found[name]["properties"])
        for each in ours.values():
            for part in (each, *each.get("anyOf", ())):
                part.pop("description", None)
        assert ours == documented[name]["properties"]


def test_rounds_are_valid_by_the_schema_as_by_the_service() -> None:
    """What is odd but in the contract is valid. Mistakes that a schema can find are found."""
    rounds = payload("roundCompleted")
    for fields in VALID:
        rounds.validate(msgspec.to_builtins(event(**fields)))
    taken = [
        (code, fields) for code, fields in REFUSED
        if rounds.is_valid(msgspec.to_builtins(event(**fields)))
    ]  # fmt: skip
    sayable = [
        (code, fields) for code, fields in taken
        if code not in UNSAYABLE and fields not in BEYOND and not has_unchecked_time(fields)
    ]  # fmt: skip
    assert sayable == []
    assert [fields for fields in BEYOND if fields not in [each for _, each in taken]] == []


# --- corrections ----------------------------------------------------------------------------------


def of_kind(kind: str) -> str:
    head, *rest = kind.split("-")
    return head + "".join(map(str.capitalize, rest))


def rejection_code(kind: str, fields: dict[str, Any]) -> str:
    """The code by which the service refuses a correction for what it is; empty if it does not."""
    headers = [("event-type", kind.encode())]
    record = Record(0, 0, msgspec.json.encode(fields), headers, received_s=2e9)
    try:
        if kind in SEEDS:
            decode_seed(record, ANY_LADDER)
            return ""
        correction = decode_correction(record, ANY_LADDER)
        if isinstance(correction, RoundAmended):
            as_reported = amended_message(correction, "2026-11-20T20:15:05Z", 1.0, math.inf)
            Reader(ANY_LADDER).read(as_reported, received_s=2e9)
    except Invalid as invalid:
        return invalid.code
    return ""


def test_each_kind_of_correction_is_a_message_of_the_topic() -> None:
    """They stand beside the round, and one header names the kind."""
    (channel,) = (c for c in DOCUMENT["channels"].values() if c["address"] == "round-completed")
    every = [*KINDS, *SEEDS]
    assert [*channel["messages"]] == ["roundCompleted", *map(of_kind, every)]
    for kind in every:
        documented = headers(of_kind(kind))
        assert [other for other in every if documented.is_valid({"event-type": other})] == [kind]
        assert not documented.is_valid({})
    assert headers("roundCompleted").is_valid({})
    named = [k for k in (*every, ROUND) if headers("roundCompleted").is_valid({"event-type": k})]
    assert named == [ROUND]


def changed_example(kind: str, fields: dict[str, Any] | None = None) -> dict[str, Any]:
    (example,) = MESSAGES[of_kind(kind)]["examples"]
    headers(of_kind(kind)).validate(example["headers"])
    whole: dict[str, Any] = example["payload"] | (fields or {})
    return whole


TWO = [{"player": "a", "rank": 1}, {"player": "b", "rank": 2}]


MISTAKES: dict[str, list[tuple[str, list[dict[str, Any]]]]] = {
    "round-voided": [
        ("malformed", [{"round": "r"}, {"round_id": 7}, {"batched": 1}]),
        ("bad-id", [{"round_id": ""}, {"ladder": "l" * 129}]),
    ],
    "round-amended": [
        ("malformed", [
            {"standings": None}, {"standings": [*TWO, {"player": "c", "rank": 3, "x": 1}]},
            {"completed_at": None},
        ]),
        ("too-few-entries", [{"standings": TWO[:1]}]),
        ("bad-rank", [{"standings": [*TWO, {"player": "c"}]},
                      {"standings": [*TWO, {"player": "c", "rank": 0}]}]),
        ("bad-weight", [{"weight": 0}]),
    ],
    "player-removed": [
        ("bad-time", [{"from": ""}]),
        ("malformed", [{"since": "2026-11-01T00:00:00Z"}, {"seed": 1}]),
        ("bad-id", [{"player": ""}]),
    ],
    "player-merged": [("bad-id", [{"into": ""}])],
    "season-started": [
        ("bad-season", [{"season": 0}, {"season": 2**31}, {"keep": 1.5}, {"keep": -0.5},
                        {"sigma": -1}, {"sigma": 2e9}]),
        ("malformed", [{"batched": True}]),
    ],
    "corrections-applied": [("malformed", [{"batched": True}])],
    "players-seeded": [
        ("bad-seed", [
            {"players": []}, {"players": [{"player": f"p{i}", "mu": 1} for i in range(5001)]},
            {"players": [{"player": "a", "mu": 1, "sigma": 0}]},
            {"players": [{"player": "a", "mu": 1, "rounds": 0}]},
        ]),
        ("malformed", [{"players": [{"player": "a"}]}, {"batched": True},
                       {"players": [{"player": "a", "mu": 1, "x": 1}]}]),
        ("bad-id", [{"round_id": ""}, {"players": [{"player": "", "mu": 1}]}]),
    ],
    "player-reset": [
        ("bad-seed", [{"sigma": 0}]), ("malformed", [{"sigma": None}, {"mu": None}]),
        ("bad-id", [{"player": ""}]),
    ],
}  # fmt: skip
"""Of each kind, by the service's code."""


def test_a_mistake_in_a_correction_is_one_by_its_schema() -> None:
    """And to the service."""
    for kind, mistakes in MISTAKES.items():
        for code, changes in mistakes:
            for fields in changes:
                wrong = changed_example(kind, fields)
                assert rejection_code(kind, wrong) == code, (kind, fields)
                assert not payload(of_kind(kind)).is_valid(wrong), (kind, fields)


def test_what_may_stand_in_a_correction() -> None:
    """The examples; and whatever the service takes is valid."""
    taken: list[tuple[str, dict[str, Any]]] = [
        *((kind, {}) for kind in (*KINDS, *SEEDS)),
        ("round-voided", {"event_type": "round-voided", "batched": True}),
        ("round-amended", {"performance_ceiling": None, "weight": 2}),
        ("round-amended", {"completed_at": "2026-11-20T20:15:05Z", "performance_ceiling": 1.5}),
        ("round-amended", {"standings": [TWO[0] | {"team": None}, {"team": ["b"], "dnf": True}]}),
        ("player-removed", {"from": None, "until": None}),
        ("season-started", {"season": 2**31 - 1, "keep": 1, "sigma": 0}),
        ("player-removed", {"seed": True}),
        ("players-seeded", {"event_type": "players-seeded", "source": ""}),
        ("players-seeded", {"players": [{"player": "a", "mu": 1, "sigma": None, "rounds": 9}]}),
        ("player-reset", {"mu": 1700.0}),
    ]
    for kind, fields in taken:
        right = changed_example(kind, fields)
        assert rejection_code(kind, right) == "", (kind, fields)
        payload(of_kind(kind)).validate(right)


def test_events_of_corrections_are_valid() -> None:
    """With the headers of every other event."""
    header = np.zeros(2, HEADER)
    header["mu"], header["sigma"] = 1500.0, 80.0
    for kind in (*KINDS, *SEEDS):
        cause = events.CorrectionCause(cause=kind, offset=7, round_id="r" * (kind < "q"))
        documented = correction_events(
            0, "l", cause, "2026-11-20T20:15:05Z", RULE, ["a", "b"], header
        )  # fmt: skip
        assert len(documented) == 2
        for each in documented:
            payload("ratingChanged").validate(msgspec.json.decode(each.value))
            sent = change_headers(each)
            headers("ratingChanged").validate({name: text.decode() for name, text in sent})


# --- what is published ----------------------------------------------------------------------------

PARENT = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
TRACES = [[], [PARENT], [PARENT, ("tracestate", b"rojo=00f067aa0ba902b7")]]
"""What a round's headers may carry."""


def test_what_is_published_is_valid() -> None:
    """Every event of a few rounds, as the state machines encode it, with its headers."""
    engine = EmbeddedEngine()
    for number in range(3):
        value = msgspec.json.encode(
            event(
                {"player": "ann", "rank": 1}, {"player": "bob", "dnf": True},
                {"team": ["cy", "dee"], "shares": [1, 0.5], "rank": 2}, round_id=f"r{number}",
            )
        )  # fmt: skip
        engine.log.submit(0, value, TRACES[number], received_s=2e9)
    engine.settle()
    published = [event for shard in engine.log.changed for event in shard]
    assert len(published) == 12
    for event_ in published:
        payload("ratingChanged").validate(msgspec.json.decode(event_.value))
        documented = events.rating_changed_from_json(event_.value)
        sent = change_headers(event_)
        headers("ratingChanged").validate({name: text.decode() for name, text in sent})
        assert [each for each in sent if each[0].startswith("trace")] == TRACES[
            int(documented.round_id[1])
        ]


def whole_change() -> dict[str, Any]:
    return {
        each.name: False if each.name == "provisional" else "x" if each.type is str else 1
        for each in msgspec.structs.fields(events.RatingChanged)
        if each.required
    }


def test_what_an_event_may_have() -> None:
    """Season and cause may be absent, never null. All else is there. It says which event counts."""
    offset = DOCUMENT["components"]["schemas"]["RatingChanged"]["properties"]["offset"]
    counts = "keeps a player's event with the greatest offset on each ladder, whatever comes"
    assert counts in offset["description"]
    for name in (whole := whole_change()):
        assert not payload("ratingChanged").is_valid({n: whole[n] for n in whole if n != name})
    optional = {e.name for e in msgspec.structs.fields(events.RatingChanged) if not e.required}
    assert optional == {"season", "correction"}
    cause = {"cause": "round-voided", "offset": 7}
    for more in (
        {}, {"season": 2}, {"correction": cause}, {"correction": cause | {"round_id": "r"}},
    ):  # fmt: skip
        assert payload("ratingChanged").is_valid(whole_change() | more)
    wrong: dict[str, Any]
    for wrong in ({"correction": {}}, {"correction": {"cause": "round-voided"}}, {"offset": None}):
        assert not payload("ratingChanged").is_valid(whole_change() | wrong)


def test_rejections_have_the_documented_headers() -> None:
    rejection = Rejection(Record(3, 7, b"bad", received_s=1.0), "malformed", "no JSON")
    documented = {n: v.decode() for n, v in rejection_headers(rejection, events.ROUND_COMPLETED)}
    headers("roundRejected").validate(documented)
    known = MESSAGES["roundRejected"]["headers"]["properties"].keys()
    assert documented.keys() <= known
    for name in documented:
        assert not headers("roundRejected").is_valid(
            {n: v for n, v in documented.items() if n != name}
        )


def test_a_rejection_names_the_later_record_that_decided_and_carries_its_rounds_trace() -> None:
    """A reader finds the offset after that record. The contract describes a valid trace."""
    own = Rejection(Record(3, 7, b"bad", received_s=1.0), "unknown-round", "no such round")
    later = replace(own, decided_at=11)
    sent = [rejection_headers(each, events.ROUND_COMPLETED) for each in (own, later)]
    assert [next_offset_of(each) for each in sent] == [(3, 8), (3, 12)]
    assert sent[1] == [*sent[0], ("decided-offset", b"11")]
    headers("roundRejected").validate({n: v.decode() for n, v in sent[1]})
    assert next_offset_of([("decided-offset", b"11")]) is None
    for carried in TRACES:
        rejection = Rejection(Record(3, 7, b"bad", carried), "malformed", "no JSON")
        given = rejection_headers(rejection, events.ROUND_COMPLETED)
        assert [each for each in given if each[0].startswith("trace")] == carried
        headers("roundRejected").validate({n: v.decode() for n, v in given})
        broken = {n: v.decode() for n, v in given} | {"traceparent": "00-1-2-01"}
        assert not headers("roundRejected").is_valid(broken)


# --- ids, times and headers, and an event that is read back ---------------------------------------


def test_escapes_and_headers() -> None:
    """Separators, tags and escapes are percent-encoded. The first header of a name counts."""
    assert events.escape("a:b{c}d%e/é ") == "a%3Ab%7Bc%7Dd%25e/é "
    given_headers = [("a", b"1"), ("b", b"\xff"), ("a", b"2")]
    assert [header(given_headers, name) for name in "abc"] == ["1", "\ufffd", ""]
    assert header([("a", None)], "a") == ""


@cases(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0), ("2026-11-20T20:15:05Z", 1_795_205_705),
        ("2026-11-20T22:15:05+02:00", 1_795_205_705), ("1969-12-31T23:59:59.5Z", -1),
        ("2026-11-20T20:15:05.999999Z", 1_795_205_705), ("1900-01-01T00:00:00Z", -2_208_988_800),
        ("9999-12-31T23:59:59Z", 253_402_300_799),
    ],
)  # fmt: skip
def test_times(text: str, seconds: int) -> None:
    """RFC 3339 with a zone, as Unix seconds rounded down, before 1970 and after 2038, too."""
    assert events.parse_time(text) == seconds


@cases("text", ["", "now", "2026-11-20T20:15:05", "2026-13-01T00:00:00Z", "\ud800"])
def test_no_times(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        events.parse_time(text)


def test_rounds_decode_alike() -> None:
    """JSON and MessagePack carry the same event; a reader of today reads the events of tomorrow."""
    assert events.round_from_json(as_json()) == events.round_from_msgpack(as_msgpack())
    assert events.round_from_json(as_json(season=3)) == events.round_from_json(as_json())


CHANGED = events.RatingChanged(
    event_id="l:r:p", ladder="l", player="p", round_id="r", completed_at="2026-01-01T00:00:00Z",
    rank=None, mu=1612.4, sigma=91.2, previous_mu=1570.0, previous_sigma=97.9, performance=1801.7,
    rating=1538.0, previous_rating=1482.0, rounds=12, provisional=False, offset=7,
)  # fmt: skip
"""Of one who did not finish."""
VOIDED = events.CorrectionCause(cause="round-voided", offset=7)


@cases("more", [{}, {"season": 3}, {"performance": None, "correction": VOIDED}])
def test_rating_changed_round_trip(more: dict[str, Any]) -> None:
    """What is published reads back as it was."""
    published = msgspec.structs.replace(CHANGED, **more)
    assert events.rating_changed_from_json(events.to_json(published)) == published


def test_what_an_event_has_nothing_to_say_of() -> None:
    """Rank and performance are null then, as ever; what was added later is left out."""
    encoded = events.to_json(msgspec.structs.replace(CHANGED, performance=None))
    assert b'"rank":null' in encoded and b'"performance":null' in encoded
    assert b"season" not in encoded and b"correction" not in encoded
    assert events.to_json(VOIDED) == b'{"cause":"round-voided","offset":7}'
