"""Changes: what parts do to a shard, and the events that can be built again afterwards."""

from collections.abc import Sequence

import numpy as np
from msgspec import structs

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.contract.events import CorrectionCause, RatingChanged, rating_changed_from_json
from stream_rater.contract.record import Trace
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.pipeline.parts.decoder import PartView
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import Event, Position, StoredShard
from stream_rater.pipeline.updater import changes
from stream_rater.pipeline.updater.belief_changes import correction_events
from stream_rater.pipeline.updater.changes import Change
from stream_rater.pipeline.updater.rating_events import Events
from stream_rater.pipeline.updater.shard import QueuedPart, ShardBatch, distinct
from stream_rater.rating.model import HEADER, Table
from stream_rater.rating.parameters import EloMMR
from stream_rater.rating.record import HEADER_SIZE, read_headers
from stream_rater.rating.stages import RatingRule, ratings, rule_of
from tests.builders.cases import cases
from tests.builders.machines import NOWHERE, RULE, part, rounds_in, with_rounds


def queued(*of: Part, end: int) -> list[QueuedPart]:
    """Parts in the queue of a shard, the last one before the offset `end`."""
    return [QueuedPart(end - len(of) + i, 0, each) for i, each in enumerate(read(*of))]


def applied(stored: StoredShard, *of: Part, end: int) -> Change:
    return changes.compute_changes(ShardBatch({3: queued(*of, end=end)}), {3: stored})[3]


def rebuilt(shard: int, of: Sequence[Part], stored: StoredShard, published: int) -> Events:
    """The events of a call that had these parts."""
    batch = ShardBatch({shard: queued(*of, end=len(of))})
    return changes.build_events_again(shard, batch, stored, published)


def read(*of: Part) -> list[PartView]:
    return [decoder.read(schema.encode(each)) for each in of]


def nothing(rows: int, position: Position = NOWHERE) -> StoredShard:
    return StoredShard(position, [None] * rows)


def after(change: Change, *players: str, ladder: str = "a") -> StoredShard:
    """The stored beliefs about players once a change is applied."""
    records = dict(change.beliefs)
    return StoredShard(change.position, [records.get((ladder, p)) for p in players])


def test_newcomers() -> None:
    """Each row gives a record and an event. The position says which call it was."""
    change = applied(nothing(3), part((5, "ab"), (6, "c")), end=1)
    assert change.rows == change.fresh == 3
    assert change.position == Position(1, 0, b"\xe0", tail=0)
    assert [player for player, _ in change.beliefs] == [("a", p) for p in "abc"]
    header = read_headers(b"".join(data[:HEADER_SIZE] for _, data in change.beliefs))
    assert header["last"].tolist() == [5, 5, 6]
    assert header["rounds"].tolist() == [1, 1, 1]
    event, record = rating_changed_from_json(list(change.events)[1].value), header[1]
    assert (event.player, event.round_id, event.rank, event.rounds) == ("b", "r5", 2, 1)
    assert (event.mu, event.sigma) == (record["mu"], record["sigma"])
    assert (event.previous_mu, event.previous_sigma) == (1500.0, 350.0)
    assert event.provisional
    assert list(change.events)[1].key == b"a:b"
    assert {each.shard for each in change.events} == {3}


def test_an_event_carries_its_rounds_trace() -> None:
    """So does one that is built again after a crash. Its value does not depend on the trace."""
    unannounced = part((5, "a"), (6, "b"))
    traces = [Trace(f"00-{n:032x}-{n:016x}-01", "vendor=1") for n in (1, 2)]
    rounds = zip(rounds_in(unannounced), traces, strict=True)
    some = with_rounds(unannounced, [each._replace(trace=its) for each, its in rounds])
    change, plain = applied(nothing(2), some, end=1), applied(nothing(2), unannounced, end=1)
    again = rebuilt(3, [some], after(change, "a", "b"), published=0)
    assert [each.trace for each in change.events] == traces
    assert list(again) == list(change.events)
    assert [structs.replace(each, trace=None) for each in change.events] == list(plain.events)


