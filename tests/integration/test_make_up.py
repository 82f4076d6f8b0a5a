"""`make up` and the servers of commands, on a real Redis."""

import signal
from pathlib import Path

import pytest
import redis

from local import background
from local.processes import port_is_free
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE
from tests.unit.test_make_up import first_line, needs_redis, python_script


@needs_redis
def test_servers_are_stopped_and_removed_after_a_signal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And the exit code is the signal's."""
    monkeypatch.setenv(KAFKA_VARIABLE, "kafka.example:9092")
    monkeypatch.delenv(REDIS_VARIABLE, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = """
import signal
from local.servers import servers
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who started the tests may have had them ignore it
with servers() as at:
    print(at.redis, flush=True)
    signal.pause()
"""
    for number in (signal.SIGTERM, signal.SIGHUP):
        with python_script(script) as starter:
            port = int(first_line(starter).rpartition(":")[2])
            assert not port_is_free(port)
            starter.send_signal(number)
        assert starter.returncode == 128 + number
        assert port_is_free(port)
        assert list(tmp_path.iterdir()) == []


@needs_redis
def test_up_outlives_its_process_and_down_ends_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second `up` finds what the first started."""
    monkeypatch.setenv(KAFKA_VARIABLE, "kafka.example:9092")
    monkeypatch.delenv(REDIS_VARIABLE, raising=False)
    script = f"""
from pathlib import Path
from local import background
background.SERVERS = Path({str(tmp_path)!r})
background.DATA = background.SERVERS / "data"
background.STATE = background.SERVERS / "state.json"
background.up()
"""
    lines = []
    for _ in range(2):
        with python_script(script) as process:
            assert process.stdout is not None
            lines.append(process.stdout.read().splitlines())
    monkeypatch.setattr(background, "SERVERS", tmp_path)
    monkeypatch.setattr(background, "STATE", tmp_path / "state.json")
    running = background.load_state()["redis"]
    try:
        assert lines[0] == lines[1]
        assert lines[0][0] == f"export {KAFKA_VARIABLE}=kafka.example:9092"
        assert lines[0][1] == f"export {REDIS_VARIABLE}=redis://{running.address}"
        host, _, port = running.address.rpartition(":")
        assert redis.Redis(host, int(port)).ping()
        assert background.status() == 0
    finally:
        assert background.down() == 0
    assert not running.alive
    assert background.status() == 1
    assert "redis: not running" in capsys.readouterr().out
