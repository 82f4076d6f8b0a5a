"""What an updater finds when it opens its shards for the first time, or after a long while."""

import pytest

from stream_rater.contract.errors import Regrouped, Resharded
from stream_rater.pipeline.ports import (
    Committed,
    LogStarts,
    Poll,
    Polled,
    Position,
    Publish,
    ReadBeliefs,
    Seek,
    ShardEnds,
    StoredShard,
)
from tests.builders.cases import cases
from tests.builders.machines import NOWHERE, ByHand, Recorder, opened, updating


def test_shards_were_added(hand: ByHand) -> None:
    """Which players are at home here is known for as many as there were: it ends."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    with pytest.raises(Resharded, match=r"has 2 partitions and had 1"):
        opened(hand, {0: NOWHERE}, {0: None}, shards=2)


@cases("position", [Position(7, 6, b"\x80"), Position(7, 0, b"\x80")])
def test_committed_offset_that_kafka_forgot(position: Position) -> None:
    """Applied parts may have been published. None is published twice; a way out is named."""
    observer = Recorder()
    hand = updating(observer, 1)
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    opened(hand, {0: position}, {0: None})
    assert "offsets.retention.minutes). Commit 7 for this partition" in observer.refused[0][1]
    hand.expect(Poll)


def test_first_offset_is_committed_before_anything_is_applied(hand: ByHand) -> None:
    """So that later none means forgotten."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    hand.answer(ReadBeliefs, {0: StoredShard(NOWHERE, [None])})
    hand.answer(Committed, {0: None})
    hand.answer(LogStarts, {0: 0})
    hand.answer(ShardEnds, [0])
    assert len(hand.answer(Publish, offsets={0: 0}).events) == 0
    hand.expect(Seek)


def test_first_offset_while_the_group_changes(hand: ByHand, observer: Recorder) -> None:
    """A poll shows who owns the shard now. It is not read before its offset is there."""
    hand.answer(Poll, Polled(0.0, gained=frozenset([0])))
    hand.answer(ReadBeliefs, {0: StoredShard(NOWHERE, [None])})
    hand.answer(Committed, {0: None})
    hand.answer(LogStarts, {0: 0})
    hand.answer(ShardEnds, [0])
    hand.fail(Publish, Regrouped("another generation"))
    hand.answer(Poll, Polled(0.0))
    opened(hand, {0: NOWHERE}, {0: None})
    hand.expect(Seek)
    assert observer.troubles == []
