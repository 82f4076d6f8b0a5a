"""Groups batches of several shards, so that their rows are computed together as one column."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise

import numpy as np

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.pipeline.parts.rows import Rows, rows_of
from stream_rater.pipeline.updater.repeats import Distinct, distinct
from stream_rater.pipeline.updater.shard import Batch


class ShardGroup:
    """One batch for each of several shards, in order."""

    def __init__(self, batches: Mapping[int, Batch]) -> None:
        self.batches = batches
        self.cuts: dict[int, slice] = {}
        """The range of each shard's rows among all rows."""
        end = 0
        for shard, batch in batches.items():
            start, end = end, end + batch.rows
            self.cuts[shard] = slice(start, end)

    @cached_property
    def rows(self) -> Rows:
        """The rows of all batches."""
        return rows_of([item.piece for batch in self.batches.values() for item in batch.items])

    @cached_property
    def distinct(self) -> Distinct:
        """The players of the rows. Those of a shard follow each other."""
        sizes = [cut.stop - cut.start for cut in self.cuts.values()]
        shard = np.repeat(np.arange(len(sizes)), np.array(sizes, np.int64))
        return distinct(self.rows.players, self.rows.fingerprints, shard)

    @cached_property
    def players(self) -> dict[int, PlayerColumn]:
        """The players of each shard, each once."""
        if not self.distinct.repeat:
            return {shard: self.rows.players[cut] for shard, cut in self.cuts.items()}
        everybody = self.rows.players.take(self.distinct.first)
        ends = [0, *np.searchsorted(self.distinct.first, [c.stop for c in self.cuts.values()])]
        cuts = zip(self.cuts, pairwise(ends), strict=True)
        return {shard: everybody[a:b] for shard, (a, b) in cuts}

    def take(self, shards: list[int]) -> "ShardGroup":
        """The group reduced to these of its shards."""
        if len(shards) == len(self.batches):
            return self
        return ShardGroup({shard: self.batches[shard] for shard in shards})


def shard_groups(batches: Mapping[int, Batch], most_rows: int) -> Iterator[ShardGroup]:
    """Group the batches in order. A group ends before it would exceed `most_rows` rows, and has at
    least one batch."""
    group: dict[int, Batch] = {}
    rows = 0
    for shard, batch in batches.items():
        if group and rows + batch.rows > most_rows:
            yield ShardGroup(group)
            group, rows = {}, 0
        group[shard] = batch
        rows += batch.rows
    if group:
        yield ShardGroup(group)
