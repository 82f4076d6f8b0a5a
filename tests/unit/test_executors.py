"""Trials run on any executor, with the same result to the last digit; a failure is one line."""

import os
import re
import sys
import tempfile
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from stream_rater.config.errors import BadConfiguration, Failed, TrialsFailed
from stream_rater.evaluation import executors
from stream_rater.evaluation.contestants import OwnSystem
from stream_rater.evaluation.executors import parse_executor, sharing, trials_on
from stream_rater.evaluation.fits import Fit
from stream_rater.evaluation.spaces import SPACES
from stream_rater.evaluation.tuning import generation_of, search
from tests.benchmarks.lab.synthetic import Kind, season
from tests.builders.cases import cases
from tests.pages import text

SEASON = list(season(Kind(players=25, rounds=60, per_round=6), 11))
PROBLEM = Fit(OwnSystem("codeforces"), SEASON, "log_loss")
TRIALS = 16

BIG = list(range(1000))
"""An object that is shared."""


def times(shared: list[int], item: int) -> int:
    return shared[item] * 10


class Counted:
    """An object that leaves a file in a folder whenever it is unpickled."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickled, (self.folder,)


def unpickled(folder: str) -> Counted:
    handle, _ = tempfile.mkstemp(dir=folder)
    os.close(handle)
    return Counted(folder)


def who(_: object, __: object) -> int:
    return os.getpid()


def end_process(_: object, __: object) -> None:
    os._exit(1)


def fail(_: object, __: object) -> None:
    raise ValueError("a mistake of our own")


def lacks_a_package(_: object, __: object) -> None:
    raise ModuleNotFoundError("No module named 'openskill'", name="openskill")


# --- what is asked for ----------------------------------------------------------------------------


def test_where_trials_run() -> None:
    """By one word, or a number of processes, or the address of a scheduler."""
    assert parse_executor("processes", 3) == parse_executor("processes:3", None) == 3
    assert parse_executor("processes", None) == (os.cpu_count() or 1)
    for address in ("10.0.0.7:8786", "lab-scheduler.games:8786", "[::1]:8786"):
        assert parse_executor(f"dask://{address}", None) == address
    assert parse_executor("dask://lab:8786/", None) == "lab:8786"


@cases(
    "given",
    ["", "threads", "processes:", "processes:0", "processes:x", "dask:", "dask://lab", "tcp://a:1",
     "dask://lab:8786/x", "dask://u@lab:8786", "dask://lab:123456"],
)  # fmt: skip
def test_a_wrong_place_is_one_line(given: str) -> None:
    """It names what was given and the forms that there are. A number is given once: either as
    workers or with the executor; a cluster's workers are its own."""
    with pytest.raises(BadConfiguration) as raised:
        parse_executor(given, None)
    assert str(raised.value) == f"--executor {given}: {executors.FORMS}"
    for twice in ("processes:2", "dask://lab:1"):
        with pytest.raises(BadConfiguration, match=f"--workers 3 with --executor {twice}: it has"):
            parse_executor(twice, 3)


def test_the_page_says_how_many_workers_a_generation_keeps_busy() -> None:
    """For each system: three configurations a parameter, and two, as the search makes them."""
    rows = re.findall(
        r"^\| (`.*?) \| (\d+) \| (\d+) \|$", text("how-to/tune-on-a-cluster.md"), re.M
    )
    assert len(rows) == 5
    for systems, parameters, configurations in rows:
        for system in re.findall(r"`([\w-]+)`", systems):
            assert len(SPACES[system]) == int(parameters)
            assert generation_of(int(parameters), 200) == int(configurations)


# --- any executor ---------------------------------------------------------------------------------


def test_the_same_is_found_on_every_executor() -> None:
    """In this process, in threads and in processes: to the last digit. An executor that a caller
    made stays open."""
    alone = search(PROBLEM, TRIALS)
    with ThreadPoolExecutor(2) as threads:
        assert search(PROBLEM, TRIALS, threads) == alone
        assert threads.submit(int).result() == 0
    with trials_on(2) as processes:
        assert search(PROBLEM, TRIALS, processes) == alone


def test_each_worker_gets_the_object_once(tmp_path: Path) -> None:
    """Also when the executor does several pieces of work; and nothing is left behind."""
    with (
        ProcessPoolExecutor(2, get_context("spawn")) as pool,
        sharing(Counted(str(tmp_path)), pool) as run,
    ):
        workers = {*run(who, range(20)), *run(who, range(20))}
    assert os.getpid() not in workers
    assert len(list(tmp_path.iterdir())) == len(workers)


def test_another_object_takes_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker keeps one: memory does not grow with the number of searches. Its file is removed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ThreadPoolExecutor(2) as threads:
        for shared in (BIG, BIG[::-1], BIG):
            with sharing(shared, threads) as run:
                assert list(run(times, range(40))) == [10 * each for each in shared[:40]]
                assert len(list(tmp_path.iterdir())) == 1
    assert executors._read.cache_info().currsize == 1 and not list(tmp_path.iterdir())


