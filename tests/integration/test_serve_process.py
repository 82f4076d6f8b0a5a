"""The two processes of `serve`, the one that answers and the one that keeps the index: neither
outlives the other, and no client holds them."""

import signal
from functools import partial
from pathlib import Path

from tests import real
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.serving import Serve, followed, publish_few


def index_process(api: WorkerProcess) -> int:
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


def test_neither_outlives_the_other(settings: real.SettingsFactory, serve_process: Serve) -> None:
    """Asked to end, it ends with 0, and with it the index's process and the stream of a client that
    follows. Killed, it leaves no index's process. (What happens if that is killed: see
    `test_standalone.test_its_life`.)"""
    at = settings()
    publish_few(at)
    api = serve_process(at)
    index = index_process(api)
    with followed(api, "/v1/ladders/eu/changes") as events:
        next(events)
        api.terminate()
        assert list(events) == []
    assert api.wait() == 0
    assert api.events()[-1]["event"] == "stopped"
    wait_until(partial(_has_ended, index), "it has ended")

    api = serve_process(at)
    index = index_process(api)
    api.kill()
    assert api.wait() == -signal.SIGKILL
    wait_until(partial(_has_ended, index), "it has ended")
