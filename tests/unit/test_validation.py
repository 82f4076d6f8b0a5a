"""Each verdict of the contract on `round-completed`, in JSON and MessagePack; and depth."""

import math
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.config.ladders import Change, Ladder, Ladders, Limits
from stream_rater.contract.events import JSON, MAX_RANK, MSGPACK, parse_time
from stream_rater.contract.record import Record
from stream_rater.pipeline.observer import Observer
from stream_rater.rating.model import DID_NOT_FINISH
from stream_rater.rating.parameters import EloMMR
from stream_rater.rounds.batch import OneRound, RoundBatch
from stream_rater.rounds.decoder import Rejections, RoundDecoder
from stream_rater.rounds.depth import json_depth, msgpack_depth
from stream_rater.rounds.validation import QUOTE_IT, Invalid, with_cure
from stream_rater.runtime import log
from stream_rater.runtime.metrics import Metrics
from stream_rater.runtime.observer import ServiceObserver
from tests.rounds import MSGPACK_HEADERS, Reader, as_json, as_msgpack, event

LIMITS = Limits(max_entries=5)
LADDERS = Ladders(
    ladders={"ranked-eu": Ladder(rating=EloMMR(weight_limit=0.2, sigma_limit=80.0), limits=LIMITS)}
)
READER = Reader(LADDERS)
RECEIVED = parse_time("2026-11-20T20:15:06Z")
ANN, BOB, CY = ({"player": name, "rank": i + 1} for i, name in enumerate(("ann", "bob", "cy")))


def read(data: bytes | None, content_type: str = JSON, received_s: float = math.inf) -> OneRound:
    return READER.read(data, [("content-type", content_type.encode())], received_s)


def verdict(data: bytes | None, content_type: str = JSON, received_s: float = math.inf) -> str:
    """The code of a refusal, or "valid"."""
    try:
        read(data, content_type, received_s)
    except Invalid as rejection:
        assert "\n" not in str(rejection)
        assert 0 < len(str(rejection)) < 400
        return rejection.code
    return "valid"


def verdicts(*standings: Any, **fields: Any) -> set[str]:
    """What JSON and MessagePack give for the same round: one verdict, it should be."""
    return {
        verdict(as_json(*standings, **fields), received_s=RECEIVED),
        verdict(as_msgpack(*standings, **fields), MSGPACK, RECEIVED),
    }


def test_a_valid_round() -> None:
    """Entries come in order of place, unfinished last. Both encodings give the same round."""
    dee, eve = {"player": "dee", "dnf": True}, {"player": "eve", "rank": 2}
    found = read(as_json(dee, CY, BOB, eve, ANN, weight=2, performance_ceiling=1900))
    assert found.players == ["ann", "bob", "eve", "cy", "dee"]
    assert found.place.tolist() == [1, 2, 2, 3, DID_NOT_FINISH]
    assert found.batch.members.tolist() == [1] * 5
    assert (found.round_id, found.ladder, found.weight, found.ceiling) == (
        "r-1", "ranked-eu", 2.0, 1900.0,
    )  # fmt: skip
    assert (found.completed_at, found.time) == ("2026-11-20T20:15:05Z", RECEIVED - 1)
    assert read(as_json(dee, {"player": "ann", "rank": MAX_RANK})).players == ["ann", "dee"]
    expected = read(as_json(BOB, ANN))
    packed = read(as_msgpack(BOB, ANN), "Application/MsgPack; charset=utf-8")
    assert expected.players == packed.players == READER.read(as_json(BOB, ANN)).players
    assert expected.place.tolist() == packed.place.tolist()
    for header in (b"", b"\xff\xfe", b"text/plain", None):
        headers: Any = [("ce_id", b"1"), ("content-type", header)]
        assert READER.read(GOOD, headers).round_id == "r-1", header


