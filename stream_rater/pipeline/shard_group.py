"""Batches of several shards that go through the steps together, and all their rows in a row."""

from collections.abc import Iterator, Mapping
from functools import cached_property

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.parts.rows import Rows, rows_of
from stream_rater.pipeline.shard import Batch


class ShardGroup:
    """By shard, in order, a batch each."""

    def __init__(self, batches: Mapping[int, Batch]) -> None:
        self.batches = batches
        self.cuts: dict[int, slice] = {}
        """Which of the rows are each shard's."""
        end = 0
        for shard, batch in batches.items():
            start, end = end, end + batch.rows
            self.cuts[shard] = slice(start, end)

    @cached_property
    def rows(self) -> Rows:
        """Of all."""
        return rows_of([item.piece for batch in self.batches.values() for item in batch.items])

    @property
    def players(self) -> dict[int, PlayerColumn]:
        """By shard."""
        return {shard: self.rows.players[cut] for shard, cut in self.cuts.items()}

    def take(self, shards: list[int]) -> "ShardGroup":
        """Of these shards only, of which all are its own."""
        if len(shards) == len(self.batches):
            return self
        return ShardGroup({shard: self.batches[shard] for shard in shards})


def convoys(batches: Mapping[int, Batch], most_rows: int) -> Iterator[ShardGroup]:
    """All of them, together in order while they have no more rows than that."""
    some: dict[int, Batch] = {}
    rows = 0
    for shard, batch in batches.items():
        if some and rows + batch.rows > most_rows:
            yield ShardGroup(some)
            some, rows = {}, 0
        some[shard] = batch
        rows += batch.rows
    if some:
        yield ShardGroup(some)
