"""A Redis Cluster must be configured as one, and an address must make sense."""

import msgspec
import pytest

from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.config.errors import BadConfiguration
from stream_rater.contract.errors import StoreTrouble
from tests import real
from tests.contract.test_store import BOB, SHARDS


@pytest.mark.integration
def test_a_cluster_is_to_be_configured(cluster_settings: real.Settings) -> None:
    """If a node of a cluster is used as a single server, the error names the setting."""
    node, *_ = cluster_settings.redis.split(",")
    store = RedisStore(msgspec.structs.replace(cluster_settings, redis=node, redis_cluster=False))
    with pytest.raises(StoreTrouble, match="STREAM_RATER_REDIS_CLUSTER"):
        for number in range(3):  # each of three masters has one of these slots
            store.check_layout({str(number): ""})
            store.read(dict.fromkeys(range(SHARDS), PlayerColumn.of([BOB])))


@pytest.mark.integration
def test_no_cluster_where_one_is_configured(settings: real.SettingsFactory) -> None:
    """A single server configured as a cluster raises an error, and so does an address without a
    server."""
    with pytest.raises(StoreTrouble, match=r"[Cc]luster"):
        RedisStore(settings(redis_cluster=True, redis=settings().redis.rpartition("/")[0]))
    with pytest.raises(StoreTrouble):
        RedisStore(settings(redis_cluster=True, redis="127.0.0.1:1,127.0.0.1:2"))


def test_addresses_that_make_no_sense() -> None:
    """The error is raised before anything is sent."""
    for address, cluster, message in (
        ("redis://127.0.0.1:1/3", True, "only database 0"),
        ("127.0.0.1:1,127.0.0.1", True, "127.0.0.1"),
        ("127.0.0.1:1,127.0.0.1:2", False, "set redis_cluster"),
        ("redis://127.0.0.1:1/0?protocol=3", False, "must not set protocol"),
        ("redis://127.0.0.1:1?decode_responses=true", True, "must not set decode_responses"),
    ):
        with pytest.raises(BadConfiguration, match=message):
            connect(real.Settings(redis=address, redis_cluster=cluster))
