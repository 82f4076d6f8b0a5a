"""The two processes of `serve`, the one that answers and the one that keeps the index: neither
outlives the other."""

import os
import signal
from functools import partial
from pathlib import Path

from tests import real
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.serving import Serve, publish_few
from tests.integration.test_serve import serve

__all__ = ["serve"]


def index_process(api: WorkerProcess) -> int:
    """The process that keeps the index, by id."""
    threads = Path(f"/proc/{api.pid}/task").iterdir()  # each knows those that it started
    children = [pid for each in threads for pid in (each / "children").read_text().split()]
    (found,) = [pid for pid in children if "spawn_main" in _command(pid)]
    return int(found)


def _has_ended(pid: str | int) -> bool:
    return "spawn_main" not in _command(pid)


def _command(pid: str | int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_the_index_process_ends_with_the_other(
    settings: real.SettingsFactory, serve: Serve
) -> None:
    """However that ends: asked to, or killed."""
    at = settings()
    publish_few(at)
    for number in (signal.SIGTERM, signal.SIGKILL):
        api = serve(at)
        index = index_process(api)
        os.kill(api.pid, number)
        assert api.wait() == (0 if number == signal.SIGTERM else -number)
        wait_until(partial(_has_ended, index), "it has ended")


def test_serve_ends_if_the_index_process_is_killed(
    settings: real.SettingsFactory, serve: Serve
) -> None:
    """One line says so; whoever watches over it starts it again."""
    at = settings()
    publish_few(at)
    api = serve(at)
    os.kill(index_process(api), signal.SIGKILL)
    assert api.wait() == 1
    last = api.log().splitlines()[-1]
    assert last == "stream-rater: the index's process ended with exit code -9"
