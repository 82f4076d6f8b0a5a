"""Trials run on any executor, with the same result to the last digit; a failure is one line."""

import itertools
import os
import pickle
import re
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stream_rater.config.errors import BadConfiguration, TrialsFailed
from stream_rater.config.extras import MissingExtra
from stream_rater.evaluation import executors, sharing
from stream_rater.evaluation.contestants import OwnSystem
from stream_rater.evaluation.executors import Dask, Processes, opened, parse_executor
from stream_rater.evaluation.fits import Fit
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.spaces import SPACES
from stream_rater.evaluation.tuning import generation_of, search
from tests.builders.cases import cases
from tests.pages import text

SEASON = list(season(Kind(players=25, rounds=60, per_round=6), 11))
PROBLEM = Fit(OwnSystem("codeforces"), SEASON, "log_loss")
TRIALS = 16

BIG = list(range(1000))
"""An object that is shared."""


def times(shared: list[int], item: int) -> int:
    return shared[item] * 10


def end_process(_: object, __: object) -> None:
    os._exit(1)


def fail(_: object, __: object) -> None:
    raise ValueError("a mistake of our own")


def lacks_a_package(_: object, __: object) -> None:
    raise ModuleNotFoundError("No module named 'openskill'", name="openskill")


# --- what is asked for ----------------------------------------------------------------------------


def test_where_trials_run() -> None:
    """By one word, or a number of processes, or the address of a scheduler."""
    assert parse_executor("processes", 3) == parse_executor("processes:3", None) == Processes(3)
    assert parse_executor("processes", None) == Processes(os.cpu_count() or 1)
    for address in ("10.0.0.7:8786", "lab-scheduler.games:8786", "[::1]:8786"):
        assert parse_executor(f"dask://{address}", None) == Dask(address)
    assert parse_executor("dask://lab:8786/", None) == Dask("lab:8786")


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
    for twice, why in (("processes:2", "stands there already"), ("dask://lab:1", "has its own")):
        with pytest.raises(BadConfiguration, match=f"--workers 3 with --executor {twice}: .*{why}"):
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


