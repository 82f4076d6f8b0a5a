"""deploy/tools/local: `make up` and `make down` in one shell, which has what `make up` exported;
servers of ours that start, die and stop with whoever started them."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local import background, kafka_install, processes, system
from local.kafka_node import render_properties
from local.processes import Launch, Server, free_port, start_on, start_ticks
from local.redis_node import render_conf
from local.servers import Addresses, LocalServerError, main, servers, signals_as_exit
from local.tools import (
    KAFKA_VARIABLE,
    KAFKA_VERSION,
    PROMETHEUS_VARIABLE,
    REDIS_VARIABLE,
    ROOT,
    find_redis_server,
    given_address,
)
from tests.waits import STILL_S, wait_until

PORTS = {"kafka": 9092, "redis": 6379, "prometheus": 9090}

Up = Callable[..., list[str]]

needs_redis = pytest.mark.skipif(
    given_address(REDIS_VARIABLE) is not None and find_redis_server() is None,
    reason="a Redis is given, none is installed here",
)


# --- `make up` and `make down`, without servers ---------------------------------------------------


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
    for variable in (KAFKA_VARIABLE, REDIS_VARIABLE, PROMETHEUS_VARIABLE):
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
    """`redis-cli -u` and `promtool query` want URLs; Kafka's clients host:port. Servers that run
    are found again by their own variables, not taken for somebody else's."""
    first = up()
    assert up() == first and started == ["kafka", "redis"]
    assert up("prometheus") == [
        "export STREAM_RATER_KAFKA=127.0.0.1:9092",
        "export STREAM_RATER_REDIS=redis://127.0.0.1:6379",
        "export PROMETHEUS=http://127.0.0.1:9090",
    ]
    assert given_address(REDIS_VARIABLE) == "127.0.0.1:6379"
    assert main(["status"]) == 0
    assert "(process " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["up", "grafana"])


