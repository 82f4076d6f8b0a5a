"""When the estimator looks for rounds, and how long its polls gather."""

from stream_rater.pipeline.pace import BUSY_S, FEW_ROUNDS, GATHER_S
from stream_rater.pipeline.ports import CommitSource, Poll, Polled, Scatter
from tests.unit.machines import Recorder
from tests.unit.test_estimator import a_round, by_hand, owning, priors, read, scattered


def test_polls_slow_down_while_waiting_in_vain() -> None:
    """From a millisecond to the idle time, in proportion to the time waited."""
    hand = by_hand(Recorder())
    owning(hand, 0, ends=(5, 5))
    read(hand, a_round(0, "a", "b"))
    timeouts = []
    for _ in range(1200):
        priors(hand, applied=4)
        timeouts.append(hand.answer(Poll, Polled(0.0)).timeout_s)
    assert timeouts[0] == BUSY_S
    assert max(timeouts) == timeouts[-1] == 0.1
    assert timeouts == sorted(timeouts)


def test_polls_gather_while_many_small_rounds_come() -> None:
    """After a wave of many rounds, not after one of few."""
    hand = by_hand(Recorder(), wave_players=100)
    owning(hand, 0)
    gathered = []
    offset = 0
    for count in (FEW_ROUNDS, FEW_ROUNDS + 1, FEW_ROUNDS):
        rounds = [a_round(offset + i, f"{offset + i}x", f"{offset + i}y") for i in range(count)]
        offset += count
        gathered.append(hand.answer(Poll, Polled(0.0, records=rounds)).gather_s)
        priors(hand)
        scattered(hand, *range(len(hand.expect(Scatter).parts)))
        hand.answer(CommitSource)
    gathered.append(hand.expect(Poll).gather_s)
    assert gathered == [0.0, 0.0, GATHER_S, 0.0]
