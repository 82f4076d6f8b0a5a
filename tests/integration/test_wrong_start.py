"""What a start cannot go on from: one clear line, exit code 2 for configuration, 1 for servers.

All are started at once, since some wait long before they give up; then each test awaits its own.
"""

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from local.servers import Addresses
from local.tools import ROOT
from stream_rater.adapters.access import QUIET
from stream_rater.adapters.layout import LAYOUT_KEY
from stream_rater.adapters.redis_client import connect
from stream_rater.adapters.topics import Topics
from stream_rater.config import Settings
from tests import real
from tests.integration.processes import environment_of

NOWHERE = "127.0.0.1:1"

Start = tuple[list[str], Settings]
"""Arguments of `run`, and settings."""


def changed(settings: Settings, **changes: object) -> Settings:
    return msgspec.structs.replace(settings, **changes)


def make_topics(settings: Settings, **partitions: int) -> None:
    topics = Topics.of(settings)
    client = AdminClient({"bootstrap.servers": settings.kafka}, logger=QUIET)
    new = [NewTopic(getattr(topics, name), count, 1) for name, count in partitions.items()]
    for future in client.create_topics(new).values():
        future.result(10.0)


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
    make_topics(settings, parts=4, changed=3)
    return [], settings


def plain_topic(settings: Settings, folder: Path) -> Start:
    make_topics(settings, parts=4, changed=4)
    return [], settings


def small_topic(settings: Settings, folder: Path) -> Start:
    topic = Topics.of(settings).parts
    client = AdminClient({"bootstrap.servers": settings.kafka}, logger=QUIET)
    new = [NewTopic(topic, 4, 1, config={"max.message.bytes": "1000"})]
    client.create_topics(new)[topic].result(10.0)
    return [], settings


def large_topic(settings: Settings, folder: Path) -> Start:
    topics = Topics.of(settings)
    client = AdminClient({"bootstrap.servers": settings.kafka}, logger=QUIET)
    config = {"max.message.bytes": "99999999"}
    new = [NewTopic(name, 4, 1, config=config) for name in (topics.rounds, topics.parts)]
    new.append(NewTopic(topics.rejected, 1, 1, config=config))
    for future in client.create_topics(new).values():
        future.result(10.0)
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
    "unequal topics": (2, r"4 partitions and .*rating-changed 3", unequal_topics),
    "topic not compacted": (2, r"rating-changed: cleanup\.policy must be compact", plain_topic),
    "topic too small": (2, r"max\.message\.bytes is 1000", small_topic),
    "topic too large": (2, r"max\.message\.bytes is 99999999, more than", large_topic),
    "other buckets": (2, r"buckets = 77, .* has 4: .*rebuild", laid_out(buckets="77")),
    "other shards": (2, r"shards = 8, .* has 4: .*rebuild", laid_out(shards="8")),
    "topic made anew": (2, r"topic = old, .*submit the rounds there", laid_out(topic="old")),
    "other window": (
        2, r"duplicate_window = 7, .* has 100000: .*rebuild", laid_out(duplicate_window="7")
    ),
    "port in use": (2, r"http '127.*in use", busy_port),
    "bad Redis address": (2, r"redis .*port", lambda s, _: ([], changed(s, redis="h:port"))),
    "no Kafka": (1, rf"kafka at {NOWHERE}: ", lambda s, _: ([], changed(s, kafka=NOWHERE))),
    "no Redis": (1, r"redis: .*refused", lambda s, _: ([], changed(s, redis=NOWHERE))),
}  # fmt: skip
"""Exit code, what the line says, and how to get there."""


@pytest.fixture(scope="module")
def started(
    addresses: Addresses, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "subprocess.Popen[str]"]]:
    """All of them, on topics and databases of their own."""
    BUSY.bind(("127.0.0.1", 0))
    BUSY.listen()
    with ExitStack() as stack:
        processes = {}
        for name, (_, _, prepare) in STARTS.items():
            place = stack.enter_context(real.a_place(addresses))
            arguments, settings = prepare(place, tmp_path_factory.mktemp("start"))
            process = subprocess.Popen(
                [sys.executable, "-m", "stream_rater", "run", *arguments],
                cwd=ROOT, env=environment_of(settings), text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            stack.callback(process.kill)
            processes[name] = process
        yield processes
    BUSY.close()


@pytest.mark.parametrize("name", STARTS)
def test_one_clear_line(started: dict[str, "subprocess.Popen[str]"], name: str) -> None:
    """The reason in one line on standard error, nothing else, and the right exit code."""
    code, says, _ = STARTS[name]
    out, err = started[name].communicate(timeout=40.0)
    lines = [line for line in err.splitlines() if not line.startswith("{")]
    assert (started[name].returncode, out, len(lines)) == (code, "", 1), err
    assert re.fullmatch(rf"stream-rater: .*{says}.*", lines[0]), lines[0]
