"""Verifies the store: compares every belief with the sequential replay of the log, bit for bit."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.config import Ladders
from stream_rater.contract.record import Player, Record
from stream_rater.lab.offline import Replay
from stream_rater.lab.replay import Pool
from stream_rater.pipeline.ports import Held
from stream_rater.rounds.validation import Invalid

BATCH = 5000

Read = Callable[[Mapping[int, PlayerColumn]], Mapping[int, Held]]
"""Reads the players' records by shard, as `RedisStore.read` does."""


@dataclass
class Verdict:
    """The result of a comparison."""

    rounds: int = 0
    rejected: int = 0
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
    for _, found in replay.run(records):
        if isinstance(found, Invalid):
            verdict.rejected += 1
        else:
            verdict.rounds += 1
    for ladder, pool in replay.pools.items():
        for players in _batches([player for player, _ in pool]):
            _compare(verdict, ladder, pool, players, shards, read)
    return verdict


def _batches(players: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(players), BATCH):
        yield players[start : start + BATCH]


def _compare(
    verdict: Verdict, ladder: str, pool: Pool, players: Sequence[str], shards: int, read: Read
) -> None:
    asked: dict[int, list[Player]] = {}
    for player, shard in zip(players, shards_of(players, shards).tolist(), strict=True):
        asked.setdefault(shard, []).append((ladder, player))
    held = read({shard: PlayerColumn.of(wanted) for shard, wanted in asked.items()})
    for shard, wanted in asked.items():
        for whose, found in zip(wanted, held[shard].records, strict=True):
            verdict.beliefs += 1
            if found is None:
                verdict.missing.append(whose)
            elif found != pool.belief_bytes(whose[1]):
                verdict.differing.append(whose)
