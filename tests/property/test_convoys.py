"""A convoy does to its shards what its rows do one by one: the same records, events and flags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.columns.strings import StringColumn
from stream_rater.contract.events import RatingChanged, joined, to_json
from stream_rater.contract.record import Record, Trace
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.pipeline.parts.correction_parts import CorrectionPart
from stream_rater.pipeline.parts.decoder import PartView
from stream_rater.pipeline.parts.schema import RoundInPart
from stream_rater.pipeline.parts.seed_parts import SeedPart
from stream_rater.pipeline.ports import Event, Position, StoredShard
from stream_rater.pipeline.updater import changes
from stream_rater.pipeline.updater.shard import Shard, ShardBatch, next_batches
from stream_rater.rating import record, stages
from stream_rater.rating.model import Beliefs
from stream_rater.rating.parameters import EloMMR, EloR, Glicko
from stream_rater.rating.stages import RatingRule, rule_of

SPREAD: dict[str, Any] = {"weight_limit": 0.2, "sigma_limit": 80.0}
RULES = [
    rule_of(each)
    for each in (
        EloMMR(**SPREAD),
        EloMMR(**SPREAD, initial_mu=1000.0, initial_sigma=200.0, history=2, rho=0.5),
        EloMMR(**SPREAD, initial_mu=-700.0, floor=100.0, display="mu", provisional_rounds=2),
        EloR(history=3),
        Glicko(beta=200.0, sigma_drift=35.0),
    )
]
LADDERS = ("a", "b:c", "ω", 'd"\n', "e")
"""One for each of them."""
PLAYERS = ("ann", "bob", "Straße", "100%", "x{y}", "tab\t")
LAST = 5
"""Offset of the last round of whoever has played."""


def advanced(
    rule: RatingRule, beliefs: Beliefs, offset: int, time: int, evidence: Sequence[float]
) -> None:
    """One round more of one player."""
    row, zero = np.zeros(1, np.int64), np.zeros(1, np.int64)
    stages.update(beliefs, row, np.array([evidence]), [rule], zero)
    stages.record_round(beliefs, row, np.array([offset]), np.array([time]))


def known(rule: RatingRule, rounds: int) -> bytes | None:
    """The record of who has played so often, the last time at LAST."""
    if rounds == 0:
        return None
    beliefs = record.decode([None], rule.kept + 1, rule.initial_mu, rule.initial_sigma)
    for i in range(rounds):
        advanced(rule, beliefs, LAST - rounds + 1 + i, 1000 * i, (1500.0 + 90.0 * i, 4e4, 1e3))
    return record.encode(beliefs)[0]


RECORDS = [[known(rule, rounds) for rounds in (0, 1, 2, 4)] for rule in RULES]


@dataclass(frozen=True)
class Row:
    """A player in a round."""

    ladder: int
    player: str
    offset: int
    place: int
    performance: float
    rounds: int
    traced: bool

    @property
    def stored(self) -> bytes | None:
        return RECORDS[self.ladder][self.rounds]

    @property
    def evidence(self) -> tuple[float, float, float]:
        return self.performance, 3e4 + self.performance, 900.0

    @property
    def round(self) -> RoundInPart:
        trace = Trace(f"00-{1 + self.offset:032x}-{1:016x}-01", "a=b") if self.traced else None
        time, ladder = 100 * self.offset, LADDERS[self.ladder]
        return RoundInPart(self.offset, 0, time, f"r%{self.offset}", ladder, f"t{time}", trace)


rows = st.builds(
    Row,
    st.integers(0, len(RULES) - 1), st.sampled_from(PLAYERS), st.integers(LAST - 1, LAST + 2),
    st.integers(0, 3), st.sampled_from([-300.0, 1500.0, 1600.1, 2800.25]), st.integers(0, 3),
    st.booleans(),
)  # fmt: skip
batches = st.lists(rows, max_size=9, unique_by=lambda row: (row.ladder, row.player))
"""Of one shard."""


def part(of: Sequence[Row]) -> bytes:
    """Their laws in the order in which they come."""
    rules = list(dict.fromkeys(RULES[row.ladder] for row in of))
    rounds = dict.fromkeys(row.round for row in of)
    own = {each.ladder: rules.index(RULES[LADDERS.index(each.ladder)]) for each in rounds}
    numbers = {each: i for i, each in enumerate(rounds)}
    with_laws = [
        RoundInPart(e.offset, own[e.ladder], e.time, e.round_id, e.ladder, e.completed_at, e.trace)
        for e in rounds
    ]
    return schema.encode(
        schema.Part(
            rules=rules,
            rounds=with_laws,
            round_index=np.array([numbers[row.round] for row in of], np.int64),
            place=np.array([row.place for row in of], np.int32),
            evidence=np.array([row.evidence for row in of]).reshape(-1, 3),
            names=StringColumn.of([row.player for row in of]),
        )
    )


def alone(shard: int, row: Row) -> tuple[bytes, Event] | None:
    """What comes of one row, by the plainest means; nothing, if it is not fresh."""
    rule, of = RULES[row.ladder], row.round
    beliefs = record.decode([row.stored], rule.kept + 1, rule.initial_mu, rule.initial_sigma)
    if row.offset <= beliefs.header["last"][0]:
        return None
    advanced(rule, beliefs, row.offset, of.time, row.evidence)
    header = beliefs.header[0]
    mu, sigma, previous_mu, previous_sigma = (
        float(header[name]) for name in ("mu", "sigma", "previous_mu", "previous_sigma")
    )
    event_id, count = joined(of.ladder, of.round_id, row.player), int(header["rounds"])
    changed = RatingChanged(
        event_id=event_id, ladder=of.ladder, player=row.player, round_id=of.round_id,
        completed_at=of.completed_at, rank=row.place or None, mu=mu, sigma=sigma,
        previous_mu=previous_mu, previous_sigma=previous_sigma, performance=row.performance,
        rating=rule.rating(mu, sigma), previous_rating=rule.rating(previous_mu, previous_sigma),
        rounds=count, provisional=count < rule.provisional_rounds, offset=row.offset,
    )  # fmt: skip
    key = joined(of.ladder, row.player).encode()
    event = Event(shard, key, to_json(changed), event_id.encode(), of.completed_at, of.trace)
    return record.encode(beliefs)[0], event


class OfAnybody(Shard):
    """A shard that takes every player for its own."""

    __slots__ = ()

    def _is_home(self, part: PartView | CorrectionPart | SeedPart, shard: int) -> bool:
        return True


def convoy_of(
    wanted: Mapping[int, Sequence[Row]], cuts: Sequence[int], together: bool
) -> ShardBatch:
    """Each shard's rows in parts of these sizes, in turn; read together or one by one."""
    records = []
    for number, some in wanted.items():
        first = offset = 0
        while first < len(some) or offset == 0:
            last = first + cuts[(number + offset) % len(cuts)]
            records.append(Record(number, offset, part(some[first:last])))
            first, offset = last, offset + 1
    pieces = decoder.read_all([each.value or b"" for each in records])
    shards = {number: OfAnybody.at(Position(), 0, 1) for number in wanted}
    for each, piece in zip(records, pieces, strict=True):
        assert piece is not None
        shards[each.partition].read(each, part=piece if together else None)
    (batch,) = next_batches(shards, 1000)
    assert not any(shard.barrier or shard.queue for shard in shards.values())
    return batch


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 9), batches, min_size=1, max_size=4), st.data())
def test_a_convoy_does_what_its_rows_do(wanted: dict[int, list[Row]], data: st.DataObject) -> None:
    """A batch gives the same beliefs and events as its rows one by one. This holds for all laws,
    newcomers, stale rows, shards and parts. The events built again are the same, too."""
    cuts = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    batch = convoy_of(wanted, cuts, data.draw(st.booleans()))
    asked = {s: list(roster) for s, roster in batch.players.items()}
    assert asked == {s: [(LADDERS[r.ladder], r.player) for r in own] for s, own in wanted.items()}
    stored = {s: StoredShard(Position(7), [row.stored for row in own]) for s, own in wanted.items()}
    done = changes.compute_changes(batch, stored)
    assert list(done) == list(wanted)
    for change, (shard, own) in zip(done.values(), wanted.items(), strict=True):
        found = [(row, alone(shard, row)) for row in own]
        fresh = [(row, made) for row, made in found if made is not None]
        flags = np.packbits(np.array([made is not None for _, made in found], np.bool_))
        position = replace(change.position, tail=None)
        assert position == Position(batch.ends[shard], 7, flags.tobytes())
        assert (change.rows, change.fresh) == (len(own), len(fresh))
        assert list(change.beliefs) == [
            ((LADDERS[row.ladder], row.player), new) for row, (new, _) in fresh
        ]
        assert list(change.events) == [event for _, (_, event) in fresh]
        new = dict(change.beliefs)
        left = [new.get(player, row.stored) for player, row in zip(asked[shard], own, strict=True)]
        again = changes.build_events_again(
            shard, batch.take([shard]), StoredShard(change.position, left), 0
        )
        assert list(again) == list(change.events)
