"""The record before a committed offset: its checksum is committed, and compared with the log."""

from stream_rater.contract.record import checksum
from stream_rater.pipeline.ports import (
    CommitSource,
    CommittedSource,
    SourceCommit,
    SourceTail,
    SourceTails,
)
from tests.contract.rigs import ESTIMATOR, PARTITIONS, Rig, read_from_start
from tests.integration.topics import Bytes

BOTH = frozenset(range(PARTITIONS))


def test_checksums_are_committed_with_offsets(rig: Rig) -> None:
    """A later commit without one leaves none: it would be that of another record."""
    member = read_from_start(rig, ESTIMATOR)
    assert member.do(CommittedSource(BOTH)) == {0: None, 1: None}
    member.do(CommitSource({0: 3, 1: 4}, tails={0: 0, 1: 0xFFFFFFFF}))
    assert member.do(CommittedSource(BOTH)) == {
        0: SourceCommit(3, 0), 1: SourceCommit(4, 0xFFFFFFFF),
    }  # fmt: skip
    member.do(CommitSource({1: 5}))
    assert member.do(CommittedSource(BOTH)) == {0: SourceCommit(3, 0), 1: SourceCommit(5)}


def test_record_before_an_offset(rig: Rig) -> None:
    """Of each partition at once. Beyond the end there is none."""
    values = [b"first", b"second", None]
    rig.submit(0, *map(Bytes, values))
    rig.submit(1, Bytes(b"other"))
    member = read_from_start(rig, ESTIMATOR)
    for end, value in enumerate(values, 1):
        assert member.do(SourceTails({0: end, 1: 1})) == {
            0: SourceTail(3, checksum(value)), 1: SourceTail(1, checksum(b"other")),
        }  # fmt: skip
    assert member.do(SourceTails({0: 4, 1: 1})) == {
        0: SourceTail(3, None), 1: SourceTail(1, checksum(b"other")),
    }  # fmt: skip


def test_record_before_an_offset_that_was_deleted(rig: Rig) -> None:
    """It is none, and not the next one that is there."""
    rig.submit(0, *[Bytes(b"%d" % i) for i in range(5)])
    rig.cut(0, 3)
    member = read_from_start(rig, ESTIMATOR)
    assert member.do(SourceTails({0: 2})) == {0: SourceTail(5, None)}
    assert member.do(SourceTails({0: 4})) == {0: SourceTail(5, checksum(b"3"))}
