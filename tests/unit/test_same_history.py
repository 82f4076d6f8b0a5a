"""What an estimator finds when it opens partitions: another history, forgotten offsets, its ids."""

import pytest

from stream_rater.contract.errors import OffsetsForgotten, Resharded, RoundsLost
from stream_rater.contract.record import Record, checksum
from stream_rater.pipeline.corrections.correction_ports import NotedCorrections
from stream_rater.pipeline.ports import (
    NO_PLAYERS,
    CommitSource,
    CommittedSource,
    LogStarts,
    LookForOffsets,
    OffsetEvidence,
    PartSums,
    Poll,
    Polled,
    Position,
    ReadBeliefs,
    ReadPriors,
    Seek,
    ShardEnds,
    SourceCommit,
    SourceTail,
    SourceTails,
    StoredShard,
)
from tests.builders.cases import cases
from tests.builders.machines import NOWHERE, ByHand, Recorder
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
    """An estimator at its first poll."""
    return by_hand(observer)


@cases(
    ("position", "tail", "refused"),
    [
        (Position(7, 6, tail=1), 1, ""),
        (Position(7, 6, tail=1), None, ""),
        (Position(7, 6), None, ""),
        (Position(7, 6, tail=1), 2, "the record at offset 6 is not the one"),
        (Position(9, 8, tail=1), None, "offset 9 was reached and the log ends at 8"),
    ],
)
def test_store_of_another_history(position: Position, tail: int | None, refused: str) -> None:
    """It is not rated by: the log is shorter, or has another record where the last one was applied.
    After a while it is looked at again."""
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


@cases(
    ("commit", "log", "refused"),
    [
        (SourceCommit(9, 5), SourceTail(9, 5), ""),
        (SourceCommit(9, 5), SourceTail(20, 5), ""),
        (SourceCommit(9), SourceTail(20, 6), ""),
        (SourceCommit(9, 5), SourceTail(20, None, damaged=True), ""),
        (SourceCommit(9, 5), SourceTail(20, 6), "partition 0 has another record at offset 8"),
        (SourceCommit(9, 5), SourceTail(20, None), "partition 0 has another record at offset 8"),
        (SourceCommit(9), SourceTail(8, None), "finished up to offset 9 and ends at 8"),
        (SourceCommit(9, 5), SourceTail(8, None), "finished up to offset 9 and ends at 8"),
    ],
)
def test_rounds_of_another_history(commit: SourceCommit, log: SourceTail, refused: str) -> None:
    """Kafka lost rounds that were finished. The estimator ends, and says what an operator must do.
    It goes on where nothing is known of the last record, or it is damaged."""
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
    """Nothing before the committed offset is left to be compared. With an offset the checksum of
    the record before it is committed."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    hand.answer(CommittedSource, {0: SourceCommit(9, 5)})
    hand.answer(ReadBeliefs, {0: StoredShard(NOWHERE), 1: StoredShard(NOWHERE)})
    hand.answer(ShardEnds, [0, 0])
    hand.answer(LogStarts, {0: 9})
    hand.expect(NotedCorrections)
    hand = by_hand(Recorder())
    owning(hand, 0)
    bad = Record(0, 4, b"no round", received_s=4e9)
    read(hand, bad, now_s=1.0)
    commit = hand.expect(CommitSource, offsets={0: 5})
    assert commit.tails == {0: checksum(b"no round")}


# --- no committed offset, and other shards --------------------------------------------------------


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


# --- while it reads only ids of what it took over, it is not ready --------------------------------


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
    read(hand, round_at(8, "a", "b"))
    hand.expect(Poll)
    assert observer.reading == {0}
    read(hand, round_at(9, "a", "b"))
    hand.expect(Poll)
    assert observer.reading == set()


def test_nothing_more_to_read_is_all_ids_read(hand: ByHand, observer: Recorder) -> None:
    """What lies before c may be no records; a partition that is lost is no longer waited for. If
    another one is gained in the middle, the report names both."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0, 1])))
    opened(hand, committed={0: 10, 1: 10})
    read(hand, round_at(8, "a", "b"))
    hand.answer(
        Poll, Polled(0.0, lost=frozenset([1]), records=[round_at(8, "c", "d", partition=1)])
    )
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