def test_one_process_is_this_one() -> None:
    """Nothing is started, and nothing is pickled."""
    with trials_on(1) as executor:
        assert executor is None
        with sharing(lambda: 7, executor) as run:
            assert list(run(lambda shared, item: shared() + item, [1, 2])) == [8, 9]


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_process_that_is_killed_is_one_line() -> None:
    """It names the cure. Tasks that wait are cancelled."""
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
        sharing(BIG, pool) as run,
        pytest.raises(TrialsFailed, match=r"worker process ended while .* use fewer workers; in a"),
    ):
        list(run(end_process, range(8)))


@cases(
    "work, error, said",
    [
        (fail, ValueError, "a mistake of our own"),
        (lacks_a_package, TrialsFailed, "cannot import openskill: install in the workers what"),
    ],
)
def test_mistakes_of_the_work_stay_as_they_are(work: Any, error: Any, said: str) -> None:
    """They are no failures of the executor. A worker without a package is one line, which names
    the package."""
    with (
        ThreadPoolExecutor(1) as threads,
        sharing(BIG, threads) as run,
        pytest.raises(error, match=said),
    ):
        list(run(work, range(8)))


def test_a_worker_of_another_release_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other kernels would give other digits."""
    with ThreadPoolExecutor(1) as threads:
        given = threads.submit

        def submit(*args: Any) -> Any:
            monkeypatch.setattr(executors, "KERNEL_VERSION", -1)
            return given(*args)

        monkeypatch.setattr(threads, "submit", submit)
        said = r"has rating kernels -1, and this process \d+: install"
        with sharing(BIG, threads) as run, pytest.raises(TrialsFailed, match=said):
            list(run(times, range(2)))


def test_a_folder_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither here nor where the workers are."""
    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with sharing(BIG, threads) as run:
            (file,) = tmp_path.iterdir()
            elsewhere = file.rename(tmp_path / "elsewhere")
            with pytest.raises(TrialsFailed, match=r"No such file .*: let TMPDIR be a folder that"):
                list(run(times, range(2)))
            elsewhere.rename(file)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
        with pytest.raises(TrialsFailed, match="No such file"), sharing(BIG, threads):
            pass


class Dropping(Executor):
    """It cancels all that it gets, as one that is shut down does, or a cluster that is lost."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        task: Future[Any] = Future()
        task.cancel()
        task.set_running_or_notify_cancel()
        return task


def test_dropped_trials_are_one_line() -> None:
    """It says to run this again."""
    with (
        sharing(BIG, Dropping()) as run,
        pytest.raises(TrialsFailed, match=r"dropped a trial \(CancelledError\): .* run this again"),
    ):
        list(run(times, range(2)))


class Slow(Executor):
    """It does its first task, and is busy for ever after it."""

    def __init__(self) -> None:
        self.tasks: list[Future[Any]] = []

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
        task: Future[Any] = Future()
        if not self.tasks:
            task.set_result(args[-1])
        self.tasks.append(task)
        return task


def test_what_is_not_needed_any_more_is_cancelled() -> None:
    """Nothing goes on behind a failure, or behind who wants no more."""
    slow = Slow()
    with sharing(BIG, slow) as run:
        results: Any = run(times, range(7, 20))
        assert next(results) == 7
        results.close()
    assert [task.cancelled() for task in slow.tasks] == [False, *[True] * 12]


# --- Dask -----------------------------------------------------------------------------------------


def test_without_dask_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what to install."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    missing = r"distributed is not installed: stream-rater\[dask\]"
    with pytest.raises(Failed, match=missing), trials_on("127.0.0.1:1"):
        pass


def test_no_scheduler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the address, and how to start one."""
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    monkeypatch.setattr(executors, "JOIN_S", 0.3)
    said = r"^dask://127.0.0.1:1: no Dask scheduler with a worker answers[^\n]*$"
    with pytest.raises(Failed, match=said), trials_on("127.0.0.1:1"):
        pass


def once(shared: str, item: int) -> int:
    """End this process when the file is not there yet: once."""
    try:
        Path(shared).touch(exist_ok=False)
    except FileExistsError:
        return 10 * item
    os._exit(1)


def test_a_dask_cluster(tmp_path: Path) -> None:
    """Two workers, each a process of its own, find the same to the last digit. The work of a killed
    worker is given to others. Work that kills all of them is one line."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    dask = pytest.importorskip("dask")
    marker = tmp_path / "killed"
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1"
        ) as cluster,
        pytest.raises(Failed, match=r"^the executor dropped a trial \(Attempt[^\n]*logs, [^\n]*$"),
        trials_on(cluster.scheduler_address.removeprefix("tcp://")) as executor,
    ):
        assert search(PROBLEM, TRIALS, executor) == search(PROBLEM, TRIALS)
        with sharing(str(marker), executor) as run:
            assert list(run(once, range(20))) == [10 * i for i in range(20)]
        assert marker.exists()
        with sharing(BIG, executor) as run:
            list(run(end_process, range(1)))
