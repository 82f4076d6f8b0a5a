"""An estimator that opens partitions: another history, forgotten offsets; and refused commits."""

import pytest

from stream_rater.contract.errors import Regrouped, RoundsLost
from stream_rater.contract.record import Record, checksum
from stream_rater.pipeline import ports
from stream_rater.pipeline.estimator.input_partition import InputPartition
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.rounds.validation import DuplicateWindow
from tests.builders.cases import cases
from tests.builders.machines import NOWHERE, ByHand, Recorder, part, record
from tests.unit import test_estimator as estimating
from tests.unit import test_updater as updating


@pytest.fixture
def hand(observer: Recorder) -> ByHand:
    return estimating.by_hand(observer)


@cases("position, tail, refused", [
    (ports.Position(7, 6, tail=1), 1, ""), (ports.Position(7, 6, tail=1), None, ""),
    (ports.Position(7, 6), None, ""),
    (ports.Position(7, 6, tail=1), 2, "the record at offset 6 is not the one"),
    (ports.Position(9, 8, tail=1), None, "offset 9 was reached and the log ends at 8"),
])  # fmt: skip
def test_store_of_another_history(position: ports.Position, tail: int | None, refused: str) -> None:
    """The log is shorter, or has another record there. After a while it is checked again."""
    observer = Recorder()
    hand = estimating.by_hand(observer)
    hand.answer(ports.Poll, ports.Polled(0.0, gained=frozenset([0])))
    hand.answer(ports.CommittedSource, {0: ports.SourceCommit(0)})
    hand.answer(ports.ReadBeliefs, {0: ports.StoredShard(position), 1: ports.StoredShard(NOWHERE)})
    hand.answer(ports.ShardEnds, [8, 0])
    if position.applied <= 8 and position.tail is not None:
        hand.answer(ports.PartSums, {0: tail}, offsets={0: 6})
    hand.answer(ports.LogStarts, {0: 0})
    hand.answer(ports.NotedCorrections, {})
    hand.answer(ports.Seek)
    estimating.read(hand, estimating.round_at(0, estimating.ZERO[0], estimating.ZERO[1]), now_s=1.0)
    if not refused:
        assert observer.refused == []
        hand.expect(ports.ReadPriors)
        return
    ((shard, reason),) = observer.refused
    assert shard == 0 and reason.startswith(refused) and "rebuild --replace" in reason
    estimating.read(hand, now_s=4.0)
    estimating.read(hand, now_s=6.0)
    hand.answer(
        ports.ReadBeliefs,
        {0: ports.StoredShard(ports.Position(8, 7, tail=3))},
        players={0: ports.NO_PLAYERS},
    )
    hand.answer(ports.ShardEnds, [8, 0])
    hand.answer(ports.PartSums, {0: 3})
    assert observer.opened == [0]
    estimating.priors(hand, applied=8)
    estimating.read(hand, now_s=7.0)
    estimating.priors(hand, applied=8)
    estimating.parts_sent(hand, 8)


ANOTHER_RECORD = "partition 0 has another record at offset 8"


@cases("commit, log, refused", [
    (ports.SourceCommit(9, 5), ports.SourceTail(9, 5), ""),
    (ports.SourceCommit(9, 5), ports.SourceTail(20, 5), ""),
    (ports.SourceCommit(9), ports.SourceTail(20, 6), ""),
    (ports.SourceCommit(9, 5), ports.SourceTail(20, None, damaged=True), ""),
    (ports.SourceCommit(9, 5), ports.SourceTail(20, 6), ANOTHER_RECORD),
    (ports.SourceCommit(9, 5), ports.SourceTail(20, None), ANOTHER_RECORD),
    (ports.SourceCommit(9), ports.SourceTail(8, None), "finished up to offset 9 and ends at 8"),
    (ports.SourceCommit(9, 5), ports.SourceTail(8, None), "finished up to offset 9 and ends at 8"),
])  # fmt: skip
def test_rounds_of_another_history(
    commit: ports.SourceCommit, log: ports.SourceTail, refused: str
) -> None:
    """If Kafka lost finished rounds, the estimator ends with a way out, unless nothing is known."""
    hand = estimating.by_hand(Recorder())
    hand.answer(ports.Poll, ports.Polled(0.0, gained=frozenset([0, 1])))
    hand.answer(ports.CommittedSource, {0: commit, 1: None})
    hand.answer(ports.LookForOffsets, ports.OffsetEvidence({}, {1: 0}, parts_deleted=False))
    hand.answer(ports.CommitSource, offsets={1: 0})
    hand.answer(ports.ReadBeliefs, {0: ports.StoredShard(NOWHERE), 1: ports.StoredShard(NOWHERE)})
    hand.answer(ports.ShardEnds, [0, 0])
    hand.answer(ports.LogStarts, {0: 0, 1: 0})
    if not refused:
        hand.answer(ports.SourceTails, {0: log}, offsets={0: 9})
        hand.expect(ports.NotedCorrections)
        return
    with pytest.raises(RoundsLost, match=f"{refused}.* rebuild --replace"):
        hand.answer(ports.SourceTails, {0: log}, offsets={0: 9})


