"""An estimator compares store and log when it opens partitions: a store of another history is not
rated by."""

import pytest

from stream_rater.contract.errors import RoundsLost
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
from tests.unit.test_estimator import ZERO, a_round, by_hand, owning, parts_sent, priors, read


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
    read(hand, a_round(0, ZERO[0], ZERO[1]), now_s=1.0)
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
    """Nothing before the committed offset is left to be compared."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    hand.answer(CommittedSource, {0: SourceCommit(9, 5)})
    hand.answer(ReadBeliefs, {0: StoredShard(NOWHERE), 1: StoredShard(NOWHERE)})
    hand.answer(ShardEnds, [0, 0])
    hand.answer(LogStarts, {0: 9})
    hand.expect(NotedCorrections)


def test_commit_names_the_last_record(hand: ByHand) -> None:
    """The checksum of the record before the committed offset is committed with it."""
    owning(hand, 0)
    bad = Record(0, 4, b"no round", received_s=4e9)
    read(hand, bad, now_s=1.0)
    commit = hand.expect(CommitSource, offsets={0: 5})
    assert commit.tails == {0: checksum(b"no round")}
