"""`replay/rebuild` and `replay/verify`: how fast a long log in a data file (lobbies of five, 64
ladders) is replayed, on all cores and on one, in turns. The writing of `rebuild` is not measured.
`replay/seeds`: how fast a replay seeds millions of players, one record after the other (as `rate`
and `verify` do) and many records together (as `rebuild` does)."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.log import NewRound, SqliteLog
from stream_rater.columns.sharding import partition_of
from stream_rater.config.ladders import ANY_LADDER, any_ladder
from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import ESTIMATORS, JSON
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import MOST_PLAYERS, SEEDED
from stream_rater.operations.cutoff import Cutoff
from stream_rater.operations.rebuild import rebuild_from_log, replayed
from stream_rater.operations.rebuild_store import Rebuild
from stream_rater.operations.verify import compared_with_replay
from stream_rater.places import opened
from stream_rater.places.port import Place
from stream_rater.replay.cores import Cores, all_cores
from stream_rater.replay.sequential import Replay
from tests.benchmarks.measure import Effort, Result, best_s, result
from tests.benchmarks.offline import CONFIG
from tests.benchmarks.stream.rounds import WORKLOADS, Round, limited, updates_of

WORKLOAD, UPDATES = "lobby5", 6_000_000
QUICK = 100  # The divisor of the number of updates, or of seeded players, for a quick run.
TURNS = 3
AT_ONCE = 20_000
HEADERS = (("content-type", JSON.encode()),)
RECEIVED_S = 4e9
SEEDED_PLAYERS = 10_000_000
TOGETHER = 20  # The number of seeds that a rebuild takes at once.
WINDOW = 100_000
LADDERS = any_ladder(CONFIG)


def append(path: Path, rounds: Iterable[Round], received_s: float) -> int:
    """Append rounds to a data file that no process has open. Returns the number of updates."""
    updates, left = 0, iter(rounds)
    with closing(Database.open(path)) as database:
        log = SqliteLog(database)

        def new(each: Round) -> NewRound:
            partition = partition_of(each.ladder, database.partitions)
            return NewRound(partition, each.value, HEADERS, received_s, each.ladder.encode())

        while some := list(islice(left, AT_ONCE)):
            updates += updates_of(some)
            log.submit_all(list(map(new, some)))
    return updates


def _made(path: Path, effort: Effort, settings: Settings) -> int:
    """Make a data file whose rounds are rated. Returns the number of updates."""
    rounds = limited(UPDATES // (QUICK if effort.quick else 1), WORKLOADS[WORKLOAD].rounds())
    updates = append(path, rounds, RECEIVED_S)
    with closing(Database.open(path)) as database, database.write(LogTrouble) as connection:
        log = SqliteLog(database)
        ends = [(ESTIMATORS, p, log.rounds.end(p)) for p in range(database.partitions)]
        connection.executemany("INSERT OR REPLACE INTO committed VALUES (?, ?, ?)", ends)
    with opened(settings, writes=True) as place:
        rebuild_from_log(place, ANY_LADDER)
        place.end_rebuild()
    return updates


def _rebuild(place: Place, cores: int) -> None:
    done = place.progress()
    applied, sent = dict(enumerate(done.applied)), dict(enumerate(done.rated))
    cutoff = Cutoff(applied, sent, place.shards)
    for _ in replayed(place, ANY_LADDER, cutoff, Cores(cores)).beliefs():
        pass


def _verify(place: Place, cores: int) -> None:
    compared_with_replay(place, ANY_LADDER, cores=cores)


def _measure(name: str, run: Callable[[Place, int], None], effort: Effort) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.db"
        settings = msgspec.structs.replace(Settings(), data=str(path))
        updates, cores = _made(path, effort, settings), all_cores()
        with opened(settings) as place, place.at_rest(0.0) as instant:
            run(instant, 1)  # the kernels are loaded
            took_s = best_s(
                effort.turns(TURNS), all=partial(run, instant, cores), one=partial(run, instant, 1)
            )
    ratio = {
        "one_core": took_s["one"] / took_s["all"], "cores": cores,
        "one_core_updates_a_second": updates / took_s["one"],
    }  # fmt: skip
    note = f"{updates} updates of {WORKLOAD} in a data file; least of the turns"
    return result(f"replay/{name}", updates / took_s["all"], "updates/s", ratio, note)


# --- seeds ----------------------------------------------------------------------------------------


def a_seed(number: int) -> Record:
    """A seed of as many players as may be in one, none of whom is in another one."""
    first = MOST_PLAYERS * number
    rows = [
        {"player": f"player-{first + i:08}", "mu": 1200.0 + i % 700, "sigma": 90.5, "rounds": 12}
        for i in range(MOST_PLAYERS)
    ]
    event = {"ladder": "duel", "round_id": f"seed-{number}", "at": "2026-01-01T00:00:00Z"}
    headers = ((EVENT_TYPE, SEEDED.encode()),)
    value = msgspec.json.encode({**event, "players": rows})
    return Record(0, number, value, headers, received_s=RECEIVED_S)


def batches(records: int) -> Iterator[list[Record]]:
    """The records of all players, some at a time."""
    for first in range(0, records, TOGETHER):
        yield [a_seed(number) for number in range(first, min(first + TOGETHER, records))]


def _spent_s(steps: Iterable[Callable[[], object]]) -> float:
    """The time of some calls, without the time to make them."""
    spent_s = 0.0
    for step in steps:
        began_s = time.perf_counter()
        step()
        spent_s += time.perf_counter() - began_s
    return spent_s


def _replayed_s(records: int) -> float:
    """Seconds of a replay of one record after the other."""
    replay = Replay(LADDERS, WINDOW)
    spent_s = _spent_s(partial(replay.feed, [each]) for batch in batches(records) for each in batch)
    assert len(replay.pools["duel"]) == records * MOST_PLAYERS
    return spent_s


def _rebuilt_s(records: int) -> float:
    """Seconds of a rebuild without the reading and the writing."""
    work = Rebuild(LADDERS, WINDOW, 1, Cutoff({}, {0: records}, 1))
    spent_s = _spent_s(partial(work.feed, batch) for batch in batches(records))
    spent_s += _spent_s([lambda: sum(map(len, work.beliefs()))])
    assert work.written == records * MOST_PLAYERS
    return spent_s


def _seeds(effort: Effort) -> Result:
    records = SEEDED_PLAYERS // MOST_PLAYERS // (QUICK if effort.quick else 1)
    players = records * MOST_PLAYERS
    _replayed_s(1), _rebuilt_s(1)  # the kernels are loaded
    replayed, rebuilt = _replayed_s(records), _rebuilt_s(records)
    ratio = {"players": players, "records": records, "replay": players / replayed}
    return result("replay/seeds", players / rebuilt, "players/s", ratio)


BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    "replay/seeds": _seeds,
    "replay/rebuild": partial(_measure, "rebuild", _rebuild),
    "replay/verify": partial(_measure, "verify", _verify),
}
