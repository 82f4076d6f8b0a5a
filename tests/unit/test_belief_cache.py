"""Beliefs that an estimator caches: what it asks for then, what it sends, when it drops them."""

import numpy as np
import pytest

from stream_rater.columns.strings import StringColumn
from stream_rater.contract.errors import LogTrouble
from stream_rater.pipeline import ports
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.priors import (
    CACHE_BYTES,
    POSITIONS_EVERY_S,
    BeliefCache,
    PriorReader,
)
from stream_rater.pipeline.estimator.progress import Progress
from stream_rater.pipeline.ports import Poll, Polled, Position, ReadBeliefs, StoredShard
from tests.builders.machines import NOWHERE, ByHand, Recorder, pending_of
from tests.unit.test_estimator import (
    ZERO,
    a_round,
    by_hand,
    opened,
    owning,
    parts_sent,
    priors,
    read,
)


@pytest.fixture
def hand() -> ByHand:
    return by_hand(Recorder(), cache_bytes=CACHE_BYTES)


def whole(hand: ByHand, *records: bytes | None, applied: int = 0) -> list[str]:
    """Answer with the whole records of those who were asked for in shard 0; returns who."""
    asked = hand.expect(ReadBeliefs).players[0]
    hand.answer(ReadBeliefs, {0: StoredShard(Position(applied), records or [None] * len(asked))})
    return [player for _, player in asked]


def sent(hand: ByHand, *offsets: int) -> list[bytes]:
    """All parts are acknowledged, and the offset is committed; returns the parts."""
    parts = parts_sent(hand, *offsets).parts
    hand.answer(ports.CommitSource)
    return [part for _, part in parts]


def test_positions_are_read_once_in_a_while(hand: ByHand) -> None:
    """Else the rows in flight would seem to grow for ever."""
    owning(hand, 0)
    read(hand, a_round(0, ZERO[0], ZERO[1]), now_s=5.0)
    whole(hand)
    sent(hand, 7)
    read(hand, a_round(1, ZERO[0], ZERO[1]), now_s=5.0 + 2 * POSITIONS_EVERY_S)
    assert whole(hand, applied=8) == []
    sent(hand, 8)


def test_what_is_cached_is_dropped_after_a_failure(hand: ByHand) -> None:
    """The store is asked, once it is there. (A lost partition: `cached-after-loss`.)"""
    owning(hand, 0, 1)
    read(hand, a_round(0, ZERO[0], ZERO[1]), a_round(1, ZERO[0], ZERO[2]))
    whole(hand)
    sent(hand, 7)
    hand.fail(Poll, LogTrouble("away"))
    hand.answer(Poll, Polled(0.0))
    hand.answer(ports.NewProducer)
    opened(hand, committed={0: 1, 1: 0}, ends=(8, 0))
    read(hand, a_round(1, ZERO[0], ZERO[2]))
    assert priors(hand, applied=7).players == {0: ()}
    read(hand)
    priors(hand, applied=8)
    read(hand)
    assert whole(hand, applied=8) == [ZERO[0], ZERO[2]]


def test_nobody_runs_ahead_for_ever() -> None:
    """Rows in parts that were not seen applied are bounded, however few the players are."""
    hand = by_hand(Recorder(), wave_players=2, cache_bytes=CACHE_BYTES, rows_in_flight=3)
    owning(hand, 0)
    read(hand, *(a_round(i, ZERO[0], ZERO[1]) for i in range(4)), now_s=1.0)
    whole(hand)
    sent(hand, 7)
    read(hand, now_s=7.0)
    assert whole(hand, applied=7) == []
    sent(hand, 8)
    read(hand, now_s=8.0)
    assert priors(hand, applied=7).players == {0: ()}
    read(hand, now_s=9.0)
    assert priors(hand, applied=8).players == {0: ()}
    read(hand, now_s=10.0)
    assert whole(hand, applied=8) == []
    parts_sent(hand, 9)


def records_of(pending: PendingRounds, *texts: str) -> StringColumn:
    assert len(texts) == pending.count
    return StringColumn.of_bytes([each.encode() for each in texts])


def found(cache: BeliefCache, pending: PendingRounds) -> list[str | None]:
    """What is cached of each player."""
    known, records = cache.find(pending)
    texts = [each.decode() for each in records.strings()]
    return [text if flag else None for flag, text in zip(known.tolist(), texts, strict=True)]


def test_a_record_of_another_version_does_not_count() -> None:
    """It is decoded with the others of its shard."""
    pending, progress = pending_of([2]), Progress(3)
    reader = PriorReader(3, Recorder())
    steps = reader.read_with_cache(pending, BeliefCache(CACHE_BYTES), progress, 1.0, 0.0)
    asked = next(steps)
    assert isinstance(asked, ReadBeliefs)
    unknown = b"\x63" + bytes(200)
    answer = {s: StoredShard(NOWHERE, [unknown] * len(who)) for s, who in asked.players.items()}
    with pytest.raises(StopIteration) as done:
        steps.send(answer)
    assert not done.value.value.usable.any()


def test_a_ladder_is_dropped_whole() -> None:
    """Others stay. What is cached of the ladder later is found again."""
    one, other = pending_of([2]), pending_of([2], ladders=["other"]).piece(0, 1)
    cache = BeliefCache(CACHE_BYTES)
    cache.put(one, records_of(one, "1", "2"))
    cache.put(other, records_of(other, "3"))
    cache.drop_ladder("ladder")
    assert not cache.may_contain(one.fingerprints).any()
    assert found(cache, one) + found(cache, other) == [None, None, "3"]
    cache.put(one, records_of(one, "4", "5"))
    cache.drop_ladder("none")
    assert found(cache, one) + found(cache, other) == ["4", "5", "3"]
    cache.clear()
    assert found(cache, one) + found(cache, other) == [None, None, None]
    assert not np.any(cache.may_contain(one.fingerprints))
