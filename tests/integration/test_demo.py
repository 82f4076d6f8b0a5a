"""`make demo` without servers and on real ones, and `make up` with a real Redis."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka.admin import AdminClient

from demonstration.corner import DATABASES, NoCorner, corner, with_database
from local import background
from local.processes import port_is_free
from local.servers import Addresses
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE, ROOT
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.calls import LIBRARY
from stream_rater.config.settings import Settings
from tests.integration.processes import environment_of, wait_until
from tests.real import PREFIX as TESTS
from tests.real import SettingsFactory
from tests.unit.test_make_up import first_line, needs_redis, python_script
from tests.waits import HANGS_S

DEMO = (sys.executable, str(ROOT / "deploy" / "tools" / "demo.py"))
SHORT = (*DEMO, "--rounds", "80", "--per-second", "40", "--burst", "120")
ALONE = (sys.executable, "-m", "stream_rater", "demo", "--rounds", "300")
LIVES = "A round ends every 2 s. Ctrl-C ends the demo.\n"
LATENCY = "from round to rating"


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """An environment without our settings, with a folder that identifies the demo's processes."""
    ours = {"TMPDIR": str(folder), "COLUMNS": "100", "PYTHONPATH": str(ROOT / "deploy")}
    return environment_of(Settings()) | ours | variables


def processes_of(folder: Path) -> list[str]:
    mark, found = f"TMPDIR={folder}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has just ended
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


def assert_nothing_is_left(folder: Path) -> None:
    wait_until(lambda: not processes_of(folder), "the demo's processes ended")
    assert list(folder.iterdir()) == []


