"""Any bytes at all are a round that makes sense or a refusal with a code. Records decoded together
are what the oracle finds in each; the door's verdict is that of the workers' decoder. Ids of any
text never meet in a key, never reach into another one, and never break a log line."""

import io
import json
import math
import zlib
from contextlib import redirect_stderr
from typing import Any
from urllib.parse import unquote

import msgspec
import numpy as np
import pytest
import structlog
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_rater.adapters.redis.encoding import belief_key, position_key
from stream_rater.columns import strings
from stream_rater.columns.sharding import ANYWHERE, partition_of
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import ANY_LADDER, Change, Ladder, Ladders, Limits
from stream_rater.contract import events
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import JSON, joined, parse_time, shown
from stream_rater.contract.record import Record
from stream_rater.pipeline.ports import Rejection
from stream_rater.rating.parameters import Elo, EloMMR
from stream_rater.rating.seats import NO_SEAT, seat_name
from stream_rater.rounds import correction_records, validation
from stream_rater.rounds import decoder as decoder_module
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.decoder import Rejections, RoundDecoder
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime import log
from stream_rater.runtime.metrics import Metrics
from stream_rater.runtime.observer import ServiceObserver
from stream_rater.serve.door.validating import PathMismatch, Validator, ValidRound
from tests import oracle_reader
from tests.builders.cases import cases
from tests.fuzz.recipes import READER, inputs_of, messages
from tests.oracle_reader import ReadRound, packed_depth
from tests.rounds import MSGPACK_HEADERS, Reader, as_json, as_msgpack, event, ranked

ELO_MMR = EloMMR(weight_limit=0.2, sigma_limit=80.0)
LADDERS = Ladders(
    ladders={
        "a": Ladder(rating=ELO_MMR, limits=Limits(max_entries=3, max_weight=2.0, max_skew_s=60)),
        "late": Ladder(rating=ELO_MMR, from_offset=3),
        "changed": Ladder(
            rating=ELO_MMR,
            changes=(
                Change(from_offset=3, rating=EloMMR(weight_limit=0.3, sigma_limit=80.0)),
                Change(from_offset=5, limits=Limits(max_entries=2)),
            ),
        ),
        "l" * 40: Ladder(rating=Elo(learning_rate=32.0)),
        "tied": Ladder(rating=EloMMR(weight_limit=0.2, sigma_limit=80.0, skip_all_tied=True)),
    },
    limits=Limits(max_bytes=3000),
)  # fmt: skip
RECEIVED_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z.
TIMES = (
    "2026-01-01T00:00:00Z", "2026-01-01T00:01:00.000Z", "2026-01-01T00:01:01Z",
    "2026-01-01T01:59:59.9+02:00", "1900-01-01T00:00:00Z", "1899-12-31T23:59:59Z",
    "2025-02-29T00:00:00Z", "2026-01-01 00:00:00Z", "", "t" * 70,
)  # fmt: skip
USUAL = {"round_id": "r", "ladder": "a", "completed_at": TIMES[0]}
FIELDS = st.fixed_dictionaries(
    {
        "round_id": st.sampled_from(["r", "", "r" * 32, "r" * 33, "ä" * 64, "ä" * 65]),
        "ladder": st.sampled_from([*LADDERS.ladders, "unknown", ""]),
        "completed_at": st.sampled_from(TIMES),
    },
    optional={
        "weight": st.sampled_from([0.0, 1, 2.0, 2.5, 1e9, "x"]),
        "performance_ceiling": st.sampled_from([None, 1500.0, -1e9, -2e9]),
    },
)
LINES = st.one_of(
    st.lists(st.integers(0, 4), max_size=5).map(ranked),
    st.just([{"team": ["ann", "bob"], "rank": 1}, {"player": "cat", "rank": 2}]),
    st.just([{"player": "ann", "rank": 1}, {"player": "ann", "rank": 2}]),
    st.just(ranked([1, 1, 1])),
    st.sampled_from([39, 40, 100]).map(lambda size: ranked([1] * size, ["p"] * size)),
    st.just(ranked(range(1, 80))),
)
IDS = st.sampled_from(["ann", "bob", "", "ä" * 64, "ä" * 65, "x" * 33, 'a"', 7, None])
DETAILS: dict[str, st.SearchStrategy[Any]] = {
    "seat": st.sampled_from(["home", "12345678", "123456789", "", "ä", 7, None, ["home"]]),
    "score": st.sampled_from([4, -2.5, 0, -0.0, 1e300, 2**70, 0.1, "4", None, True, {"a": 1}]),
}
"""Of an entry, valid and not."""
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "player": IDS,
        "team": st.lists(IDS, max_size=3) | st.none(),
        "rank": st.sampled_from([1, 2, 3, 0, -1, 2**31 - 2, 2**31 - 1, 2**63, 2**70, 1.5, None]),
        "dnf": st.booleans(),
        "shares": st.none()
        | st.lists(st.sampled_from([1, 0.5, 1e-6, 0, 1.1, 1e-9, "1"]), max_size=3),
        **DETAILS,
    },
)
GOOD = st.builds(
    lambda i, details: {"player": f"p{i}", "rank": 1 + i % 4, **details},
    st.integers(0, 9), st.fixed_dictionaries({}, optional=DETAILS),
)  # fmt: skip
TEAMS = st.builds(
    lambda i, details: {**details, "team": [f"t{i}", f"u{i}"], "rank": 1 + i % 4},
    st.integers(0, 9), st.fixed_dictionaries({}, optional=DETAILS),
)  # fmt: skip
MIXED = st.lists(GOOD | TEAMS | GOOD | TEAMS | ENTRIES, min_size=2, max_size=4)
ROUNDS = st.tuples(
    st.one_of(st.just(USUAL), FIELDS), st.one_of(LINES, MIXED),
    st.sampled_from(["json", "msgpack", "junk"]), st.integers(0, 1),
)  # fmt: skip


