"""Looking up rejections in the log."""

from stream_rater.pipeline.ports import CommitSource, LookForOffsets, OffsetEvidence
from tests.contract.rigs import ESTIMATOR, Member, Rig, read_from_start
from tests.contract.test_writing import BOTH, rejection


def looked(member: Member, partitions: frozenset[int]) -> OffsetEvidence:
    """What is found for these partitions."""
    found: OffsetEvidence = member.do(LookForOffsets(partitions))
    return found


def test_the_last_rejections_are_found(rig: Rig) -> None:
    """For each partition, the offset after its last rejection, or nothing if there is none; and the
    end of the log."""
    rejected = [rejection(rig, "malformed", b"x") for _ in range(3)]
    member = read_from_start(rig, ESTIMATOR)
    ends = {0: 3, 1: 0}
    assert looked(member, BOTH) == OffsetEvidence({}, ends, parts_deleted=False)
    member.do(CommitSource({0: 3}, rejected))
    assert looked(member, BOTH) == OffsetEvidence({0: 3}, ends, parts_deleted=False)
    assert looked(member, frozenset([1])).after_rejected == {}
