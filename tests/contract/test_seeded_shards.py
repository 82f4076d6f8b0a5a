"""Calls that apply seeds and resets, on every store: the last one's events can be built again."""

from collections.abc import Sequence

from stream_rater.contract.seeds import RESET, SEEDED
from stream_rater.pipeline.parts.seed_parts import SeedPart
from stream_rater.pipeline.ports import VANISHED, Apply, ReadBeliefs, StoredShard
from stream_rater.pipeline.updater.changes import Change
from stream_rater.pipeline.updater.seeded_changes import build_seed_events_again, compute_seeds
from tests.builders.seeding import seed_part
from tests.contract.rigs import Performer
from tests.contract.test_store import sqlite_store, store  # noqa: F401 - fixtures
from tests.unit.test_seeded_changes import batch_of, belief

SHARD = 0


def stored(at: Performer, part: SeedPart) -> StoredShard:
    """What a shard has of the players of a part."""
    found = at.perform(ReadBeliefs({SHARD: part.column}))[SHARD]
    return StoredShard(found.position, list(found.records))


def applied(at: Performer, part: SeedPart, offset: int) -> Change:
    """Apply the part in a record at this offset."""
    change = compute_seeds(batch_of(part, offset), {SHARD: stored(at, part)})[SHARD]
    assert at.perform(Apply({SHARD: change})) == {SHARD: True}
    return change


def again(at: Performer, part: SeedPart, offset: int) -> Sequence[bytes]:
    """The events of the last call, which applied the part in a record at this offset."""
    call = batch_of(part, offset)
    return [each.value for each in build_seed_events_again(SHARD, call, stored(at, part), offset)]


def test_seeds_and_resets_follow_each_other(store: Performer) -> None:  # noqa: F811
    """Three players are seeded, two of them again with a fourth one, then two are reset. A player
    who is never seeded has no belief."""
    first, second = seed_part((3, "abc")), seed_part((5, "bcd"), mu=1200.0)
    reset = seed_part((8, "ade"), kind=RESET, mu=1600.0, sigma=200.0)
    for offset, part, players in ((0, first, "abc"), (1, second, "d"), (2, reset, "ad")):
        change = applied(store, part, offset)
        assert [player for (_, player), _ in change.beliefs] == list(players)
        assert stored(store, part).position == change.position
        assert again(store, part, offset) == [each.value for each in change.events]
    assert stored(store, reset).records[2] is None
    assert applied(store, seed_part((8, "bc")), 3).position.applied == 4
    assert again(store, seed_part((8, "bc")), 3) == [], "this one changed nothing"


def test_a_belief_that_vanishes_is_noticed(store: Performer) -> None:  # noqa: F811
    """A call counts the beliefs that were absent among those that it writes. Another number shows
    that somebody has deleted some."""
    for shard, kind, rounds in ((0, SEEDED, 0), (1, RESET, 4)):
        part, had = seed_part((3, "ab"), kind=kind), belief(rounds=rounds, last=1)
        position = store.perform(ReadBeliefs({shard: part.column}))[shard].position
        change = compute_seeds(batch_of(part), {SHARD: StoredShard(position, [had, had])})[SHARD]
        assert store.perform(Apply({shard: change})) == {shard: False}, kind
        found = store.perform(ReadBeliefs({shard: part.column}))[shard]
        assert found.position.applied == VANISHED, kind
