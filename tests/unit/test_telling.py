"""Telling: the quick way to make events makes those of the slow one, byte by byte."""

from collections.abc import Collection
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from stream_rater.events import rating_changed_from_json
from stream_rater.pipeline import telling
from stream_rater.pipeline.parts import Part
from stream_rater.pipeline.ports import Event
from stream_rater.pipeline.telling import Abreast
from stream_rater.rating.model import DID_NOT_FINISH, HEADER, Floats, Ints, Table
from stream_rater.trace import Trace
from tests.unit.machines import LAW, part

NUMBERS = [0.0, -0.0, 1.0, -1234.5, 1e300, 5e-324, 1e-7, 1e16, 0.1 + 0.2, np.float32(1 / 3)]
UNUSUAL = ['a"', "a\\b", "a:b", "{a", "a}", "100%", "tab\tbed", "\x00", "\x1f"]


def some(*players: str) -> tuple[Part, Floats, Ints]:
    """Rounds of one player, two and three ladders, with numbers of every kind."""
    rows = part((5, players), (1_000_000, ["x"]), (7, ["yy", "zzz"]))
    ladders, traces = ("a", "bé", "a"), (None, Trace(f"00-{1:032x}-{1:016x}-01"), None)
    rounds = [
        msgspec.structs.replace(each, ladder=ladder, trace=trace)
        for each, ladder, trace in zip(rows.rounds, ladders, traces, strict=True)
    ]
    place = np.arange(1, 1 + len(rows.players), dtype=np.int32)
    place[1] = DID_NOT_FINISH
    count = len(rows.players)
    numbers = np.resize(np.array(NUMBERS), (count, telling.NUMBERS))
    counts = np.resize(LAW.provisional_rounds + np.array([-1, 0, 2**23]), count)
    return replace(rows, rounds=rounds, place=place), numbers, counts


def made(tell: str, *players: str) -> list[Event]:
    """Events of one of the two ways."""
    events: Collection[Event] = getattr(telling, tell)(3, *some(*players))
    assert len(events) == len(list(events))
    assert all(each in events for each in events)
    return list(events)


@pytest.mark.parametrize("players", [["p"], ["ann", "bob"], ["Straße", "名前", "\x7f", "'/"]])
def test_both_ways_make_the_same(players: list[str]) -> None:
    """Keys, ids, values, times and traces."""
    assert made("written", *players) == made("encoded", *players)


def test_what_is_told() -> None:
    """Of one who did not finish, and of one who did."""
    events = [rating_changed_from_json(each.value) for each in made("written", "ann", "bob")]
    assert [(each.player, each.rank) for each in events[:2]] == [("ann", 1), ("bob", None)]
    assert [each.provisional for each in events[:3]] == [True, False, False]
    assert {each.ladder for each in events} == {"a", "bé"}


@pytest.mark.parametrize("unusual", UNUSUAL)
@pytest.mark.parametrize("place", ["player", "ladder", "round_id"])
def test_what_must_be_escaped_is_left_to_the_encoder(
    unusual: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it stands; a time, which has colons, may do without."""
    given, _, _ = some(unusual if place == "player" else "p")
    if place != "player":
        changed = msgspec.structs.replace(given.rounds[0], **{place: unusual})
        given = replace(given, rounds=[changed, *given.rounds[1:]])
    monkeypatch.delattr(telling, "written")
    first = next(iter(telling.events_of(3, given, header_of(given))))
    told = rating_changed_from_json(first.value)
    assert getattr(told, place) == unusual


def test_plain_ids_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual way is the quick one."""
    given, _, _ = some("ann")
    monkeypatch.delattr(telling, "encoded")
    assert telling.events_of(3, given, header_of(given))


def test_all_shards_begin_before_any_goes_on() -> None:
    """The order within a shard stays."""
    one, two, none = made("written", "a"), made("encoded", "b", "c"), list[Event]()
    order = list(Abreast([one, none, two]))
    assert order == [one[0], two[0], *one[1:], *two[1:]]


def header_of(given: Part) -> Table:
    """Beliefs after some round."""
    return np.ones(len(given.players), HEADER)
