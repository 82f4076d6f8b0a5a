"""What the log tells of the records that were rejected."""

from stream_rater.pipeline.ports import AfterRejected, CommitSource
from tests.contract.rigs import ESTIMATOR, Rig, read_from_start
from tests.contract.test_writing import BOTH, rejection


def test_the_last_rejections_are_found(rig: Rig) -> None:
    """Of each partition the offset after its last one; of one without any, nothing."""
    rejected = [rejection(rig, "malformed", b"x") for _ in range(3)]
    member = read_from_start(rig, ESTIMATOR)
    assert member.do(AfterRejected(BOTH)) == {}
    member.do(CommitSource({0: 3}, rejected))
    assert member.do(AfterRejected(BOTH)) == {0: 3}
    assert member.do(AfterRejected(frozenset([1]))) == {}
