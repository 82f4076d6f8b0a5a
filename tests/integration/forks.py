"""`stream-rater` as a fork of a process that has imported it and loaded its kernels. These are most
of a command's start, and tests start some two hundred. Tests of the start itself do not fork."""

import multiprocessing
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from local.tools import ROOT
from tests.waits import any_of, cpu_of, size_of, wait_until

PRELOADED = "tests.integration.preloaded"

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload([PRELOADED])

_one_at_a_time = threading.Lock()
"""Locked while a fork starts or its exit code is read. A start reads the exit codes of all ended
forks, and of two threads that read the same exit code, the second would find 255."""


class Fork:
    """A running command, with the part of `subprocess.Popen`'s interface that tests use."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], out: Path, err: Path,
        prepare: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """`out` and `err` may be one file. `prepare` (importable) is called in the fork first."""
        self._arguments = list(arguments)
        for path in (out, err):
            path.touch()
        self._process = context.Process(
            target=_perform, args=(self._arguments, dict(environment), str(out), str(err), prepare)
        )
        with _one_at_a_time:
            self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def sentinel(self) -> int:
        """A file that is readable once the process has ended."""
        return self._process.sentinel

    def poll(self) -> int | None:
        """The exit code (a signal's number is negative), None while the process runs."""
        with _one_at_a_time:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code once the process has ended; TimeoutExpired if it does not in time."""
        wait([self.sentinel], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self._arguments, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_fork(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        fork = Fork(arguments, environment, out, err)
        try:
            wait_until(
                lambda: fork.poll() is not None, f"it ends: {' '.join(arguments)}",
                moves=any_of(size_of(out, err), cpu_of(fork.pid)), every_s=0.005,
            )  # fmt: skip
            code = fork.wait()
        finally:
            fork.kill()
        return subprocess.CompletedProcess(arguments, code, out.read_text(), err.read_text())


def _perform(
    arguments: list[str], environment: dict[str, str], out: str, err: str,
    prepare: Callable[[], None] | None,
) -> None:  # fmt: skip
    """In the fork: become the command."""
    os.chdir(ROOT)
    for path, number in ((out, 1), (err, 2)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    from tests.integration import preloaded

    if prepare is not None:
        prepare()
    preloaded.main(arguments, prog_name="stream-rater")
