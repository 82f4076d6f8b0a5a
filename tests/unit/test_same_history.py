"""An estimator that opens partitions: another history, forgotten offsets; refused commits."""

import pytest

from stream_rater.contract.errors import OffsetsForgotten, Regrouped, Resharded, RoundsLost
from stream_rater.contract.record import Record, checksum
from stream_rater.pipeline.estimator.input_partition import InputPartition
from stream_rater.pipeline.ports import (
    NO_PLAYERS,
    REGROUPING_S,
    REGROUPINGS,
    Apply,
    CommitSource,
    CommittedSource,
    LogStarts,
    LookForOffsets,
    NewProducer,
    NotedCorrections,
    OffsetEvidence,
    PartSums,
    Poll,
    Polled,
    Position,
    Publish,
    ReadBeliefs,
    ReadPriors,
    Scatter,
    Seek,
    ShardEnds,
    SourceCommit,
    SourceTail,
    SourceTails,
    StoredShard,
)
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.rounds.validation import DuplicateWindow
from tests.builders.cases import cases
from tests.builders.machines import NOWHERE, ByHand, Recorder, part, record
from tests.unit import test_updater as updating
from tests.unit.test_estimator import (
    ZERO,
    by_hand,
    opened,
    owning,
    parts_sent,
    priors,
    read,
    round_at,
)


@pytest.fixture
def hand(observer: Recorder) -> ByHand:
    return by_hand(observer)


@cases("position, tail, refused", [
    (Position(7, 6, tail=1), 1, ""), (Position(7, 6, tail=1), None, ""),
    (Position(7, 6), None, ""),
    (Position(7, 6, tail=1), 2, "the record at offset 6 is not the one"),
    (Position(9, 8, tail=1), None, "offset 9 was reached and the log ends at 8"),
])  # fmt: skip
def test_store_of_another_history(position: Position, tail: int | None, refused: str) -> None:
    """The log is shorter, or has another record there. After a while it is looked at again."""
    observer = Recorder()
    hand = by_hand(observer)
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    hand.answer(CommittedSource, {0: SourceCommit(0)})
    hand.answer(ReadBeliefs, {0: StoredShard(position), 1: StoredShard(NOWHERE)})
    hand.answer(ShardEnds, [8, 0])
    if position.applied <= 8 and position.tail is not None:
        hand.answer(PartSums, {0: tail}, offsets={0: 6})
    hand.answer(LogStarts, {0: 0})
    hand.answer(NotedCorrections, {})
    hand.answer(Seek)
    read(hand, round_at(0, ZERO[0], ZERO[1]), now_s=1.0)
    if not refused:
        assert observer.refused == []
        hand.expect(ReadPriors)
        return
    ((shard, reason),) = observer.refused
    assert shard == 0 and reason.startswith(refused) and "rebuild --replace" in reason
    read(hand, now_s=4.0)
    read(hand, now_s=6.0)
    hand.answer(ReadBeliefs, {0: StoredShard(Position(8, 7, tail=3))}, players={0: NO_PLAYERS})
    hand.answer(ShardEnds, [8, 0])
    hand.answer(PartSums, {0: 3})
    assert observer.opened == [0]
    priors(hand, applied=8)
    read(hand, now_s=7.0)
    priors(hand, applied=8)
    parts_sent(hand, 8)