VALID: list[dict[str, Any]] = [
    {}, {"weight": 1e-300}, {"weight": 1000}, {"performance_ceiling": None},
    {"performance_ceiling": -500}, {"standings": [ANN, {"player": "bob", "rank": MAX_RANK}]},
    {"standings": [{"player": "ann", "rank": 1}, {"player": "bob", "rank": 1}]},
    {"standings": [{"player": "ann", "dnf": True}, {"player": "bob", "dnf": True}]},
    {"standings": [ANN, {"player": "bob", "rank": 7, "dnf": True}]},  # dnf overrules a rank
    {"standings": [ANN, {"player": "bob", "rank": 2, "team": None, "shares": None}]},
    {"standings": [ANN, {"team": ["x", "y"], "rank": 2, "shares": [1e-6, 1]}]},
    {"standings": [ANN, {"player": "bob", "rank": 2, "mmr": 5}], "map": {"name": ["x"]}},
    {"standings": [ANN, {"player": "Ω:%{}\x00\U0001f600", "rank": 2}]},
    {"standings": [ANN, {"player": "x" * 128, "rank": 2}]},
    {"standings": [ANN, {"player": "é" * 64, "rank": 2}]}, {"round_id": "\U0001f600" * 32},
    {"completed_at": "2026-11-20T20:15:05.123456789+02:00"},
    {"completed_at": "1900-01-01T00:00:00Z"},
    {"completed_at": "2026-11-21T20:15:06Z"},  # a day ahead, exactly
]  # fmt: skip


def test_verdicts() -> None:
    """Each mistake has its code, the same in both encodings. What is odd may be valid."""
    due = [*(("valid", fields) for fields in VALID), *REFUSED]
    wrong = [(c, fields, found) for c, fields in due if (found := verdicts(**fields)) != {c}]
    assert wrong == []
    broken = [(code, data) for code, data in BROKEN if verdict(data) != code]
    assert broken == []
    packed = [data for data in UNPACKABLE if verdict(data, MSGPACK) != "malformed"]
    assert packed == []


def second(**entry: Any) -> dict[str, Any]:
    return {"standings": [ANN, entry]}


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("unknown-ladder", {"ladder": "ranked-us"}),
    ("too-few-entries", {"standings": []}),
    ("too-few-entries", {"standings": [ANN]}),
    ("too-many-entries", {"standings": [{"player": str(i), "rank": 1} for i in range(6)]}),
    ("duplicate-player", second(player="ann", rank=2)),
    ("duplicate-player", second(player="ann", dnf=True)),
    *(("duplicate-player", second(team=["x", name], rank=2)) for name in ("x", "ann")),
    ("bad-rank", second(player="bob")),
    ("bad-rank", second(player="bob", dnf=False)),
    *(
        ("bad-rank", second(player="bob", rank=rank))
        for rank in (None, 0, -1, MAX_RANK + 1, 2**31, 2**64 - 1, 2.0, 2.5, True, "2", [2])
    ),
    *(("bad-weight", {"weight": weight}) for weight in (0, -1.5, 1000.001, True, "1", None)),
    *(
        ("bad-shares", second(team=["x", "y"], rank=2, shares=shares))
        for shares in (
            [1], [1, 1, 1], [1, 0], [1, -1], [1, 1.1], [1, 1e-200], [1, None], [1, "1"], 1,
        )
    ),
    ("bad-shares", second(player="bob", rank=2, shares=[])),
    *(
        ("bad-id", second(player=player, rank=2))
        for player in ("", "x" * 129, "é" * 64 + "x", "\U0001f600" * 33, 7)
    ),
    *(
        ("bad-id", second(team=team, rank=2))
        for team in (["x", ""], ["x", "y" * 129], ["x", None], "xy")
    ),
    *(("bad-id", {"round_id": each}) for each in ("", "x" * 129, 5, None)),
    *(("bad-id", {"ladder": each}) for each in ("", "é" * 65, ["ranked-eu"])),
    *(
        ("bad-time", {"completed_at": time})
        for time in (
            "", "yesterday", 1_795_205_705, None, "2026-11-20", "2026-11-20T20:15:05",
            "2026-02-29T20:15:05Z",
            "2016-12-31T23:59:60Z",  # no clock we read has leap seconds
            "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "1899-12-31T23:59:59Z",
            "2026-11-21T20:15:07Z", "9999-12-31T23:59:59-14:00",
            "2026-11-20T20:15:05." + "0" * 100 + "Z",
        )
    ),
    ("malformed", second(rank=2)),
    ("malformed", second(team=[], rank=2)),
    ("malformed", second(team=["x"], player="bob", rank=2)),
    ("malformed", second(player="bob", rank=2, dnf=1)),
    *(("malformed", {"standings": each}) for each in (None, "ann", ["ann", "bob"], {"ann": 1})),
    *(("malformed", {"performance_ceiling": each}) for each in ("high", -1e300)),
]  # fmt: skip


