"""The updater's cache of records, its effects answered by hand: what is read, and what is not."""

from collections.abc import Sequence

import numpy as np
import pytest

from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.pipeline import ports
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.updater import record_cache
from stream_rater.pipeline.updater.record_cache import RecordCache
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.rating.record import headers_of
from tests.builders.machines import NOWHERE, ByHand, names, opened, part, record

MIB = 2**20
LETTERS = "abcdefghijkl"


class Counts(Observer):
    def __init__(self) -> None:
        self.hits = self.misses = self.evicted = self.bytes_used = 0

    def records_looked_up(self, cached: int, read: int) -> None:
        self.hits += cached
        self.misses += read

    def records_cached(self, evicted: int, bytes_used: int) -> None:
        self.evicted += evicted
        self.bytes_used = bytes_used


def started(shards: int = 1, cache_bytes: int = MIB) -> tuple[ByHand, Counts]:
    """An updater that has opened all shards, and what it reports."""
    counts = Counts()
    hand = ByHand(Updater(shards, observer=counts, cache_bytes=cache_bytes).run())
    hand.answer(ports.Poll, ports.Polled(0.0, gained=frozenset(range(shards))))
    every = range(shards)
    opened(hand, dict.fromkeys(every, NOWHERE), dict.fromkeys(every, 0))
    hand.answer(ports.Seek)
    return hand, counts


def come(hand: ByHand, offset: int, *parts: Part) -> None:
    records = [record(offset, each, shard) for shard, each in enumerate(parts)]
    hand.answer(ports.Poll, ports.Polled(0.0, records=records))


def asked(hand: ByHand) -> dict[int, str]:
    """By shard, the letters of the players that are read now."""
    return {shard: names(each) for shard, each in hand.expect(ports.ReadBeliefs).players.items()}


def answer(
    hand: ByHand, records: Sequence[bytes | None], position: ports.Position = NOWHERE
) -> None:
    """The players of shard 0 that are read have these records."""
    hand.answer(ports.ReadBeliefs, {0: ports.StoredShard(position, records)})


def applied(hand: ByHand) -> dict[int, ports.Application]:
    calls = hand.expect(ports.Apply).applications
    hand.answer(ports.Apply, dict.fromkeys(calls, True))
    hand.answer(ports.Publish)
    return dict(calls)


def rounds_of(call: ports.Application) -> dict[str, int]:
    """The number of rounds in each record that a call wrote, by the player's letter."""
    header = headers_of([data for _, data in call.beliefs])
    return dict(zip(names(call.beliefs.players), header["rounds"].tolist(), strict=True))


def test_what_was_written_is_not_read() -> None:
    """A player's next round begins with the cached record, without a question to the store."""
    hand, counts = started()
    come(hand, 0, part((5, "ab")))
    assert asked(hand) == {0: "ab"}
    answer(hand, [None, None])
    assert rounds_of(applied(hand)[0]) == {"a": 1, "b": 1}
    come(hand, 1, part((6, "ba")))
    call = hand.expect(ports.Apply).applications[0]
    assert (call.position.start, call.absent) == (1, 0)
    assert rounds_of(applied(hand)[0]) == {"b": 2, "a": 2}
    assert (counts.hits, counts.misses) == (2, 2)
    assert 0 < counts.bytes_used <= MIB


def test_shards_that_are_cached_in_part() -> None:
    """Only shards with a player who is not cached are read. One at another position is closed."""
    hand, _ = started(3)
    letters = [[each for each in LETTERS if shards_of([each], 3)[0] == s] for s in range(3)]
    come(hand, 0, *(part((5, own[0])) for own in letters))
    assert asked(hand) == {shard: own[0] for shard, own in enumerate(letters)}
    hand.answer(
        ports.ReadBeliefs, {shard: ports.StoredShard(NOWHERE, [None]) for shard in range(3)}
    )
    positions = {shard: call.position for shard, call in applied(hand).items()}
    come(hand, 1, *(part((6, "".join(own[: 1 + shard]))) for shard, own in enumerate(letters)))
    assert asked(hand) == {1: letters[1][1], 2: "".join(letters[2][1:3])}
    one, two = (
        ports.StoredShard(ports.Position(7, 1), [None]),
        ports.StoredShard(positions[2], [None, None]),
    )
    hand.answer(ports.ReadBeliefs, {1: one, 2: two})
    calls, (a, b, c, *_) = applied(hand), letters[2]
    assert rounds_of(calls[0]) == {letters[0][0]: 2}
    assert rounds_of(calls[2]) == {a: 2, b: 1, c: 1} and calls.keys() == {0, 2}
    opened(hand, {1: ports.Position(7, 1)}, {1: 1}, shards=3)


def test_without_memory_all_are_read() -> None:
    """The cache can be turned off. A player has a record on each ladder."""
    for ladder, more in (("b", dict[str, int]()), ("a", {"cache_bytes": 0})):
        hand, counts = started(**more)
        come(hand, 0, part((5, "a")))
        answer(hand, [None])
        position = applied(hand)[0].position
        come(hand, 1, part((6, "a"), ladder=ladder))
        assert asked(hand) == {0: "a"}, ladder
        answer(hand, [None], position)
        assert rounds_of(applied(hand)[0]) == {"a": 1}
        assert (counts.hits, counts.misses, counts.bytes_used == 0) == (0, 2, bool(more))


def test_ladders_are_numbered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a most number of ladders. Beyond it, nothing is found under another one's number."""
    monkeypatch.setattr(record_cache, "MOST_LADDERS", 2)
    cache = RecordCache(MIB)
    for ladder in "abcdefg":
        cache.put(1, BeliefColumn.of([((ladder, "x"), ladder.encode())]))
        every = PlayerColumn.of([(each, "x") for each in "abcdefg"])
        found = list(cache.find(np.full(len(every), 1), every))
        for (own, _), each in zip(every, found, strict=True):
            assert each in (None, own.encode())
