"""The scan of a round's bytes in one pass takes nothing that msgspec refuses or reads otherwise."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from stream_rater.contract import events
from stream_rater.contract.events import MAX_ID_BYTES, MAX_RANK
from stream_rater.rating.seats import is_seat, seat_code, seat_name
from stream_rater.rounds import fallback
from stream_rater.rounds.batch import BAD_SEAT
from stream_rater.rounds.fastjson import scan
from stream_rater.rounds.validation import Invalid
from tests.builders.cases import cases
from tests.rounds import as_json, ranked

DEPTH = 16
TEAM = {"team": ["x", "y"], "rank": 2}
USUAL = as_json(
    *ranked([1, 2, 0]), {**TEAM, "shares": [1, 0.5]}, {"team": ["z"], "shares": [1], "dnf": True}
)
USUAL_IN_SEATS = as_json(
    {"player": "a", "rank": 1, "seat": "home", "score": 3}, {"player": "b", "rank": 2, "score": 0.5}
)
GOOD_NAMES = ["ann", "ä", "p" * (MAX_ID_BYTES + 1), ""]
NAMES = st.sampled_from([*GOOD_NAMES, 'a"', "a\n", "a\\"])
RANKS = st.sampled_from([1, 2, 9, 10, MAX_RANK, MAX_RANK + 1, 0, -1, None, 1.0, 10**10])
GOOD_SHARES = [0, 1, 1.0, 0.5, 1e-6, 0.123456789012345, 1.5]
SHARES = st.sampled_from([*GOOD_SHARES, 0.1234567890123456, 2.0, 1e-200, -0.5, None, 10])
WHO = st.one_of(
    st.fixed_dictionaries({"player": NAMES}),
    st.fixed_dictionaries({"team": st.lists(NAMES, max_size=3)}),
)
WHEN = st.one_of(
    st.fixed_dictionaries({"rank": RANKS}), st.fixed_dictionaries({"dnf": st.booleans()})
)
PARTS_PLAYED = st.fixed_dictionaries({"shares": st.lists(SHARES, max_size=3)})
NOTHING = st.just(dict[str, Any]())
OTHER = st.one_of(NOTHING, NOTHING, st.fixed_dictionaries({"x": st.none()}))
DETAILS = NOTHING | st.fixed_dictionaries(
    {},
    optional={
        "score": st.sampled_from([4, -2.5, 0, 1e300, 10**15, 10**15 - 1, 0.1, "4", None, True]),
        "seat": st.sampled_from(["home", "a b", "123456789", "", "ä", 'a"', 7, None]),
    },
)
ENTRIES = st.tuples(
    WHO, NOTHING | PARTS_PLAYED, DETAILS, WHEN, NOTHING | PARTS_PLAYED, DETAILS, OTHER
).map(lambda some: {key: value for each in some for key, value in each.items()})
PARTS = [
    b"{", b"}", b"[", b"]", b",", b":", b" ", b"\\", b'"', b"\n", b"0", b"7", b"e1", b"-", b"\xff",
    b'"standings":[', b'"standings":[]', b'{"player":"x","rank":3}', b',"weight":2', b"null",
    b"ann", b'"x":{', b'"st\\u0061ndings":[]', b'{"standings":[{"player":"a","rank":1}]}', b"true",
    b'"dnf":true', b',"shares":[1]', b"0.5", b".", b'"team":["u","v"]', b'"",', b',"seat":"home"',
    b',"score":4', b'"seat":"x",', b'"score":-0.50,', b"12345678",
]  # fmt: skip


def taken(messages: Sequence[bytes], depth: int = DEPTH) -> list[bool]:
    rounds_, found = scan(messages, depth)
    assert len(rounds_) == len(rounds_.unknown) == np.count_nonzero(found)
    return found.tolist()


def check(data: bytes, depth: int = DEPTH) -> bool:
    """Whether a message is taken. If so, its columns are those that the decoder makes."""
    found, is_taken = scan([data], depth)
    if not is_taken[0]:
        return False
    decoded = fallback.decode(data, depth, packed=False)
    wanted = fallback.columns_of([decoded])
    for name in ("unknown", "place", "members", "share", "seat", "score"):
        assert getattr(found, name).tobytes() == getattr(wanted, name).tobytes(), name
    assert found.names.texts() == wanted.names.texts()
    assert found.names.hashes.tolist() == wanted.names.hashes.tolist()
    assert found.entries.tolist() == [len(wanted.place)]
    assert found.sizes.tolist() == [len(wanted.share)]
    assert (found.place.dtype, found.members.dtype) == (wanted.place.dtype, wanted.members.dtype)
    fields = ("round_id", "ladder", "completed_at", "weight", "performance_ceiling")
    (head,) = found.heads
    assert [getattr(head, name) for name in fields] == [
        getattr(decoded.event, name) for name in fields
    ]
    return True


def rounds(entries: list[Any], **others: Any) -> dict[str, Any]:
    return {"round_id": "r", "ladder": "l", "completed_at": "t", "standings": entries, **others}


def is_short(score: Any) -> bool:
    """Whether a score is a number without an exponent and with at most 15 digits."""
    digits = json.dumps(score).removeprefix("-").replace(".", "", 1)
    return digits.isdecimal() and len(digits) <= 15


def is_plain(entry: dict[str, Any]) -> bool:
    """Whether an entry is written as the scan takes it."""
    keys = list(entry)
    names = [entry["player"]] if "player" in entry else entry["team"]
    shares = entry.get("shares", [1] * len(names))
    rank = entry.get("rank", 1)
    return (
        [key for key in keys[1:] if key not in ("shares", "seat", "score")] in (["rank"], ["dnf"])
        and type(entry.get("seat", "")) is str and '"' not in entry.get("seat", "")
        and is_short(entry.get("score", 0))
        and bool(names) and all(name in GOOD_NAMES for name in names)
        and type(rank) is int and 0 < rank <= MAX_RANK and entry.get("dnf", True)
        and len(shares) == len(names) and all(share in GOOD_SHARES for share in shares)
    )  # fmt: skip


@given(st.lists(ENTRIES, max_size=5), st.booleans())
@example([{"team": ["ann"], "shares": [1], "rank": 1}, {"player": "ä", "dnf": True}], True)
@example([{"player": "ä", "rank": 1, "shares": [0.5]}, {"team": ["ä"], "dnf": True}], False)
def test_entries_are_those_that_msgspec_finds(entries: list[Any], dense: bool) -> None:
    """Of any names, ranks and shares, with and without spaces. All plain entries are taken."""
    separators = (",", ":") if dense else None
    data = json.dumps(rounds(entries), ensure_ascii=False, separators=separators)
    data = data.replace("1e-06", "0.000001")
    assert check(data.encode()) == (bool(entries) and all(map(is_plain, entries)))


@given(
    st.lists(st.tuples(st.integers(0, len(USUAL)), st.sampled_from(PARTS), st.integers(0, 40))),
    st.booleans(),
)
@example([(len(USUAL) - 1, b',"standings":[]', 0)], False)
@example([(USUAL.index(b"standings") - 2, b',"x":{"standings":[]}', 0)], False)
@example([(USUAL.index(b"standings") - 2, b"", 1)], False)
@example([], True)
def test_no_bytes_are_read_otherwise_than_by_msgspec(
    changes: list[tuple[int, bytes, int]], in_seats: bool
) -> None:
    """Whatever is put into a usual round, in place of some of its bytes."""
    data = USUAL_IN_SEATS if in_seats else USUAL
    for at, part, gone in changes:
        data = data[:at] + part + data[at + gone :]
    try:
        alone = check(data)
        assert taken([USUAL, data, data, USUAL]) == [True, alone, alone, True]
    except Invalid as refused:
        raise AssertionError(f"{data!r} was taken: {refused}") from None


def second(entry: str) -> bytes:
    """A round whose second entry is this text."""
    return USUAL.replace(b'{"player":"p1","rank":2}', entry.encode())


@cases("entry", [
    '{"rank":2,"player":"b"}', '{"player":"b","rank":2,}', '{"player":"b" "rank":2}',
    '{"player":"b","rank":02}', '{"player":"b","rank":+2}', '{"player":"b","rank":2.0}',
    '{"player":"b","rank":2e0}', '{"player":"b","rank":2147483647}', '{"player":"b","rank":}',
    '{"player":"b","rank":"2"}', '{"player":"\\u0062","rank":2}', '{"player":"b"}', "null",
    '{"player":"b","rank":2', '"player":"b","rank":2}', "{}", "", '{"Player":"b","rank":2}',
    '{"player":b,"rank":2}', '{"player":"b","dnf":false}', '{"player":"b","dnf":True}',
    '{"player":"b","rank":2,"dnf":true}', '{"player":"b","dnf":true,"rank":2}',
    '{"team":[],"rank":2}', '{"team":["b",],"rank":2}', '{"team":["b" "c"],"rank":2}',
    '{"team":["b"],"player":"c","rank":2}', '{"team":["b"],"rank":2,"shares":[1,1]}',
    '{"team":["b","c"],"rank":2,"shares":[1]}', '{"team":["b"],"shares":[],"rank":2}',
    '{"team":["b"],"shares":[01],"rank":2}', '{"team":["b"],"shares":[1.],"rank":2}',
    '{"team":["b"],"shares":[.5],"rank":2}', '{"team":["b"],"shares":[5e-1],"rank":2}',
    '{"team":["b"],"shares":[1],"rank":2,"shares":[1]}', '{"player":"b","rank":2,"team":null}',
    '{"team":["b"],"shares":null,"rank":2}',
    '{"team":["b"],"shares":[0.1234567890123456],"rank":2}', '{"team":"b","rank":2}',
    '{"player":"b","rank":2,"seat":null}', '{"player":"b","rank":2,"seat":1}',
    '{"player":"b","rank":2,"seat":"h\\u006fme"}', '{"player":"b","rank":2,"seat":"home}',
    '{"player":"b","seat":"home"}', '{"player":"b","seat":"home"},"rank":2}',
    '{"player":"b","seat":"home" "rank":2}', '{"player":"b","rank":2,"seat":"a","seat":"a"}',
    '{"player":"b","seat":"a","rank":2,"seat":"a"}', '{"player":"b","rank":2,"side":"a"}',
    '{"player":"b","rank":2,"seat":"a",}', '{"player":"b","rank":2,"seat":"a"',
    '{"player":"b","rank":2,"score":null}', '{"player":"b","rank":2,"score":"4"}',
    '{"player":"b","rank":2,"score":04}', '{"player":"b","rank":2,"score":4.}',
    '{"player":"b","rank":2,"score":.5}', '{"player":"b","rank":2,"score":+4}',
    '{"player":"b","rank":2,"score":-}', '{"player":"b","rank":2,"score":-01}',
    '{"player":"b","rank":2,"score":4e1}', '{"player":"b","rank":2,"score":4.5.5}',
    '{"player":"b","rank":2,"score":1234567890123456}', '{"player":"b","rank":2,"score":}',
    '{"player":"b","rank":2,"score":12345678.12345678}', '{"player":"b","rank":2,"score":true}',
    '{"player":"b","rank":2,"score":1,"score":1}', '{"player":"b","rank":2,"score":4',
])  # fmt: skip
def test_every_other_entry_is_left_to_msgspec(entry: str) -> None:
    """An unusual entry is not taken in the place of a usual one."""
    assert not check(second(entry))


@given(st.text("abcé\x7f~ \u20ac", max_size=10))
@example("")
@example("\x7f" * 8)
@example("12345678")
@example("123456789")
@example("~ !")
def test_seats_are_those_that_msgspec_finds(seat: str) -> None:
    """Of 1 to 8 printable characters of ASCII, a seat has its number, otherwise BAD_SEAT."""
    data = second(json.dumps({"player": "b", "rank": 2, "seat": seat}, ensure_ascii=False))
    assert check(data)
    found, _ = scan([data], DEPTH)
    at = int(np.flatnonzero(found.seat)[0])
    assert found.seat[at] == (seat_code(seat) if is_seat(seat) else BAD_SEAT)
    assert not is_seat(seat) or seat_name(int(found.seat[at])) == seat


@given(st.integers(-(10**16), 10**16), st.integers(0, 16))
@example(0, 0)
@example(-0, 5)
@example(999_999_999_999_999, 15)
@example(9_007_199_254_740_993, 0)
def test_scores_are_rounded_as_by_msgspec(digits: int, decimals: int) -> None:
    """Scores have up to 15 digits. Minus zero is read as zero."""
    text = f"{abs(digits):0{decimals + 1}}"
    text = f"{text[:-decimals]}.{text[-decimals:]}" if decimals else text
    for sign in ("", "-"):
        data = second(f'{{"player":"b","rank":2,"score":{sign}{text}}}')
        assert check(data) == (len(text.replace(".", "")) <= 15)
        decoded = fallback.decode(data, DEPTH, packed=False)
        assert np.nansum(fallback.columns_of([decoded]).score) == float(sign + text)
    assert not np.signbit(scan([second('{"player":"b","rank":2,"score":-0.0}')], DEPTH)[0].score[1])


OTHERS = {
    "a list before": b'{"x":[{"standings":[{"player":"a","rank":1}]}],"round_id":"r","ladder":"l",'
    b'"completed_at":"t"}',
    "two lists, the last is empty": USUAL[:-1] + b',"standings":[]}',
    "an escaped second key": USUAL[:-1] + b',"st\\u0061ndings":[]}',
    "an escaped quote before the key": b'{"\\"standings":[{"player":"a","rank":1}],"round_id":"r",'
    b'"ladder":"l","completed_at":"t"}',
    "a text that ends in the key": b'{"round_id":"r,"standings":[{"player":"a","rank":1}]",'
    b'"ladder":"l","completed_at":"t"}',
    "no comma before": USUAL.replace(b',"standings"', b' "standings"'),
    "nothing behind": USUAL[:-1],
    "no list": b'{"round_id":"r","ladder":"l","completed_at":"t"}',
    "too deep": USUAL[:-1] + b',"x":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
    "not UTF-8": USUAL.replace(b"}]", b'},{"player":"\xff","rank":4}]'),
}


def test_what_is_no_usual_round_is_left_to_msgspec() -> None:
    """For each reason to leave a round to msgspec there is an example."""
    assert [why for why, data in OTHERS.items() if check(data)] == []


def test_a_usual_round_is_taken() -> None:
    """Also with unknown keys, with entries in another order, and with names in any script."""
    assert check(USUAL)
    for entry in (
        '{"player":"b","rank":2147483646}', '{"team":["b","c"],"shares":[1,0.25],"rank":2}',
        '{ "team" : [ "b" , "c" ] , "dnf" : true , "shares" : [ 1 , 0.25 ] } ',
        '{"player":"b","seat":"home","rank":2,"score":-4.25,"shares":[1]}',
        '{ "player" : "b" , "score" : 0 , "rank" : 2 , "seat" : "a b" } ',
    ):  # fmt: skip
        assert check(second(entry)), entry
    assert check(USUAL[:-1] + b',"weight":2,"performance_ceiling":null,"x":[1]}\n')
    entries = [{"player": "\U0001f600" * 32, "rank": MAX_RANK}, {"player": "a", "rank": 1}]
    assert check(json.dumps(rounds(entries), ensure_ascii=False).encode())


def test_a_team_is_one_level_deeper() -> None:
    """A round of players has three levels, which is the least `max_depth`."""
    assert check(as_json(), 3)
    for team in (TEAM, {"player": "a", "rank": 1, "shares": [1]}):
        data = as_json({"player": "b", "rank": 1}, team)
        assert check(data, 4) and taken([data], 3) == [False]


IN_TWO = '{"round_id":"r","ladder":"l",|"completed_at":"|t","x":[|1],|"y":{|},"standings":LIST}'


@cases("cut", [i for i, c in enumerate(IN_TWO) if c == "|"])
def test_no_round_reads_on_into_the_next(cut: int) -> None:
    """A record may end with the first half of a round, and the next may be its other half."""
    one = as_json(*ranked([1, 2]))
    entries = one[one.index(b"[") : one.index(b"]") + 1]
    halves = [half.replace("|", "").encode() for half in (IN_TWO[:cut], IN_TWO[cut:])]
    data = [one + halves[0], halves[1].replace(b"LIST", entries)]
    assert taken(data) == [False, False]
    assert taken([*data, one + b"\r\n"]) == [False, False, True]


def test_new_lines_are_spaces_around_texts_only() -> None:
    """Within a text a new line is a mistake."""
    assert check(USUAL.replace(b'"ladder"', b'\n"ladder"\n'))
    assert not check(USUAL.replace(b'"ladder":"', b'"ladder":"\n'))
    data = [USUAL.replace(b'"ladder"', each) for each in (b'\n"ladder"', b'"x"')]
    assert taken(data) == [True, False]


@given(st.floats(0.0, 1.9999), st.integers(0, 15))
def test_shares_are_rounded_as_by_msgspec(share: float, decimals: int) -> None:
    """Shares have up to 15 decimals."""
    text = f"{share:.{decimals}f}"
    data = second('{"team":["b"],"shares":[SHARE],"rank":2}'.replace("SHARE", text))
    assert check(data) == (float(text) < 2.0)
    assert msgspec.json.decode(text, type=float) == float(text)
    assert events.round_from_json(data).standings[1].shares == (float(text),)