def test_numbers_that_are_none() -> None:
    """NaN and infinities, which only MessagePack can say, by field; and a field that is missing."""
    for value in (math.nan, math.inf, -math.inf):
        team = {"team": ["x", "y"], "rank": 2, "shares": [1.0, value]}
        assert verdict(as_msgpack(weight=value), MSGPACK) == "bad-weight"
        assert verdict(as_msgpack(ANN, {"player": "b", "rank": value}), MSGPACK) == "bad-rank"
        assert verdict(as_msgpack(ANN, team), MSGPACK) == "bad-shares"
        expected = "valid" if value > 0.0 else "malformed"  # an infinite ceiling is none
        assert verdict(as_msgpack(performance_ceiling=value), MSGPACK) == expected
    codes = {"round_id": "bad-id", "ladder": "bad-id", "completed_at": "bad-time"}
    for missing, code in (codes | {"standings": "malformed"}).items():
        table = {name: value for name, value in event().items() if name != missing}
        assert verdict(msgspec.json.encode(table)) == code
        assert verdict(msgspec.msgpack.encode(table), MSGPACK) == code


GOOD, PACKED = as_json(), as_msgpack()

BROKEN: list[tuple[str, bytes | None]] = [
    *(("malformed", each) for each in (None, b"", b" ", b"null", b"[]", b'"ann"')),
    *(("malformed", each) for each in (GOOD[:-1], GOOD + b"{}", b"\xef\xbb\xbf" + GOOD)),
    ("malformed", GOOD.replace(b"ann", b"\xed\xa0\x80")),  # a surrogate in UTF-8
    ("valid", GOOD.replace(b"ann", rb"\ud83d\ude00")),  # a proper pair
    *(
        ("malformed", GOOD.replace(b"ann", name))
        for name in (b"\xff", rb"\ud800", rb"\udc00\ud800")
    ),
    *(("malformed", GOOD.replace(b'"rank":1', b'"rank":' + each)) for each in (b"NaN", b"01")),
    *(
        ("bad-rank", GOOD.replace(b'"rank":1', b'"rank":' + each))
        for each in (b"1e400", b"1" + b"0" * 30, b"1" + b"0" * 400, b"9" * 5000)
    ),
    *(("bad-weight", GOOD[:-1] + b',"weight":' + each + b"}") for each in (b"1e999", b"9" * 5000)),
]


