"""deploy/tools/local: the pure parts of the set-up; real servers start, die, restart and stop."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from local import background, kafka_install, processes, system
from local.kafka_node import FORMATTED, random_id, render_properties
from local.processes import (
    LOOPBACK,
    Launch,
    Server,
    free_port,
    port_is_free,
    start_on,
    start_ticks,
    stop_process,
)
from local.redis_node import ADVISED, render_conf
from local.servers import (
    Addresses,
    LocalServerError,
    servers,
    signals_as_exit,
    start_kafka,
    start_redis,
)
from local.stamps import Stamp, digest
from local.tools import (
    KAFKA_VARIABLE,
    KAFKA_VERSION,
    REDIS_VARIABLE,
    ROOT,
    find_redis_server,
    given_address,
    java_major,
)
from tests.waits import STILL_S, wait_until

needs_redis = pytest.mark.skipif(
    given_address(REDIS_VARIABLE) is not None and find_redis_server() is None,
    reason="a Redis is given, none is installed here",
)
needs_kafka = pytest.mark.skipif(
    given_address(KAFKA_VARIABLE) is not None and not FORMATTED.is_dir(),
    reason="a Kafka is given, none is installed here",
)


def client_of(address: str) -> "redis.Redis":
    host, _, port = address.rpartition(":")
    return redis.Redis(host, int(port))


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


# What is found, written, remembered


def test_kafka_version_is_the_poms() -> None:
    pom = kafka_install.POM.read_text(encoding="utf-8")
    assert re.findall(r"<kafka.version>(.*)</kafka.version>", pom) == [KAFKA_VERSION]


def test_java_version_is_read_from_its_release_file(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.4"\n')
    assert java_major(tmp_path / "bin" / "java") == 21
    (tmp_path / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    assert java_major(tmp_path / "bin" / "java") == 8


def test_absent_java_has_version_0(tmp_path: Path) -> None:
    assert java_major(tmp_path / "bin" / "java") == 0


def test_digest_changes_with_a_file_and_keeps_parts_apart(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    absent = digest(file)
    file.write_text("one")
    one = digest(file)
    file.write_text("two")
    assert len({absent, one, digest(file), digest("ab", "c"), digest("a", "bc")}) == 5


def test_stamp_is_current_only_for_what_it_was_written_with(tmp_path: Path) -> None:
    stamp = Stamp(tmp_path / "stamps" / "step")
    assert not stamp.is_current("a")
    stamp.write("a")
    assert (stamp.is_current("a"), stamp.is_current("b")) == (True, False)


def test_kafka_properties_of_the_caller_win(tmp_path: Path) -> None:
    text = render_properties(tmp_path / "data", 1234, 1235, {"num.io.threads": "9"})
    lines = dict(line.split("=", 1) for line in text.splitlines())
    assert lines["num.io.threads"] == "9"
    assert lines["advertised.listeners"] == "BROKER://127.0.0.1:1234"
    assert lines["log.dirs"] == str(tmp_path / "data")


def test_kafka_ids_never_begin_with_a_dash() -> None:
    ids = [random_id() for _ in range(1000)]
    assert {len(text) for text in ids} == {22}
    assert not any(text.startswith("-") for text in ids)


def test_redis_settings_of_the_caller_win(tmp_path: Path) -> None:
    text = render_conf(tmp_path, 1234, {"appendfsync": "always"})
    lines = dict(line.split(" ", 1) for line in text.splitlines())
    assert (lines["appendfsync"], lines["port"]) == ("always", "1234")
    assert "save" not in lines, "what nobody asks for is Redis' default"


def test_a_free_port_can_be_listened_on_and_then_is_not_free() -> None:
    port = free_port()
    with socket.socket() as listener:
        listener.bind((LOOPBACK, port))
        listener.listen(1)
        assert not port_is_free(port)
    assert port_is_free(port)


# What is missing


def nothing_here(name: str, gives: str, service: str | None = None) -> system.Package:
    return system.Package(name, gives, lambda: False, service)


def test_missing_without_root_is_one_line_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    wanted = [nothing_here("redis-server", "Redis"), nothing_here("maven", "Maven")]
    with pytest.raises(LocalServerError) as caught:
        system.ensure_packages(wanted, print)
    assert str(caught.value) == (
        "missing: Redis, Maven (not root); install with: "
        "sudo apt-get update && sudo apt-get install -y redis-server maven"
    )


def test_apt_that_fails_is_one_line_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize("before", [None, "#!/bin/sh\nexit 0\n"])
def test_services_do_not_start_and_the_policy_is_as_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: str | None
) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(system, "POLICY", policy)
    if before is not None:
        policy.write_text(before)
    with (
        pytest.raises(KeyboardInterrupt),
        system.services_not_started([nothing_here("r", "R", "r")]),
    ):
        assert ("exit 101" in policy.read_text()) == (before is None)
        raise KeyboardInterrupt
    assert (policy.read_text() if policy.exists() else None) == before


# Processes


def test_a_server_that_ends_at_once_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    launch = a_launch(tmp_path, "sh", "-c", "echo no disk; exit 3", answers=lambda _: False)
    server = Server(launch)
    with pytest.raises(LocalServerError) as caught:
        server.start()
    first, *tail = str(caught.value).splitlines()
    assert first.startswith(f"thing did not start on port {launch.port}: it ended with exit code 3")
    assert [line.strip() for line in tail] == ["no disk"]
    assert not server.running


def test_a_server_that_never_answers_is_killed(tmp_path: Path) -> None:
    seen: list[int] = []

    def answers(_port: int) -> bool:
        seen.append(server.pid)
        raise ConnectionRefusedError

    server = Server(a_launch(tmp_path, "sleep", "60", answers=answers))
    with pytest.raises(LocalServerError, match=r"no answer, and no progress for 0\.5 s"):
        server.start()
    assert not Path(f"/proc/{seen[0]}").exists()


def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    script = "import signal as s; s.signal(s.SIGTERM, s.SIG_IGN); print(1, flush=True); s.pause()"
    command = (sys.executable, "-S", "-c", script)
    launch = a_launch(tmp_path, *command, answers=lambda _: bool(log.read_text()))
    log = launch.log
    server = Server(launch).start()
    pid = server.pid
    server.stop(timeout_s=0.1)
    assert not Path(f"/proc/{pid}").exists()


def test_another_port_is_tried_when_it_was_taken_in_between() -> None:
    tried: list[int] = []

    def start(port: int) -> Server:
        tried.append(port)
        raise LocalServerError("thing did not start\n    bind: Address already in use")

    with pytest.raises(LocalServerError):
        start_on(None, start)
    assert len(tried) == processes.PORT_ATTEMPTS


def test_stop_process_leaves_alone_a_process_that_began_at_another_time() -> None:
    child = subprocess.Popen(["sleep", "60"])
    started = start_ticks(child.pid)
    assert started is not None
    assert not stop_process(child.pid, started - 1)
    assert child.poll() is None
    assert stop_process(child.pid, started)
    assert child.wait() == -signal.SIGTERM
    assert not stop_process(child.pid, started)


def test_a_server_dies_with_its_starter_even_by_sigkill(tmp_path: Path) -> None:
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


# Real servers


@needs_redis
@pytest.mark.integration
def test_redis_keeps_its_data_over_a_restart_and_frees_its_port(tmp_path: Path) -> None:
    with start_redis(tmp_path, settings={**ADVISED, "appendfsync": "always"}) as server:
        client = client_of(server.address)
        client.hset("belief", "ann", b"x" * 500)
        assert client.object("encoding", "belief") == b"listpack"
        server.restart()
        server.kill()
        server.start()
        assert client.hget("belief", "ann") == b"x" * 500
        client.close()
        pid, port = server.pid, server.port
    assert not Path(f"/proc/{pid}").exists()
    assert port_is_free(port)


@needs_kafka
@pytest.mark.integration
def test_kafka_keeps_its_data_over_a_restart_and_frees_its_port(tmp_path: Path) -> None:
    with start_kafka(tmp_path) as server:
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": server.address}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("rounds", 1, 1)])["rounds"].result(STILL_S)
        producer = Producer({**settings, "transactional.id": "test"})
        producer.init_transactions(STILL_S)
        producer.begin_transaction()
        producer.produce("rounds", b"one")
        producer.commit_transaction(STILL_S)
        server.restart()
        consumer = Consumer({**settings, "group.id": "test", "auto.offset.reset": "earliest"})
        consumer.subscribe(["rounds"])
        message = consumer.poll(STILL_S)
        assert message is not None and message.value() == b"one"
        consumer.close()
        pid, port = server.pid, server.port
    assert not Path(f"/proc/{pid}").exists()
    assert port_is_free(port)


@needs_kafka
@pytest.mark.integration
def test_kafka_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(LocalServerError, match="exit code 1") as caught:
        start_kafka(tmp_path, properties={"num.io.threads": "none"})
    assert "num.io.threads" in str(caught.value)


def test_servers_that_the_environment_names_are_taken_and_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(KAFKA_VARIABLE, "kafka.example:9092")
    monkeypatch.setenv(REDIS_VARIABLE, "redis.example:6379")
    with servers() as at:
        assert at == Addresses(kafka="kafka.example:9092", redis="redis.example:6379")
        assert at.environment()[REDIS_VARIABLE] == "redis.example:6379"


@needs_redis
@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_servers_are_stopped_and_removed_after_a_signal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals
) -> None:
    monkeypatch.setenv(KAFKA_VARIABLE, "kafka.example:9092")
    monkeypatch.delenv(REDIS_VARIABLE, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = """
import signal
from local.servers import servers
for each, way in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    signal.signal(each, way)  # who started the tests may have had them ignore it
with servers() as at:
    print(at.redis, flush=True)
    signal.pause()
"""
    with python_script(script) as starter:
        port = int(first_line(starter).rpartition(":")[2])
        assert not port_is_free(port)
        starter.send_signal(number)
    assert starter.returncode == (-number if number == signal.SIGINT else 128 + number)
    assert port_is_free(port)
    assert list(tmp_path.iterdir()) == []


@needs_redis
@pytest.mark.integration
def test_up_outlives_its_process_and_down_ends_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    for _ in range(2):  # the second finds what the first started
        with python_script(script) as process:
            assert process.stdout is not None
            lines.append(process.stdout.read().splitlines())
    monkeypatch.setattr(background, "SERVERS", tmp_path)
    monkeypatch.setattr(background, "STATE", tmp_path / "state.json")
    state = background.load_state()
    try:
        assert lines[0] == lines[1]
        assert lines[0][0] == f"export {KAFKA_VARIABLE}=kafka.example:9092"
        assert lines[0][1] == f"export {REDIS_VARIABLE}=redis://{state['redis'].address}"
        assert client_of(state["redis"].address).ping()
        assert background.status() == 0
    finally:
        assert background.down() == 0
    assert not state["redis"].alive
    assert background.status() == 1
    assert "redis: not running" in capsys.readouterr().out


def test_a_damaged_state_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(background, "STATE", tmp_path / "state.json")
    for text in ("{", "[1]", '{"redis": {"pid": 1}}'):
        background.STATE.write_text(text)
        with pytest.raises(LocalServerError, match=r"state\.json is damaged"):
            background.load_state()


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
