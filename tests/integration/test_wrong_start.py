"""Starts that must fail: one clear line, and exit code 2 for configuration or 1 for servers."""

import re
import shlex
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from local.servers import Addresses, start_redis
from local.tools import find_redis_server
from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.metadata import LAYOUT_KEY
from stream_rater.config.settings import Settings
from tests import real
from tests.integration.processes import WorkerProcess, stream_rater
from tests.integration.topics import make_topics
from tests.waits import STILL_S, wait_until

NOWHERE = "127.0.0.1:1"

Start = tuple[list[str], Settings]
"""Arguments of `run`, and settings."""
Ended = subprocess.CompletedProcess[str]


def changed(settings: Settings, **changes: object) -> Settings:
    return msgspec.structs.replace(settings, **changes)


def settings_file(text: str) -> Callable[[Settings, Path], Start]:
    def start(settings: Settings, folder: Path) -> Start:
        path = folder / "settings.toml"
        path.write_text(text)
        return ["--settings", str(path)], settings

    return start


def ladders_file(text: str) -> Callable[[Settings, Path], Start]:
    def start(settings: Settings, folder: Path) -> Start:
        path = folder / "ladders.toml"
        path.write_text(text)
        return [], changed(settings, ladders=str(path))

    return start


def laid_out(**layout: str) -> Callable[[Settings, Path], Start]:
    def start(settings: Settings, folder: Path) -> Start:
        with connect(settings) as client:
            client.hset(LAYOUT_KEY, mapping=layout)
        return [], settings

    return start


def unequal_topics(settings: Settings, folder: Path) -> Start:
    topics = Topics.of(settings)
    make_topics(settings, topics.parts, partitions=4)
    make_topics(settings, topics.changed, partitions=3)
    return [], settings


def topic(name: str, **config: str) -> Callable[[Settings, Path], Start]:
    """A topic that exists beforehand, with these settings (`_` for `.`)."""

    def start(settings: Settings, folder: Path) -> Start:
        given = {each.replace("_", "."): value for each, value in config.items()}
        make_topics(settings, getattr(Topics.of(settings), name), config=given)
        return [], settings

    return start


def large_topics(settings: Settings, folder: Path) -> Start:
    names = Topics.of(settings)
    config = {"max.message.bytes": "99999999"}
    make_topics(settings, names.rounds, names.parts, names.rejected, config=config)
    return [], settings


def busy_port(settings: Settings, folder: Path) -> Start:
    return [], changed(settings, http=f"127.0.0.1:{BUSY.getsockname()[1]}")


BUSY = socket.socket()

STARTS: dict[str, tuple[int, str, Callable[[Settings, Path], Start]]] = {
    "no TOML": (2, r"settings\.toml: \w+", settings_file("kafka = [")),
    "bad variable": (2, r"environment: .*shards", lambda s, _: ([], changed(s, shards="many"))),
    "no ladders": (2, r"/x/y: no such file", lambda s, _: ([], changed(s, ladders="/x/y"))),
    "unknown system": (
        2, r"ladders\.toml: .*'eu'.*elo-xyz", ladders_file('[ladders.eu.rating]\nsystem="elo-xyz"')
    ),
    "unequal topics": (2, r"4 partitions and .*rating-changed has 3", unequal_topics),
    "topic not compacted": (
        2, r"rating-changed: cleanup\.policy is delete, must be compact: .*kafka-configs\.sh",
        topic("changed", cleanup_policy="delete"),
    ),
    "topic trimmed": (
        2, r"round-completed: retention\.ms is 604800000, must be -1: .*--add-config",
        topic("rounds", retention_ms="604800000"),
    ),
    "topic too small": (
        2, r"max\.message\.bytes is 1000, must be", topic("parts", max_message_bytes="1000")
    ),
    "topic too large": (2, r"max\.message\.bytes is 99999999, must be at most", large_topics),
    "other buckets": (2, r"buckets = 77, .* has 4: .*rebuild", laid_out(buckets="77")),
    "other shards": (2, r"shards = 8, .* has 4: .*rebuild", laid_out(shards="8")),
    "topic made again": (2, r"topic = old, .*submit the rounds again", laid_out(topic="old")),
    "other window": (
        2, r"duplicate_window = 7, .* has 100000: .*rebuild", laid_out(duplicate_window="7")
    ),
    "port in use": (2, r"http '127.*in use: set STREAM_RATER_HTTP to", busy_port),
    "bad Redis address": (2, r"redis .*port", lambda s, _: ([], changed(s, redis="h:port"))),
    "no Kafka": (1, rf"kafka at {NOWHERE}: ", lambda s, _: ([], changed(s, kafka=NOWHERE))),
    "no Redis": (1, r"redis: .*refused", lambda s, _: ([], changed(s, redis=NOWHERE))),
}  # fmt: skip
"""The exit code, a part of the line, and how to cause it."""