UNPACKABLE = [
    *(None, b"", b"\xc0", b"\xc1", b"\x90", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"),
    *(PACKED[:-1], PACKED + b"\x00", GOOD, msgspec.msgpack.encode({**event(), 1: 2})),
    PACKED.replace(b"\xa3ann", b"\xa3\xff\xff\xff"),
    PACKED.replace(b"\xa3ann", b"\xa3\xed\xa0\x80"),
]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_limits() -> None:
    """The last byte and level are accepted, one more is not. Other limits are the ladder's."""
    assert verdicts(extra=nested(15)) == {"valid"}
    assert verdicts(extra=nested(16)) == {"too-deep"}
    assert verdict(b"[" * 1_000_000) == "too-deep"
    assert verdict(b"\x91" * 1_000_000, MSGPACK) == "too-deep"
    assert verdicts(extra=r"[[[[[[[[[[[[[[[[[[[[{{{{\"[") == {"valid"}
    reader = Reader(Ladders(ladders=LADDERS.ladders, limits=Limits(max_bytes=len(GOOD))))
    assert reader.read(GOOD).players == ["ann", "bob"]
    with pytest.raises(Invalid, match="bytes") as rejection:
        reader.read(GOOD + b" ")
    assert rejection.value.code == "too-large"
    strict = Limits(max_entries=2, max_weight=1.0, max_skew_s=0)
    rating = LADDERS.ladders["ranked-eu"].rating
    reader = Reader(Ladders(ladders={"*": Ladder(rating=rating, limits=strict)}))
    for expected, data, received in (
        ("too-many-entries", as_json(ANN, BOB, CY, ladder="any"), RECEIVED),
        ("bad-weight", as_json(weight=1.5), RECEIVED),
        ("bad-time", as_json(), RECEIVED - 2),
    ):
        with pytest.raises(Invalid) as rejection:
            reader.read(data, received_s=received)
        assert rejection.value.code == expected


def test_only_a_number_for_an_id_is_to_be_quoted() -> None:
    """Not one that stands for a list or for another field, and no other value."""
    for place in ("round_id", "standings[1].player", "players[7]", "sides[1].players[0]"):
        mistake = f"Expected `str`, got `int` - at `$.{place}`"
        assert with_cure(mistake) == f"{mistake}: {QUOTE_IT}"
    for other in (
        "Expected `array`, got `int` - at `$.players`",
        "Expected `array | null`, got `int` - at `$.standings[0].team`",
        "Expected `str`, got `int` - at `$.completed_at`",
        "Expected `str`, got `bool` - at `$.round_id`",
    ):
        assert with_cure(other) == other


RATING = EloMMR(weight_limit=0.2, sigma_limit=80.0)
STRICT = Limits(unknown_fields="reject")

CHOICES = Ladders(
    ladders={
        "lenient": Ladder(rating=RATING),
        "strict": Ladder(rating=RATING, limits=STRICT),
        "later": Ladder(rating=RATING, changes=(Change(from_offset=5, limits=STRICT),)),
    }
)

UNKNOWN: list[tuple[list[dict[str, Any]], dict[str, Any], str]] = [
    ([ANN, BOB], {"weigth": 2}, "Object contains unknown field `weigth`"),
    ([ANN, BOB], {"Ladder": "x"}, "Object contains unknown field `Ladder`"),
    ([ANN, BOB], {"map": {"ladder": [{"weight": 1}]}}, "Object contains unknown field `map`"),
    ([ANN, BOB], {"\n": 1}, "Object contains unknown field `\\n`"),
    ([ANN, {**BOB, "dfn": True}], {}, "Object contains unknown field `dfn` - at `$.standings[1]`"),
    ([ANN, {**BOB, "dnf": True}], {}, "standings[1].rank: beside dnf"),
]


def decoded(
    ladder: str, entries: Any, fields: Any, *, packed: bool = False, offset: int = 0
) -> tuple[RoundBatch, Rejections]:
    encode, headers = (as_msgpack, MSGPACK_HEADERS) if packed else (as_json, [])
    value = encode(*entries, ladder=ladder, **fields)
    return RoundDecoder(CHOICES).decode([Record(0, offset, value, headers, received_s=4e9)])


def test_unknown_fields() -> None:
    """A lenient ladder takes the round and says so; a strict one names the field and its place."""
    for (entries, fields, text), packed in product(UNKNOWN, (False, True)):
        lenient, rejections = decoded("lenient", entries, fields, packed=packed)
        assert (rejections, lenient.unknown.tolist()) == ([None], [True]), text
        _, (rejection,) = decoded("strict", entries, fields, packed=packed)
        assert rejection is not None
        assert (rejection.code, str(rejection)) == ("malformed", text)
        assert (rejection.ladder, rejection.round_id) == ("strict", "r-1")
    kinds = [ANN, {"player": "cy", "dnf": True}, {"team": ["x", "y"], "rank": 3, "shares": [1, 1]}]
    known: list[dict[str, Any]]
    known = [{}, {"weight": 2, "performance_ceiling": 1900}, {"performance_ceiling": None}]
    for fields, packed, ladder in product(known, (False, True), ("lenient", "strict")):
        found, rejections = decoded(ladder, kinds, fields, packed=packed)
        assert (rejections, found.unknown.tolist()) == ([None], [False]), fields


def test_a_strict_ladder() -> None:
    """It is strict from an offset on. Long names are cut. Fields of other types come first."""
    for offset in (4, 5):
        _, rejections = decoded("later", [ANN, BOB], {"x": 1}, offset=offset)
        assert (rejections == [None]) == (offset < 5)
    _, (rejection,) = decoded("strict", [ANN, BOB], {"x" * 5000: 1})
    assert rejection is not None and len(str(rejection)) == 200
    for ladder in ("lenient", "strict"):
        _, (rejection,) = decoded(ladder, [{**ANN, "x": 1}, {**BOB, "rank": "2"}], {"y": 1})
        assert rejection is not None and rejection.code == "bad-rank"
    assert CHOICES.history("lenient") == ("0:f37007ecb9cdf1d2",)
    assert CHOICES.history("strict") != CHOICES.history("lenient")
    assert len(CHOICES.history("later")) == 2
    Observer().unknown_fields(1)
    metrics = Metrics()
    ServiceObserver(metrics, "estimator", log.logger("estimator")).unknown_fields(3)
    assert metrics.registry.get_sample_value("stream_rater_unknown_fields_total") == 3


# --- depth ----------------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | st.text(max_size=300) | st.text('[]{}"\\', max_size=9),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=17),
    max_leaves=25,
)  # fmt: skip