def test_hashes_that_collide_make_nobody_repeat() -> None:
    """Only those of one name on one ladder are one player."""
    players = PlayerColumn.of([("x", "a"), ("y", "a"), ("x", "b"), ("x", "a")])
    first, which = distinct(players, np.zeros(4, np.uint64), np.zeros(4, np.int64))
    assert (first.tolist(), which.tolist()) == ([0, 1, 2], [0, 1, 2, 0])
    first, which = distinct(players, np.zeros(4, np.uint64), np.arange(4))
    assert first.tolist() == which.tolist() == [0, 1, 2, 3]


# --- the events that a correction publishes for its players ---

VOIDED = CorrectionCause(cause="round-voided", offset=40, round_id="r-1")
TIME = "2026-11-25T16:00:00Z"
PLAYERS = ["ann", "b:b", "cy", "%"]


def headers() -> Table:
    """Of PLAYERS: one keeps all rounds but one, one has just enough, one too few, one none."""
    header = np.zeros(len(PLAYERS), HEADER)
    header["rounds"] = [11, RULE.provisional_rounds, RULE.provisional_rounds - 1, 0]
    header["last"], header["time"] = 40, 1000
    header["mu"], header["sigma"] = [1612.5, 1500.25, 1400.0, 1500.0], [91.0, 92.0, 93.0, 350.0]
    header["previous_mu"], header["previous_sigma"] = [1700.0, 1500.25, 1380.0, 1520.0], 95.0
    return header


def published(
    cause: CorrectionCause = VOIDED, rule: RatingRule = RULE, ladder: str = "l:1",
) -> tuple[list[Event], list[RatingChanged]]:  # fmt: skip
    """The events as they travel, and as they are read."""
    events = [*correction_events(3, ladder, cause, TIME, rule, PLAYERS, headers())]
    return events, [rating_changed_from_json(each.value) for each in events]


def test_a_whole_event() -> None:
    """Every field is checked: the values last published, the new ones, and the cause."""
    (event, *_), (changed, *_) = published()
    shown, before = RULE.rating(1612.5, 91.0), RULE.rating(1700.0, 95.0)
    assert changed == RatingChanged(
        event_id="l%3A1:correction:40:ann", ladder="l:1", player="ann", round_id="r-1",
        completed_at=TIME, rank=None, mu=1612.5, sigma=91.0, previous_mu=1700.0,
        previous_sigma=95.0, performance=None, rating=shown, previous_rating=before, rounds=11,
        provisional=False, offset=40, correction=VOIDED,
    )  # fmt: skip
    assert event == Event(3, b"l%3A1:ann", event.value, b"l%3A1:correction:40:ann", TIME)
    assert event.trace is None


def test_whose_events_are_published() -> None:
    """Those of the chosen players, in order, each with an id that no round's event can have."""
    events, changed = published()
    assert [each.player for each in changed] == PLAYERS
    assert [each.key for each in events[1::2]] == [b"l%3A1:b%3Ab", b"l%3A1:%25"]
    assert [each.rounds for each in changed] == headers()["rounds"].tolist()
    assert [each.provisional for each in changed] == [False, False, True, True]
    ids = {each.event_id for each in published(ladder="l")[0]}
    ids |= {each.event_id for each in published(structs.replace(VOIDED, offset=4))[0]}
    assert len(ids) == 2 * len(PLAYERS)
    assert all(each.count(b":") == 3 for each in ids)


@cases("floor", [None, 1450.0])
def test_ratings_are_those_of_rounds(floor: float | None) -> None:
    """By the ladder's rule, bit for bit: a later round's event begins where this one ends."""
    rule = rule_of(EloMMR(weight_limit=0.2, sigma_limit=80.0, floor=floor))
    _, changed = published(rule=rule)
    of, header = np.zeros(len(PLAYERS), np.int64), headers()
    for prefix in ("", "previous_"):
        shown = ratings([rule], of, header[f"{prefix}mu"], header[f"{prefix}sigma"]).tolist()
        assert [getattr(each, f"{prefix}rating") for each in changed] == shown
