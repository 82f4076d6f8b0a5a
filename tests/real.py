"""Real Kafka and Redis for tests: a topic prefix and a Redis database that no other test has."""

import itertools
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import redis
from confluent_kafka.admin import AdminClient

from local.servers import Addresses, servers, start_kafka
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE, given_address
from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings

OUR_DATABASES = 4096
GIVEN_DATABASES = 16  # The number of databases of a Redis by default.

CLAIM = "stream-rater:test"  # Marks a database as taken by a test.

PROTOCOL_VARIABLE = "STREAM_RATER_TEST_GROUP_PROTOCOL"
GROUP_PROTOCOL: Any = os.environ.get(PROTOCOL_VARIABLE) or "classic"

DELETION_S = 60.0  # A broker that was just stopped must first register again.

PREFIX = re.compile(r"t[0-9a-f]{12}\.")  # The prefixes of tests' topics.

SettingsFactory = Callable[..., Settings]  # Settings of this test; keywords change some.

_databases = itertools.count(1)


def a_pair(kafka: str | None = None) -> AbstractContextManager[Addresses]:
    """Kafka and Redis of the environment, else new ones. `kafka`: address of a running Kafka."""
    return servers(kafka=kafka, redis_settings={"databases": str(OUR_DATABASES)})


@contextmanager
def a_kafka() -> Iterator[str]:
    """The address of the Kafka that the environment names, else of a new one."""
    given = given_address(KAFKA_VARIABLE)
    if given is not None:
        yield given
        return
    with (
        TemporaryDirectory(prefix="stream-rater-", ignore_cleanup_errors=True) as folder,
        start_kafka(Path(folder)) as server,
    ):
        yield server.address


@contextmanager
def a_place(addresses: Addresses, *, ours: bool = False) -> Iterator[Settings]:
    """Settings with topics and a database that no other test uses; both are deleted at the end.
    `ours`: the servers are the test's own, whatever the environment names."""
    prefix = f"t{uuid.uuid4().hex[:12]}."
    assert PREFIX.match(prefix)
    given = given_address(REDIS_VARIABLE) is not None and not ours
    url, client = _claimed_database(addresses.redis, GIVEN_DATABASES if given or ours else 0)
    settings = Settings(
        kafka=addresses.kafka, redis=url, topic_prefix=prefix, http="127.0.0.1:0",
        serve="127.0.0.1:0", partitions=4, shards=4, buckets=4, group_protocol=GROUP_PROTOCOL,
    )  # fmt: skip
    try:
        yield settings
    finally:
        client.flushdb()
        client.close()
        _delete_topics(settings)


def _claimed_database(address: str, databases: int) -> tuple[str, "redis.Redis"]:
    """Claim an empty database: one of so many, or (0) the next one of this process' own server."""
    base = address if "://" in address else f"redis://{address}"
    root = base.rstrip("/") if not base.rpartition("/")[2].isdigit() else base.rpartition("/")[0]
    for number in range(1, databases) if databases else (next(_databases) % OUR_DATABASES,):
        url = f"{root}/{number}"
        client: redis.Redis = redis.Redis.from_url(url)
        if client.dbsize() == 0 and client.set(CLAIM, "1", nx=True):
            return url, client
        client.close()
    raise AssertionError(f"Redis at {root} has no empty database for a test")


def _delete_topics(settings: Settings) -> None:
    """Ask the broker to delete the topics of a test; errors are ignored, as for one never made."""
    names = [*Topics.of(settings).names, topic_of(settings)]
    client: Any = AdminClient({"bootstrap.servers": settings.kafka}, logger=CLIENT_LOGGER)
    for future in client.delete_topics(names).values():
        future.exception(DELETION_S)
