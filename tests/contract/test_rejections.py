"""Looking up rejections in the log."""

from dataclasses import replace

from stream_rater.pipeline.ports import CommitSource, LookForOffsets, OffsetEvidence
from tests.contract.rigs import ESTIMATOR, Member, Rig, SqliteRig, read_from_start
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


def test_the_record_that_decided_later_is_found(rig: Rig) -> None:
    """If a later record decided, the offset after that one is found. A data file does not have it:
    nothing deletes its committed offsets."""
    rejected = [rejection(rig, "unknown-round", b"x") for _ in range(4)]
    member = read_from_start(rig, ESTIMATOR)
    both = replace(rejected[0], decided_at=2), replace(rejected[1], decided_at=2)
    member.do(CommitSource({0: 3}, both))
    after = 2 if isinstance(rig, SqliteRig) else 3
    assert looked(member, BOTH).after_rejected == {0: after}
    member.do(CommitSource({0: 4}, [rejected[3]]))
    assert looked(member, BOTH).after_rejected == {0: 4}


def test_deleted_rejections_are_noticed(rig: Rig) -> None:
    """What is left does not show the last one of each partition."""
    rejected = rejection(rig, "malformed", b"x")
    member = read_from_start(rig, ESTIMATOR)
    member.do(CommitSource({0: 1}, [rejected]))
    assert not looked(member, BOTH).rejections_deleted
    rig.cut_rejections()
    ends = {0: 1, 1: 0}
    found = OffsetEvidence({}, ends, parts_deleted=False, rejections_deleted=True)
    assert looked(member, BOTH) == found
