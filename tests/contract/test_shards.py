"""Shards that are added while workers run."""

from collections.abc import Sequence
from contextlib import suppress

from stream_rater.pipeline.ports import LogTrouble, ShardEnds
from tests.contract.rigs import ESTIMATOR, SHARDS, Rig


def test_shard_ends_tell_of_shards_that_were_added(rig: Rig) -> None:
    """A worker that was there before sees the present number of shards."""
    member = rig.join(ESTIMATOR)
    assert len(member.do(ShardEnds())) == SHARDS
    rig.add_shards(2)

    def seen() -> Sequence[int]:
        with suppress(LogTrouble):  # a new partition has no leader yet
            return list(member.do(ShardEnds()))
        return ()

    member.poll_until(lambda: seen() == [0] * (SHARDS + 2))