@cases("commit, log, refused", [
    (SourceCommit(9, 5), SourceTail(9, 5), ""), (SourceCommit(9, 5), SourceTail(20, 5), ""),
    (SourceCommit(9), SourceTail(20, 6), ""),
    (SourceCommit(9, 5), SourceTail(20, None, damaged=True), ""),
    (SourceCommit(9, 5), SourceTail(20, 6), "partition 0 has another record at offset 8"),
    (SourceCommit(9, 5), SourceTail(20, None), "partition 0 has another record at offset 8"),
    (SourceCommit(9), SourceTail(8, None), "finished up to offset 9 and ends at 8"),
    (SourceCommit(9, 5), SourceTail(8, None), "finished up to offset 9 and ends at 8"),
])  # fmt: skip
def test_rounds_of_another_history(commit: SourceCommit, log: SourceTail, refused: str) -> None:
    """Kafka lost finished rounds: it ends, with a way out; unless nothing is known of them."""
    hand = by_hand(Recorder())
    hand.answer(Poll, Polled(0.0, gained=frozenset([0, 1])))
    hand.answer(CommittedSource, {0: commit, 1: None})
    hand.answer(LookForOffsets, OffsetEvidence({}, {1: 0}, parts_deleted=False))
    hand.answer(CommitSource, offsets={1: 0})
    hand.answer(ReadBeliefs, {0: StoredShard(NOWHERE), 1: StoredShard(NOWHERE)})
    hand.answer(ShardEnds, [0, 0])
    hand.answer(LogStarts, {0: 0, 1: 0})
    if not refused:
        hand.answer(SourceTails, {0: log}, offsets={0: 9})
        hand.expect(NotedCorrections)
        return
    with pytest.raises(RoundsLost, match=f"{refused}.* rebuild --replace"):
        hand.answer(SourceTails, {0: log}, offsets={0: 9})


def test_first_records_were_deleted(hand: ByHand) -> None:
    """Nothing is left to be compared. With an offset goes the checksum of the record before."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    hand.answer(CommittedSource, {0: SourceCommit(9, 5)})
    hand.answer(ReadBeliefs, {0: StoredShard(NOWHERE), 1: StoredShard(NOWHERE)})
    hand.answer(ShardEnds, [0, 0])
    hand.answer(LogStarts, {0: 9})
    hand.expect(NotedCorrections)
    hand = by_hand(Recorder())
    owning(hand, 0)
    read(hand, Record(0, 4, b"no round", received_s=4e9), now_s=1.0)
    hand.expect(CommitSource, offsets={0: 5}, tails={0: checksum(b"no round")})
    source = InputPartition(DuplicateWindow(1), start=0, committed=0)
    assert source.enqueue(Record(0, 0, b"correction"))
    source.finish([0])
    assert source.take_finished()[0] == SourceCommit(1, checksum(b"correction"))


def test_shards_were_added(hand: ByHand) -> None:
    """What it would cut is for as many as there were: it ends, and says what to do."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    hand.answer(CommittedSource, {0: SourceCommit(0)})
    hand.answer(ReadBeliefs, {0: StoredShard(NOWHERE), 1: StoredShard(NOWHERE)})
    with pytest.raises(Resharded, match=r"has 3 partitions and had 2 .* rebuild --replace"):
        hand.answer(ShardEnds, [0, 0, 0])


@cases("deleted", ["parts", "rejections"])
def test_nothing_is_guessed_once_something_was_deleted(deleted: str) -> None:
    """It ends, and says for which partitions an operator must commit what; empty ones are new."""
    hand = by_hand(Recorder())
    hand.answer(Poll, Polled(0.0, gained=frozenset([0, 1, 2])))
    hand.answer(CommittedSource, {0: None, 1: None, 2: SourceCommit(5)})
    with pytest.raises(OffsetsForgotten, match=r"for partition 0 \(not below 4\): Kafka deletes"):
        hand.answer(
            LookForOffsets,
            OffsetEvidence({0: 4}, {0: 9, 1: 0}, deleted == "parts", deleted == "rejections"),
        )


def test_it_says_while_it_only_reads_ids(hand: ByHand, observer: Recorder) -> None:
    """From before the seek to what stands right before c: so long it is not ready."""
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
    read(hand, round_at(8, "a", "b"))
    hand.expect(Poll)
    assert observer.reading == {0}
    read(hand, round_at(9, "a", "b"))
    hand.expect(Poll)
    assert observer.reading == set()


