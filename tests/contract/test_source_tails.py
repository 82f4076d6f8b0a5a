"""The checksum of the record before a committed offset, compared with the log; added shards."""

from collections.abc import Sequence
from contextlib import suppress

from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import checksum
from stream_rater.pipeline.ports import (
    CommitSource,
    CommittedSource,
    PartSums,
    Scatter,
    ShardEnds,
    SourceCommit,
    SourceTail,
    SourceTails,
)
from tests.contract.rigs import ESTIMATOR, PARTITIONS, SHARDS, UPDATER, Rig, read_from_start
from tests.integration.topics import Bytes


def test_shard_ends_show_added_shards(rig: Rig) -> None:
    """A worker that was there before sees the present number of shards."""
    member = rig.join(ESTIMATOR)
    assert len(member.do(ShardEnds())) == SHARDS
    rig.add_shards(2)

    def seen() -> Sequence[int]:
        with suppress(LogTrouble):  # a new partition has no leader yet
            return list(member.do(ShardEnds()))
        return ()

    member.poll_until(lambda: seen() == [0] * (SHARDS + 2))


def test_different_records_have_different_checksums(rig: Rig) -> None:
    """Members of either group get the record's checksum; only the same bytes have the same."""
    estimator = rig.join(ESTIMATOR)
    parts = [b"one", b"two", b"", b"two"]
    estimator.do(Scatter([(1, each) for each in parts] + [(0, b"other")]))
    for member in (estimator, rig.join(UPDATER)):
        for offset, each in enumerate(parts):
            found = member.do(PartSums({1: offset, 0: 0}))
            assert found == {1: checksum(each), 0: checksum(b"other")}


BOTH = frozenset(range(PARTITIONS))


def test_the_record_before_an_offset(rig: Rig) -> None:
    """Committed with the offset of each partition, gone by a later commit without; none beyond the
    end, or of a deleted record."""
    member = read_from_start(rig, ESTIMATOR)
    assert member.do(CommittedSource(BOTH)) == {0: None, 1: None}
    member.do(CommitSource({0: 3, 1: 4}, tails={0: 0, 1: 0xFFFFFFFF}))
    assert member.do(CommittedSource(BOTH)) == {
        0: SourceCommit(3, 0), 1: SourceCommit(4, 0xFFFFFFFF),
    }  # fmt: skip
    member.do(CommitSource({1: 5}))
    assert member.do(CommittedSource(BOTH)) == {0: SourceCommit(3, 0), 1: SourceCommit(5)}
    values = [b"first", b"second", None]
    rig.submit(0, *map(Bytes, values))
    rig.submit(1, Bytes(b"other"))
    for end, value in enumerate(values, 1):
        assert member.do(SourceTails({0: end, 1: 1})) == {
            0: SourceTail(3, checksum(value)), 1: SourceTail(1, checksum(b"other")),
        }  # fmt: skip
    assert member.do(SourceTails({0: 4, 1: 1})) == {
        0: SourceTail(3, None), 1: SourceTail(1, checksum(b"other")),
    }  # fmt: skip
    rig.submit(0, *[Bytes(b"%d" % i) for i in range(5)])
    rig.cut(0, 6)
    assert member.do(SourceTails({0: 5})) == {0: SourceTail(8, None)}
    assert member.do(SourceTails({0: 7})) == {0: SourceTail(8, checksum(b"3"))}
