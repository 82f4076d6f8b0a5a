"""When priors are looked at again, when the estimator polls, and when sending pauses."""

from collections.abc import Sequence

import numpy as np

from stream_rater.columns.player_map import TAKEN, Fingerprints
from stream_rater.columns.sharding import shards_of
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.record import Record
from stream_rater.pipeline import ports
from stream_rater.pipeline.estimator import progress as module
from stream_rater.pipeline.estimator.priors import CACHE_BYTES
from stream_rater.pipeline.estimator.progress import (
    BUSY_S,
    FEW_ROUNDS,
    GATHER_S,
    Progress,
    most_rows_of,
)
from tests.builders.machines import ByHand, Recorder
from tests.unit import test_estimator as estimating

ANN, BOB = 1 << 20, 2 << 20


def crowd(*players: int) -> Fingerprints:
    """Fingerprints: a player's number, and the shard in the lowest bits."""
    return np.array(players, np.uint64) | TAKEN


def is_ready(progress: Progress, *players: int) -> bool:
    (ready,) = progress.ready(crowd(*players), np.array([len(players)])).tolist()
    return bool(ready)


def test_refused_shard_is_tried_again_later() -> None:
    """A belief that cannot be read holds up its shard only, and for a while only."""
    progress = Progress(2)
    progress.refuse(0, until_s=5.0)
    assert not progress.accept(0, 1)
    assert not is_ready(progress, ANN)
    assert is_ready(progress, ANN + 1)
    progress.retry(4.9)
    assert not is_ready(progress, ANN)
    progress.retry(5.0)
    assert is_ready(progress, ANN)
    assert progress.accept(0, 1)


def test_it_says_when_a_look_is_in_vain() -> None:
    """Until a part is seen applied, a shard has caught up, or one is to be tried again."""
    progress = Progress(2)
    progress.has_moved = False
    progress.sent({0: 5}, {0: crowd(ANN)})
    progress.accept(0, 4)
    progress.take_over([5, 7])
    progress.accept(1, 6)
    progress.refuse(1, until_s=9.0)
    progress.retry(8.0)
    assert not progress.has_moved
    progress.retry(10.0)
    assert progress.has_moved


def test_many_shards_have_fewer_rows_each() -> None:
    """All rows that are in flight together are bounded."""
    assert [most_rows_of(n) for n in (1, 16, 64, 100_000)] == [40_000, 40_000, 10_000, 1000]


# --- polls ----------------------------------------------------------------------------------------


def test_how_long_polls_wait() -> None:
    """They wait longer while nothing comes, and gather after a wave of many small rounds."""
    hand = estimating.by_hand(Recorder())
    estimating.owning(hand, 0, ends=(5, 5))
    estimating.read(hand, estimating.round_at(0, "a", "b"))
    timeouts = []
    for _ in range(1200):
        estimating.priors(hand, applied=4)
        timeouts.append(hand.answer(ports.Poll, ports.Polled(0.0)).timeout_s)
    assert timeouts[0] == BUSY_S
    assert max(timeouts) == timeouts[-1] == 0.1
    assert timeouts == sorted(timeouts)
    hand = estimating.by_hand(Recorder(), wave_players=100)
    estimating.owning(hand, 0)
    gathered = []
    offset = 0
    for count in (FEW_ROUNDS, FEW_ROUNDS + 1, FEW_ROUNDS):
        rounds = [
            estimating.round_at(offset + i, f"{offset + i}x", f"{offset + i}y")
            for i in range(count)
        ]
        offset += count
        gathered.append(hand.answer(ports.Poll, ports.Polled(0.0, records=rounds)).gather_s)
        estimating.priors(hand)
        estimating.parts_sent(hand, *range(len(hand.expect(ports.Scatter).parts)))
        hand.answer(ports.CommitSource)
    gathered.append(hand.expect(ports.Poll).gather_s)
    assert gathered == [0.0, 0.0, GATHER_S, 0.0]


def send_pair(
    hand: ByHand, number: int, now_s: float = 0.0, names: Sequence[str] | None = None
) -> None:
    """A wave of one round of two newcomers, whose parts are at this offset."""
    names = names or [f"x{number}", f"y{number}"]
    estimating.read(hand, estimating.round_at(number, *names), now_s=now_s)
    estimating.priors(hand)
    estimating.parts_sent(hand, *[number] * len(np.unique(shards_of(names, estimating.SHARDS))))
    hand.answer(ports.CommitSource)


