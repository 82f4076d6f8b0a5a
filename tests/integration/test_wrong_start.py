"""Starts that must fail: one clear line, and exit code 2 for configuration or 1 for servers."""

import re
import shlex
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from msgspec.structs import replace as changed

from local.servers import Addresses
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.metadata import LAYOUT_KEY
from stream_rater.config.settings import Settings
from tests import real
from tests.contract.rigs import configure
from tests.integration.processes import Ended, Start, refused, stream_rater
from tests.integration.topics import carried_out, client_of, make_topics
from tests.real import SettingsFactory
from tests.waits import wait_until

NOWHERE = "127.0.0.1:1"

Prepare = Callable[[Settings, Path], Settings]  # Returns settings by which a start fails.

BUSY = socket.socket()


def file(name: str, text: str) -> Prepare:
    """Give `run` a file: a ladders.toml or a settings.toml."""

    def prepare(at: Settings, folder: Path) -> Settings:
        path = folder / name
        path.write_text(text)
        return changed(at, ladders=str(path)) if name == "ladders.toml" else at

    return prepare


def laid_out(**layout: str) -> Prepare:
    def prepare(at: Settings, _: Path) -> Settings:
        with connect(at) as client:
            client.hset(LAYOUT_KEY, mapping=layout)
        return at

    return prepare


def topics(*names: str, partitions: int = 0, **config: str) -> Prepare:
    """Create topics beforehand, with these settings (`_` for `.`)."""

    def prepare(at: Settings, _: Path) -> Settings:
        given = {each.replace("_", "."): value for each, value in config.items()}
        all_of_them = (getattr(Topics.of(at), each) for each in names)
        make_topics(at, *all_of_them, partitions=partitions, config=given)
        return at

    return prepare


def unequal_topics(at: Settings, folder: Path) -> Settings:
    topics("parts", partitions=4)(at, folder)
    return topics("changed", partitions=3)(at, folder)


STARTS: dict[str, tuple[int, str, Prepare]] = {
    "no TOML": (2, r"settings\.toml: \w+", file("settings.toml", "kafka = [")),
    "bad variable": (2, r"environment: .*shards", lambda s, _: changed(s, shards="many")),
    "no ladders": (2, r"/x/y: no such file", lambda s, _: changed(s, ladders="/x/y")),
    "unknown system": (
        2, r"ladders\.toml: .*'eu'.*elo-xyz",
        file("ladders.toml", '[ladders.eu.rating]\nsystem="elo-xyz"'),
    ),
    "unequal topics": (2, r"4 partitions and .*rating-changed has 3", unequal_topics),
    "topic not compacted": (
        2, r"rating-changed: cleanup\.policy is delete, must be compact: .*kafka-configs\.sh",
        topics("changed", cleanup_policy="delete"),
    ),
    "topic trimmed": (
        2, r"round-completed: retention\.ms is 604800000, must be -1: .*--add-config",
        topics("rounds", retention_ms="604800000"),
    ),
    "topic too small": (
        2, r"max\.message\.bytes is 1000, must be", topics("parts", max_message_bytes="1000")
    ),
    "topic too large": (
        2, r"max\.message\.bytes is 99999999, must be at most",
        topics("rounds", "parts", "rejected", max_message_bytes="99999999"),
    ),
    "other buckets": (2, r"buckets = 77, .* has 4: .*rebuild", laid_out(buckets="77")),
    "other shards": (2, r"shards = 8, .* has 4: .*rebuild", laid_out(shards="8")),
    "topic made again": (2, r"topic = old, .*submit the rounds again", laid_out(topic="old")),
    "other window": (
        2, r"duplicate_window = 7, .* has 100000: .*rebuild", laid_out(duplicate_window="7")
    ),
    "port in use": (
        2, r"http '127.*in use: set STREAM_RATER_HTTP to",
        lambda s, _: changed(s, http=f"127.0.0.1:{BUSY.getsockname()[1]}"),
    ),
    "bad Redis address": (2, r"redis .*port", lambda s, _: changed(s, redis="h:port")),
    "no Kafka": (1, rf"kafka at {NOWHERE}: ", lambda s, _: changed(s, kafka=NOWHERE)),
    "no Redis": (1, r"redis: .*refused", lambda s, _: changed(s, redis=NOWHERE)),
}  # fmt: skip
"""By fault: the exit code, a pattern in the line, and how to cause it."""


def test_one_clear_line(addresses: Addresses, tmp_path_factory: pytest.TempPathFactory) -> None:
    """One line on standard error, nothing else, the right exit code; four at a time."""
    BUSY.bind(("127.0.0.1", 0))
    BUSY.listen()
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        ends = {}
        for name, (_, _, prepare) in STARTS.items():
            place = stack.enter_context(real.a_place(addresses))
            folder = tmp_path_factory.mktemp("start")
            at, given = prepare(place, folder), folder / "settings.toml"
            words = ["--settings", str(given)] if given.exists() else []
            ends[name] = pool.submit(stream_rater, "run", *words, settings=at)
        found = {name: each.result() for name, each in ends.items()}
    BUSY.close()
    assert {name: ended for name, ended in found.items() if not is_right(name, ended)} == {}


def is_right(name: str, ended: Ended) -> bool:
    code, says, _ = STARTS[name]
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    if (ended.returncode, ended.stdout, len(lines)) != (code, "", 1):
        return False
    return re.fullmatch(rf"stream-rater: .*{says}.*", lines[0]) is not None


def mend(line: str) -> tuple[str, str]:
    """Do as the command in the line says, and wait for the broker. Returns topic and setting."""
    command = re.search(r"run `(kafka-configs\.sh .*?)`", line)
    assert command is not None, line
    match shlex.split(command[1]):
        case [
            "kafka-configs.sh", "--bootstrap-server", servers, "--alter",
            "--entity-type", "topics", "--entity-name", name, "--add-config", given,
        ]:  # fmt: skip
            setting, value = given.split("=")
            at = Settings(kafka=servers)
            configure(client_of(at), name, setting, value)
            admin = Admin(at)
            wait_until(lambda: admin.configuration(name)[setting] == value, f"{setting} is set")
            return name, setting
    raise AssertionError(line)


def test_topics_with_kafkas_defaults_are_refused_until_they_are_mended(
    settings: SettingsFactory, worker_process: Start
) -> None:
    """Kafka's defaults keep records for 7 days by producers' clocks. Each start names one setting
    that loses rounds, until all are corrected. The service then starts, and warns about clocks."""
    at = settings()
    names = Topics.of(at)
    counts = {names.rounds: 4, names.parts: 4, names.changed: 4, names.rejected: 1}
    new = [NewTopic(name, count, 1) for name, count in counts.items()]
    carried_out(client_of(at).create_topics(new))
    assert [mend(refused(at, "run", code=2)) for _ in range(3)] == [
        (names.rounds, "retention.ms"), (names.rounds, "message.timestamp.type"),
        (names.changed, "cleanup.policy"),
    ]  # fmt: skip
    said = [each["event"] for each in worker_process(at).events()]
    warnings = [each for each in said if "message.timestamp.type" in each]
    assert [mend(each) for each in warnings] == [
        (name, "message.timestamp.type") for name in (names.parts, names.changed, names.rejected)
    ]
    (early,) = [each for each in said if "delete.retention.ms" in each]
    assert mend(early) == (names.changed, "delete.retention.ms")
    admin = Admin(at)
    admin.check_topics()
    assert admin.warnings == []
