"""Shards that are added while workers run."""

from collections.abc import Sequence
from contextlib import suppress

from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import checksum
from stream_rater.pipeline.ports import PartSums, Scatter, ShardEnds
from tests.contract.rigs import ESTIMATOR, SHARDS, UPDATER, Rig


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
    """A member of either group gets the checksum of the record at the offset. Only the same bytes
    have the same checksum."""
    estimator = rig.join(ESTIMATOR)
    parts = [b"one", b"two", b"", b"two"]
    estimator.do(Scatter([(1, each) for each in parts] + [(0, b"other")]))
    for member in (estimator, rig.join(UPDATER)):
        for offset, each in enumerate(parts):
            found = member.do(PartSums({1: offset, 0: 0}))
            assert found == {1: checksum(each), 0: checksum(b"other")}
