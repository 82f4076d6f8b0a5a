"""Verifies the store: compares every belief with the sequential replay of the log, bit for bit."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.config import Ladders
from stream_rater.contract.record import Player, Record
from stream_rater.pipeline.ports import Held
from stream_rater.replay.pool import Pool
from stream_rater.replay.sequential import Replay

BATCH = 5000

Read = Callable[[Mapping[int, PlayerColumn]], Mapping[int, Held]]
"""Reads the players' records by shard, as `RedisStore.read` does."""


@dataclass
class Verdict:
    """The result of a comparison."""

    rounds: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    """How many records were rejected, by error code."""
    beliefs: int = 0
    missing: list[Player] = field(default_factory=list)
    differing: list[Player] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether every belief exists and is equal."""
        return not self.missing and not self.differing


def compare(
    records: Iterable[Record], ladders: Ladders, window: int, partitions: int, shards: int,
    read: Read,
) -> Verdict:  # fmt: skip
    """Replay the records of `round-completed`, which has `partitions` partitions, and compare each
    belief with the store's."""
    verdict = Verdict()
    replay = Replay(ladders, window, partitions)
    for batch in replay.run(records):
        verdict.rounds += len(batch.decoded.rounds)
        verdict.rejected.update(each.code for each in batch.decoded.refusals if each is not None)
    for ladder, pool in replay.pools.items():
        for players, due in _batches(pool):
            _compare(verdict, ladder, players, due, shards, read)
    return verdict


def _batches(pool: Pool) -> Iterator[tuple[list[str], list[bytes]]]:
    """Yield some players with their records at a time."""
    players = pool.players()
    for start in range(0, len(players), BATCH):
        some = players[start : start + BATCH]
        yield some, pool.records(np.arange(start, start + len(some)))


def _compare(
    verdict: Verdict, ladder: str, players: Sequence[str], due: Sequence[bytes], shards: int,
    read: Read,
) -> None:  # fmt: skip
    asked: dict[int, list[Player]] = {}
    for player, shard in zip(players, shards_of(players, shards).tolist(), strict=True):
        asked.setdefault(shard, []).append((ladder, player))
    expected = dict(zip(players, due, strict=True))
    held = read({shard: PlayerColumn.of(wanted) for shard, wanted in asked.items()})
    for shard, wanted in asked.items():
        for whose, found in zip(wanted, held[shard].records, strict=True):
            verdict.beliefs += 1
            if found is None:
                verdict.missing.append(whose)
            elif found != expected[whose[1]]:
                verdict.differing.append(whose)
