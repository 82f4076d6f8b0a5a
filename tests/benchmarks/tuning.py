"""`tuning/EXECUTOR/N`: the time of the same search in one process, in several, and on a local Dask
cluster that runs already. Each must find what one process finds, to the last digit."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from stream_rater.evaluation.fits import LOG_LOSS, Fit, OwnSystem
from stream_rater.evaluation.tuning import search
from stream_rater.operations.evaluate import SeasonFile
from stream_rater.runtime.trials import Where, trials_on
from tests.benchmarks.measure import Effort, Result, Skipped, result
from tests.benchmarks.offline import Made, made_up

SYSTEM = "two-moment"
ROUNDS, TRIALS = Made(20_000, 12, 20_000), 60
QUICK_ROUNDS, QUICK_TRIALS = Made(200, 12, 50), 12


@contextmanager
def a_cluster(workers: int) -> Iterator[Where]:
    """A Dask cluster of so many processes on this machine; Skipped where Dask is not installed."""
    try:
        from distributed import LocalCluster
    except ImportError:
        raise Skipped("distributed is not installed: the extra dask brings it") from None
    free = "127.0.0.1:0"
    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=free) as cluster:
        yield cluster.scheduler_address.removeprefix("tcp://")


@contextmanager
def processes(count: int) -> Iterator[Where]:
    """So many processes, which are started when they are needed."""
    yield count


PLACES = {
    **{f"processes/{n}": partial(processes, n) for n in (1, 2, 4)},
    "dask/2": partial(a_cluster, 2),
}


@cache
def problem(quick: bool) -> Fit:
    made = QUICK_ROUNDS if quick else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rounds.jsonl")
        path.write_bytes(b"".join(made_up(made.rounds, made)))
        return Fit(OwnSystem(SYSTEM), SeasonFile(path).play(list), LOG_LOSS)


@cache
def found_on(place: str, quick: bool) -> tuple[list[float], float]:
    """The best point, and the seconds that it took to find."""
    fit, trials = problem(quick), QUICK_TRIALS if quick else TRIALS
    fit.cost(fit.start())  # its kernels are loaded in this process
    with PLACES[place]() as where:
        began_s = time.perf_counter()
        with trials_on(where) as executor:
            point = search(fit, trials, executor)
        return point, time.perf_counter() - began_s


def _measure(place: str, effort: Effort) -> Result:
    alone, alone_s = found_on("processes/1", effort.quick)
    found, took_s = found_on(place, effort.quick)
    assert found == alone, f"{place} finds {found}, and one process finds {alone}"
    made, trials = (QUICK_ROUNDS, QUICK_TRIALS) if effort.quick else (ROUNDS, TRIALS)
    ratio = {"trials": trials, "rounds": made.rounds, "of_one": alone_s / took_s}
    note = f"{SYSTEM}: finds the same as one process, to the last digit"
    return result(f"tuning/{place}", took_s, "s", ratio, note)


BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    f"tuning/{place}": partial(_measure, place) for place in PLACES
}
