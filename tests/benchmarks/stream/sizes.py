"""What an update costs by how many players there are, and by how many shards.

Redis holds beliefs of all players before the first round: those of PATTERNS players after some
rounds, again and again.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice

from stream_rater.adapters.redis import RedisStore
from stream_rater.config import ANY_LADDER, DEFAULT_RATING, Ladder, Settings
from stream_rater.lab.rebuild import fill
from stream_rater.lab.replay import Pool
from stream_rater.pipeline.ports import Application, Player, Position
from stream_rater.rating import record
from stream_rater.rating.model import NEVER
from stream_rater.standings import Reader
from tests.benchmarks.stream.ground import Ground
from tests.benchmarks.stream.rounds import Workload, ladder_name, player_name, up_to
from tests.benchmarks.stream.throughput import Run, measured

PLAYERS = (10_000, 100_000, 1_000_000, 10_000_000)
SHARDS = (4, 16, 64)
PATTERNS, ROUNDS_EACH = 1000, 10


def by_players(ground: Ground, workload: Workload, updates: int) -> Iterator[tuple[int, Run]]:
    """Each number of players, and what its updates cost."""
    for players in PLAYERS:
        yield players, _run(ground, replace(workload, players=players), updates)


def by_shards(ground: Ground, workload: Workload, updates: int) -> Iterator[tuple[int, Run]]:
    """Each number of shards, and what its updates cost."""
    for shards in SHARDS:
        yield shards, _run(ground, workload, updates, shards=shards)


def _run(ground: Ground, workload: Workload, updates: int, **settings: int) -> Run:
    rounds = up_to(updates, workload.rounds())
    return measured(ground, workload, rounds, 1, before=lambda at: _fill(at, workload), **settings)


def _fill(settings: Settings, workload: Workload) -> None:
    """Beliefs of all players of a workload, at the start of the log."""
    store = RedisStore(settings)

    def write(calls: "dict[int, Application]") -> dict[int, bool]:
        start = Position()
        return store.apply({s: Application(start, each.beliefs) for s, each in calls.items()})

    fill(zip(_players(workload), cycle(_patterns(workload))), {}, settings.shards, write)
    store.close()


def _players(workload: Workload) -> Iterator[Player]:
    for number in range(workload.players):
        yield ladder_name(number // workload.in_ladder), player_name(number)


def _patterns(workload: Workload) -> list[bytes]:
    """Records of players who have played, though in no round of any log."""
    few = replace(workload, players=PATTERNS, ladders=1)
    rounds = islice(few.rounds(), PATTERNS * ROUNDS_EACH // workload.size)
    reader, pool = Reader(ANY_LADDER), Pool(Ladder(rating=DEFAULT_RATING))
    for offset, each in enumerate(rounds):
        pool.rate(reader.read(each.value), offset)
    law = pool.law
    records = pool.records([name for name, _ in pool])
    beliefs = record.decode(records, law.kept + 1, law.initial_mu, law.initial_sigma)
    beliefs.header["last"] = NEVER
    return record.encode(beliefs)
