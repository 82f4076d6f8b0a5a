"""The README's walk through the service, as a new user would type it."""

import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from demonstration.programs import ready
from local.processes import LOOPBACK, free_port, log_tail
from local.tools import ROOT
from tests.integration.processes import environment_of, wait_until
from tests.real import SettingsFactory

WALK_S = 120.0
STOP_S = 10.0


def walk() -> list[str]:
    """The shell blocks of "Run the service": the first terminal and the second terminal, without
    servers."""
    text = (ROOT / "README.md").read_text().split("\n## Run the service", 1)[1]
    return re.findall(r"^```sh\n(.*?)^```$", text.split("\n## ", 1)[0], re.DOTALL | re.MULTILINE)


@contextmanager
def first_terminal(
    script: str, environment: Mapping[str, str], log: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """A shell whose last command is the service, and which ends with the block."""
    with log.open("wb") as file:
        shell = subprocess.Popen(
            ["bash", "-ec", script], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield shell
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()


def test_the_walk_through_the_service_works_as_it_stands(
    settings: SettingsFactory, tmp_path: Path
) -> None:
    """Every command succeeds, the last one verifies, and Ctrl-C ends the service with exit code
    0."""
    port = free_port()
    environment = environment_of(settings(http=f"{LOOPBACK}:{port}"))
    for variable in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS"):  # no part of the user's shell
        environment.pop(variable, None)
    service, client, offline = walk()
    with first_terminal(service, environment, log := tmp_path / "service.log") as shell:

        def is_ready() -> bool:
            try:
                return ready(port)
            except OSError:
                assert shell.poll() is None, log_tail(log)
                return False

        wait_until(is_ready, "the service is ready", 60.0)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", client + offline], cwd=ROOT, env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WALK_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=5.0) as page:
            metrics = page.read().decode()
        os.killpg(shell.pid, signal.SIGINT)
        assert shell.wait(STOP_S) == 0, log_tail(log)
    assert 'stream_rater_rejected_total{code="duplicate-round"} 1.0' in metrics
    assert 'stream_rater_lag_records{partition="0",topic=' in metrics
    output = done.stdout
    assert '"player":"ada-1"' in output
    assert "beats bo-1" in output
    assert "beliefs compared: all equal, bit for bit" in output
    assert '"ladder":"duel","player":"ann"' in output
