"""The quick encoder of events makes those of the slow one, byte by byte."""

from dataclasses import replace
from itertools import product

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.contract.record import Trace
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.pipeline.parts.decoder import Rows, rows_of
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import Event
from stream_rater.pipeline.updater.rating_events import (
    NUMBERS,
    Events,
    encode_each,
    encode_together,
)
from stream_rater.rating.model import DID_NOT_FINISH
from tests.builders.machines import RULE, part

KINDS = [0.0, -0.0, 1.0, -1234.5, 1e300, 5e-324, 1e-7, 1e16, 0.1 + 0.2, np.float32(1 / 3)]
UNUSUAL = ['a"', "a\\b", "a:b", "{a", "a}", "100%", "tab\tbed", "\x00", "\x1f"]


def some(*players: str) -> tuple[Rows, Floats, Ints]:
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
    numbers = np.resize(np.array(KINDS), (count, NUMBERS))
    counts = np.resize(RULE.provisional_rounds + np.array([-1, 0, 2**23]), count)
    return as_rows(replace(rows, rounds=rounds, place=place)), numbers, counts


def as_rows(of: Part) -> Rows:
    """A part's."""
    return rows_of([decoder.read(schema.encode(of))])


def published(rows: Rows, numbers: Floats, counts: Ints, cut: slice) -> list[Event]:
    """The events of the rows in this range, in shard 3."""
    events = encode_together(rows, numbers, counts, {3: cut})[3]
    assert len(events) == len(list(events))
    assert all(each in events for each in events)
    return list(events)


def test_the_quick_way_makes_the_same() -> None:
    """Keys, ids, values, times and traces, of all rows and of any that follow each other; of none
    where no row was fresh."""
    for players in (["p"], ["ann", "bob"], ["Straße", "名前", "\x7f", "'/"]):
        rows, numbers, counts = some(*players)
        events = encode_each(3, rows, numbers, counts)
        for first in range(len(rows) + 1):
            for last in range(first, len(rows) + 1):
                cut = slice(first, last)
                assert published(rows, numbers, counts, cut) == events[cut], players
    none = np.empty(0, np.int64)
    assert published(rows.take(none), numbers[:0], counts[:0], slice(0, 0)) == []


def test_what_is_published() -> None:
    """Of one who did not finish, and of one who did."""
    messages = published(*some("ann", "bob"), slice(0, 5))
    events = [rating_changed_from_json(each.value) for each in messages]
    assert [(each.player, each.rank) for each in events[:2]] == [("ann", 1), ("bob", None)]
    assert [each.provisional for each in events[:3]] == [True, False, False]
    assert {each.ladder for each in events} == {"a", "bé"}
    assert [each.offset for each in events] == [5, 5, 1_000_000, 7, 7]
    assert {(each.season, each.correction) for each in events} == {(None, None)}


def test_an_offset_ends_the_event() -> None:
    """Of any size, and after all fields that were there before; nothing is said of what is not."""
    for offset in (0, 9, 10, 2**39 - 1, 2**63 - 1):
        given = part((5, "p"))
        given = replace(given, rounds=[msgspec.structs.replace(given.rounds[0], offset=offset)])
        rows, (_, numbers, counts) = as_rows(given), some("p")
        messages = published(rows, numbers[:1], counts[:1], slice(0, 1))
        assert messages == encode_each(3, rows, numbers[:1], counts[:1])
        assert messages[0].value.endswith(b'"provisional":true,"offset":%d}' % offset)


def test_what_must_be_escaped() -> None:
    """Wherever it stands, in keys and in JSON; a time stands in no key."""
    for unusual, place in product(UNUSUAL, ("player", "ladder", "round_id", "completed_at")):
        rows, numbers, counts = some(unusual if place == "player" else "p")
        if place != "player":
            given = part((5, "p"))
            head = msgspec.structs.replace(given.rounds[0], **{place: unusual})
            rows = as_rows(replace(given, rounds=[head]))
        numbers, counts = numbers[: len(rows)], counts[: len(rows)]
        events = published(rows, numbers, counts, slice(0, len(rows)))
        assert events == encode_each(3, rows, numbers, counts), (unusual, place)
        assert getattr(rating_changed_from_json(events[0].value), place) == unusual


def test_all_shards_begin_before_any_goes_on() -> None:
    """The order within a shard stays."""
    cuts = {3: slice(0, 1), 4: slice(1, 3), 5: slice(3, 3)}
    one, two, none = encode_together(*some("a", "b", "c"), cuts).values()
    (a,), (b, c) = one, two
    assert list(Events.combined([one, none, two])) == [a, b, c]
    assert list(Events.combined([two, one])) == [b, a, c]
    assert list(Events.combined([two, Events.of(3, [a])])) == [b, a, c]