class Workers(Executor):
    """Workers of other machines, one after the other: each task goes to the next one, which keeps
    what it was sent, as a process does. Results come late, and in another order."""

    def __init__(self, names: Iterator[str]) -> None:
        self._names = names
        self._kept: dict[str, dict[str, Any]] = {}
        self._waiting: deque[tuple[Future[Any], Any]] = deque()
        self.got: list[str] = []
        """Who was sent the object."""

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
        worker, kept = next(self._names), sharing._kept.copy()
        try:
            sharing._kept.clear()
            sharing._kept.update(self._kept.get(worker, {}))
            answer = pickle.loads(pickle.dumps(fn(*args)))._replace(worker=worker)
            self._kept[worker] = sharing._kept.copy()
        finally:
            sharing._kept.clear()
            sharing._kept.update(kept)
        if args[2] is not None:
            self.got.append(worker)
        task: Future[Any] = Future()
        self._waiting.appendleft((task, answer))
        if len(self._waiting) > 3:
            self.answer_one()
        return task

    def answer_one(self) -> None:
        """The task that came last ends first."""
        task, answer = self._waiting.popleft()
        if task.set_running_or_notify_cancel():
            task.set_result(answer)

    def wait(self, tasks: Any, *_: Any) -> Any:
        """In place of `concurrent.futures.wait`."""
        if not any(each.done() for each in tasks):
            self.answer_one()
        return {each for each in tasks if each.done()}, ()


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes such workers, by the names of those who get the tasks in turn."""

    def make(names: Iterator[str]) -> Workers:
        made = Workers(names)
        monkeypatch.setattr(sharing, "wait", made.wait)
        return made

    yield make


def test_each_worker_gets_the_object_once(workers: Any) -> None:
    """Those of a cluster that nobody has counted; results are in the order of the items."""
    crew = workers(itertools.cycle("abc"))
    with sharing.sharing(BIG, crew) as run:
        assert list(run(times, range(40))) == [10 * i for i in range(40)]
        assert list(run(times, range(40))) == [10 * i for i in range(40)]
    assert sorted(crew.got) == ["a", "b", "c"]


def test_workers_come_and_go(workers: Any) -> None:
    """One that joins gets the object with a trial. One that asked for it and left is forgotten: not
    every trial carries the object because of it. If every task meets a new process, each is sent
    with the object in the end."""
    crew = workers(itertools.chain("aabb" * 5, itertools.cycle("bc")))
    with sharing.sharing(BIG, crew) as run:
        assert list(run(times, range(60))) == [10 * i for i in range(60)]
    assert set(crew.got) == {"b", "c"} and len(crew.got) <= 6
    with sharing.sharing(BIG, workers(map(str, itertools.count()))) as run:
        assert list(run(times, range(5))) == [0, 10, 20, 30, 40]


def test_another_object_takes_the_place(workers: Any) -> None:
    """A worker keeps one: memory does not grow with the number of searches."""
    crew = workers(itertools.cycle("a"))
    for shared in (BIG, BIG[::-1], BIG):
        with sharing.sharing(shared, crew) as run:
            assert list(run(times, range(3))) == [10 * each for each in shared[:3]]
    assert crew.got == ["a", "a", "a"] and len(crew._kept["a"]) == 1


def test_the_same_is_found_on_every_executor(workers: Any) -> None:
    """In this process, in threads, and on workers that answer in any order: to the last digit. An
    executor that a caller made stays open."""
    alone = search(PROBLEM, TRIALS)
    with ThreadPoolExecutor(2) as threads:
        with opened(threads) as executor:
            assert search(PROBLEM, TRIALS, executor) == alone
        assert threads.submit(int).result() == 0
    assert search(PROBLEM, TRIALS, workers(itertools.cycle("abc"))) == alone


def test_one_process_is_this_one() -> None:
    """Nothing is started, and nothing is pickled."""
    with opened(Processes(1)) as executor:
        assert executor is None
        with sharing.sharing(lambda: 7, executor) as run:
            assert list(run(lambda shared, item: shared() + item, [1, 2])) == [8, 9]


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_process_that_is_killed_is_one_line() -> None:
    """It names the cure. Tasks that wait are cancelled."""
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
        sharing.sharing(BIG, pool) as run,
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
        sharing.sharing(BIG, threads) as run,
        pytest.raises(error, match=said),
    ):
        list(run(work, range(8)))


def test_a_worker_of_another_release_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other kernels would give other digits."""
    with (
        ThreadPoolExecutor(1) as threads,
        sharing.sharing(BIG, threads) as run,
        pytest.raises(TrialsFailed, match=r"has rating kernels -1, and this process \d+: install"),
    ):
        work = run(times, range(2))
        given = threads.submit

        def submit(fn: Any, digest: str, kernels: int, *args: Any) -> Any:
            monkeypatch.setattr(sharing, "KERNEL_VERSION", -1)
            return given(fn, digest, kernels, *args)

        monkeypatch.setattr(threads, "submit", submit)
        next(work)


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
        sharing.sharing(BIG, Dropping()) as run,
        pytest.raises(TrialsFailed, match=r"dropped a trial: .* run this again when they are back"),
    ):
        list(run(times, range(2)))


class Slow(Executor):
    """It does its first task, and is busy for ever after it."""

    def __init__(self) -> None:
        self.tasks: list[Future[Any]] = []

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
        task: Future[Any] = Future()
        if not self.tasks:
            task.set_result(sharing._Answer("a", has_object=True, value=args[4]))
        self.tasks.append(task)
        return task


def test_what_is_not_needed_any_more_is_cancelled() -> None:
    """Nothing goes on behind a failure, or behind who wants no more."""
    slow = Slow()
    with sharing.sharing(BIG, slow) as run:
        results: Any = run(times, range(7, 20))
        assert next(results) == 7
        results.close()
    assert [task.cancelled() for task in slow.tasks] == [False, *[True] * 12]


# --- Dask -----------------------------------------------------------------------------------------


def test_without_dask_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what to install."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(MissingExtra, match=r"distributed is not installed: stream-rater\[dask\]"),
        opened(Dask("127.0.0.1:1")),
    ):
        pass