@contextmanager
def a_demo(
    folder: Path, command: Sequence[str] = SHORT, **variables: str
) -> Iterator["subprocess.Popen[str]"]:
    """The demo as a process, which ends with the block together with what it started."""
    with subprocess.Popen(
        command, env=environment(folder, **variables), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_the_demo_ends_with_what_it_measured(tmp_path: Path) -> None:
    """On its own servers, it prints figures, verifies every rating, and leaves nothing behind."""
    with a_demo(tmp_path) as demo:
        output, errors = demo.communicate(timeout=HANGS_S)
    assert demo.returncode == 0, output + errors
    for text in (
        "200 reported", "none missing, none twice", "updates per second", f"p50 {LATENCY}",
        f"p99 {LATENCY}", "beats", "team 2:", "beliefs compared: all equal, bit for bit",
    ):  # fmt: skip
        assert text in output
    assert "nan" not in output and errors == ""
    assert_the_cheater_is_shown(output)
    assert_nothing_is_left(tmp_path)


ROW = re.compile(
    r"│ ([a-z]+-\d+) +│ +([\d,.]+) │ +([\d,.]+|–) │ +([+\-\d,.]+|–) │ +(\d+) │ +(\d+) │"
)


def assert_the_cheater_is_shown(output: str) -> None:
    """Assert that the correction is applied and verified, and that the table of it adds up."""
    _, printed = output.split("A cheater was found: leo-1 won ")
    assert "player-removed: round-completed, partition" in printed
    assert "got points back" in printed
    _, verified = printed.split("stream-rater verify, which now replays without leo-1:")
    assert "beliefs compared: all equal, bit for bit" in verified
    (name, _, after, difference, rounds, left), *others = ROW.findall(printed)
    assert (name, after, difference, left) == ("leo-1", "–", "–", "0") and int(rounds) > 0
    assert any(difference.startswith("+") for _, _, _, difference, _, _ in others)
    for _, before, after, difference, _, _ in others:
        moved = float(after.replace(",", "")) - float(before.replace(",", ""))
        assert abs(moved - float(difference)) < 0.11


def contents(at: Addresses) -> tuple[set[str], Mapping[str, Any], int]:
    """The topics, the databases that hold anything (and how much), and the function libraries."""
    kafka: Any = AdminClient({"bootstrap.servers": at.kafka})
    with redis.Redis.from_url(with_database(at.redis, 0)) as client:
        sizes = {name: each["keys"] for name, each in client.info("keyspace").items()}
        return set(kafka.list_topics(timeout=HANGS_S).topics), sizes, len(client.function_list())


def given(at: Addresses) -> dict[str, str]:
    """The variables that make the demo use servers which already run."""
    return {KAFKA_VARIABLE: at.kafka, REDIS_VARIABLE: at.redis}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_given_servers_as_they_were(
    addresses: Addresses, settings: SettingsFactory, tmp_path: Path, number: signal.Signals
) -> None:
    """The demo's topics, keys and processes are gone. Others are there, and the servers run."""
    somebodys = Admin(settings())
    somebodys.create_topics()
    theirs = somebodys.partitions()
    before = contents(addresses)

    def new() -> tuple[set[str], dict[str, int], int]:
        """What was not there before. What other tests left may be gone by now."""
        topics, sizes, libraries = contents(addresses)
        # A client that another test left open may have Kafka create that test's topic again.
        topics = {name for name in topics if not TESTS.match(name)}
        more = {name: n for name, n in sizes.items() if n > before[1].get(name, 0)}
        return topics - before[0], more, libraries - before[2]

    with a_demo(tmp_path, **given(addresses)) as demo:
        assert demo.stdout is not None
        streaming = any("rating changes" in line for line in demo.stdout)
        assert streaming, demo.communicate()
        demo.send_signal(number)
        _, errors = demo.communicate(timeout=HANGS_S)
    assert demo.returncode == 128 + number, errors
    wait_until(lambda: new() == (set(), {}, 0), "nothing of it is left", moves=new)
    assert somebodys.partitions() == theirs
    with redis.Redis.from_url(settings().redis) as client:
        assert client.dbsize() == 1
    assert_nothing_is_left(tmp_path)


def test_the_demo_touches_no_database_that_holds_anything(
    addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all databases are in use, it is refused in one line, and every key is still there."""
    monkeypatch.setenv(KAFKA_VARIABLE, addresses.kafka)
    monkeypatch.setenv(REDIS_VARIABLE, addresses.redis)
    clients = [redis.Redis.from_url(with_database(addresses.redis, n)) for n in range(DATABASES)]
    for client in clients:
        client.set("somebody's", "data")
    try:
        with pytest.raises(NoCorner, match="no empty database"), corner(addresses):
            pass
        assert [client.get("somebody's") for client in clients] == [b"data"] * DATABASES
    finally:
        for client in clients:
            client.delete("somebody's")
            client.close()


@pytest.mark.slow
def test_the_demo_says_in_one_line_why_it_failed(addresses: Addresses, tmp_path: Path) -> None:
    """The service's own reason follows, from the end of its log."""
    with redis.Redis.from_url(with_database(addresses.redis, 0)) as client:
        before = client.function_dump()
        client.function_flush()
        client.function_load(f"#!lua name={LIBRARY}\nredis.register_function('f', function() end)")
        try:
            with a_demo(tmp_path, **given(addresses)) as demo:
                _, errors = demo.communicate(timeout=HANGS_S)
        finally:
            client.function_flush()
            client.function_restore(before)
    assert demo.returncode == 1
    first, *tail = errors.splitlines()
    assert first.startswith("demo: service did not start")
    assert any("FUNCTION DELETE" in line for line in tail)
    assert_nothing_is_left(tmp_path)


def test_the_demo_without_servers_lives_until_ctrl_c(tmp_path: Path) -> None:
    """It shows points that come back, and a page that answers. Nothing of it is left after Ctrl-C,
    even if it finds its port in use."""
    with socket.socket() as other:
        with suppress(OSError):  # somebody else listens there
            other.bind(("127.0.0.1", 9109))
            other.listen()
        with a_demo(tmp_path, ALONE) as demo:
            assert demo.stdout is not None
            printed = "".join(takewhile(LIVES.__ne__, demo.stdout))
            found = re.search(r"The page was ready after [\d.]+ s: (http://[\d.:]+/)", printed)
            assert found is not None, printed + demo.communicate()[1]
            with urllib.request.urlopen(found[1], timeout=HANGS_S) as page:
                assert b"<title>" in page.read()
            demo.send_signal(signal.SIGINT)
            _, errors = demo.communicate(timeout=HANGS_S)
    assert (demo.returncode, errors) == (0, "")
    assert "A program listens at 127.0.0.1:9109: the demo takes a free port." in printed
    assert "leo-2 won 14 of 16 lobbies, nobody else more than 12." in printed
    assert re.search(r"leo-2 +│ +[\d,.]+ │ +– │ +– │ +16 │ +0 │", printed)
    assert "players who moved got points back" in printed
    assert "beliefs compared: all equal, bit for bit" in printed
    assert_nothing_is_left(tmp_path)


# --- make up ---


def given_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KAFKA_VARIABLE, "kafka.example:9092")
    monkeypatch.delenv(REDIS_VARIABLE, raising=False)


@needs_redis
def test_servers_are_gone_after_a_signal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are gone, and the exit code is the signal's."""
    given_kafka(monkeypatch)
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
    given_kafka(monkeypatch)
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
