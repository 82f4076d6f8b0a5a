"""The seats and the scores of entries: from bytes to columns, and through corrections."""

import math
import re
from collections.abc import Callable
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_rater.config.ladders import Ladder, Ladders, Limits
from stream_rater.contract.corrections import RoundAmended
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import EloMMR
from stream_rater.rating.seats import seat_name
from stream_rater.replay.edits import EditsSoFar
from stream_rater.rounds import batch
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.correction_records import FIRST, LAST, Span, amended_message
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.rounds.validation import Invalid
from tests.rounds import MSGPACK_HEADERS, as_json, as_msgpack

PLAIN = EloMMR(weight_limit=0.2, sigma_limit=80.0)
SEATED = EloMMR(weight_limit=0.2, sigma_limit=80.0, seats={"home": 60.0, "away": -20.0})
SCORED = EloMMR(weight_limit=0.4, sigma_limit=80.0)
LADDERS = Ladders(
    ladders={
        "plain": Ladder(rating=PLAIN), "seated": Ladder(rating=SEATED),
        "scored": Ladder(rating=SCORED),
        "strict": Ladder(rating=PLAIN, limits=Limits(unknown_fields="reject")),
    }
)  # fmt: skip
ALWAYS = Span(FIRST, LAST)
Encode = Callable[..., tuple[bytes, Any]]


def fast(*entries: Any, **fields: Any) -> tuple[bytes, Any]:
    return as_json(*entries, **fields), ()


def slow(*entries: Any, **fields: Any) -> tuple[bytes, Any]:
    """JSON that the kernel does not read: a name has an escape."""
    return as_json(*entries, **fields).replace(b'"ann"', b'"\\u0061nn"'), ()


def packed(*entries: Any, **fields: Any) -> tuple[bytes, Any]:
    return as_msgpack(*entries, **fields), MSGPACK_HEADERS


WAYS: list[Encode] = [fast, slow, packed]


def decoded(encode: Encode, *entries: Any, ladder: str = "plain") -> RoundBatch:
    """The round of these entries; raises Invalid."""
    value, headers = encode(*entries, ladder=ladder)
    return RoundDecoder(LADDERS).read(Record(0, 0, value, headers, received_s=4e9)).batch


def seats(rounds: RoundBatch) -> list[str]:
    return [seat_name(code) for code in rounds.seat.tolist()]


def scores(rounds: RoundBatch) -> list[float | None]:
    return [None if math.isnan(each) else each for each in rounds.score.tolist()]


@pytest.fixture(autouse=True)
def _used(monkeypatch: pytest.MonkeyPatch) -> None:
    """One ladder uses scores."""
    monkeypatch.setattr(batch, "uses_scores", SCORED.__eq__)


def test_where_nobody_has_one_there_is_no_column() -> None:
    """Null counts as absent on every ladder. Each column is absent by itself."""
    ann, bob = {"player": "ann", "rank": 1}, {"player": "bob", "rank": 2}
    null = {"seat": None, "score": None}
    for encode in WAYS:
        for ladder, absent in product(LADDERS.ladders, ({}, null)):
            found = decoded(encode, {**ann, **absent}, {**bob, **absent}, ladder=ladder)
            assert (seats(found), scores(found)) == ([], []), (encode, ladder)
        both = decoded(encode, {**ann, "seat": "home"}, bob)
        assert (seats(both), scores(both)) == (["home", ""], []), encode
        both = decoded(encode, ann, {**bob, "score": 2})
        assert (seats(both), scores(both)) == ([], [None, 2.0]), encode


BAD_SEATS = ["", "123456789", "ä", "\x7f", 7, True, ["home"], {"home": 1}, 0.5]
BAD_SCORES = ["4", True, [4], {"home": 4}, ""]


def test_a_seat_that_is_not_valid() -> None:
    """Is absent where seats do not count. A ladder with seats names the entry and the cure."""
    for encode, seat in product(WAYS, BAD_SEATS):
        entries = {"player": "ann", "rank": 2}, {"player": "bob", "rank": 1, "seat": seat}
        for ladder in ("plain", "scored"):
            assert set(seats(decoded(encode, *entries, ladder=ladder))) <= {""}, seat
        with pytest.raises(Invalid) as rejected:
            decoded(encode, *entries, ladder="seated")
        assert (rejected.value.code, rejected.value.ladder) == ("bad-seat", "seated"), seat
        start, end = str(rejected.value).split(" is no name of a seat: ")
        assert start.startswith("standings[1].seat: ")
        assert end == "give a text of 1 to 8 printable characters of ASCII, or leave it out"


