"""Records read together are what each is alone: the same rounds, the same refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_rater.columns import timestamps
from stream_rater.columns.strings import lay_out
from stream_rater.config import Change, Ladder, Ladders, Limits
from stream_rater.contract.events import parse_time
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import Elo, EloMMR
from stream_rater.rounds import decoder as intake_
from stream_rater.rounds.batch import Rounds
from stream_rater.rounds.decoder import Intake, read_alone
from stream_rater.rounds.validation import Invalid
from tests.rounds import MSGPACK_HEADERS, as_json, as_msgpack, ranked

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
RECEIVED_S = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""
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
ROUNDS = st.tuples(
    st.one_of(st.just(USUAL), FIELDS), LINES, st.sampled_from(["json", "msgpack", "junk"]),
    st.integers(0, 1),
)  # fmt: skip


def record(offset: int, fields: dict[str, Any], lines: Any, kind: str, partition: int) -> Record:
    """Of the kind, in this partition."""
    if kind == "msgpack":
        data = as_msgpack(*lines, **fields)
        return Record(partition, offset, data, MSGPACK_HEADERS, received_s=RECEIVED_S)
    data = as_json(*lines, **fields)
    return Record(partition, offset, data[:-3] if kind == "junk" else data, received_s=RECEIVED_S)


@given(st.lists(ROUNDS, max_size=9), st.integers(1, 3000))
@example([(USUAL, ranked([1, 2]), "json", 0), (USUAL, ranked([1, 2]), "json", 1)] * 5, 3000)
def test_together_as_alone(told: list[tuple[dict[str, Any], Any, str, int]], at_once: int) -> None:
    """Whatever there is, in whichever of two partitions, and wherever a call ends."""
    records = [record(i, *each) for i, each in enumerate(told)]
    records += [Record(0, len(told), None, unreadable="too much"), Record(0, len(told) + 1, None)]
    reader = Intake(LADDERS).reader
    valid, refusals, ratings = [], [], []
    for each in records:
        try:
            valid.append(read_alone(reader, each, 2))
            refusals.append(None)
            ratings.append(reader.terms(valid[-1].ladder, each.offset).rating)
        except Invalid as invalid:
            refusals.append((invalid.code, str(invalid), invalid.ladder, invalid.round_id))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake_, "TOGETHER_BYTES", at_once)
        intake = Intake(LADDERS, 2)
        heard = intake.read(records)
    assert [
        None if no is None else (no.code, str(no), no.ladder, no.round_id) for no in heard.refusals
    ] == refusals
    assert [id(intake.ratings[number]) for number in heard.law] == list(map(id, ratings))
    assert columns(heard.rounds) == columns(Rounds.of(valid))
    rates = [s.rates(skip_all_tied=r.skip_all_tied) for s, r in zip(valid, ratings, strict=True)]
    assert intake.rates(heard.rounds, heard.law).tolist() == rates


def columns(rounds: Rounds) -> list[Any]:
    """All of them."""
    told = [(each.round_id, each.ladder, each.completed_at) for each in rounds.told]
    names = ("time", "weight", "ceiling", "entries", "sizes", "place", "members", "share")
    return [told, rounds.names.texts(), *(getattr(rounds, name).tolist() for name in names)]


def test_ladders_without_end_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a template any name is a ladder's."""
    monkeypatch.setattr(intake_, "MOST_LADDERS", 3)
    intake = Intake(Ladders(ladders={"*": Ladder(rating=ELO_MMR)}))
    for i in range(10):
        heard = intake.read([Record(0, i, as_json(ladder=f"l{i}"), received_s=4e9)])
        assert heard.law.tolist() == [0]
        assert len(intake._known) <= 3


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
    """Where they are told at all; and all that are written as usual, are."""
    for text, found in zip(texts, timestamps.seconds(lay_out(texts)).tolist(), strict=True):
        try:
            wanted = parse_time(text)
        except (ValueError, OverflowError):
            wanted = None
        if found != timestamps.UNUSUAL:
            assert found == wanted
        elif wanted is not None:
            usual = text[4] == "-" and text[10] == "T" and text[-1] == "Z" and len(text) <= 27
            assert not usual or not "1000" <= text[:4] <= "9998", text


def test_no_time() -> None:
    """Of none."""
    assert timestamps.seconds(lay_out([])).tolist() == np.empty(0).tolist()
