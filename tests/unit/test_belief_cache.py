"""Beliefs that an estimator caches: what it asks for then, what it sends, when it drops them."""

from collections.abc import Sequence

import numpy as np
import pytest

from stream_rater.adapters.local_driver import estimator_worker, updater_worker
from stream_rater.adapters.memory import Log, Store
from stream_rater.columns import player_map
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import Record
from stream_rater.pipeline import ports
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.estimator.priors import (
    CACHE_BYTES,
    POSITIONS_EVERY_S,
    BeliefCache,
    PriorReader,
)
from stream_rater.pipeline.estimator.progress import Progress
from stream_rater.pipeline.ports import Poll, Polled, Position, ReadBeliefs, StoredShard
from stream_rater.pipeline.updater.updater import Updater
from tests.builders.cases import cases
from tests.builders.machines import NOWHERE, ByHand, Recorder, pending_of
from tests.unit.test_ban_waves import Actor
from tests.unit.test_estimator import (
    SHARDS,
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


def test_next_round_does_not_wait(hand: ByHand) -> None:
    """The store is not asked for its player; the parts are those of a worker that waited."""
    rounds = [a_round(i, ZERO[0], ZERO[1 + i]) for i in range(3)]
    rounds.append(a_round(3, ZERO[0], ZERO[1]))
    owning(hand, 0)
    found = []
    for i, each in enumerate(rounds[:3]):
        read(hand, each)
        assert whole(hand) == ([ZERO[0], ZERO[1]] if i == 0 else [ZERO[1 + i]])
        found += sent(hand, 7 + i)
    read(hand, now_s=POSITIONS_EVERY_S / 2)
    read(hand, rounds[3], now_s=POSITIONS_EVERY_S / 2)
    assert found + sent(hand, 10) == one_after_the_other(rounds)


def test_positions_are_read_once_in_a_while(hand: ByHand) -> None:
    """Else the rows in flight would seem to grow for ever."""
    owning(hand, 0)
    read(hand, a_round(0, ZERO[0], ZERO[1]), now_s=5.0)
    whole(hand)
    sent(hand, 7)
    read(hand, a_round(1, ZERO[0], ZERO[1]), now_s=5.0 + 2 * POSITIONS_EVERY_S)
    assert whole(hand, applied=8) == []
    sent(hand, 8)


def one_after_the_other(rounds: Sequence[Record]) -> list[bytes]:
    """The parts of these rounds, if each is read once the one before is applied."""
    log, store = Log(1, SHARDS), Store()
    estimator, updater = estimator_worker(log, store), updater_worker(log, store)
    log.estimators.assign([estimator])
    log.updaters.assign([updater])
    machine = Estimator(ANY_LADDER, SHARDS, 1, cache_bytes=0).run()
    crew = [Actor(estimator, machine), Actor(updater, Updater(SHARDS).run())]
    for each in rounds:
        log.submit(0, each.value or b"", received_s=4e9)
        for _ in range(100):
            for actor in crew:
                actor.advance()
    return [record.value or b"" for some in log.parts for record in some]


@pytest.mark.parametrize("lost", [True, False])
def test_what_is_cached_is_dropped(hand: ByHand, lost: bool) -> None:
    """With a lost partition, and after a failure: the store is asked, once it is there."""
    owning(hand, 0, 1)
    read(hand, a_round(0, ZERO[0], ZERO[1]), a_round(1, ZERO[0], ZERO[2]))
    whole(hand)
    sent(hand, 7)
    if lost:
        hand.answer(Poll, Polled(0.0, lost=frozenset([1])))
    else:
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


def test_a_shard_that_went_back_stops_those_who_are_cached(hand: ByHand) -> None:
    """Until it has caught up: nobody runs ahead of a store that lost what was applied."""
    owning(hand, 0)
    read(hand, a_round(0, ZERO[0], ZERO[1]), a_round(1, ZERO[0], ZERO[2]))
    whole(hand, applied=5)
    sent(hand, 7)
    read(hand)
    assert whole(hand, applied=3) == [ZERO[2]]
    read(hand)
    assert priors(hand, applied=4).players == {0: ()}
    read(hand)
    assert priors(hand, applied=5).players == {0: ()}
    read(hand)
    assert whole(hand, applied=5) == [ZERO[2]]
    parts_sent(hand, 8)


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


def test_fingerprints_that_collide_let_nobody_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache compares ladders and ids. A round that a colliding hash lets into a wave waits."""
    whole, kept = player_map.fingerprints, player_map.IN_SHARD | player_map.TAKEN
    monkeypatch.setattr(player_map, "fingerprints", lambda *given: whole(*given) & kept)
    one = pending_of([2]).piece(0, 1)
    other = pending_of([2], ladders=["other"]).piece(0, 1)
    cache = BeliefCache(CACHE_BYTES)
    cache.put(one, records_of(one, "1"))
    assert cache.may_contain(other.fingerprints).all()
    assert found(cache, one) + found(cache, other) == ["1", None]
    cache.put(other, records_of(other, "2"))
    assert found(cache, one) + found(cache, other) == [None, "2"]
    cache.drop(one.fingerprints)  # a round of either
    assert not cache.may_contain(one.fingerprints).any() and len(cache) == 0


@cases("record, sent", [(b"\x63" + bytes(200), False), (None, True)])
def test_priors_that_do_not_count(record: bytes | None, sent: bool) -> None:
    """The shard has a record of another version, or a part with this fingerprint is pending."""
    pending, progress = pending_of([2]), Progress(3)
    order, cuts = pending.by_shard
    if sent:
        each_print = {shard: pending.fingerprints[order[where]] for shard, where in cuts}
        progress.sent(dict.fromkeys(each_print, 1), each_print)
    reader = PriorReader(3, Recorder())
    steps = reader.read_with_cache(pending, BeliefCache(CACHE_BYTES), progress, 1.0, 0.0)
    asked = next(steps)
    assert isinstance(asked, ReadBeliefs)
    answer = {s: StoredShard(NOWHERE, [record] * len(who)) for s, who in asked.players.items()}
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
