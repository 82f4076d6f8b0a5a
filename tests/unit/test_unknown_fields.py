"""Unknown fields, and a rank beside `dnf`: counted by one ladder, refused by another."""

from typing import Any

import pytest

from stream_rater.config.ladders import Change, Ladder, Ladders, Limits
from stream_rater.contract.record import Record
from stream_rater.pipeline.observer import Observer
from stream_rater.rating.parameters import EloMMR
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.decoder import Rejections, RoundDecoder
from stream_rater.runtime import log
from stream_rater.runtime.metrics import Metrics, ServiceObserver
from tests.rounds import MSGPACK_HEADERS, as_json, as_msgpack

RATING = EloMMR(weight_limit=0.2, sigma_limit=80.0)
STRICT = Limits(unknown_fields="reject")
LADDERS = Ladders(
    ladders={
        "lenient": Ladder(rating=RATING),
        "strict": Ladder(rating=RATING, limits=STRICT),
        "later": Ladder(rating=RATING, changes=(Change(from_offset=5, limits=STRICT),)),
    }
)
ANN, BOB = {"player": "ann", "rank": 1}, {"player": "bob", "rank": 2}
UNKNOWN: list[tuple[list[dict[str, Any]], dict[str, Any], str]] = [
    ([ANN, BOB], {"weigth": 2}, "Object contains unknown field `weigth`"),
    ([ANN, BOB], {"Ladder": "x"}, "Object contains unknown field `Ladder`"),
    ([ANN, BOB], {"map": {"ladder": [{"weight": 1}]}}, "Object contains unknown field `map`"),
    ([ANN, BOB], {"\n": 1}, "Object contains unknown field `\\n`"),
    (
        [ANN, {**BOB, "dfn": True}],
        {},
        "Object contains unknown field `dfn` - at `$.standings[1]`",
    ),
    ([ANN, {**BOB, "dnf": True}], {}, "standings[1].rank: beside dnf"),
]


def decoded(
    ladder: str, entries: Any, fields: Any, *, packed: bool, offset: int
) -> tuple[RoundBatch, Rejections]:
    """One round."""
    encode, headers = (as_msgpack, MSGPACK_HEADERS) if packed else (as_json, [])
    value = encode(*entries, ladder=ladder, **fields)
    record = Record(0, offset, value, headers, received_s=4e9)
    return RoundDecoder(LADDERS).decode([record])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("entries", "fields", "text"), UNKNOWN)
def test_unknown_fields(entries: Any, fields: Any, text: str, packed: bool) -> None:
    """A lenient ladder takes the round and says so; a strict one names the field and its place."""
    lenient, rejections = decoded("lenient", entries, fields, packed=packed, offset=0)
    assert (rejections, lenient.unknown.tolist()) == ([None], [True])
    _, (rejection,) = decoded("strict", entries, fields, packed=packed, offset=0)
    assert rejection is not None
    assert (rejection.code, str(rejection)) == ("malformed", text)
    assert (rejection.ladder, rejection.round_id) == ("strict", "r-1")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "fields", [{}, {"weight": 2, "performance_ceiling": 1900}, {"performance_ceiling": None}]
)
def test_known_fields(fields: Any, packed: bool) -> None:
    """Of rounds with all kinds of entries."""
    entries = [
        ANN,
        {"player": "cy", "dnf": True},
        {"team": ["x", "y"], "rank": 3, "shares": [1, 1]},
    ]
    for ladder in ("lenient", "strict"):
        found, rejections = decoded(ladder, entries, fields, packed=packed, offset=0)
        assert (rejections, found.unknown.tolist()) == ([None], [False])


def test_a_ladder_becomes_strict_at_an_offset() -> None:
    """Like any other limit, so that a replay comes to the same verdicts."""
    for offset in (4, 5):
        _, rejections = decoded("later", [ANN, BOB], {"x": 1}, packed=False, offset=offset)
        assert (rejections == [None]) == (offset < 5)


def test_long_names_are_cut() -> None:
    """They go into a header and into the log."""
    _, (rejection,) = decoded("strict", [ANN, BOB], {"x" * 5000: 1}, packed=False, offset=0)
    assert rejection is not None and len(str(rejection)) == 200


def test_other_mistakes_come_first() -> None:
    """A field of another type is reported, with or without unknown fields."""
    for ladder in ("lenient", "strict"):
        _, (rejection,) = decoded(
            ladder, [{**ANN, "x": 1}, {**BOB, "rank": "2"}], {"y": 1}, packed=False, offset=0
        )
        assert rejection is not None and rejection.code == "bad-rank"


def test_ladders_agree_with_those_of_older_releases() -> None:
    """The fingerprint of a ladder that counts is what it was before there was a choice."""
    assert LADDERS.history("lenient") == ("0:f37007ecb9cdf1d2",)
    assert LADDERS.history("strict") != LADDERS.history("lenient")
    assert len(LADDERS.history("later")) == 2


def test_a_metric_counts_rounds() -> None:
    """Nobody else hears of them."""
    Observer().unknown_fields(1)
    metrics = Metrics()
    ServiceObserver(metrics, "estimator", log.logger("estimator")).unknown_fields(3)
    assert metrics.registry.get_sample_value("stream_rater_unknown_fields_total") == 3
