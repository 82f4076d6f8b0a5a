"""A season on a Kafka and a Redis on which everything that a client notices is the default."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import pytest

from local.kafka_node import DEFAULTS, FORMATTED, PROPERTIES, start_kafka
from local.servers import Addresses, Server, start_redis
from local.tools import find_redis_server
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from tests import real, rounds
from tests.integration.processes import PATIENTLY, WorkerProcess, stream_rater, wait_until
from tests.integration.test_service import a_round
from tests.integration.topics import Bytes, Finished, produce, published, read_topic

Start = Callable[..., WorkerProcess]

KAFKAS_LIMIT = 1_048_588
"""The largest record batch of a topic that does not say otherwise, `message.max.bytes`."""
FEW, MANY = 200, 12_000

pytestmark = pytest.mark.skipif(
    not FORMATTED.is_dir() or find_redis_server() is None, reason="no servers are installed here"
)


class Place(NamedTuple):
    settings: Settings
    redis: Server


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("defaults")
    with (
        start_redis(folder / "redis") as redis,
        start_kafka(folder / "kafka", properties=DEFAULTS) as kafka,
        real.a_place(Addresses(kafka.address, redis.address), ours=True) as at,
    ):
        yield Place(at, redis)


def large_round() -> bytes:
    """A valid round that is larger than Kafka's own limit."""
    standings = [{"player": f"{i:0100}", "rank": 1 + i // 3} for i in range(MANY)]
    return msgspec.json.encode(rounds.event(*standings, completed_at="2020-05-01T20:15:05Z"))


def test_nothing_kinder_is_set() -> None:
    """No limit, time-out or automatism of the broker is ours."""
    given = {**PROPERTIES, **DEFAULTS}
    kinder = ("bytes", "timeout", "interval", "auto.", "retention", "delay")
    assert {k: v for k, v in given.items() if any(each in k for each in kinder)} == DEFAULTS


@pytest.mark.slow
def test_a_season(place: Place, worker_process: Start) -> None:
    """Small rounds, a large one, rejections large and small, a correction; a worker is killed, and
    Redis is stopped and started. Everything is rated once, published once, and equal to the
    replay."""
    at = place.settings
    first, _ = worker_process(at), worker_process(at)
    value = large_round()
    bad = b"[" + value + b"]"
    assert len(value) > KAFKAS_LIMIT
    produce(at, [a_round(number) for number in range(FEW)])
    produce(at, [Bytes(value), Bytes(bad), Bytes(b"bad")])
    finished = Finished(at)
    wait_until(finished, "all is rated")
    rejected = read_topic(at, Topics.of(at).rejected)
    assert sorted(len(each.value() or b"") for each in rejected) == [3, len(bad)]
    produce(at, [a_round(number) for number in range(FEW, 2 * FEW)])
    first.kill()
    worker_process(at)
    wait_until(finished, "the rest is rated")
    place.redis.restart()
    sent = stream_rater("correct", "void", "ladder-1", "r1", settings=at)
    assert sent.returncode == 0, sent.stderr
    produce(at, [a_round(number) for number in range(2 * FEW, 3 * FEW)])
    wait_until(finished, "the correction is applied")
    events = published(at)
    assert len({each.event_id for each in events}) == len(events)
    assert sum(each.correction is None for each in events) == 2 * 3 * FEW + MANY
    assert any(each.correction is not None for each in events)
    verified = stream_rater("verify", "--wait", PATIENTLY, settings=at)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "all equal, bit for bit" in verified.stdout
