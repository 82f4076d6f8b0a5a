"""What an estimator does with partitions that have no committed offset, and among other shards."""

import pytest

from stream_rater.contract.errors import OffsetsForgotten, Resharded
from stream_rater.contract.record import Record
from stream_rater.pipeline.ports import (
    CommitSource,
    CommittedSource,
    LookForOffsets,
    OffsetEvidence,
    Poll,
    Polled,
    ReadBeliefs,
    ShardEnds,
    SourceCommit,
    StoredShard,
)
from tests.builders.cases import cases
from tests.builders.machines import NOWHERE, ByHand, Recorder
from tests.unit.test_estimator import by_hand, opened, read


@pytest.fixture
def hand() -> ByHand:
    """An estimator at its first poll."""
    return by_hand(Recorder())


def test_shards_were_added(hand: ByHand) -> None:
    """What it would cut is for as many as there were: it ends, and says what to do."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    hand.answer(CommittedSource, {0: SourceCommit(0)})
    hand.answer(ReadBeliefs, {0: StoredShard(NOWHERE), 1: StoredShard(NOWHERE)})
    with pytest.raises(Resharded, match=r"has 3 partitions and had 2 .* rebuild --replace"):
        hand.answer(ShardEnds, [0, 0, 0])


def test_offsets_that_kafka_forgot(hand: ByHand) -> None:
    """Where records were rejected, reading begins behind the last of them, and its W offsets are
    read for their ids; of a partition without any, at the log's start."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0, 1])))
    remains = OffsetEvidence({0: 9}, {0: 12, 1: 0}, parts_deleted=False)
    seek = opened(hand, committed={0: None, 1: None}, remains=remains)
    assert seek.offsets == {0: 6, 1: 0}
    read(hand, Record(0, 8, b"junk", received_s=4e9), Record(0, 9, b"junk", received_s=4e9))
    rejected = hand.expect(CommitSource, offsets={0: 10}).rejections
    assert [each.record.offset for each in rejected] == [9]


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
