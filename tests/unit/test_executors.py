"""Trials run on any executor, with the same result to the last digit; a failure is one line."""

import os
import sys
import tempfile
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.errors import BadConfiguration, Failed, TrialsFailed
from stream_rater.evaluation import executors
from stream_rater.evaluation.executors import sharing
from stream_rater.evaluation.fits import Fit, OwnSystem
from stream_rater.evaluation.tuning import search
from stream_rater.runtime import trials
from stream_rater.runtime.trials import trials_on
from tests.benchmarks.lab.game import Kind, season

PROBLEM = Fit(OwnSystem("codeforces"), list(season(Kind(25, 60, 6), 11)), "log_loss")
TRIALS = 16


def work(shared: Any, item: Any) -> Any:
    """End the worker, raise the item, or return it."""
    if item == "end":
        os._exit(1)
    if isinstance(item, Exception):
        raise item
    return item, os.getpid(), id(shared)


class Dropping(Executor):
    """An executor that cancels all that it gets, as one that is shut down does."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        task = Future[Any]()
        task.cancel()
        task.set_running_or_notify_cancel()
        return task


def test_where_trials_run() -> None:
    """One word, with a number of processes that is given once, or a scheduler's address."""
    assert trials.parse_executor("processes", 3) == trials.parse_executor("processes:3", None) == 3
    assert trials.parse_executor("processes", None) == (os.cpu_count() or 1)
    for address in ("10.0.0.7:8786", "lab-scheduler.games:8786", "[::1]:8786"):
        assert trials.parse_executor(f"dask://{address}/", None) == address
    for wrong in ("", "threads", "processes:0", "dask://lab", "dask://u@lab:8786"):
        with pytest.raises(BadConfiguration, match=f"--executor {wrong}: {trials.FORMS}"):
            trials.parse_executor(wrong, None)
    with pytest.raises(BadConfiguration, match="--workers 3 with --executor processes:2: it"):
        trials.parse_executor("processes:2", 3)


def test_the_same_is_found_on_every_executor(tmp_path: Path, monkeypatch: Any) -> None:
    """Here, in threads and in processes. A worker reads the object once, and no file is left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    alone = search(PROBLEM, TRIALS)
    with ThreadPoolExecutor(2) as threads, trials_on(1) as here, trials_on(2) as processes:
        assert here is None and search(PROBLEM, TRIALS, threads) == alone
        assert search(PROBLEM, TRIALS, processes) == alone
        with sharing([1], processes) as run:
            items, workers, objects = zip(*run(work, range(20)), strict=True)
            assert items == (*range(20),) and os.getpid() not in workers
            assert len({*zip(workers, objects, strict=True)}) == len({*workers})
    assert not list(tmp_path.iterdir()) and executors._read.cache_info().currsize == 1


def test_each_failure_is_one_line_with_its_cure(tmp_path: Path, monkeypatch: Any) -> None:
    """An error of the work itself is raised as it is."""
    absent = ModuleNotFoundError("No module named 'openskill'", name="openskill")
    ended = pytest.raises(Failed, match=r"worker process ended while .* use fewer workers; in a")
    with ended, trials_on(2) as pool, sharing([1], pool) as run:
        list(run(work, ["end"] * 8))
    with ThreadPoolExecutor(1) as threads:
        for executor, item, error, said in (
            (threads, ValueError("ours"), ValueError, "^ours$"),
            (threads, absent, TrialsFailed, "cannot import openskill: install in the workers what"),
            (Dropping(), 1, TrialsFailed, r"dropped a trial \(CancelledError\): .* run this again"),
        ):
            with sharing([1], executor) as run, pytest.raises(error, match=said):
                list(run(work, [item] * 8))
        with pytest.raises(TrialsFailed, match=r"kernels \d+, and this process -1: install"):
            executors._do(b"", -1, work, 1)
        lost = "No such file .*: let TMPDIR be a folder that"
        with pytest.raises(TrialsFailed, match=lost):
            executors._do("none", KERNEL_VERSION, work, 1)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
        with pytest.raises(TrialsFailed, match=lost), sharing([1], threads):
            pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(Failed, match=r"stream-rater\[dask\]"):
        trials_on("127.0.0.1:1").__enter__()


def test_a_dask_cluster(monkeypatch: Any) -> None:
    """Two workers find the same, to the last digit. Each failure is one line."""
    distributed, dask = map(pytest.importorskip, ("distributed", "dask"))
    cluster = distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=":0")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}), cluster,
        pytest.raises(Failed, match=r"^the executor dropped a trial \(Attempt[^\n]*logs, [^\n]*$"),
        trials_on(cluster.scheduler_address.removeprefix("tcp://")) as executor,
    ):  # fmt: skip
        assert search(PROBLEM, TRIALS, executor) == search(PROBLEM, TRIALS)
        with sharing([1], executor) as run:
            list(run(work, ["end"]))
    monkeypatch.setattr(trials, "JOIN_S", 0.3)
    with pytest.raises(Failed, match="no Dask scheduler with a worker "), trials_on("127.0.0.1:1"):
        pass