def depth(value: Any, empty: int = 0) -> int:
    """Levels of lists and maps, of which an empty one counts so much."""
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(depth(each, empty) for each in inner) if inner else empty


@given(values, st.integers(0, 20))
def test_depth_of_json(value: Any, limit: int) -> None:
    """Each pair of brackets outside strings is a level; above the limit, any number will do."""
    text = msgspec.json.encode(value)
    exact = json_depth(text, 0)
    assert depth(value, empty=1) == exact
    assert (json_depth(text, limit) <= limit) == (exact <= limit)


@given(values | st.binary(max_size=300).map(lambda data: [data, [1]]))
def test_depth_of_msgpack(value: Any) -> None:
    """In MessagePack what holds something is a level, whatever types stand between."""
    assert min(depth(value), 65) == msgpack_depth(msgspec.msgpack.encode(value), 64)


EXTENSIONS = [b"\xd4\x05x", b"\xd8\x05" + b"x" * 16, b"\xc7\x03\x05xyz", b"\xc8\x00\x01\x05x"]
BINARIES = [b"\xc4\x02[[", b"\xc5\x00\x02[[", b"\xc6\x00\x00\x00\x02[["]
NUMBERS = [b"\xca" + bytes(4), b"\xcb" + bytes(8), b"\xcc\xff", b"\xcd\xff\xff", b"\xd3" + bytes(8)]
STRINGS = [b"\xd9\x02\x91\x91", b"\xda\x00\x02\x91\x91", b"\xdb\x00\x00\x00\x02\x91\x91"]


def test_depth_by_hand() -> None:
    """An item's own bytes are skipped. Counting ends at limit + 1, and allocates nothing."""
    heads = b"\x92", b"\xdc\x00\x02", b"\xdd\x00\x00\x00\x02", b"\x81", b"\xde\x00\x01"
    items = [*EXTENSIONS, *BINARIES, *NUMBERS, *STRINGS, b"\xc0", b"\xe0"]
    for head, item in product((*heads, b"\xdf\x00\x00\x00\x01"), items):
        assert msgpack_depth(head + item + b"\x91\x91\x00", 16) == 3, (head, item)
    assert msgpack_depth(b"\x91" * 1_000_000, 16) == 17
    assert msgpack_depth(b"\xdd\xff\xff\xff\xff" * 20, 16) == 17
    assert msgpack_depth(b"\xdf\xff\xff\xff\xff", 16) == 1
    for text in (b'"[[["', b'"\\"[[["', b'"\\\\"', b'"\\\\\\"[["', b""):
        assert (json_depth(text, 0), json_depth(b"[" + text + b",[1]]", 0)) == (0, 2), text
