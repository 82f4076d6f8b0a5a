"""While an estimator reads only round ids of what it took over, it says so: it is not ready."""

import pytest

from stream_rater.pipeline.corrections.correction_ports import NotedCorrections
from stream_rater.pipeline.ports import (
    CommittedSource,
    LogStarts,
    Poll,
    Polled,
    ReadBeliefs,
    Seek,
    ShardEnds,
    SourceCommit,
    SourceTail,
    SourceTails,
    StoredShard,
)
from tests.builders.machines import NOWHERE, ByHand, Recorder
from tests.unit import test_estimator as estimating


@pytest.fixture
def hand(observer: Recorder) -> ByHand:
    """An estimator at its first poll, which remembers the ids of three offsets."""
    return estimating.by_hand(observer)


def test_it_says_while_it_only_reads_ids(hand: ByHand, observer: Recorder) -> None:
    """From before the seek to what stands right before c."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0, 1])))
    hand.answer(CommittedSource, {0: SourceCommit(10), 1: SourceCommit(0)})
    hand.answer(ReadBeliefs, {0: StoredShard(NOWHERE), 1: StoredShard(NOWHERE)})
    hand.answer(ShardEnds, (0, 0))
    hand.answer(LogStarts, {0: 0, 1: 0})
    hand.answer(SourceTails, {0: SourceTail(12, 5)})
    hand.answer(NotedCorrections, {})
    hand.expect(Seek)
    assert observer.reading == {0, 1}
    hand.answer(Seek)
    estimating.read(hand, estimating.a_round(8, "a", "b"))
    hand.expect(Poll)
    assert observer.reading == {0}
    estimating.read(hand, estimating.a_round(9, "a", "b"))
    hand.expect(Poll)
    assert observer.reading == set()


def test_nothing_more_to_read_is_all_ids_read(hand: ByHand, observer: Recorder) -> None:
    """What lies before c may be no records; a partition that is lost is no longer waited for."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0, 1])))
    estimating.opened(hand, committed={0: 10, 1: 10})
    estimating.read(hand, estimating.a_round(8, "a", "b"))
    hand.answer(
        Poll,
        Polled(0.0, lost=frozenset([1]), records=[estimating.a_round(8, "c", "d", partition=1)]),
    )
    hand.expect(Poll)
    assert observer.reading == {0}
    estimating.read(hand)
    hand.expect(Poll)
    assert observer.reading == set()
    estimating.read(hand, estimating.a_round(11, "a", "b"))
    assert observer.reading == set()


def test_another_partition_is_taken_over_in_the_middle(hand: ByHand, observer: Recorder) -> None:
    """The report names both partitions, not only the new one."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    estimating.opened(hand, committed={0: 10})
    hand.answer(Poll, Polled(0.0, gained=frozenset([1]), records=[estimating.a_round(7, "a", "b")]))
    estimating.opened(hand, committed={1: 10})
    assert observer.reading == {0, 1}
