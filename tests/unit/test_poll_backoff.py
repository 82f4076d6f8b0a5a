"""When the estimator polls and how long, when sending rests, and what it asks for with a cache."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stream_rater.adapters.local_driver import LocalDriver, estimator_worker, updater_worker
from stream_rater.adapters.memory import Log, Store
from stream_rater.columns.sharding import shards_of
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.correction_ports import ReadAgain
from stream_rater.pipeline.estimator import progress as module
from stream_rater.pipeline.estimator.belief_cache import CACHE_BYTES, BeliefCache
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.estimator.priors import POSITIONS_EVERY_S
from stream_rater.pipeline.estimator.progress import BUSY_S, FEW_ROUNDS, GATHER_S
from stream_rater.pipeline.ports import (
    CommitSource,
    Effect,
    LogStarts,
    Poll,
    Polled,
    Position,
    ReadBeliefs,
    ReadPriors,
    Scatter,
    StoredShard,
)
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.runtime.embedded import Machine, _start
from tests.builders.machines import ByHand, Recorder
from tests.builders.pending import pending_of
from tests.unit.test_estimator import (
    SHARDS,
    ZERO,
    by_hand,
    owning,
    parts_sent,
    priors,
    read,
    round_at,
)


def test_how_long_polls_wait() -> None:
    """They slow down while waiting in vain, from a millisecond to the idle time. They gather while
    many small rounds come: after a wave of many rounds, not after one of few."""
    hand = by_hand(Recorder())
    owning(hand, 0, ends=(5, 5))
    read(hand, round_at(0, "a", "b"))
    timeouts = []
    for _ in range(1200):
        priors(hand, applied=4)
        timeouts.append(hand.answer(Poll, Polled(0.0)).timeout_s)
    assert timeouts[0] == BUSY_S
    assert max(timeouts) == timeouts[-1] == 0.1
    assert timeouts == sorted(timeouts)
    hand = by_hand(Recorder(), wave_players=100)
    owning(hand, 0)
    gathered = []
    offset = 0
    for count in (FEW_ROUNDS, FEW_ROUNDS + 1, FEW_ROUNDS):
        rounds = [round_at(offset + i, f"{offset + i}x", f"{offset + i}y") for i in range(count)]
        offset += count
        gathered.append(hand.answer(Poll, Polled(0.0, records=rounds)).gather_s)
        priors(hand)
        parts_sent(hand, *range(len(hand.expect(Scatter).parts)))
        hand.answer(CommitSource)
    gathered.append(hand.expect(Poll).gather_s)
    assert gathered == [0.0, 0.0, GATHER_S, 0.0]


# --- while the store is behind ---


def send_pair(
    hand: ByHand, number: int, now_s: float = 0.0, names: Sequence[str] | None = None
) -> None:
    """A wave of one round of two newcomers, whose parts are at this offset."""
    names = names or [f"x{number}", f"y{number}"]
    read(hand, round_at(number, *names), now_s=now_s)
    priors(hand)
    parts_sent(hand, *[number] * len(np.unique(shards_of(names, SHARDS))))
    hand.answer(CommitSource)


def test_waves_are_few_and_large_while_the_store_is_behind() -> None:
    """What comes while two are not seen applied makes one together, once the first is. A store that
    stays behind holds nobody up for long: as where one shard is refused, and its neighbours have
    long applied their parts."""
    hand = by_hand(Recorder(), wave_players=2 * module.WAVES_IN_FLIGHT)
    owning(hand, 0)
    for i in range(2 * module.WAVES_IN_FLIGHT):  # until they have as many players as two full ones
        send_pair(hand, i)
    read(hand, round_at(98, "a", "b"))
    assert not any(priors(hand, applied=0).players.values())
    read(hand, round_at(99, "c", "d"))
    assert not any(priors(hand, applied=1).players.values())
    read(hand)
    assert sum(map(len, priors(hand, applied=1).players.values())) == 4
    hand = by_hand(Recorder(), wave_players=2)
    owning(hand, 0)
    for i in range(module.WAVES_IN_FLIGHT):
        send_pair(hand, i, now_s=10.0)
    read(hand, round_at(2, "a", "b"), now_s=10.0 + module.LONGEST_IN_FLIGHT_S)
    assert not any(priors(hand, applied=0).players.values())
    read(hand, now_s=10.1 + module.LONGEST_IN_FLIGHT_S)
    assert sum(map(len, priors(hand, applied=0).players.values())) == 2


def test_polls_do_not_wait_between_pieces_of_a_correction() -> None:
    """Though no round waits. Its record is at offset 1, and is refused in the end."""
    hand = by_hand(Recorder())
    owning(hand, 0)
    value, kind = b'{"ladder": "ladder-0", "round_id": "r7"}', b"round-voided"
    read(hand, Record(0, 1, value, ((EVENT_TYPE, kind),), received_s=4e9))
    hand.answer(LogStarts, {0: 0})
    hand.answer(ReadAgain, [round_at(0, "a", "b")])
    assert hand.answer(Poll, Polled(0.0)).timeout_s == BUSY_S
    hand.answer(ReadAgain, [])
    assert hand.answer(Poll, Polled(0.0)).timeout_s == BUSY_S
    hand.answer(CommitSource)
    assert [hand.answer(Poll, Polled(0.0)).timeout_s for _ in range(2)] == [BUSY_S, 0.1]


def test_polls_do_not_wait_while_many_rounds_can_go_on() -> None:
    """Their players' beliefs are cached. A few rounds that wait are not worth a wave of their
    own."""
    hand = by_hand(Recorder(), wave_players=100, cache_bytes=CACHE_BYTES)
    owning(hand, 0)
    crowd = [(f"x{i}", f"y{i}") for i in range(FEW_ROUNDS + 1)]
    waits = []
    for number, again in enumerate((crowd[:2], crowd)):
        first = 100 * number
        rounds = [round_at(first + i, *pair) for i, pair in enumerate([*crowd, *again])]
        read(hand, *rounds, now_s=float(number))
        while not isinstance(hand.effect, Poll):
            answered(hand)
        waits.append((hand.expect(Poll).timeout_s, hand.expect(Poll).gather_s))
        while hand.expect(Poll).timeout_s != 0.1:
            read(hand, now_s=float(number))
            while not isinstance(hand.effect, Poll):
                answered(hand)
    assert waits == [(BUSY_S, GATHER_S), (0.0, 0.0)]


def answered(hand: ByHand) -> None:
    """All goes well: all players are new, or cached."""
    if isinstance(hand.effect, ReadBeliefs):
        asked = hand.effect.players.items()
        found = {s: StoredShard(Position(2**20), [None] * len(players)) for s, players in asked}
        hand.answer(ReadBeliefs, found)
    elif isinstance(hand.effect, ReadPriors):
        priors(hand, applied=2**20)
    elif isinstance(hand.effect, Scatter):
        parts_sent(hand, *range(len(hand.effect.parts)))
    else:
        hand.answer(CommitSource)


# --- beliefs that are cached ----------------------------------------------------------------------


@pytest.fixture
def hand() -> ByHand:
    """An estimator at its first poll."""
    return by_hand(Recorder(), cache_bytes=CACHE_BYTES)


def whole(hand: ByHand, *records: bytes | None, applied: int = 0) -> list[str]:
    """Answer with the whole records of those who were asked for in shard 0; returns who."""
    asked = hand.expect(ReadBeliefs).players[0]
    hand.answer(ReadBeliefs, {0: StoredShard(Position(applied), records or [None] * len(asked))})
    return [player for _, player in asked]


def sent(hand: ByHand, *offsets: int) -> list[bytes]:
    """All parts are acknowledged, and the offset is committed; returns the parts."""
    parts = parts_sent(hand, *offsets).parts
    hand.answer(CommitSource)
    return [part for _, part in parts]


def test_next_round_does_not_wait(hand: ByHand) -> None:
    """The belief of its player is computed when all parts are acknowledged; nobody asks the store
    for it, and the parts are those of a worker that waited. Positions are read once in a while,
    else the rows in flight would seem to grow for ever."""
    rounds = [round_at(i, ZERO[0], ZERO[1 + i]) for i in range(3)]
    owning(hand, 0)
    found = []
    for i, each in enumerate(rounds):
        read(hand, each)
        assert whole(hand) == ([ZERO[0], ZERO[1]] if i == 0 else [ZERO[1 + i]])
        found += sent(hand, 7 + i)
    assert found == one_after_the_other(rounds)
    hand = by_hand(Recorder(), cache_bytes=CACHE_BYTES)
    owning(hand, 0)
    read(hand, round_at(0, ZERO[0], ZERO[1]), now_s=5.0)
    whole(hand)
    sent(hand, 7)
    read(hand, round_at(1, ZERO[0], ZERO[1]), now_s=5.0 + 2 * POSITIONS_EVERY_S)
    assert whole(hand, applied=8) == []
    sent(hand, 8)


def _turn(
    worker: LocalDriver, machine: Machine, effect: Effect[Any], now_s: float
) -> tuple[LocalDriver, Machine, Effect[Any]]:
    worker.now_s += now_s
    return worker, machine, machine.send(worker.perform(effect))


def one_after_the_other(rounds: Sequence[Record]) -> list[bytes]:
    """The parts of these rounds, if each is read once the one before is applied."""
    log, store = Log(1, SHARDS), Store()
    estimator = Estimator(ANY_LADDER, SHARDS, 1, cache_bytes=0)
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


def records_of(pending: PendingRounds, *texts: str) -> StringColumn:
    assert len(texts) == pending.count
    return StringColumn.of_bytes([each.encode() for each in texts])


def found(cache: BeliefCache, pending: PendingRounds) -> list[str | None]:
    known, records = cache.find(pending)
    texts = [each.decode() for each in records.strings()]
    return [text if flag else None for flag, text in zip(known.tolist(), texts, strict=True)]


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