def test_nothing_more_to_read_is_all_ids_read(hand: ByHand, observer: Recorder) -> None:
    """What lies before c may be no records; what is lost is not waited for, what is gained is."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0, 1])))
    opened(hand, committed={0: 10, 1: 10})
    read(hand, round_at(8, "a", "b"))
    late = round_at(8, "c", "d", partition=1)
    hand.answer(Poll, Polled(0.0, lost=frozenset([1]), records=[late]))
    hand.expect(Poll)
    assert observer.reading == {0}
    read(hand)
    hand.expect(Poll)
    assert observer.reading == set()
    read(hand, round_at(11, "a", "b"))
    assert observer.reading == set()
    observer = Recorder()
    hand = by_hand(observer)
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    opened(hand, committed={0: 10})
    hand.answer(Poll, Polled(0.0, gained=frozenset([1]), records=[round_at(7, "a", "b")]))
    opened(hand, committed={1: 10})
    assert observer.reading == {0, 1}


# --- commits of another generation ----------------------------------------------------------------


def refused_for_good(hand: ByHand, commit: type[CommitSource | Publish]) -> None:
    """It is refused again and again, and then everything begins again."""
    for _ in range(REGROUPINGS - 1):
        hand.fail(commit, Regrouped("not settled"))
        hand.answer(Poll, Polled(0.0), no_fetch=True)
    hand.fail(commit, Regrouped("not settled"))
    hand.answer(Poll, Polled(0.0), no_fetch=True, timeout_s=0.0)
    hand.expect(NewProducer)


def test_commit_refused_by_a_new_generation_is_tried_again(
    hand: ByHand, observer: Recorder
) -> None:
    """For what is still ours. Gained partitions are opened; nothing is forgotten."""
    owning(hand, 0, 1)
    read(hand, round_at(0, "a", "b"), round_at(0, "c", "d", partition=1))
    priors(hand)
    parts_sent(hand, *range(len(hand.expect(Scatter).parts)))
    hand.expect(CommitSource, offsets={0: 1, 1: 1})
    hand.fail(CommitSource, Regrouped("another generation"))
    hand.answer(Poll, Polled(0.0), no_fetch=True, timeout_s=REGROUPING_S)
    hand.fail(CommitSource, Regrouped("and another"))
    hand.answer(Poll, Polled(0.0, lost=frozenset([0]), gained=frozenset([2])), no_fetch=True)
    hand.answer(CommitSource, offsets={1: 1}, rejections=[])
    assert opened(hand, committed={2: 0}).offsets == {2: 0}
    assert observer.troubles == []


def test_what_is_refused_again_and_again_is_trouble(hand: ByHand, observer: Recorder) -> None:
    """A commit, or a publication. It is reported, and everything begins again."""
    owning(hand, 0)
    read(hand, Record(0, 0, b"junk"))
    refused_for_good(hand, CommitSource)
    assert observer.troubles == ["not settled"]
    observer = Recorder()
    hand = ByHand(Updater(1, observer=observer).run())
    updating.owning(hand)
    updating.read(hand, record(0, part((5, "a"))))
    updating.answer_beliefs(hand, Position())
    updating.applied(hand)
    refused_for_good(hand, Publish)
    assert observer.troubles == ["not settled"]


def test_publication_refused_by_a_new_generation_is_tried_again(observer: Recorder) -> None:
    """For the shards that are still ours. Nothing is forgotten or applied."""
    hand = ByHand(Updater(2, observer=observer).run())
    hand.answer(Poll, Polled(0.0, gained=frozenset([0, 1])))
    updating.opened(hand, {0: NOWHERE, 1: NOWHERE}, {0: None, 1: None})
    hand.answer(Seek)
    updating.read(hand, record(0, part((5, "a"))), record(0, part((5, "d")), shard=1))
    hand.answer(ReadBeliefs, dict.fromkeys([0, 1], StoredShard(NOWHERE, [None])))
    hand.answer(Apply, {0: True, 1: True})
    both = [("a", 0), ("d", 1)]
    assert updating.reported(hand.expect(Publish, offsets={0: 1, 1: 1})) == both
    hand.fail(Publish, Regrouped("another generation"))
    hand.answer(Poll, Polled(0.0), no_fetch=True, timeout_s=REGROUPING_S)
    assert updating.reported(hand.expect(Publish, offsets={0: 1, 1: 1})) == both
    hand.fail(Publish, Regrouped("and another"))
    hand.answer(Poll, Polled(0.0, lost=frozenset([0])), no_fetch=True)
    assert updating.reported(hand.answer(Publish, offsets={1: 1})) == [("d", 1)]
    updating.read(hand, record(1, part((6, "d")), shard=1))
    hand.expect(ReadBeliefs)
    assert observer.troubles == []