def record(offset: int, fields: dict[str, Any], lines: Any, kind: str, partition: int) -> Record:
    """A record of this kind of event, in this partition."""
    if kind == "msgpack" and not any(2**70 in each.values() for each in lines):
        data = as_msgpack(*lines, **fields)
        return Record(partition, offset, data, MSGPACK_HEADERS, received_s=RECEIVED_S)
    data = json.dumps(event(*lines, **{**fields, "standings": lines})).encode()
    return Record(partition, offset, data[:-3] if kind == "junk" else data, received_s=RECEIVED_S)


@given(st.lists(ROUNDS, max_size=9), st.integers(1, 3000))
@example([(USUAL, ranked([1, 2]), "json", 0), (USUAL, ranked([1, 2]), "json", 1)] * 5, 3000)
@example(
    [
        (USUAL, ranked([2, 1]), "json", 1),
        ({**USUAL, "ladder": 1}, ranked([1, 2]), "json", 1),
        (USUAL, ranked([0, 1]), "msgpack", 1),
        (USUAL, [{"team": ["a", "b"], "rank": 3}, {"team": ["c"], "rank": 2}], "json", 1),
    ],
    3000,
)
@settings(max_examples=120)
def test_records_are_what_the_oracle_finds_in_each(
    reported: list[tuple[dict[str, Any], Any, str, int]], at_once: int
) -> None:
    """Whatever the records contain, in whichever of two partitions, and wherever a call ends."""
    records = [record(i, *each) for i, each in enumerate(reported)]
    records += [
        Record(0, len(reported), None, unreadable="too much"),
        Record(0, len(reported) + 1, None),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder_module, "SCAN_BYTES", at_once)
        decoder = RoundDecoder(LADDERS, 2)
        rounds, rejections = decoder.decode(records)
    assert_alike(LADDERS, 2, records, decoder, rounds, rejections)


def assert_alike(
    ladders: Ladders, partitions: int, records: list[Record], decoder: RoundDecoder,
    rounds: RoundBatch, found: Rejections,
) -> None:  # fmt: skip
    """The rounds are equal to the bit; refusals have the same code, text and subject."""
    valid, rejections = list[ReadRound](), list[tuple[str, ...] | None]()
    for each in records:
        try:
            valid.append(oracle_reader.read(ladders, each, partitions))
            rejections.append(None)
        except Invalid as invalid:
            rejections.append((invalid.code, str(invalid), invalid.ladder, invalid.round_id))
    assert [
        None if no is None else (no.code, str(no), no.ladder, no.round_id) for no in found
    ] == rejections
    ratings = [each.rating for each in valid]
    assert [id(decoder.ratings[number]) for number in rounds.config_index] == list(map(id, ratings))
    assert columns(rounds) == columns_of(valid)
    rates = [
        each.place[0] != 0 and not (rating.skip_all_tied and each.place[0] == each.place[-1])
        for each, rating in zip(valid, ratings, strict=True)
    ]
    assert decoder.informative(rounds).tolist() == rates
    assert rounds.names.hashes.tolist() == StringColumn.of(rounds.names.texts()).hashes.tolist()


def columns(rounds: RoundBatch) -> list[Any]:
    """All columns of a batch."""
    reported = [(each.round_id, each.ladder, each.completed_at) for each in rounds.heads]
    arrays: list[Any] = [
        rounds.time, rounds.weight, rounds.ceiling, rounds.entries, rounds.sizes, rounds.place,
        rounds.members, rounds.share, rounds.seat, rounds.score,
    ]  # fmt: skip
    kinds = [np.int64, np.float64, np.float64, np.int64, np.int64, np.int32, np.int64, np.float64]
    assert [each.dtype for each in arrays] == [*kinds, np.uint64, np.float64]
    found: list[Any] = [each.tolist() for each in arrays]
    count = len(rounds.place)
    found[-2] = [seat_name(each) for each in found[-2] or [NO_SEAT] * count]
    found[-1] = [None if math.isnan(each) else each for each in found[-1] or [math.nan] * count]
    return [reported, rounds.names.texts(), *found]


