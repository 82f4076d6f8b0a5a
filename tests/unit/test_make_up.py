"""`make up` and `make down` in one shell, and servers of ours that do not start."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from local import background, processes, system, tools
from local.processes import Launch, Server, free_port, start_on
from local.redis_node import ADVISED
from local.servers import LocalServerError, main

PORTS = {"kafka": 9092, "redis": 6379, "prometheus": 9090}

Up = Callable[..., list[str]]

needs_redis = pytest.mark.skipif(
    tools.given_address(tools.REDIS_VARIABLE) is not None and tools.find_redis_server() is None,
    reason="a Redis is given, none is installed here",
)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Names of servers that were started; each is this process, as nobody else would stay."""
    names: list[str] = []

    def start(name: str, port: int | None) -> Any:
        names.append(name)
        at = f"127.0.0.1:{port or PORTS[name]}"
        return SimpleNamespace(address=at, pid=os.getpid(), log=tmp_path / f"{name}.log")

    monkeypatch.setattr(background, "SERVERS", tmp_path)
    monkeypatch.setattr(background, "DATA", tmp_path / "data")
    monkeypatch.setattr(background, "STATE", tmp_path / "state.json")
    monkeypatch.setattr(background, "_start", start)
    monkeypatch.setattr(background, "stop_process", lambda *_: True)
    monkeypatch.setattr(background, "port_is_free", lambda _: True)
    for variable in (tools.KAFKA_VARIABLE, tools.REDIS_VARIABLE, tools.PROMETHEUS_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    yield names


@pytest.fixture
def up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Up:
    """`eval "$(make up)"`: the lines, which are in the environment from then on."""

    def evaluated(*also: str) -> list[str]:
        assert main(["up", *also]) == 0
        printed = capsys.readouterr().out.splitlines()
        lines = [line for line in printed if line.startswith("export ")]
        for line in lines:
            name, _, value = line.removeprefix("export ").partition("=")
            monkeypatch.setenv(name, value)
        return lines

    return evaluated


def test_what_is_exported_is_what_clients_take(
    started: list[str], up: Up, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clients take URLs, Kafka's take host:port. Running servers are found by their variables."""
    first = up()
    assert up() == first and started == ["kafka", "redis"]
    assert up("prometheus") == [
        "export STREAM_RATER_KAFKA=127.0.0.1:9092",
        "export STREAM_RATER_REDIS=redis://127.0.0.1:6379",
        "export PROMETHEUS=http://127.0.0.1:9090",
    ]
    assert tools.given_address(tools.REDIS_VARIABLE) == "127.0.0.1:6379"
    assert main(["status"]) == 0
    assert "(process " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["up", "grafana"])


def test_redis_keeps_beliefs_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the settings that the service advises. When it stores data is left to the default."""
    start = Mock()
    monkeypatch.setattr(background, "start_redis", start)
    background._start("redis", 6379)
    given = start.call_args.kwargs["settings"]
    assert given["hash-max-listpack-value"] == ADVISED["hash-max-listpack-value"]
    assert not any("append" in name or "save" in name for name in given)


def test_data_and_addresses_stay_after_down(
    started: list[str], up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """`down` reports which data stay, and `up` starts again. A damaged state file is named."""
    first = up("prometheus")
    (tmp_path / "data" / "redis").mkdir(parents=True)
    assert main(["down"]) == 0
    captured, forgets = capsys.readouterr(), ": unset STREAM_RATER_KAFKA STREAM_RATER_REDIS\n"
    assert captured.out == "" and captured.err.endswith(forgets)
    assert "`make clean-data` deletes them" in captured.err
    assert (tmp_path / "data" / "redis").is_dir()
    assert main(["clean-data"]) == 0
    assert "the data are deleted" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
    with monkeypatch.context() as later:
        later.setattr(background.Running, "alive", property(lambda _: False))
        assert main(["status"]) == 1
        assert up("prometheus") == first
    assert started == ["kafka", "redis", "prometheus"] * 2
    for text in ("{", "[1]", '{"redis": {"pid": 1}}'):
        background.STATE.write_text(text)
        with pytest.raises(LocalServerError, match=r"state\.json is damaged"):
            background.load_state()


def test_missing_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are named. Root installs them without starting them, and the policy stays as it was."""
    package = system.Package("redis-server", "Redis", lambda: False, "redis-server")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(
        LocalServerError, match=r"^missing: Redis .*apt-get install -y redis-server"
    ):
        system.ensure_packages([package], print)
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(system, "POLICY", policy)
    for before in (None, "#!/bin/sh\nexit 0\n"):
        if before is not None:
            policy.write_text(before)
        with pytest.raises(KeyboardInterrupt), system.services_not_started([package]):
            assert ("exit 101" in policy.read_text()) == (before is None)
            raise KeyboardInterrupt
        assert (policy.read_text() if policy.exists() else None) == before


def a_launch(directory: Path, *command: str, answers: Callable[[int], bool]) -> Launch:
    return Launch("thing", command, directory, free_port(), answers, start_timeout_s=0.5)


def python_script(text: str) -> "subprocess.Popen[str]":
    """A Python of its own that runs a text; its output is a pipe."""
    environment = {**os.environ, "PYTHONPATH": str(tools.ROOT / "deploy" / "tools")}
    return subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, env=environment
    )


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_server_that_does_not_start_is_reported(tmp_path: Path) -> None:
    """With the end of its log, or killed if it never answers. Other ports are tried."""
    server = Server(a_launch(tmp_path, "sh", "-c", "echo no disk; exit 3", answers=lambda _: False))
    with pytest.raises(LocalServerError) as caught:
        server.start()
    first, *tail = str(caught.value).splitlines()
    assert re.match(r"thing did not start on port \d+: it ended with exit code 3", first)
    assert [line.strip() for line in tail] == ["no disk"]
    assert not server.running
    seen: list[int] = []

    def answers(_port: int) -> bool:
        seen.append(silent.pid)
        raise ConnectionRefusedError

    silent = Server(a_launch(tmp_path, "sleep", "60", answers=answers))
    with pytest.raises(LocalServerError, match=r"no answer, and no progress for 0\.5 s"):
        silent.start()
    assert not Path(f"/proc/{seen[0]}").exists()
    start = Mock(side_effect=LocalServerError("thing did not start\n    Address already in use"))
    with pytest.raises(LocalServerError):
        start_on(None, start)
    assert start.call_count == processes.PORT_ATTEMPTS