def test_a_score_that_is_not_valid() -> None:
    """It has the same code for numbers beyond all floats, and for what only MessagePack can say."""

    def refused(encode: Encode, score: Any, said: str) -> None:
        entries = {"player": "ann", "rank": 2}, {"player": "bob", "rank": 1, "score": score}
        for ladder in ("plain", "seated"):
            assert set(scores(decoded(encode, *entries, ladder=ladder))) <= {None}, score
        match = rf"^standings\[1\]\.score: {re.escape(said)}.*is no finite number: "
        with pytest.raises(Invalid, match=match) as bad:
            decoded(encode, *entries, ladder="scored")
        assert (bad.value.code, bad.value.round_id) == ("bad-score", "r-1"), score

    for encode, score in product(WAYS, BAD_SCORES):
        refused(encode, score, "")
    more: list[tuple[Any, str]] = [
        (math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), ({1: "x"}, '{"1":"x"}'),
        (msgspec.msgpack.Ext(5, b"x"), "the value"), (b"xy", '"eHk="'),
    ]  # fmt: skip
    for score, said in more:
        refused(packed, score, f"{said} ")
    value = as_json({"player": "ann", "rank": 2}, {"player": "bob", "rank": 1, "score": 77})
    for text, (ladder, code) in product(
        (b"1e999", b"1" * 400), (("plain", ""), ("scored", "bad-score"))
    ):
        own = value.replace(b"77", text).replace(b"ranked-eu", ladder.encode())
        _, (rejection,) = RoundDecoder(LADDERS).decode([Record(0, 0, own, received_s=4e9)])
        assert (rejection.code if rejection else "") == code, (text, ladder)


def test_a_strict_ladder_wants_their_types() -> None:
    """As before they counted. Valid and invalid ones come side by side, each by its ladder."""
    ann, bob = {"player": "ann", "rank": 1}, {"player": "bob", "rank": 2}
    for encode in WAYS:
        decoded(encode, {**ann, "seat": "123456789", "score": 3}, bob, ladder="strict")
        for name, given in (("seat", 7), ("score", "7")):
            with pytest.raises(Invalid, match=f"at `\\$.standings\\[0\\].{name}`") as bad:
                decoded(encode, {**ann, name: given}, bob, ladder="strict")
            assert bad.value.code == "malformed"
    entries = {"player": "ann", "rank": 1, "seat": ""}, {"player": "bob", "rank": 2, "seat": "away"}
    records = []
    for i, (encode, ladder) in enumerate(product((fast, slow, packed), ("plain", "seated"))):
        value, headers = encode(*entries, ladder=ladder)
        records.append(Record(0, i, value, headers, received_s=4e9))
    rounds, rejections = RoundDecoder(LADDERS).decode(records)
    assert [each and each.code for each in rejections] == [None, "bad-seat"] * 3
    assert seats(rounds) == ["", "away"] * 3


def test_an_amended_round_has_those_that_it_is_given() -> None:
    amended = msgspec.convert(
        {
            "round_id": "r", "ladder": "plain",
            "standings": [{"player": "ann", "rank": 2, "seat": "home", "score": 0},
                          {"player": "bob", "rank": 1, "score": 1.5}],
        },
        RoundAmended,
    )  # fmt: skip
    message = amended_message(amended, "2026-11-20T20:15:05Z", 1.0, math.inf)
    found = RoundDecoder(LADDERS).read(Record(0, 0, message, received_s=4e9)).batch
    assert (seats(found), scores(found)) == (["", "home"], [1.5, 0.0])


def test_team_mates_of_a_removed_player_keep_theirs() -> None:
    """And the entries of the others, too; and a changed seat or score is a difference."""
    entries = [
        {"team": ["eve", "ann"], "rank": 1, "seat": "home", "score": 2},
        {"player": "cy", "rank": 2, "seat": "gone", "score": 1},
        {"player": "bob", "rank": 3, "seat": "away", "score": 0},
    ]
    round_ = decoded(fast, *entries)
    edits = EditsSoFar()
    edits.change("eve", ALWAYS)
    edits.change("cy", ALWAYS)
    found = edits.edits.edited(round_, 0)
    assert found is not None
    assert found.names.texts() == ["ann", "bob"]
    assert (seats(found), scores(found)) == (["home", "away"], [2.0, 0.0])
    for other in ({"seat": "there"}, {"score": 3}):
        amend = EditsSoFar()
        amend.amend(0, decoded(fast, {**entries[0], **other}, *entries[1:]))
        assert amend.edits.count_differences(EditsSoFar().edits, round_, np.zeros(1, np.int64)) == 1
    amend = EditsSoFar()
    amend.amend(0, round_)
    assert amend.edits.count_differences(EditsSoFar().edits, round_, np.zeros(1, np.int64)) == 0
