"""`make up` and `make down` in one shell, which has what `make up` exported; no real servers."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local import background
from local.servers import main
from local.tools import KAFKA_VARIABLE, PROMETHEUS_VARIABLE, REDIS_VARIABLE, given_address

PORTS = {"kafka": 9092, "redis": 6379, "prometheus": 9090}

Up = Callable[..., list[str]]


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


def test_what_is_exported_is_what_clients_take(started: list[str], up: Up) -> None:
    """`redis-cli -u` and `promtool query` want URLs; Kafka's clients host:port."""
    assert up("prometheus") == [
        "export STREAM_RATER_KAFKA=127.0.0.1:9092",
        "export STREAM_RATER_REDIS=redis://127.0.0.1:6379",
        "export PROMETHEUS=http://127.0.0.1:9090",
    ]
    assert given_address(REDIS_VARIABLE) == "127.0.0.1:6379"


def test_servers_that_run_are_found_again_by_their_own_variables(
    started: list[str], up: Up, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not taken for somebody else's."""
    first = up()
    assert up() == first and started == ["kafka", "redis"]
    assert main(["status"]) == 0
    assert "(process " in capsys.readouterr().out


def test_up_after_down_starts_them_again(
    started: list[str], up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same shell, at the same addresses."""
    first = up("prometheus")
    assert main(["down"]) == 0
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


def test_down_says_how_a_shell_forgets_the_addresses(
    started: list[str], up: Up, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, to be copied."""
    up()
    assert main(["down"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].endswith(": unset STREAM_RATER_KAFKA STREAM_RATER_REDIS")


def test_the_data_stay_until_they_are_deleted(
    started: list[str], up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command says which; the addresses are kept."""
    up()
    (tmp_path / "data" / "redis").mkdir(parents=True)
    assert main(["down"]) == 0
    assert "`make clean-data` deletes them" in capsys.readouterr().err
    assert (tmp_path / "data" / "redis").is_dir()
    assert main(["clean-data"]) == 0
    assert "the data are deleted" in capsys.readouterr().err
    assert not (tmp_path / "data").exists() and background.load_state()
