"""The same facts on the in-memory adapters and on the real ones."""

from collections.abc import Iterator

import pytest

from local.tools import find_redis_server
from tests import real
from tests.contract.rigs import KafkaRig, MemoryRig, Rig
from tests.redis_cluster import RedisCluster, a_redis_cluster, client_of

MEMORY = "memory"
REAL = pytest.param("real", marks=pytest.mark.integration)


@pytest.fixture
def kafka_rig(settings: real.SettingsFactory) -> Iterator[KafkaRig]:
    """That on Kafka."""
    found = KafkaRig(settings(session_timeout_ms=2000))
    yield found
    found.close()


@pytest.fixture(params=[MEMORY, REAL])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A log with its groups, nobody in them."""
    if request.param == MEMORY:
        yield MemoryRig()
        return
    yield request.getfixturevalue("kafka_rig")


@pytest.fixture(scope="package")
def redis_installed() -> None:
    """Servers of these tests' own can be started."""
    if find_redis_server() is None:
        pytest.skip("Redis is given, and none is installed here")


@pytest.fixture(scope="package")
def redis_cluster(
    redis_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisCluster]:
    """Three masters of these tests' own."""
    with a_redis_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def real_settings(settings: real.SettingsFactory) -> real.Settings:
    """Of a database of this test's own."""
    return settings(buckets=2)


@pytest.fixture
def cluster_settings(redis_cluster: RedisCluster) -> real.Settings:
    """Of a cluster that is empty."""
    for server in redis_cluster.servers:
        client_of(server).flushall()
    return real.Settings(redis=redis_cluster.address, redis_cluster=True, buckets=2)


@pytest.fixture(params=["real", "cluster"])
def redis_settings(request: pytest.FixtureRequest) -> real.Settings:
    """One server, and a cluster."""
    found: real.Settings = request.getfixturevalue(f"{request.param}_settings")
    return found