def test_first_records_were_deleted(hand: ByHand) -> None:
    """Nothing is left to be compared. With an offset goes the checksum of the record before."""
    hand.answer(ports.Poll, ports.Polled(0.0, gained=frozenset([0])))
    hand.answer(ports.CommittedSource, {0: ports.SourceCommit(9, 5)})
    hand.answer(ports.ReadBeliefs, {0: ports.StoredShard(NOWHERE), 1: ports.StoredShard(NOWHERE)})
    hand.answer(ports.ShardEnds, [0, 0])
    hand.answer(ports.LogStarts, {0: 9})
    hand.expect(ports.NotedCorrections)
    hand = estimating.by_hand(Recorder())
    estimating.owning(hand, 0)
    estimating.read(hand, Record(0, 4, b"no round", received_s=4e9), now_s=1.0)
    hand.expect(ports.CommitSource, offsets={0: 5}, tails={0: checksum(b"no round")})
    source = InputPartition(DuplicateWindow(1), start=0, committed=0)
    assert source.enqueue(Record(0, 0, b"correction"))
    source.finish([0])
    assert source.take_finished()[0] == ports.SourceCommit(1, checksum(b"correction"))


def test_it_says_while_it_only_reads_ids(hand: ByHand, observer: Recorder) -> None:
    """From before the seek to what stands right before c: so long it is not ready."""
    hand.answer(ports.Poll, ports.Polled(0.0, gained=frozenset([0, 1])))
    hand.answer(ports.CommittedSource, {0: ports.SourceCommit(10), 1: ports.SourceCommit(0)})
    hand.answer(ports.ReadBeliefs, {0: ports.StoredShard(NOWHERE), 1: ports.StoredShard(NOWHERE)})
    hand.answer(ports.ShardEnds, (0, 0))
    hand.answer(ports.LogStarts, {0: 0, 1: 0})
    hand.answer(ports.SourceTails, {0: ports.SourceTail(12, 5)})
    hand.answer(ports.NotedCorrections, {})
    hand.expect(ports.Seek)
    assert observer.reading == {0, 1}
    hand.answer(ports.Seek)
    estimating.read(hand, estimating.round_at(8, "a", "b"))
    hand.expect(ports.Poll)
    assert observer.reading == {0}
    estimating.read(hand, estimating.round_at(9, "a", "b"))
    hand.expect(ports.Poll)
    assert observer.reading == set()


def test_nothing_more_to_read_is_all_ids_read(hand: ByHand, observer: Recorder) -> None:
    """No record may be before c. A lost partition is not waited for, but a gained one is."""
    hand.answer(ports.Poll, ports.Polled(0.0, gained=frozenset([0, 1])))
    estimating.opened(hand, committed={0: 10, 1: 10})
    estimating.read(hand, estimating.round_at(8, "a", "b"))
    late = estimating.round_at(8, "c", "d", partition=1)
    hand.answer(ports.Poll, ports.Polled(0.0, lost=frozenset([1]), records=[late]))
    hand.expect(ports.Poll)
    assert observer.reading == {0}
    estimating.read(hand)
    hand.expect(ports.Poll)
    assert observer.reading == set()
    estimating.read(hand, estimating.round_at(11, "a", "b"))
    assert observer.reading == set()
    observer = Recorder()
    hand = estimating.by_hand(observer)
    hand.answer(ports.Poll, ports.Polled(0.0, gained=frozenset([0])))
    estimating.opened(hand, committed={0: 10})
    hand.answer(
        ports.Poll,
        ports.Polled(0.0, gained=frozenset([1]), records=[estimating.round_at(7, "a", "b")]),
    )
    estimating.opened(hand, committed={1: 10})
    assert observer.reading == {0, 1}