def test_one_clear_line(addresses: Addresses, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The reason in one line on standard error, nothing else, and the right exit code. All of them
    at once, on topics and databases of their own."""
    BUSY.bind(("127.0.0.1", 0))
    BUSY.listen()
    with ExitStack() as stack, ThreadPoolExecutor(len(STARTS)) as pool:
        ends = {}
        for name, (_, _, prepare) in STARTS.items():
            place = stack.enter_context(real.a_place(addresses))
            arguments, settings = prepare(place, tmp_path_factory.mktemp("start"))
            ends[name] = pool.submit(stream_rater, "run", *arguments, settings=settings)
        found = {name: each.result() for name, each in ends.items()}
    BUSY.close()
    assert [name for name, ended in found.items() if not is_right(name, ended)] == [], found


def is_right(name: str, ended: Ended) -> bool:
    """Whether the command ended as it should."""
    code, says, _ = STARTS[name]
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    if (ended.returncode, ended.stdout, len(lines)) != (code, "", 1):
        return False
    return re.fullmatch(rf"stream-rater: .*{says}.*", lines[0]) is not None


def mend(line: str) -> tuple[str, str]:
    """Do what the command in the line does, which is not installed by `make setup`, and wait until
    the broker says so: it learns of it from the controller. Returns the topic and the setting."""
    command = re.search(r"run `(kafka-configs\.sh .*?)`", line)
    assert command is not None, line
    match shlex.split(command[1]):
        case [
            "kafka-configs.sh", "--bootstrap-server", servers, "--alter",
            "--entity-type", "topics", "--entity-name", name, "--add-config", given,
        ]:  # fmt: skip
            setting, value = given.split("=")
            entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
            client = AdminClient({"bootstrap.servers": servers}, logger=CLIENT_LOGGER)
            client.incremental_alter_configs([resource])[resource].result(STILL_S)
            admin = Admin(Settings(kafka=servers))
            wait_until(lambda: admin.configuration(name)[setting] == value, f"{setting} is set")
            return name, setting
    raise AssertionError(line)


def test_topics_with_kafkas_defaults_are_refused_until_they_are_mended(
    settings: real.SettingsFactory, worker_process: Callable[..., WorkerProcess]
) -> None:
    """The topics were created beforehand with Kafka's defaults: kept for 7 days, by the producers'
    clocks. Each start names one setting that loses rounds. Once the commands were run, the service
    starts, and warns about the clocks."""
    at = settings()
    names = Topics.of(at)
    client = AdminClient({"bootstrap.servers": at.kafka}, logger=CLIENT_LOGGER)
    counts = {names.rounds: 4, names.parts: 4, names.changed: 4, names.rejected: 1}
    new = [NewTopic(name, count, 1) for name, count in counts.items()]
    for future in client.create_topics(new).values():
        future.result(STILL_S)
    mended = []
    for _ in range(3):
        refused = stream_rater("run", settings=at)
        (line,) = (each for each in refused.stderr.splitlines() if not each.startswith("{"))
        assert refused.returncode == 2, refused.stderr
        mended.append(mend(line))
    assert mended == [
        (names.rounds, "retention.ms"),
        (names.rounds, "message.timestamp.type"),
        (names.changed, "cleanup.policy"),
    ]
    worker = worker_process(at)
    warnings = [
        each["event"] for each in worker.events() if "message.timestamp.type" in each["event"]
    ]
    assert [mend(each) for each in warnings] == [
        (name, "message.timestamp.type") for name in (names.parts, names.changed, names.rejected)
    ]
    admin = Admin(at)
    admin.check_topics()
    assert admin.warnings == []


def test_a_redis_that_evicts_is_refused(settings: real.SettingsFactory, tmp_path: Path) -> None:
    """The refusal is one line, from `run` and from `rebuild`."""
    if find_redis_server() is None:
        pytest.skip("Redis is given, and none is installed here")
    evicting = {"maxmemory": "1gb", "maxmemory-policy": "allkeys-lfu"}
    with start_redis(tmp_path, settings=evicting) as server:
        at = settings(redis=server.address)
        for command in (["run"], ["rebuild", "--replace"]):
            refused = stream_rater(*command, settings=at)
            lines = [each for each in refused.stderr.splitlines() if not each.startswith("{")]
            assert (refused.returncode, len(lines)) == (2, 1), refused.stderr
            assert re.fullmatch(
                f"stream-rater: redis at {server.address}: maxmemory-policy is allkeys-lfu and "
                "maxmemory is 1073741824, .*`CONFIG SET maxmemory-policy noeviction`.*", lines[0]
            ), lines[0]  # fmt: skip
