"""Servers that evict keys are refused by every command, wherever in a cluster they are. A store
that is full, gone or a replica takes no checkpoints, and nothing waits for that; beliefs must be
taken."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
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
from stream_rater.columns.player_column import BeliefColumn
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import StoreTrouble
from stream_rater.pipeline.ports import Application, Position
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


BELIEFS = Application(Position(1, 0), BeliefColumn.of([(("duel", "ann"), b"belief")]))


REPLICA = "REPLICAOF 127.0.0.1 1"
"""Of a master that is not there."""


@pytest.mark.parametrize(
    ("commands", "reads", "deletes", "why"),
    [
        (["CONFIG SET maxmemory 1"], True, True, "when used memory > 'maxmemory'"),
        ([REPLICA], True, False, "read only replica"),
        ([REPLICA, "CONFIG SET replica-serve-stale-data no"], False, False,
         "MASTER is down|read only replica"),
        (["SHUTDOWN NOSAVE"], False, False, "connecting to|Connection"),
    ],
)  # fmt: skip
def test_what_the_store_does_not_do_is_reported_and_not_raised(
    redis_installed: None, tmp_path: Path,
    commands: Sequence[str], reads: bool, deletes: bool, why: str,
) -> None:  # fmt: skip
    """Each call says whether it was done, and reports the reason. A call that changes beliefs
    raises it."""
    with start_redis(tmp_path) as server, client_of(server) as client:
        store, reported = RedisStore(Settings(redis=server.address)), list[str]()
        store.prepare()
        kept = store.checkpoints
        kept.on_failure = reported.append
        assert kept.write("duel", "7-ab", 0, b"piece")
        assert kept.keep("duel", "7-ab", b"head")
        assert reported == []
        for command in commands:
            with suppress(redis.ConnectionError):  # of the server that ends
                client.execute_command(*command.split())
        assert not kept.write("duel", "7-ab", 1, b"another")
        assert not kept.keep("duel", "9-cd", b"another")
        assert len(reported) == 2
        assert kept.heads("duel") == ({"7-ab": b"head"} if reads else {})
        assert kept.read("duel", "7-ab", 0) == (b"piece" if reads else None)
        assert kept.read("duel", "7-ab", 1) is None
        assert kept.drop("duel", "7-ab", 2) is deletes
        assert len(reported) == 2 + (0 if reads else 3) + (not deletes)
        assert all(re.search(why, each) and "\n" not in each for each in reported), reported
        with pytest.raises(StoreTrouble):
            store.apply({0: BELIEFS})
        if not deletes:
            with pytest.raises(StoreTrouble):
                kept.drop_all()
        store.close()
