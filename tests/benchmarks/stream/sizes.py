"""What an update costs by how many players there are, and by how many shards.

Redis holds beliefs of all players before the first round: those of PATTERNS players after some
rounds, again and again.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np

from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.player_column import BeliefColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.config.ladders import ANY_LADDER, DEFAULT_RATING, Ladder
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Player
from stream_rater.pipeline.ports import Application, Position
from stream_rater.rating import record
from stream_rater.rating.model import NEVER
from stream_rater.replay.pool import Pool
from tests.benchmarks.measure import Result, result
from tests.benchmarks.stream.ground import Ground
from tests.benchmarks.stream.rounds import Workload, ladder_name, player_name, up_to
from tests.benchmarks.stream.throughput import Run, measured
from tests.rounds import Reader

PLAYERS = (10_000, 100_000, 1_000_000, 10_000_000)
SHARDS = (4, 16, 64)
PATTERNS, ROUNDS_EACH = 1000, 10
AT_ONCE = 20_000
"""Beliefs written in one go."""


def sizes(ground: Ground, workload: Workload, updates: int) -> Iterator[Result]:
    """What updates cost, by each number of players and of shards; a first run only warms the broker
    up."""
    _run(ground, workload, updates)
    for players in PLAYERS:
        run = _run(ground, replace(workload, players=players), updates)
        yield _row(f"sizes/players/{players}", run)
    for shards in SHARDS:
        yield _row(f"sizes/shards/{shards}", _run(ground, workload, updates, shards=shards))


def _row(name: str, run: Run) -> Result:
    ratio = {f"{each}_us": us for each, us in run.processor_us.items()}
    return result(name, run.all_us, "us an update", ratio, run.note)


def _run(ground: Ground, workload: Workload, updates: int, **settings: Any) -> Run:
    def filled(at: Settings) -> None:
        _fill(at, workload)

    rounds = up_to(updates, workload.rounds())
    return measured(ground, workload, rounds, "1", before=filled, **settings)


def _fill(settings: Settings, workload: Workload) -> None:
    """Beliefs of all players of a workload, at the start of the log."""
    store, patterns = RedisStore(settings), cycle(_patterns(workload))
    for first in range(0, workload.players, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, workload.players))
        calls: dict[int, list[tuple[Player, bytes]]] = {}
        shards = shards_of([player_name(each) for each in numbers], settings.shards).tolist()
        for number, shard, pattern in zip(numbers, shards, patterns, strict=False):
            player = ladder_name(number // workload.in_ladder), player_name(number)
            calls.setdefault(shard, []).append((player, pattern))
        done = store.apply(
            {s: Application(Position(), BeliefColumn.of(some)) for s, some in calls.items()}
        )
        assert all(done.values()), "a round was rated before all beliefs were replaced"
    store.close()


def _patterns(workload: Workload) -> list[bytes]:
    """Records of players who have played, though in no round of any log."""
    few = replace(workload, players=PATTERNS, ladders=1)
    rounds = islice(few.rounds(), PATTERNS * ROUNDS_EACH // workload.size)
    reader, pool = Reader(ANY_LADDER), Pool(Ladder(rating=DEFAULT_RATING))
    for offset, each in enumerate(rounds):
        pool.rate(reader.read(each.value), offset)
    rule = pool.rule
    records = pool.records(np.arange(len(pool)))
    beliefs = record.decode(records, rule.kept + 1, rule.initial_mu, rule.initial_sigma)
    beliefs.header["last"] = NEVER
    return record.encode(beliefs)
