"""How ids join, times parse and headers read."""

from typing import Any

import msgspec
import pytest

from stream_rater.contract.events import (
    CorrectionCause,
    RatingChanged,
    escape,
    parse_time,
    rating_changed_from_json,
    round_from_json,
    round_from_msgpack,
    to_json,
)
from stream_rater.contract.record import header
from tests.builders.cases import cases
from tests.rounds import as_json, as_msgpack


def test_escapes_and_headers() -> None:
    """What separates, tags or escapes is percent-encoded. The first header of a name counts; none,
    or one without a value, is the empty string."""
    assert escape("a:b{c}d%e/é ") == "a%3Ab%7Bc%7Dd%25e/é "
    given_headers = [("a", b"1"), ("b", b"\xff"), ("a", b"2")]
    assert [header(given_headers, name) for name in "abc"] == ["1", "\ufffd", ""]
    assert header([("a", None)], "a") == ""


@cases(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-20T20:15:05Z", 1_795_205_705),
        ("2026-11-20T22:15:05+02:00", 1_795_205_705),
        ("2026-11-20T20:15:05.999999Z", 1_795_205_705),
        ("1969-12-31T23:59:59.5Z", -1),
        ("1900-01-01T00:00:00Z", -2_208_988_800),
        ("9999-12-31T23:59:59Z", 253_402_300_799),
    ],
)
def test_times(text: str, seconds: int) -> None:
    """RFC 3339 with a zone, as Unix seconds rounded down, before 1970 and after 2038, too."""
    assert parse_time(text) == seconds


@cases("text", ["", "now", "2026-11-20T20:15:05", "2026-13-01T00:00:00Z", "\ud800"])
def test_no_times(text: str) -> None:
    """Anything else is a ValueError."""
    with pytest.raises(ValueError, match=r".+"):
        parse_time(text)


def test_rounds_decode_alike() -> None:
    """JSON and MessagePack carry the same event; a reader of today reads the events of tomorrow."""
    assert round_from_json(as_json()) == round_from_msgpack(as_msgpack())
    assert round_from_json(as_json(season=3)) == round_from_json(as_json())


CHANGED = RatingChanged(
    event_id="l:r:p", ladder="l", player="p", round_id="r", completed_at="2026-01-01T00:00:00Z",
    rank=None, mu=1612.4, sigma=91.2, previous_mu=1570.0, previous_sigma=97.9, performance=1801.7,
    rating=1538.0, previous_rating=1482.0, rounds=12, provisional=False, offset=7,
)  # fmt: skip
"""Of one who did not finish."""


@cases(
    "more",
    [
        {},
        {"season": 3},
        {"performance": None, "correction": CorrectionCause(cause="round-voided", offset=7)},
    ],
)
def test_rating_changed_round_trip(more: dict[str, Any]) -> None:
    """What is published reads back as it was."""
    event = msgspec.structs.replace(CHANGED, **more)
    assert rating_changed_from_json(to_json(event)) == event


def test_what_an_event_has_nothing_to_say_of() -> None:
    """Rank and performance are null then, as ever; what was added later is left out."""
    encoded = to_json(msgspec.structs.replace(CHANGED, performance=None))
    assert b'"rank":null' in encoded and b'"performance":null' in encoded
    assert b"season" not in encoded and b"correction" not in encoded
    assert to_json(CorrectionCause(cause="a", offset=7)) == b'{"cause":"a","offset":7}'