IN_THIS_PROCESS = {"processes": False, "protocol": "tcp"}
"""Options of a cluster whose workers are threads of this process."""


def local_cluster(workers: int, **options: Any) -> Any:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1",
        **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A local cluster of two workers, each a process of its own."""
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    dask = pytest.importorskip("dask")
    failing_once = dask.config.set({"distributed.scheduler.allowed-failures": 1})
    with failing_once, local_cluster(2) as made:
        yield made


def dask_of(cluster: Any) -> Dask:
    return Dask(cluster.scheduler_address.removeprefix("tcp://"))


def once(shared: str, item: int) -> int:
    """End this process when the file is not there yet: once."""
    try:
        Path(shared).touch(exist_ok=False)
    except FileExistsError:
        return 10 * item
    os._exit(1)


def test_a_cluster_gives_the_work_of_a_killed_worker_to_others(
    cluster: Any, tmp_path: Path
) -> None:
    """Nothing is lost, and the order stays."""
    marker = tmp_path / "killed"
    with opened(dask_of(cluster)) as executor, sharing.sharing(str(marker), executor) as run:
        assert list(run(once, range(20))) == [10 * i for i in range(20)]
    assert marker.exists()


def test_work_that_kills_every_worker_is_one_line(cluster: Any) -> None:
    """The scheduler gives it up; the line names the cluster and the cure."""
    with (
        opened(dask_of(cluster)) as executor,
        sharing.sharing(BIG, executor) as run,
        pytest.raises(
            TrialsFailed, match=r"^dask://127.* gave up a trial: .*: see the logs of [^\n]*$"
        ),
    ):
        list(run(end_process, range(1)))


@pytest.mark.slow
def test_a_scheduler_that_is_lost_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """And no traceback of Dask's beside it."""
    lost = local_cluster(1)
    monkeypatch.setattr(sharing, "CHECK_S", 0.1)
    with (
        opened(dask_of(lost)) as executor,
        sharing.sharing(BIG, executor) as run,
        pytest.raises(TrialsFailed, match=r"^[^\n]*(dropped a trial|connection was lost)[^\n]*$"),
    ):
        assert list(run(times, range(2))) == [0, 10]
        lost.close()
        list(run(times, range(2)))
    assert "Traceback" not in capfd.readouterr().err


def test_no_scheduler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the address, and how to start one."""
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    monkeypatch.setattr(executors, "ANSWER_S", 0.3)
    with (
        pytest.raises(TrialsFailed, match=r"^dask://127.0.0.1:1: no Dask scheduler answers[^\n]*$"),
        opened(Dask("127.0.0.1:1")),
    ):
        pass


def test_a_cluster_in_this_process_finds_the_same() -> None:
    """To the last digit."""
    with local_cluster(2, **IN_THIS_PROCESS) as cluster, opened(dask_of(cluster)) as executor:
        assert search(PROBLEM, TRIALS, executor) == search(PROBLEM, TRIALS)


def test_a_cluster_without_workers_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is opened, after a while."""
    monkeypatch.setattr(executors, "JOIN_S", 0.3)
    with (
        local_cluster(0, **IN_THIS_PROCESS) as empty,
        pytest.raises(
            TrialsFailed, match=r"no worker has joined within 0.3 s: start some by `dask"
        ),
        opened(dask_of(empty)),
    ):
        pass


def test_a_cluster_that_loses_its_workers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while without any, or at once if the scheduler is gone."""
    seen = {"workers": {"a": 1}}
    client = SimpleNamespace(
        status="running", scheduler_info=lambda: seen, get_executor=lambda **_: None
    )
    now_s = itertools.count(0.0, 40.0)
    monkeypatch.setattr(executors, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    executor = executors.DaskExecutor(client, "lab:8786")
    executor.check()
    seen["workers"] = {}
    executor.check()
    with pytest.raises(TrialsFailed, match="dask://lab:8786: all workers have been gone for 60 s"):
        executor.check()
    client.status = "closed"
    with pytest.raises(TrialsFailed, match="dask://lab:8786: the connection was lost"):
        executor.check()
