"""What an operator does after the store is lost: `rebuild`, on the simulated log and store."""

import random

from stream_rater.adapters.memory import Log
from stream_rater.config import Ladders
from stream_rater.lab.rebuild import Reach, Rebuild, fill
from stream_rater.pipeline import changes, parts
from stream_rater.pipeline.parts import NotAPart
from stream_rater.pipeline.ports import UNFINISHED, Player, Position, Record

from .actors import NEXT_KERNEL
from .game import PARTITION_OF, SHARDS
from .world import StoreWithPast

Row = tuple[Player, int]
"""A player and the source offset of a round."""


def rebuild(
    log: Log, store: StoreWithPast, ladders: Ladders, window: int, reaching: type[Reach]
) -> None:
    """As the command does, with its own functions."""
    applied, scattered = log.updaters.committed, log.estimators.committed
    reach = reaching(applied, scattered, SHARDS, NEXT_KERNEL)
    for shard in log.parts:
        for record in shard[shard.start :]:
            reach.note(record)
    work = Rebuild(ladders, window, reach, len(log.rounds))
    for records in log.rounds:
        for record in records:
            work.feed(record)

    for shard in range(SHARDS):
        store.positions[shard] = Position(UNFINISHED, UNFINISHED)
    fill(
        work.beliefs(), applied, SHARDS,
        lambda them: {s: store.apply(s, each.position, each.beliefs) for s, each in them.items()},
    )  # fmt: skip
    store.agree({ladder: ladders.history(ladder) for ladder in work.ladders})
    for number, shard in enumerate(log.parts):
        store.forget_before(number, shard.start)


def expire(log: Log, rng: random.Random) -> None:
    """Retention deletes parts: only such as were applied and published, of rounds committed, and
    of which no copy was sent a moment ago, as is true of all parts that are days old."""
    for number, shard in enumerate(log.parts):
        end = log.updaters.committed.get(number, 0)
        young = {row for record in shard[end:] for row in rows(record)}
        start = shard.start
        while start < end and all(
            row not in young and row[1] < log.estimators.committed.get(PARTITION_OF[row[0][0]], 0)
            for row in rows(shard[start])
        ):
            start += 1
        shard.start = rng.randint(shard.start, start)


def rows(record: Record) -> list[Row]:
    """Whom and which rounds a part tells of; nothing, if it is none."""
    try:
        part = parts.decode(record.value or b"", NEXT_KERNEL)
    except NotAPart:
        return []
    offsets = [part.rounds[i].offset for i in part.round_index.tolist()]
    return list(zip(changes.players_of(part), offsets, strict=True))
