"""Fixtures of the contract tests, which require the same facts of in-memory and real adapters."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from local import stores
from local.servers import Server, start_redis
from local.tools import find_redis_server
from tests import real
from tests.contract.places import PlaceRig
from tests.contract.rigs import KafkaRig, MemoryRig, Rig, SqliteRig
from tests.redis_cluster import RedisCluster, a_redis_cluster, client_of

REAL = pytest.param("kafka", marks=pytest.mark.integration)

OTHERS = [
    pytest.param(each.name, marks=[pytest.mark.integration, pytest.mark.slow])
    for each in stores.ALL.values()
    if each != stores.REDIS and not os.environ.get(stores.STORE_VARIABLE)
]
"""The names of stores other than Debian's Redis; none if all tests run on a chosen one."""


NEEDS_FUNCTIONS = pytest.mark.skipif(
    not stores.chosen().functions, reason=f"{stores.chosen().title} runs no Redis Functions"
)


@pytest.fixture
def kafka_rig(settings: real.SettingsFactory) -> Iterator[KafkaRig]:
    with closing(KafkaRig(settings())) as found:
        yield found


@pytest.fixture
def sqlite_rig(tmp_path: Path) -> Iterator[SqliteRig]:
    with closing(SqliteRig(tmp_path / "ratings.db")) as found:
        yield found


@pytest.fixture
def memory_rig() -> MemoryRig:
    return MemoryRig()


@pytest.fixture(params=["memory", "sqlite", REAL])
def rig(request: pytest.FixtureRequest) -> Rig:
    """A log and its consumer groups, without members: in memory, in a data file, on Kafka."""
    found: Rig = request.getfixturevalue(f"{request.param}_rig")
    return found


PLACES = ["memory", "file", REAL]


@pytest.fixture(params=PLACES)
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PlaceRig]:
    """Makes places of each kind: in memory, in data files, and on Kafka and Redis."""
    with PlaceRig(request.param, tmp_path, lambda: request.getfixturevalue("addresses")) as rig:
        yield rig


@pytest.fixture(scope="package")
def redis_installed() -> None:
    """Skip if these tests cannot start servers of their own."""
    if find_redis_server() is None:
        pytest.skip("Redis is given, and none is installed here")


@pytest.fixture(scope="package")
def redis_cluster(
    redis_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisCluster]:
    """A Redis Cluster of three masters, for these tests."""
    if not stores.chosen().clusters:
        pytest.skip(f"tests make no cluster of {stores.chosen().title}")
    with a_redis_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def real_settings(settings: real.SettingsFactory) -> real.Settings:
    return settings(buckets=2)


@pytest.fixture
def at(settings: real.SettingsFactory) -> real.Settings:
    """Settings of an index that keeps three changes of each player's history."""
    return settings(serve_history=3)


@pytest.fixture
def cluster_settings(redis_cluster: RedisCluster) -> real.Settings:
    for server in redis_cluster.servers:
        client_of(server).flushall()
    return real.Settings(redis=redis_cluster.address, redis_cluster=True, buckets=2)


@pytest.fixture(params=["real", "cluster"])
def redis_settings(request: pytest.FixtureRequest) -> real.Settings:
    """Settings with a single server, and with a cluster."""
    found: real.Settings = request.getfixturevalue(f"{request.param}_settings")
    return found


@pytest.fixture(scope="package")
def other_store(
    redis_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], str]]:
    """Returns the address of another store, which is empty, by its name. Each is started once."""
    running: dict[str, Server] = {}
    with ExitStack() as stack:

        def started(name: str) -> str:
            store = stores.ALL[name]
            if store.find() is None:
                pytest.skip(stores.why_missing(store))
            if name not in running:
                server = start_redis(tmp_path_factory.mktemp(name), store=store)
                running[name] = stack.enter_context(server)
            with client_of(running[name]) as client:
                client.flushall()
            return running[name].address

        yield started