def test_up_after_down_starts_them_again(
    started: list[str], up: Up, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the same shell, at the same addresses. `down` says on stderr, to be copied, how a shell
    forgets them."""
    first = up("prometheus")
    assert main(["down"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.splitlines()[-1].endswith(
        ": unset STREAM_RATER_KAFKA STREAM_RATER_REDIS"
    )
    with monkeypatch.context() as later:
        later.setattr(background.Running, "alive", property(lambda _: False))
        assert main(["status"]) == 1
        assert up("prometheus") == first
    assert started == ["kafka", "redis", "prometheus"] * 2


def test_somebody_elses_servers_are_taken(
    started: list[str], up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are named, password and all."""
    monkeypatch.setenv(KAFKA_VARIABLE, "kafka.example:9092")
    monkeypatch.setenv(REDIS_VARIABLE, "rediss://:secret@redis.example:6379/3")
    assert up() == [
        "export STREAM_RATER_KAFKA=kafka.example:9092",
        "export STREAM_RATER_REDIS=rediss://:secret@redis.example:6379/3",
    ]
    assert started == []
    monkeypatch.setenv(REDIS_VARIABLE, "redis.example:6379")
    with servers() as at:
        assert at == Addresses(kafka="kafka.example:9092", redis="redis.example:6379")
        assert at.environment()[REDIS_VARIABLE] == "redis.example:6379"


def test_the_data_stay_until_they_are_deleted(
    started: list[str], up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command says which; the addresses are kept. A damaged state file is named."""
    up()
    (tmp_path / "data" / "redis").mkdir(parents=True)
    assert main(["down"]) == 0
    assert "`make clean-data` deletes them" in capsys.readouterr().err
    assert (tmp_path / "data" / "redis").is_dir()
    assert main(["clean-data"]) == 0
    assert "the data are deleted" in capsys.readouterr().err
    assert not (tmp_path / "data").exists() and background.load_state()
    for text in ("{", "[1]", '{"redis": {"pid": 1}}'):
        background.STATE.write_text(text)
        with pytest.raises(LocalServerError, match=r"state\.json is damaged"):
            background.load_state()


def test_settings_of_the_caller_win(tmp_path: Path) -> None:
    """What nobody asks for is the server's default. Kafka's version is the one that is
    installed."""
    text = render_properties(tmp_path / "data", 1234, 1235, {"num.io.threads": "9"})
    kafka = dict(line.split("=", 1) for line in text.splitlines())
    assert kafka["num.io.threads"] == "9"
    assert kafka["advertised.listeners"] == "BROKER://127.0.0.1:1234"
    text = render_conf(tmp_path, 1234, {"appendfsync": "always"})
    conf = dict(line.split(" ", 1) for line in text.splitlines())
    assert (conf["appendfsync"], conf["port"]) == ("always", "1234") and "save" not in conf
    pom = kafka_install.POM.read_text(encoding="utf-8")
    assert re.findall(r"<kafka.version>(.*)</kafka.version>", pom) == [KAFKA_VERSION]


# --- what is missing ------------------------------------------------------------------------------


def nothing_here(name: str, gives: str, service: str | None = None) -> system.Package:
    return system.Package(name, gives, lambda: False, service)


def test_what_is_missing_is_one_line_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without root, and where apt fails."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    wanted = [nothing_here("redis-server", "Redis"), nothing_here("maven", "Maven")]
    with pytest.raises(LocalServerError) as caught:
        system.ensure_packages(wanted, print)
    assert str(caught.value) == (
        "missing: Redis, Maven (not root); install with: "
        "sudo apt-get update && sudo apt-get install -y redis-server maven"
    )
    apt_get = tmp_path / "apt-get"
    apt_get.write_text("#!/bin/sh\necho 'E: Unable to locate package thing'\nexit 100\n")
    apt_get.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(LocalServerError) as caught:
        system.ensure_packages([nothing_here("thing", "A thing")], print)
    assert str(caught.value) == (
        "missing: A thing (apt-get install: Unable to locate package thing); "
        "install with: apt-get update && apt-get install -y thing"
    )


def test_services_do_not_start_and_the_policy_is_as_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a system that had a policy, or none."""
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(system, "POLICY", policy)
    package = nothing_here("r", "R", "r")
    for before in (None, "#!/bin/sh\nexit 0\n"):
        if before is not None:
            policy.write_text(before)
        with pytest.raises(KeyboardInterrupt), system.services_not_started([package]):
            assert ("exit 101" in policy.read_text()) == (before is None)
            raise KeyboardInterrupt
        assert (policy.read_text() if policy.exists() else None) == before


# --- processes ------------------------------------------------------------------------------------


def a_launch(directory: Path, *command: str, answers: Callable[[int], bool]) -> Launch:
    return Launch("thing", command, directory, free_port(), answers, start_timeout_s=0.5)


def python_script(text: str) -> "subprocess.Popen[str]":
    """A Python of its own that runs a text; its output is a pipe."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "deploy" / "tools")}
    return subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, env=environment
    )


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_server_that_does_not_start_is_reported(tmp_path: Path) -> None:
    """One that ends at once with the end of its log. One that never answers is killed. Another port
    is tried when it was taken in between."""
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
    tried: list[int] = []

    def start(port: int) -> Server:
        tried.append(port)
        raise LocalServerError("thing did not start\n    bind: Address already in use")

    with pytest.raises(LocalServerError):
        start_on(None, start)
    assert len(tried) == processes.PORT_ATTEMPTS


def test_processes_are_stopped(tmp_path: Path) -> None:
    """One that ignores SIGTERM is killed. One that began at another time is somebody else's."""
    script = "import signal as s; s.signal(s.SIGTERM, s.SIG_IGN); print(1, flush=True); s.pause()"
    command = (sys.executable, "-S", "-c", script)
    launch = a_launch(tmp_path, *command, answers=lambda _: bool(log.read_text()))
    log = launch.log
    server = Server(launch).start()
    pid = server.pid
    server.stop(timeout_s=0.1)
    assert not Path(f"/proc/{pid}").exists()
    child = subprocess.Popen(["sleep", "60"])
    began = start_ticks(child.pid)
    assert began is not None
    assert not processes.stop_process(child.pid, began - 1)
    assert child.poll() is None
    assert processes.stop_process(child.pid, began)
    assert child.wait() == -signal.SIGTERM
    assert not processes.stop_process(child.pid, began)


def test_a_server_dies_with_its_starter_even_by_sigkill(tmp_path: Path) -> None:
    """Nobody else would stop it."""
    script = f"""
from pathlib import Path
from local.processes import Launch, Server
server = Server(Launch("t", ("sleep", "60"), Path({str(tmp_path)!r}), 1, lambda _: True, 5.0))
print(server.start().pid, flush=True)
input_never_comes = __import__("signal").pause()
"""
    with python_script(script) as starter:
        pid = int(first_line(starter))
        assert start_ticks(pid) is not None
        starter.kill()
    wait_until(lambda: start_ticks(pid) is None, "it has ended")


class Dying:
    """Its destructor is interrupted by a signal."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self._number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_within_a_destructor_ends_the_block(number: signal.Signals) -> None:
    """Python drops an exception of a destructor, so the signal is sent again."""
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)  # who started the tests may have had them ignore it
    error = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    try:
        with pytest.raises(error), signals_as_exit():
            dying = Dying(number)
            del dying
            threading.Event().wait(STILL_S)
    finally:
        signal.signal(number, before)
