"""Real servers that evict keys are refused by every command, wherever in a cluster they are."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import redis

from local.redis_node import ADVISED
from local.servers import Server, start_redis
from local.stores import chosen
from stream_rater.adapters.redis.checks import StoreMismatch
from stream_rater.adapters.redis.functions import LIBRARY
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from tests.redis_cluster import RedisCluster, client_of

pytestmark = pytest.mark.integration

LIMIT_BYTES = 2**30
LISTPACK = "hash-max-listpack-value"
RIGHTS = ("~*", "+@all")


@pytest.fixture(scope="module")
def server(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the advised settings, which these tests may change."""
    with start_redis(tmp_path_factory.mktemp("redis"), settings=ADVISED) as found:
        yield found


@pytest.fixture
def admin(server: Server) -> Iterator[Any]:
    """A client that may change the server's settings, which are restored afterwards."""
    with client_of(server) as client:
        yield client
        set_memory(client, "noeviction", 0)


def set_memory(client: Any, policy: str, limit_bytes: int) -> None:
    client.config_set("maxmemory-policy", policy)
    client.config_set("maxmemory", limit_bytes)


def settings_of(server: Server, admin: Any, *denied: str) -> Settings:
    """Settings of a user who may do everything except this."""
    admin.execute_command("ACL", "SETUSER", "user", "reset", "on", ">secret", *RIGHTS, *denied)
    return Settings(redis=server.address, redis_username="user", redis_password="secret")


def test_a_server_that_evicts_is_refused(server: Server, admin: Any) -> None:
    """It is found by CONFIG or INFO, whichever the user may run. The command in the message repairs
    it."""
    refusal = f"redis at {server.address}: .* {LIMIT_BYTES}, "
    for denied in ((), ("-config",), ("-info",)):
        at = settings_of(server, admin, *denied)
        set_memory(admin, "allkeys-lru", LIMIT_BYTES)
        if chosen().functions:
            admin.function_flush()
        with pytest.raises(StoreMismatch, match=refusal) as no:
            RedisStore(at).prepare()
        assert not chosen().functions or admin.function_list(library=LIBRARY) == [], denied
        command = str(no.value).partition("run `")[2].partition("`")[0]
        admin.execute_command(*command.split())
        assert RedisStore(at).prepare() == [], denied


def test_a_server_that_would_evict_is_warned_of(server: Server, admin: Any) -> None:
    """The warning comes before the server has a limit."""
    set_memory(admin, "allkeys-random", 0)
    (line,) = RedisStore(settings_of(server, admin, "-config")).prepare()
    assert "maxmemory-policy is allkeys-random" in line


def test_a_server_that_evicts_what_expires_deletes_no_belief(server: Server, admin: Any) -> None:
    """Such a server refuses writes instead, as with `noeviction`, so it is accepted."""
    set_memory(admin, "volatile-lru", LIMIT_BYTES)
    at = settings_of(server, admin)
    assert RedisStore(at).prepare() == []
    admin.hset("{0}:belief:l:0", "ann", "belief")
    admin.config_set("maxmemory", 1)
    with pytest.raises(redis.OutOfMemoryError):
        admin.hset("{0}:belief:l:0", "bob", "belief")
    assert admin.hgetall("{0}:belief:l:0") == {b"ann": b"belief"}


def test_a_server_that_shows_nothing_is_warned_of_once(server: Server, admin: Any) -> None:
    """The warning is given once, whatever the server's settings are."""
    set_memory(admin, "allkeys-lru", LIMIT_BYTES)
    (line,) = RedisStore(settings_of(server, admin, "-config", "-info")).prepare()
    assert "it is unknown" in line


def test_each_server_of_a_cluster_is_asked(
    redis_cluster: RedisCluster, cluster_settings: Settings
) -> None:
    """One server that evicts is enough, and it is named. If no server answers, one warning says
    so."""
    for each in redis_cluster.servers:
        with client_of(each) as client:
            set_memory(client, "allkeys-lru", LIMIT_BYTES)
            try:
                with pytest.raises(StoreMismatch, match=f"redis at {each.address}: "):
                    RedisStore(cluster_settings).prepare()
            finally:
                set_memory(client, "noeviction", 0)
                client.config_set(LISTPACK, ADVISED[LISTPACK])
    assert RedisStore(cluster_settings).prepare() == []
    for each in redis_cluster.servers:
        with client_of(each) as client:
            settings_of(each, client, "-config", "-info")
    silent = msgspec.structs.replace(
        cluster_settings, redis_username="user", redis_password="secret"
    )
    (line,) = RedisStore(silent).prepare()
    assert "it is unknown" in line
