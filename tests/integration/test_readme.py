"""The README's and the tutorial's walks through the service, as a new user would type them."""

import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from demonstration.programs import ready
from local.processes import LOOPBACK, free_port, log_tail
from local.tools import ROOT
from tests import pages
from tests.integration.processes import ANSWER_S, environment_of, wait_until
from tests.real import SettingsFactory
from tests.waits import HANGS_S, any_of, cpu_of, size_of

SERVICE, CLIENT = "terminal 1", "terminal 2"  # Titles of the tutorial's blocks.


def acts() -> list[tuple[str, str]]:
    """The tutorial's steps: (what the first terminal runs, what the second one then types)."""
    found: list[tuple[str, str]] = []
    for title, block in pages.titled(pages.text("tutorial.md")):
        if title == SERVICE:
            found.append((block, ""))
        elif title == CLIENT:
            service, typed = found.pop()
            found.append((service, typed + block))
    return found


@contextmanager
def first_terminal(script: str, env: Mapping[str, str], log: Path, port: int) -> Iterator[None]:
    """A shell whose last command is the service, ready; Ctrl-C ends it with 0."""
    with log.open("wb") as file:
        shell = subprocess.Popen(
            ["bash", "-ec", script], cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def is_ready() -> bool:
        assert shell.poll() is None, log_tail(log)
        try:
            return ready(port)
        except OSError:
            return False

    try:
        wait_until(is_ready, "the service is ready", moves=any_of(size_of(log), cpu_of(shell.pid)))
        yield
        os.killpg(shell.pid, signal.SIGINT)
        assert shell.wait(HANGS_S) == 0, log_tail(log)
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()


def typed(script: str, environment: Mapping[str, str]) -> str:
    """The output, then the standard error, of the second terminal. All commands must succeed."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=ROOT, env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def environment_at(settings: SettingsFactory, port: int) -> dict[str, str]:
    """A user's shell, to which `make up` gives our servers."""
    environment = environment_of(settings(http=f"{LOOPBACK}:{port}"))
    for variable in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS"):  # no part of the user's shell
        environment.pop(variable, None)
    return environment


@pytest.mark.slow
def test_the_walk_through_the_service_works(settings: SettingsFactory, tmp_path: Path) -> None:
    """Every command succeeds, the last one verifies, and Ctrl-C ends the service with 0."""
    port = free_port()
    environment = environment_at(settings, port)
    readme = pages.section(pages.README.read_text(), "Run the service")
    service, client = pages.blocks(readme, "sh")
    with first_terminal(service, environment, tmp_path / "service.log", port):
        printed = typed(client, environment)
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=ANSWER_S) as page:
            metrics = page.read().decode()
    assert 'stream_rater_rejected_total{code="duplicate-round"} 1.0' in metrics
    assert 'stream_rater_lag_records{partition="0",topic=' in metrics
    assert '"player":"ada-1"' in printed
    assert "beats bo-1" in printed
    assert "beliefs compared: all equal, bit for bit" in printed


def test_the_first_rating_as_it_stands(tmp_path: Path) -> None:
    """Two commands, then three more: a round is rated, and the page shows it. Ctrl-C ends it."""
    port = free_port()
    first = pages.section(pages.text("tutorial.md"), "1. One process, one file")
    service, client = pages.blocks(first, "sh")
    assert client.count(":9109/") == 2
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("STREAM_RATER_", "MAKE", "MFLAGS"))
    } | {"STREAM_RATER_SERVE": f"{LOOPBACK}:{port}"}
    service, client = (
        each.replace("build/first.db", f"{tmp_path}/a.db") for each in (service, client)
    )
    assert str(tmp_path) in service
    with first_terminal(service, environment, tmp_path / "log", port):
        printed = typed(client.replace(":9109/", f":{port}/"), environment)
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/", timeout=ANSWER_S) as page:
            assert b"<title>" in page.read()
    assert '"status":202' in printed
    assert '"state":"rated"' in printed
    assert '"player":"ann","rank":1' in printed


def assert_shown(section: str, printed: str) -> None:
    """Assert that the commands printed each line that the section shows, wherever the record is."""
    at = re.compile(r"\S*round-completed, partition \d+, offset \d+")
    lines = {at.sub("", each.rstrip()) for each in printed.splitlines()}
    shown = [at.sub("", each) for block in pages.blocks(section, "") for each in block.splitlines()]
    assert len(shown) > 20 and [each for each in shown if each not in lines] == []


@pytest.fixture
def written() -> Iterator[None]:
    """Delete the files below build/ that the tutorial writes."""
    yield
    for path in (ROOT / "build").glob("my-*"):
        path.unlink()


@pytest.mark.slow
def test_the_tutorial_works(settings: SettingsFactory, tmp_path: Path, written: None) -> None:
    """The service has a ladders file from its second start on; `verify` without it says so."""
    port = free_port()
    environment = environment_at(settings, port)
    printed = ""
    assert len(acts()) == 2
    for number, (service, client) in enumerate(acts()):
        with first_terminal(service, environment, tmp_path / f"service-{number}.log", port):
            printed += typed(client, environment)
    changes = re.findall(r"(\w+) +(?:ida|jon|kim) +rank \d +([\d.]+|\(new\)) -> ", printed)
    assert [ladder for ladder, _ in changes] == ["chess"] * 6 + ["blitz"] * 6 + ["chess"] * 5
    assert {before for ladder, before in changes if ladder == "chess"} > {"(new)"}
    assert {before for ladder, before in changes if ladder == "blitz"} > {"(new)"}
    assert '"player":"ida"' in printed and "ida on chess" in printed
    assert printed.count("beliefs compared: all equal, bit for bit") == 2
    assert_shown(pages.section(pages.text("tutorial.md"), "8. A cheater was found"), printed)
    command = [".venv/bin/stream-rater", "verify"]
    without = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANGS_S,
        check=False,
    )  # fmt: skip
    assert (without.returncode, without.stdout) == (2, "")
    assert "'blitz': the default parameters (STREAM_RATER_LADDERS is not set)" in without.stderr
