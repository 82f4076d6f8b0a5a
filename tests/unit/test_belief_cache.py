"""Beliefs that an estimator holds: what it asks for then, what it sends, and when it drops them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stream_rater.adapters.local_driver import LocalDriver, estimator_worker, updater_worker
from stream_rater.adapters.memory import Log, Store
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import Record
from stream_rater.pipeline.estimator import priors as prior_reading
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.estimator.priors import BeliefCache
from stream_rater.pipeline.ports import (
    CommitSource,
    Effect,
    NewProducer,
    Poll,
    Polled,
    Position,
    ReadBeliefs,
    StoredShard,
)
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.runtime.embedded import Machine, _start
from tests.unit.machines import ByHand, Recorder
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
    """An estimator at its first poll."""
    return by_hand(Recorder())


def whole(hand: ByHand, *records: bytes | None, applied: int = 0) -> list[str]:
    """Answer with the whole records of those who were asked for in shard 0; returns who."""
    asked = hand.expect(ReadBeliefs).players[0]
    hand.answer(ReadBeliefs, {0: StoredShard(Position(applied), records or [None] * len(asked))})
    return [player for _, player in asked]


def test_next_round_does_not_wait_if_somebody_saw_it_coming(hand: ByHand) -> None:
    """Its player's belief is computed when all parts are acknowledged; nobody asks the store for
    it, and the parts are those of a worker that waited."""
    rounds = [a_round(i, ZERO[0], ZERO[1 + i]) for i in range(3)]
    owning(hand, 0)
    read(hand, *rounds)
    assert whole(hand) == [ZERO[0], ZERO[1]]
    first = parts_sent(hand, 7)
    hand.answer(CommitSource)
    read(hand)
    assert whole(hand) == [ZERO[2]]
    second = parts_sent(hand, 8)
    hand.answer(CommitSource)
    read(hand)
    assert whole(hand) == [ZERO[3]]
    third = parts_sent(hand, 9)
    sent = [part for each in (first, second, third) for _, part in each.parts]
    assert sent == one_after_the_other(rounds)


def _turn(
    worker: LocalDriver, machine: Machine, effect: Effect[Any], now_s: float
) -> tuple[LocalDriver, Machine, Effect[Any]]:
    worker.now_s += now_s
    return worker, machine, machine.send(worker.perform(effect))


def one_after_the_other(rounds: Sequence[Record]) -> list[bytes]:
    """The parts of these rounds, if each is read once the one before is applied."""
    log, store = Log(1, SHARDS), Store()
    estimator = Estimator(ANY_LADDER, SHARDS, 1)
    machines = [
        _start(estimator_worker(log, store), estimator.run()),
        _start(updater_worker(log, store), Updater(SHARDS).run()),
    ]
    for group, (worker, _, _) in zip((log.estimators, log.updaters), machines, strict=True):
        group.assign([worker])
    for each in rounds:
        log.submit(0, each.value or b"", received_s=4e9)
        for now_s in range(100):
            machines = [_turn(*machine, now_s) for machine in machines]
    return [record.value or b"" for some in log.parts for record in some]


@pytest.mark.parametrize("lost", [True, False])
def test_what_is_cached_is_dropped(hand: ByHand, lost: bool) -> None:
    """With a lost partition, and after a failure: the store is asked, once it is there."""
    owning(hand, 0, 1)
    read(hand, a_round(0, ZERO[0], ZERO[1]), a_round(1, ZERO[0], ZERO[2]))
    whole(hand)
    parts_sent(hand, 7)
    hand.answer(CommitSource)
    if lost:
        hand.answer(Poll, Polled(0.0, lost=frozenset([1])))
        assert priors(hand, applied=7).players == {0: ()}
    else:
        hand.fail(Poll, LogTrouble("away"))
        hand.answer(Poll, Polled(0.0))
        hand.answer(NewProducer)
        opened(hand, committed={0: 1, 1: 0}, ends=(8, 0))
        read(hand, a_round(1, ZERO[0], ZERO[2]))
        priors(hand, applied=7)
    read(hand)
    asked = priors(hand, applied=8).players[0]
    if not asked:
        read(hand)
        asked = priors(hand, applied=8).players[0]
    assert [name for _, name in asked] == [ZERO[0], ZERO[2]]


def test_a_shard_that_went_back_stops_those_who_are_cached(hand: ByHand) -> None:
    """Until it has caught up: nobody runs ahead of a store that lost what was applied."""
    owning(hand, 0)
    read(hand, a_round(0, ZERO[0], ZERO[1]), a_round(1, ZERO[0], ZERO[2]))
    whole(hand, applied=5)
    parts_sent(hand, 7)
    hand.answer(CommitSource)
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
    hand = by_hand(Recorder(), wave_players=2, rows_in_flight=3)
    owning(hand, 0)
    read(hand, *(a_round(i, ZERO[0], ZERO[1]) for i in range(4)), now_s=1.0)
    whole(hand)
    parts_sent(hand, 7)
    hand.answer(CommitSource)
    read(hand, now_s=7.0)
    assert whole(hand, applied=7) == []
    parts_sent(hand, 8)
    hand.answer(CommitSource)
    read(hand, now_s=8.0)
    assert priors(hand, applied=7).players == {0: ()}
    read(hand, now_s=9.0)
    assert priors(hand, applied=8).players == {0: ()}
    read(hand, now_s=10.0)
    assert whole(hand, applied=8) == []
    parts_sent(hand, 9)


def test_hashes_that_collide_let_nobody_pass() -> None:
    """The cache compares ladders and ids. A round that a colliding hash lets into a wave waits."""
    cache, mark = BeliefCache(), np.array([2**63 + 1], np.uint64)
    one, other = ("x", "a"), ("x", "b")
    cache.put([one], mark, [b"1"])
    assert cache.may_contain(mark).all()
    assert cache.records([one], mark) + cache.records([other], mark) == [b"1", None]
    cache.put([other], mark, [b"2"])
    assert cache.records([one], mark) + cache.records([other], mark) == [None, b"2"]
    cache.drop(mark)  # a round of either
    assert not cache.may_contain(mark).any() and len(cache) == 0
    cache.put([one], mark, [b"3"])
    assert cache.records([one], mark) + cache.records([other], mark) == [b"3", None]


def test_what_the_store_has_is_dropped_when_much_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Players with a pending part stay in the cache."""
    monkeypatch.setattr(prior_reading, "MOST_CACHED", 2)
    cache = BeliefCache()
    marks = np.arange(1, 4, dtype=np.uint64)
    cache.put([("x", name) for name in "abc"], marks, [b"1", b"2", b"3"])
    cache.trim(lambda players: players == 2)
    assert cache.records([("x", name) for name in "abc"], marks) == [None, b"2", None]