def columns_of(rounds: list[ReadRound]) -> list[Any]:
    """The same columns, made of the oracle's rounds."""
    by_entry = ("place", "members", "share", "seat", "score")
    return [
        [(each.round_id, each.ladder, each.completed_at) for each in rounds],
        [player for each in rounds for player in each.players],
        *([getattr(each, name) for each in rounds] for name in ("time", "weight", "ceiling")),
        [len(each.place) for each in rounds],
        [len(each.share) for each in rounds],
        *([item for each in rounds for item in getattr(each, name)] for name in by_entry),
    ]


@given(messages, st.integers(0, 2**32))
@settings(max_examples=30)
def test_damaged_messages_are_what_the_oracle_finds(message: Any, seed: int) -> None:
    """Their bytes are changed, cut, repeated and spliced, and all are read in one call."""
    records = [
        Record(0, i, data, [("content-type", content_type.encode())], received_s=RECEIVED_S)
        for i, (data, content_type) in enumerate(inputs_of(message, seed))
        if content_type == JSON or packed_depth(data)
    ]
    decoder = RoundDecoder(ANY_LADDER)
    assert_alike(ANY_LADDER, ANYWHERE, records, decoder, *decoder.decode(records))


PLACES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=2, max_size=40)


@given(st.lists(PLACES, min_size=1, max_size=4), st.booleans())
@example([[(2, 1), (1, 1), (2, 1)], [(0, 1), (2, 1), (0, 1), (1, 1)]], False)
@example([[(2, 2), (1, 1), (2, 1)], [(0, 1), (3, 2), (0, 3), (1, 1)]], False)
@example([[(1 + i % 2, 1) for i in range(40)]], False)
def test_entries_come_by_place_and_as_given_where_they_tie(
    reported: list[list[tuple[int, int]]], packed: bool
) -> None:
    """Whatever the places, in small and large rounds, of players and of teams with shares."""
    encode, headers = (as_msgpack, MSGPACK_HEADERS) if packed else (as_json, [])
    records = []
    for number, places in enumerate(reported):
        entries: list[dict[str, Any]] = [
            {"player": f"p{i}"} if size == 1 else {"team": [f"p{i}-{k}" for k in range(size)]}
            for i, (_, size) in enumerate(places)
        ]
        for i, (entry, (place, size)) in enumerate(zip(entries, places, strict=True)):
            entry |= {"rank": place} if place else {"dnf": True}
            if i % 2:
                entry["shares"] = [(1 + (3 * i + k) % 8) / 8 for k in range(size)]
        value = encode(*entries, round_id=f"r{number}")
        records.append(Record(0, number, value, headers, received_s=4e9))
    decoder = RoundDecoder(ANY_LADDER)
    rounds, rejections = decoder.decode(records)
    assert rejections == [None] * len(records)
    assert_alike(ANY_LADDER, ANYWHERE, records, decoder, rounds, rejections)


@cases("size", [2, 5, 33, 300])
def test_a_standings_is_a_view_of_one_round(size: int) -> None:
    """It has everything that the batch has of this round."""
    team = {"team": ["x", "y"], "rank": 1, "shares": [1, 0.5]}
    values = [as_json(*ranked(range(size, 0, -1)), team, round_id=f"r{i}") for i in range(3)]
    records = [Record(0, i, value, received_s=4e9) for i, value in enumerate(values)]
    decoder = RoundDecoder(ANY_LADDER)
    rounds, _ = decoder.decode(records)
    for record, found in zip(records, rounds, strict=True):
        one = decoder.read(record)
        assert columns(found.batch) == columns(one.batch)
        wanted = oracle_reader.read(ANY_LADDER, record)
        assert (found.round_id, found.ladder, found.time) == (
            wanted.round_id, wanted.ladder, wanted.time,
        )  # fmt: skip
        assert found.players == wanted.players
        assert found.batch.members.tolist() == [*wanted.members]


