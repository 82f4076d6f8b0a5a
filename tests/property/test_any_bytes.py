"""Any bytes at all are a round that makes sense or a refusal with a code, at the door as among the
workers. Ids of any text never meet in a key, never reach into another one, and never break a log
line."""

import io
import json
import math
import zlib
from contextlib import redirect_stderr
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
import structlog
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_rater.adapters.redis.keys import belief_key, position_key
from stream_rater.columns.sharding import partition_of
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.contract import events
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import JSON, MSGPACK, joined, shown
from stream_rater.contract.record import Record
from stream_rater.pipeline.ports import Rejection
from stream_rater.rounds import correction_records
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime import log
from stream_rater.runtime.metrics import Metrics, ServiceObserver
from stream_rater.serve.door.validating import OtherLadder, Validator, ValidRound
from tests.fuzz.outcome import READER, check_outcome
from tests.rounds import Reader, as_json, event

PARTITIONS = 8
NOW_S = 1_900_000_000.0
DECODER = RoundDecoder(ANY_LADDER)
"""As the workers decode, but a round may be in any partition: the door chooses the right one."""
VALIDATOR = Validator(ANY_LADDER, PARTITIONS, lambda _: 7)

ANN, BOB = ({"player": name, "rank": i + 1} for i, name in enumerate(("ann", "bob")))
WHOLE = msgspec.json.encode(event(ANN, BOB, {"team": ["x", "y"], "rank": 2, "shares": [1, 0.5]}))
BARE = msgspec.json.encode({k: v for k, v in event(ANN, BOB).items() if k != "ladder"})
VOIDED = b'{"event_type":"round-voided","ladder":"l","round_id":"r","batched":false}'


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """A message with bytes changed, put in or left out."""
    cut = st.tuples(st.integers(0, len(whole)), st.binary(max_size=3), st.integers(0, 3))

    def apply(cuts: list[tuple[int, bytes, int]]) -> bytes:
        data = whole
        for at, put, drop in cuts:
            data = data[:at] + put + data[at + drop :]
        return data

    return st.lists(cut, max_size=3).map(apply)


def decoded(value: bytes, partition: int = 0, decoder: RoundDecoder = DECODER) -> str:
    """The workers' verdict: a code, or nothing for a valid round."""
    record = Record(partition, 7, value, received_s=NOW_S)
    (rejection,) = decoder.decode([record])[1]
    return "" if rejection is None else rejection.code


messages = st.binary(max_size=60) | damaged(WHOLE) | damaged(BARE)


@given(messages)
@settings(max_examples=200)
@example(WHOLE.replace(b'"ladder"', b'"ladder":"other","ladder"'))
@example(b' {"round_id":"r"} ')
@example(b"\xff")
def test_a_body_with_its_ladder(data: bytes) -> None:
    """The code is the same, and what is valid is in the partition where the workers want it."""
    (found,) = VALIDATOR.rounds([(data, "")], NOW_S)
    assert not isinstance(found, OtherLadder)
    assert decoded(data.strip()) == (found.code if isinstance(found, Invalid) else "")
    if isinstance(found, ValidRound):
        assert_accepted(found)


@given(messages, st.sampled_from(["l", 'q"\\', "é", "x" * 129]))
@settings(max_examples=200)
@example(b"{}", "l")
@example(b"{ }", "l")
@example(BARE, "l")
@example(BARE, 'q"\\')
def test_the_ladder_of_the_path(data: bytes, ladder: str) -> None:
    """What is accepted is written as a valid round of this ladder, with all its other fields."""
    (found,) = VALIDATOR.rounds([(data, ladder)], NOW_S)
    if not isinstance(found, ValidRound):
        return
    assert found.ladder == ladder
    assert_accepted(found)
    written, sent = msgspec.json.decode(found.value), msgspec.json.decode(data)
    assert written == {**sent, "ladder": ladder}


def assert_accepted(found: ValidRound) -> None:
    """The workers accept the record that the door writes."""
    strict = RoundDecoder(ANY_LADDER, PARTITIONS)
    assert found.partition == partition_of(found.ladder, PARTITIONS)
    assert decoded(found.value, found.partition, strict) == ""


@given(damaged(VOIDED))
@settings(max_examples=150)
def test_corrections(data: bytes) -> None:
    """A correction that the door accepts is accepted by the workers' decoder, and the reverse, if
    the decoder knows its kind."""
    kind: Any = ""
    try:
        valid = VALIDATOR.correction(data, "l", NOW_S)
        kind, value, code = valid.kind, valid.value, ""
    except OtherLadder:
        return
    except Invalid as invalid:
        kind, value, code = "round-voided", data.strip(), invalid.code
    headers = [(EVENT_TYPE, kind.encode())]
    record = Record(partition_of("l", PARTITIONS), 7, value, headers, NOW_S)
    try:
        correction_records.decode(record, ANY_LADDER, PARTITIONS)
        assert code == "" or b'"round-voided"' not in data or b'"event_type"' not in data
    except Invalid as invalid:
        assert code, invalid