# --- commits of another generation ----------------------------------------------------------------


def refused_for_good(hand: ByHand, commit: type[ports.CommitSource | ports.Publish]) -> None:
    """It is refused again and again, and then everything begins again."""
    for _ in range(ports.REGROUPINGS - 1):
        hand.fail(commit, Regrouped("not settled"))
        hand.answer(ports.Poll, ports.Polled(0.0), no_fetch=True)
    hand.fail(commit, Regrouped("not settled"))
    hand.answer(ports.Poll, ports.Polled(0.0), no_fetch=True, timeout_s=0.0)
    hand.expect(ports.NewProducer)


def test_commit_refused_by_a_new_generation_is_tried_again(
    hand: ByHand, observer: Recorder
) -> None:
    """For what is still ours. Gained partitions are opened; nothing is forgotten."""
    estimating.owning(hand, 0, 1)
    estimating.read(
        hand, estimating.round_at(0, "a", "b"), estimating.round_at(0, "c", "d", partition=1)
    )
    estimating.priors(hand)
    estimating.parts_sent(hand, *range(len(hand.expect(ports.Scatter).parts)))
    hand.expect(ports.CommitSource, offsets={0: 1, 1: 1})
    hand.fail(ports.CommitSource, Regrouped("another generation"))
    hand.answer(ports.Poll, ports.Polled(0.0), no_fetch=True, timeout_s=ports.REGROUPING_S)
    hand.fail(ports.CommitSource, Regrouped("and another"))
    hand.answer(
        ports.Poll, ports.Polled(0.0, lost=frozenset([0]), gained=frozenset([2])), no_fetch=True
    )
    hand.answer(ports.CommitSource, offsets={1: 1}, rejections=[])
    assert estimating.opened(hand, committed={2: 0}).offsets == {2: 0}
    assert observer.troubles == []


def test_what_is_refused_again_and_again_is_trouble(hand: ByHand, observer: Recorder) -> None:
    """A commit, or a publication. It is reported, and everything begins again."""
    estimating.owning(hand, 0)
    estimating.read(hand, Record(0, 0, b"junk"))
    refused_for_good(hand, ports.CommitSource)
    assert observer.troubles == ["not settled"]
    observer = Recorder()
    hand = ByHand(Updater(1, observer=observer).run())
    updating.owning(hand)
    updating.read(hand, record(0, part((5, "a"))))
    updating.answer_beliefs(hand, ports.Position())
    updating.applied(hand)
    refused_for_good(hand, ports.Publish)
    assert observer.troubles == ["not settled"]


def test_publication_refused_by_a_new_generation_is_tried_again(observer: Recorder) -> None:
    """For the shards that are still ours. Nothing is forgotten or applied."""
    hand = ByHand(Updater(2, observer=observer).run())
    hand.answer(ports.Poll, ports.Polled(0.0, gained=frozenset([0, 1])))
    updating.opened(hand, {0: NOWHERE, 1: NOWHERE}, {0: None, 1: None})
    hand.answer(ports.Seek)
    updating.read(hand, record(0, part((5, "a"))), record(0, part((5, "d")), shard=1))
    hand.answer(ports.ReadBeliefs, dict.fromkeys([0, 1], ports.StoredShard(NOWHERE, [None])))
    hand.answer(ports.Apply, {0: True, 1: True})
    both = [("a", 0), ("d", 1)]
    assert updating.reported(hand.expect(ports.Publish, offsets={0: 1, 1: 1})) == both
    hand.fail(ports.Publish, Regrouped("another generation"))
    hand.answer(ports.Poll, ports.Polled(0.0), no_fetch=True, timeout_s=ports.REGROUPING_S)
    assert updating.reported(hand.expect(ports.Publish, offsets={0: 1, 1: 1})) == both
    hand.fail(ports.Publish, Regrouped("and another"))
    hand.answer(ports.Poll, ports.Polled(0.0, lost=frozenset([0])), no_fetch=True)
    assert updating.reported(hand.answer(ports.Publish, offsets={1: 1})) == [("d", 1)]
    updating.read(hand, record(1, part((6, "d")), shard=1))
    hand.expect(ports.ReadBeliefs)
    assert observer.troubles == []