def test_ladders_without_end_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below a template any name is that of a ladder, so the decoder forgets some."""
    monkeypatch.setattr(validation, "MOST_LADDERS", 3)
    round_decoder = RoundDecoder(Ladders(ladders={"*": Ladder(rating=ELO_MMR)}))
    for i in range(10):
        rounds, _ = round_decoder.decode([Record(0, i, as_json(ladder=f"l{i}"), received_s=4e9)])
        assert rounds.config_index.tolist() == [0]
        assert len(round_decoder._terms._cache) <= 3


DIGITS = st.integers(0, 99).map("{:02}".format)
CLOCKS = st.tuples(
    st.sampled_from([999, 1000, 1900, 1970, 2000, 2023, 2024, 2100, 9999]).map("{:04}".format),
    st.integers(0, 13).map("{:02}".format), st.integers(0, 32).map("{:02}".format),
    st.integers(0, 25).map("{:02}".format), st.integers(0, 61).map("{:02}".format), DIGITS,
    st.one_of(st.just(""), st.text("0123456789", max_size=8).map(".{}".format)),
    st.sampled_from(["Z", "z", "", "+00:00", "-01:30", "+23:59", "+24:00", "-00:60", "+0100", "é"]),
).map(lambda c: f"{c[0]}-{c[1]}-{c[2]}T{c[3]}:{c[4]}:{c[5]}{c[6]}{c[7]}")  # fmt: skip


@given(st.lists(st.one_of(CLOCKS, st.text(max_size=30), st.sampled_from(TIMES)), max_size=8))
@example(
    [
        f"{year}-02-{day}T23:59:59.999999-23:59"
        for year in (1900, 2000, 2023, 2024)
        for day in (28, 29)
    ]
)
@example([f"2026-{month:02}-{day}T00:00:00Z" for month in range(1, 13) for day in (30, 31)])
def test_times_are_those_of_the_decoder(texts: list[str]) -> None:
    """Every time that is parsed here equals the decoder's, and all of the usual form are parsed."""
    assert strings.seconds(StringColumn.of([])).tolist() == []
    for text, found in zip(texts, strings.seconds(StringColumn.of(texts)).tolist(), strict=True):
        try:
            wanted = parse_time(text)
        except (ValueError, OverflowError):
            wanted = None
        if found != strings.UNUSUAL:
            assert found == wanted
        elif wanted is not None:
            usual = text[4] == "-" and text[10] == "T" and text[-1] == "Z" and len(text) <= 27
            assert not usual or not "1000" <= text[:4] <= "9998", text


# --- the door -------------------------------------------------------------------------------------

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
    (rejection,) = decoder.decode([Record(partition, 7, value, received_s=NOW_S)])[1]
    return "" if rejection is None else rejection.code


bodies = st.binary(max_size=60) | damaged(WHOLE) | damaged(BARE)


@given(bodies)
@settings(max_examples=200)
@example(WHOLE.replace(b'"ladder"', b'"ladder":"other","ladder"'))
@example(b' {"round_id":"r"} ')
@example(b"\xff")
def test_a_body_with_its_ladder(data: bytes) -> None:
    """The code is the workers'; what is valid goes to the partition where workers expect it."""
    (found,) = VALIDATOR.rounds([(data, "")], NOW_S)
    assert not isinstance(found, PathMismatch)
    assert decoded(data.strip()) == (found.code if isinstance(found, Invalid) else "")
    if isinstance(found, ValidRound):
        assert_accepted(found)


@given(bodies, st.sampled_from(["l", 'q"\\', "é", "x" * 129]))
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
    """The door and the workers' decoder accept the same, as far as the decoder knows the kind."""
    kind: Any = ""
    try:
        valid = VALIDATOR.correction(data, "l", NOW_S)
        kind, value, code = valid.kind, valid.value, ""
    except PathMismatch:
        return
    except Invalid as invalid:
        kind, value, code = "round-voided", data.strip(), invalid.code
    headers = [(EVENT_TYPE, kind.encode())]
    record = Record(partition_of("l", PARTITIONS), 7, value, headers, NOW_S)
    try:
        correction_records.decode_correction(record, ANY_LADDER, PARTITIONS)
        assert code == "" or b'"round-voided"' not in data or b'"event_type"' not in data
    except Invalid as invalid:
        assert code, invalid


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
    """Equal keys have one shard, ladder and bucket. None is a position's. The shard is the tag."""
    key, key2 = (belief_key(s, ladder, p.encode(), buckets) for s, ladder, p in (one, other))
    place, place2 = ((s, ladder, zlib.crc32(p.encode()) % buckets) for s, ladder, p in (one, other))
    assert (key == key2) == (place == place2)
    assert key != position_key(other[0])
    assert key.startswith(f"{{{one[0]}}}:") and key.count("{") == key.count("}") == 1


@given(ids, ids)
def test_a_log_line_is_one_line(ladder: str, player: str) -> None:
    """A rejection is one line of JSON with its ids. Each reason is printable, as headers need."""
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
    """They are shown without control characters and line ends. Events are one line of JSON."""
    assert b"\n" not in events.to_json({"player": text})
    assert shown(text).isprintable()
    if text.isprintable():
        assert shown(text) == text