def test_waves_are_few_and_large_while_the_store_is_behind() -> None:
    """What comes while two are in flight makes one. A store that stays behind delays briefly."""
    hand = estimating.by_hand(Recorder(), wave_players=2 * module.WAVES_IN_FLIGHT)
    estimating.owning(hand, 0)
    for i in range(2 * module.WAVES_IN_FLIGHT):  # until they have as many players as two full ones
        send_pair(hand, i)
    estimating.read(hand, estimating.round_at(98, "a", "b"))
    assert not any(estimating.priors(hand, applied=0).players.values())
    estimating.read(hand, estimating.round_at(99, "c", "d"))
    assert not any(estimating.priors(hand, applied=1).players.values())
    estimating.read(hand)
    assert sum(map(len, estimating.priors(hand, applied=1).players.values())) == 4
    hand = estimating.by_hand(Recorder(), wave_players=2)
    estimating.owning(hand, 0)
    for i in range(module.WAVES_IN_FLIGHT):
        send_pair(hand, i, now_s=10.0)
    estimating.read(hand, estimating.round_at(2, "a", "b"), now_s=10.0 + module.LONGEST_IN_FLIGHT_S)
    assert not any(estimating.priors(hand, applied=0).players.values())
    estimating.read(hand, now_s=10.1 + module.LONGEST_IN_FLIGHT_S)
    assert sum(map(len, estimating.priors(hand, applied=0).players.values())) == 2


def test_polls_do_not_wait_between_pieces_of_a_correction() -> None:
    """Though no round waits. Its record is at offset 1, and is refused in the end."""
    hand = estimating.by_hand(Recorder())
    estimating.owning(hand, 0)
    value, kind = b'{"ladder": "ladder-0", "round_id": "r7"}', b"round-voided"
    estimating.read(hand, Record(0, 1, value, ((EVENT_TYPE, kind),), received_s=4e9))
    hand.answer(ports.LogStarts, {0: 0})
    hand.answer(ports.ReadAgain, [estimating.round_at(0, "a", "b")])
    assert hand.answer(ports.Poll, ports.Polled(0.0)).timeout_s == BUSY_S
    hand.answer(ports.ReadAgain, [])
    assert hand.answer(ports.Poll, ports.Polled(0.0)).timeout_s == BUSY_S
    hand.answer(ports.CommitSource)
    assert [hand.answer(ports.Poll, ports.Polled(0.0)).timeout_s for _ in range(2)] == [BUSY_S, 0.1]


def test_polls_do_not_wait_while_many_rounds_can_go_on() -> None:
    """Their players are cached. A few rounds are not worth a wave of their own."""
    hand = estimating.by_hand(Recorder(), wave_players=100, cache_bytes=CACHE_BYTES)
    estimating.owning(hand, 0)
    crowd = [(f"x{i}", f"y{i}") for i in range(FEW_ROUNDS + 1)]
    waits = []
    for number, again in enumerate((crowd[:2], crowd)):
        first = 100 * number
        rounds = [estimating.round_at(first + i, *pair) for i, pair in enumerate([*crowd, *again])]
        estimating.read(hand, *rounds, now_s=float(number))
        while not isinstance(hand.effect, ports.Poll):
            answered(hand)
        waits.append((hand.expect(ports.Poll).timeout_s, hand.expect(ports.Poll).gather_s))
        while hand.expect(ports.Poll).timeout_s != 0.1:
            estimating.read(hand, now_s=float(number))
            while not isinstance(hand.effect, ports.Poll):
                answered(hand)
    assert waits == [(BUSY_S, GATHER_S), (0.0, 0.0)]


def answered(hand: ByHand) -> None:
    """All goes well: all players are new, or cached."""
    if isinstance(hand.effect, ports.ReadBeliefs):
        found = {
            s: ports.StoredShard(ports.Position(2**20), [None] * len(players))
            for s, players in hand.effect.players.items()
        }
        hand.answer(ports.ReadBeliefs, found)
    elif isinstance(hand.effect, ports.ReadPriors):
        estimating.priors(hand, applied=2**20)
    elif isinstance(hand.effect, ports.Scatter):
        estimating.parts_sent(hand, *range(len(hand.effect.parts)))
    else:
        hand.answer(ports.CommitSource)
