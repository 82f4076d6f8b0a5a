"""Forks behave as the command does, and find its imports done."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from stream_rater.config.settings import Settings
from tests.integration import forks
from tests.integration.forks import Fork, run_fork
from tests.integration.processes import environment_of
from tests.waits import HANGS_S, STILL_S

NOWHERE = environment_of(Settings(kafka="127.0.0.1:1", redis="127.0.0.1:1"))


def record_preload(path: str) -> None:
    """Run in a fork."""
    Path(path).write_text(f"{forks.PRELOADED in sys.modules}")


def test_a_fork_finds_the_imports_done(tmp_path: Path) -> None:
    """Otherwise each fork would take as long as a process of its own."""
    found = tmp_path / "found"
    process = forks.context.Process(target=record_preload, args=(str(found),))
    process.start()
    process.join(STILL_S)
    assert found.read_text() == "True"


def test_a_command_ends_with_its_output_and_exit_code() -> None:
    """As in a process of its own; each fork has its own environment."""
    done = run_fork(["--version"], NOWHERE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("stream-rater, version")
    refused = run_fork(["run"], NOWHERE | {"STREAM_RATER_SHARDS": "many"})
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("stream-rater: environment: ")
    assert "STREAM_RATER_SHARDS" not in os.environ


def test_a_fork_is_signalled_and_waited_for(tmp_path: Path) -> None:
    """A signal's number is the exit code, negative; waiting has a limit."""
    fork = Fork(["run"], NOWHERE, tmp_path / "log", tmp_path / "log")
    fork.send_signal(signal.SIGSTOP)
    assert fork.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        fork.wait(0.01)
    fork.kill()
    assert fork.wait(HANGS_S) == -signal.SIGKILL


def test_threads_do_not_take_each_others_exit_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start reads the exit codes of all ended forks. Another thread that asks for one of them
    while it is read finds it, too."""
    ended = Fork(["--version"], NOWHERE, tmp_path / "first", tmp_path / "first")
    file = ended.sentinel
    assert wait([file], HANGS_S)
    read, is_read, asked = forkserver.read_signed, threading.Event(), threading.Event()

    def read_slowly(number: int) -> int:
        code = read(number)
        if number == file:
            is_read.set()
            asked.wait(0.2)  # without the lock, the other thread asks now
        return code

    monkeypatch.setattr(forkserver, "read_signed", read_slowly)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(Fork, ["--version"], NOWHERE, tmp_path / "log", tmp_path / "log")
        assert is_read.wait(HANGS_S)
        code = ended.poll()
        asked.set()
        assert (code, other.result().wait(HANGS_S)) == (0, 0)
