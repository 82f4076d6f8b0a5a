"""One pass over a round's bytes: it takes nothing that the decoder refuses or reads otherwise."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_rater.columns.strings import lay_out
from stream_rater.contract import events
from stream_rater.contract.events import MAX_ID_BYTES, MAX_RANK
from stream_rater.rounds.fastjson import Scanned, runs, scan, scan_all
from stream_rater.rounds.validation import Invalid, _any_columns, _check_players
from tests.rounds import as_json, ranked

DEPTH = 16
USUAL = as_json(*ranked([1, 2, 2]))
NAMES = st.sampled_from(["ann", "ä", "p" * MAX_ID_BYTES, "p" * (MAX_ID_BYTES + 1), "", 'a"', "a\n"])
RANKS = st.sampled_from([1, 2, 9, 10, MAX_RANK, MAX_RANK + 1, 0, -1, None, 1.0, 10**10])
LINES = st.fixed_dictionaries(
    {"player": NAMES, "rank": RANKS}, optional={"dnf": st.just(False), "x": st.none()}
)
PARTS = [
    b"{", b"}", b"[", b"]", b",", b":", b" ", b"\\", b'"', b"\n", b"0", b"7", b"e1", b"-", b"\xff",
    b'"standings":[', b'"standings":[]', b'{"player":"x","rank":3}', b',"weight":2', b"null",
    b"ann", b'"x":{', b'"st\\u0061ndings":[]', b'{"standings":[{"player":"a","rank":1}]}',
]  # fmt: skip


def check(data: bytes) -> bool:
    """Whether it is taken; if so, all is as the decoder has it, and the long way from there."""
    found = scan(data, DEPTH)
    if found is None:
        return False
    event, lines = found
    decoded = events.round_from_json(data)
    place, players, starts, share = _any_columns(decoded.standings)
    _check_players(players)
    assert (lines.place.tolist(), lines.names.texts) == (place.tolist(), players)
    assert len(lines) == len(lines.names) == len(starts) - 1 == share.sum()
    fields = ("round_id", "ladder", "completed_at", "weight", "performance_ceiling")
    assert [getattr(event, name) for name in fields] == [getattr(decoded, name) for name in fields]
    return True


def all_of(data: list[bytes]) -> list[Scanned | None]:
    """Scanned together."""
    return scan_all(data, DEPTH).each()


def rounds(lines: list[Any], **others: Any) -> dict[str, Any]:
    """A round with these lines."""
    return {"round_id": "r", "ladder": "l", "completed_at": "t", "standings": lines, **others}


@given(st.lists(LINES, max_size=6), st.booleans())
def test_lines_are_those_that_the_decoder_finds(lines: list[Any], dense: bool) -> None:
    """Of any names and ranks, with spaces and without."""
    separators = (",", ":") if dense else None
    data = json.dumps(rounds(lines), ensure_ascii=False, separators=separators).encode()
    plain = bool(lines) and all(
        list(line) == ["player", "rank"] and line["player"] in ("ann", "ä", "p" * MAX_ID_BYTES)
        and type(line["rank"]) is int and 0 < line["rank"] <= MAX_RANK for line in lines
    )  # fmt: skip
    assert check(data) == plain


@given(st.lists(st.tuples(st.integers(0, len(USUAL)), st.sampled_from(PARTS), st.integers(0, 40))))
@example([(len(USUAL) - 1, b',"standings":[]', 0)])
@example([(USUAL.index(b"standings") - 2, b',"x":{"standings":[]}', 0)])
@example([(USUAL.index(b"standings") - 2, b"", 1)])
def test_no_bytes_are_read_otherwise_than_by_the_decoder(
    changes: list[tuple[int, bytes, int]],
) -> None:
    """Whatever is put into a usual round, in place of some of its bytes."""
    data = USUAL
    for at, part, gone in changes:
        data = data[:at] + part + data[at + gone :]
    try:
        taken = check(data)
        alike = [each is not None for each in all_of([USUAL, data, data, USUAL])]
        assert alike == [True, taken, taken, True]
    except (msgspec.DecodeError, Invalid) as refused:
        raise AssertionError(f"{data!r} was taken: {refused}") from None


def second(line: str) -> bytes:
    """A usual round whose second line is this."""
    lines = f'{{"player":"a","rank":1}},{line}'
    return b'{"round_id":"r","ladder":"l","completed_at":"t","standings":[' + lines.encode() + b"]}"


UNUSUAL = [
    '{"player":"b","rank":0}', '{"player":"b","rank":01}', '{"player":"b","rank":-1}',
    '{"player":"b","rank":2147483647}', '{"player":"b","rank":12345678901}',
    '{"player":"b","rank":1.0}', '{"player":"b","rank":}', '{"player":"b","rank":1e0}',
    '{"player":"","rank":1}', '{"player":"b\n","rank":1}', '{"player":"\\u0062","rank":1}',
    f'{{"player":"{"p" * (MAX_ID_BYTES + 1)}","rank":1}}', '{"player":b","rank":1}',
    '{"player":"b","rank":1,"dnf":false}', '{"rank":1,"player":"b"}', '{"team":["b"],"rank":1}',
    '{"player":"b","rank":1', '"player":"b","rank":1}', '{"player":"b" "rank":1}', "", "{}",
    '{"player":"b","rank":1},', '{"player":"b","rank":1} {"player":"c","rank":1}',
]  # fmt: skip


@pytest.mark.parametrize("line", UNUSUAL)
def test_every_other_line_is_left_to_the_decoder(line: str) -> None:
    """Where a usual one is taken."""
    assert scan(second('{"player":"b","rank":2147483646}'), DEPTH) is not None
    assert scan(second(line), DEPTH) is None


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


@pytest.mark.parametrize("data", OTHERS.values(), ids=OTHERS.keys())
def test_what_is_no_usual_round_is_left_to_the_decoder(data: bytes) -> None:
    """By each reason that there is."""
    assert scan(data, DEPTH) is None


def test_a_usual_round_is_taken() -> None:
    """With other keys behind, in another order of lines, with names in any script."""
    assert check(USUAL)
    assert check(USUAL[:-1] + b',"weight":2,"performance_ceiling":null,"x":[1]}\n')
    lines = [{"player": "\U0001f600" * 32, "rank": MAX_RANK}, {"player": "a", "rank": 1}]
    assert check(json.dumps(rounds(lines), ensure_ascii=False).encode())
    found = scan(json.dumps(rounds(lines), ensure_ascii=False).encode(), DEPTH)
    assert found is not None
    assert found[1].names.texts == ["a", "\U0001f600" * 32]


FEW_LINES = st.lists(st.integers(0, 9), max_size=5)


@given(st.lists(st.tuples(FEW_LINES, st.booleans(), NAMES), max_size=6), st.integers(1, 600))
def test_rounds_scanned_together_are_as_alone(
    told: list[tuple[list[Any], bool, str]], at_once: int
) -> None:
    """Each as if no other were there, cut off in the midst of it or not, wherever a call ends."""
    data = []
    for ranks, whole, name in told:
        lines = [{"player": f"{name}{i % 3}", "rank": rank} for i, rank in enumerate(ranks)]
        each = json.dumps(rounds(lines), ensure_ascii=False).encode()
        data.append(each if whole else each[: each.rindex(b"}") - 2])
    found = [each for some in runs(data, at_once) for each in all_of(some)]
    assert len(found) == len(data)
    for each, together in zip(data, found, strict=True):
        alone = scan(each, DEPTH)
        assert (alone is None) == (together is None)
        if alone is not None and together is not None:
            (event, lines), (other, others) = alone, together
            assert event == other
            assert lines.place.tolist() == others.place.tolist()
            assert lines.names.texts == others.names.texts
            for names in (lines.names, others.names):
                assert names.laid_out.hashes.tolist() == lay_out(names.texts).hashes.tolist()
            assert lines.names.distinct == (len(set(lines.names.texts)) == len(lines))
            assert others.names.distinct == lines.names.distinct


IN_TWO = '{"round_id":"r","ladder":"l",|"completed_at":"|t","x":[|1],|"y":{|},"standings":LIST}'


@pytest.mark.parametrize("cut", [i for i, c in enumerate(IN_TWO) if c == "|"])
def test_no_round_reads_on_into_the_next(cut: int) -> None:
    """Where the first half of one stands behind another, and the next record is the other half."""
    one = as_json(*ranked([1, 2]))
    lines = one[one.index(b"[") : one.index(b"]") + 1]
    halves = [half.replace("|", "").encode() for half in (IN_TWO[:cut], IN_TWO[cut:])]
    data = [one + halves[0], halves[1].replace(b"LIST", lines)]
    assert all_of(data) == [None, None]
    found = all_of([*data, one + b"\r\n"])
    assert [each is not None for each in found] == [False, False, True]


def test_new_lines_are_spaces_around_texts_only() -> None:
    """In them they are a mistake."""
    assert check(USUAL.replace(b'"ladder"', b'\n"ladder"\n'))
    assert not check(USUAL.replace(b'"ladder":"', b'"ladder":"\n'))
    found = all_of([USUAL.replace(b'"ladder"', each) for each in (b'\n"ladder"', b'"x"')])
    assert [each is not None for each in found] == [True, False]


def test_nobody_is_taken_for_distinct_in_a_large_round() -> None:
    """Who stands in it twice, far apart."""
    lines = [{"player": f"p{i}", "rank": i + 1} for i in range(500)]
    for twice in (False, True):
        lines[450]["player"] = "p7" if twice else "p450"
        found = scan(json.dumps(rounds(lines)).encode(), DEPTH)
        assert found is not None
        assert found[1].names.distinct == (not twice)
