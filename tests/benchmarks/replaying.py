"""`replay/rebuild` and `replay/verify`: how fast a long log is replayed, on all cores and on one.

The log is that of lobbies of five on 64 ladders, in a data file. `rebuild` is measured without the
writing, and `verify` as a whole. Both run in turns on all cores and on one. The start of other
processes is included.
"""

import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.log import NewRound, SqliteLog
from stream_rater.adapters.sqlite.reading import DataFile, data_file
from stream_rater.columns.sharding import partition_of
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.groups import ESTIMATORS, UPDATERS
from stream_rater.operations.cutoff import Cutoff
from stream_rater.operations.rebuild import replayed
from stream_rater.operations.rebuild_file import fill
from stream_rater.operations.verify import Options, compared_with_replay
from stream_rater.replay.cores import Cores, all_cores
from tests.benchmarks.measure import Effort, Result, best_s, result
from tests.benchmarks.stream.rounds import WORKLOADS, Round, limited

WORKLOAD, UPDATES = "lobby5", 6_000_000
QUICK = 100
"""The divisor of the number of updates for a quick run."""
TURNS = 3
AT_ONCE = 20_000
RECEIVED_S = 4e9


def _new_round(each: Round, partitions: int) -> NewRound:
    partition = partition_of(each.ladder, partitions)
    return NewRound(partition, each.value, (), RECEIVED_S, each.ladder.encode())


def _made(path: Path, effort: Effort, settings: Settings) -> int:
    """Make a data file whose rounds count as rated, with their ratings. Returns the number of
    updates."""
    rounds = limited(UPDATES // (QUICK if effort.quick else 1), WORKLOADS[WORKLOAD].rounds())
    updates = 0
    with closing(Database.open(path)) as database:
        log = SqliteLog(database)
        while some := list(islice(rounds, AT_ONCE)):
            updates += sum(len(each.players) for each in some)
            log.submit_all([_new_round(each, database.partitions) for each in some])
        with database.write(LogTrouble) as connection:
            ends = [(ESTIMATORS, p, log.rounds.end(p)) for p in range(database.partitions)]
            connection.executemany("INSERT OR REPLACE INTO committed VALUES (?, ?, ?)", ends)
    fill(settings, ANY_LADDER, path)
    return updates


def _rebuild(file: DataFile, settings: Settings, cores: int) -> None:
    applied = dict(enumerate(file.committed(UPDATERS, file.shards)))
    sent = dict(enumerate(file.committed(ESTIMATORS, file.partitions)))
    cutoff = Cutoff(applied, sent, file.shards)
    work = replayed(
        file.log_reader(), lambda _: {}, ANY_LADDER, settings.duplicate_window, file.partitions,
        cutoff, Cores(cores),
    )  # fmt: skip
    for _ in work.beliefs():
        pass


def _verify(file: DataFile, settings: Settings, cores: int) -> None:
    compared_with_replay(settings, ANY_LADDER, file, Options(cores=cores))


def _measure(name: str, run: Callable[[DataFile, Settings, int], None], effort: Effort) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.db"
        settings = msgspec.structs.replace(Settings(), data=str(path))
        updates, cores = _made(path, effort, settings), all_cores()
        with data_file(str(path)) as file, file.snapshot():
            run(file, settings, 1)  # the kernels are loaded
            took_s = best_s(
                effort.turns(TURNS), all=partial(run, file, settings, cores),
                one=partial(run, file, settings, 1),
            )  # fmt: skip
    ratio = {
        "one_core": took_s["one"] / took_s["all"], "cores": cores,
        "one_core_updates_a_second": updates / took_s["one"],
    }  # fmt: skip
    note = f"{updates} updates of {WORKLOAD} in a data file; least of the turns"
    return result(f"replay/{name}", updates / took_s["all"], "updates/s", ratio, note)


BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    "replay/rebuild": partial(_measure, "rebuild", _rebuild),
    "replay/verify": partial(_measure, "verify", _verify),
}
