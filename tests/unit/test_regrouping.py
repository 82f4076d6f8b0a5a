"""Commits that a new generation of the group refuses: once a poll has shown which partitions are
still ours, these are committed, and no role begins again."""

from stream_rater.contract.errors import Regrouped
from stream_rater.contract.record import Record
from stream_rater.pipeline.ports import (
    REGROUPING_S,
    REGROUPINGS,
    Apply,
    CommitSource,
    NewProducer,
    Poll,
    Polled,
    Position,
    Publish,
    ReadBeliefs,
    Scatter,
    Seek,
    StoredShard,
)
from stream_rater.pipeline.updater.updater import Updater
from tests.builders.machines import NOWHERE, ByHand, Recorder, part, record
from tests.unit import test_estimator as estimating
from tests.unit import test_updater as updating


def refused_for_good(hand: ByHand, commit: type[CommitSource | Publish]) -> None:
    """It is refused again and again, and then everything begins again."""
    for _ in range(REGROUPINGS - 1):
        hand.fail(commit, Regrouped("not settled"))
        hand.answer(Poll, Polled(0.0), no_fetch=True)
    hand.fail(commit, Regrouped("not settled"))
    hand.answer(Poll, Polled(0.0), no_fetch=True, timeout_s=0.0)
    hand.expect(NewProducer)


def test_commit_refused_by_a_new_generation_is_tried_again() -> None:
    """What a poll shows to be still ours is committed. Gained partitions are opened, and nothing is
    forgotten."""
    observer = Recorder()
    hand = estimating.by_hand(observer)
    estimating.owning(hand, 0, 1)
    estimating.read(
        hand, estimating.round_at(0, "a", "b"), estimating.round_at(0, "c", "d", partition=1)
    )
    estimating.priors(hand)
    estimating.parts_sent(hand, *range(len(hand.expect(Scatter).parts)))
    hand.expect(CommitSource, offsets={0: 1, 1: 1})
    hand.fail(CommitSource, Regrouped("another generation"))
    hand.answer(Poll, Polled(0.0), no_fetch=True, timeout_s=REGROUPING_S)
    hand.fail(CommitSource, Regrouped("and another"))
    reported = Polled(0.0, lost=frozenset([0]), gained=frozenset([2]))
    hand.answer(Poll, reported, no_fetch=True)
    hand.answer(CommitSource, offsets={1: 1}, rejections=[])
    assert estimating.opened(hand, committed={2: 0}).offsets == {2: 0}
    assert observer.troubles == []


def test_what_is_refused_again_and_again_is_trouble() -> None:
    """A commit, or a publication. It is reported, and everything begins again."""
    observer = Recorder()
    hand = estimating.by_hand(observer)
    estimating.owning(hand, 0)
    estimating.read(hand, Record(0, 0, b"junk"))
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


def test_publication_refused_by_a_new_generation_is_tried_again() -> None:
    """The shards that a poll shows to be still ours are published. Nothing is forgotten or
    applied."""
    observer = Recorder()
    hand = ByHand(Updater(2, observer=observer).run())
    hand.answer(Poll, Polled(0.0, gained=frozenset([0, 1])))
    updating.opened(hand, {0: NOWHERE, 1: NOWHERE}, {0: None, 1: None})
    hand.answer(Seek)
    updating.read(hand, record(0, part((5, "a"))), record(0, part((5, "d")), shard=1))
    hand.answer(
        ReadBeliefs, {0: StoredShard(Position(), [None]), 1: StoredShard(Position(), [None])}
    )
    hand.answer(Apply, {0: True, 1: True})
    assert updating.reported(hand.expect(Publish, offsets={0: 1, 1: 1})) == [("a", 0), ("d", 1)]
    hand.fail(Publish, Regrouped("another generation"))
    hand.answer(Poll, Polled(0.0), no_fetch=True, timeout_s=REGROUPING_S)
    assert updating.reported(hand.expect(Publish, offsets={0: 1, 1: 1})) == [("a", 0), ("d", 1)]
    hand.fail(Publish, Regrouped("and another"))
    hand.answer(Poll, Polled(0.0, lost=frozenset([0])), no_fetch=True)
    assert updating.reported(hand.answer(Publish, offsets={1: 1})) == [("d", 1)]
    updating.read(hand, record(1, part((6, "d")), shard=1))
    hand.expect(ReadBeliefs)
    assert observer.troubles == []
