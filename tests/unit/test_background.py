"""`make up WITH=prometheus`: a third server in the background, started where it is asked for."""

from pathlib import Path

import pytest

from local import background, prometheus_node, servers
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE
from tests import tools


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A `.servers` of the test's own, with Kafka and Redis given."""
    monkeypatch.setenv(KAFKA_VARIABLE, "kafka.example:9092")
    monkeypatch.setenv(REDIS_VARIABLE, "redis.example:6379")
    monkeypatch.setattr(background, "SERVERS", tmp_path)
    monkeypatch.setattr(background, "DATA", tmp_path / "data")
    monkeypatch.setattr(background, "STATE", tmp_path / "state.json")
    return tmp_path


@pytest.mark.integration
def test_prometheus_in_the_background(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second `up` finds it, `status` shows it, and `down` ends it."""
    tools.prometheus()
    try:
        assert servers.main(["up", "prometheus"]) == servers.main(["up", "prometheus"]) == 0
        (running,) = background.load_state().values()
        assert prometheus_node.answers(running.port)
        assert servers.main(["status"]) == 0
    finally:
        assert servers.main(["down"]) == 0
    assert not running.alive
    assert servers.main(["status"]) == 1
    printed = capsys.readouterr()
    assert f"prometheus already runs at {running.address}" in printed.err
    assert "prometheus: not running" in printed.out
    assert [line for line in printed.out.splitlines() if line.startswith("export")] == [
        f"export {KAFKA_VARIABLE}=kafka.example:9092",
        f"export {REDIS_VARIABLE}=redis://redis.example:6379",
        f"export PROMETHEUS=http://{running.address}",
    ] * 2  # what a shell evaluates


def test_only_what_was_asked_for(place: Path) -> None:
    """Without a word, Kafka and Redis alone; an unknown word is an error."""
    assert servers.main(["up"]) == 0
    assert background.load_state() == {}
    with pytest.raises(SystemExit) as error:
        servers.main(["up", "grafana"])
    assert error.value.code == 2