# --- any value has a verdict ----------------------------------------------------------------------

CY = {"player": "cy", "rank": 3}
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
    | st.sampled_from(("ann", "2026-11-20T20:15:05Z", "ranked-eu", 1, 2, 1.0)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
OF_ENTRIES = ("player", "rank", "dnf", "team", "shares", "performance_ceiling")
fields = st.sampled_from([*event(), "weight", *OF_ENTRIES])


@given(
    st.sampled_from((JSON, MSGPACK)),
    st.dictionaries(fields, anything, max_size=2),
    st.dictionaries(fields, anything, max_size=3),
)
@example(JSON, {"weight": math.nan}, {})
@settings(max_examples=150)
def test_damaged_values(content_type: str, outer: dict[str, Any], inner: dict[str, Any]) -> None:
    """Any value in any field is refused or makes sense. (Damaged bytes: tests/fuzz.)"""
    encode = msgspec.json.encode if content_type == JSON else msgspec.msgpack.encode
    standings = [ANN, {**BOB, **inner}, CY]
    try:
        data = encode({**event(*standings), **outer})
    except UnicodeEncodeError:
        return  # surrogates that neither encoder writes
    check_outcome(data, content_type)


# --- ids ------------------------------------------------------------------------------------------

nasty = st.sampled_from((":", "%", "{", "}", "%3A", "%25", "\n", "\r", "\0", "*", "[", "\\", "a"))
ids = st.lists(nasty | st.text(max_size=4), min_size=1, max_size=8).map("".join)
"""Separators, what escapes them, what patterns match, and any Unicode but surrogates."""
three = st.tuples(ids, ids, ids)
of_shards = st.tuples(st.integers(0, 99), ids, ids)


@given(three, three)
@example(("a:b", "c", "d"), ("a", "b:c", "d"))
@example(("a%3Ab", "c", "d"), ("a:b", "c", "d"))
def test_event_ids_meet_only_if_all_parts_do(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    """`joined` is one to one, and its parts can be read back."""
    assert (joined(*one) == joined(*other)) == (one == other)
    assert [unquote(part) for part in joined(*one).split(":")] == list(one)


@given(of_shards, of_shards, st.integers(1, 1024))
def test_beliefs_keys_stay_apart(
    one: tuple[int, str, str], other: tuple[int, str, str], buckets: int
) -> None:
    """Two hash keys are one only for one shard, ladder and bucket; none is a position's key; and
    the only tag is the shard's, so that a key cannot move to another slot."""
    key, key2 = (belief_key(s, ladder, p.encode(), buckets) for s, ladder, p in (one, other))
    place, place2 = ((s, ladder, zlib.crc32(p.encode()) % buckets) for s, ladder, p in (one, other))
    assert (key == key2) == (place == place2)
    assert key != position_key(other[0])
    assert key.startswith(f"{{{one[0]}}}:") and key.count("{") == key.count("}") == 1


@given(ids, ids)
def test_a_log_line_is_one_line(ladder: str, player: str) -> None:
    """A rejection is logged as one line of JSON, whatever ids it has. The line contains them. Each
    reason is printable, because it goes into headers and `submit`'s output, too."""
    out, unknown = io.StringIO(), Reader(Ladders(ladders={}))
    twice = as_json({"player": player, "rank": 1}, {"player": player, "rank": 2})
    long, short = as_json(ladder=ladder * 200), as_json(ladder=ladder)
    with redirect_stderr(out):
        log.configure()
        observer = ServiceObserver(Metrics(), "estimator", log.logger("estimator"))
        for at, (reader, data) in enumerate(((READER, twice), (READER, long), (unknown, short))):
            with pytest.raises(Invalid) as rejection:
                reader.read(data)
            why, record = rejection.value, Record(0, at, data)
            assert str(why).isprintable()
            observer.round_rejected(Rejection(record, f"{at}", str(why), why.ladder, why.round_id))
    structlog.reset_defaults()
    *lines, end = out.getvalue().split("\n")
    assert end == "" and out.getvalue().isascii()
    assert [json.loads(line)["offset"] for line in lines] == [0, 1, 2]
    assert json.loads(lines[1]).get("ladder", "") == (ladder * 200)[:128]
    if len(player.encode()) <= 128:
        assert repr(player) in json.loads(lines[0])["error"]


@given(ids)
def test_ids_on_a_terminal_cannot_command_it(text: str) -> None:
    """What is printed for people has no control characters and no line ends; plain ids stay. Events
    in JSON are one line, as `watch --json` prints them."""
    assert b"\n" not in events.to_json({"player": text})
    assert shown(text).isprintable()
    if text.isprintable():
        assert shown(text) == text
