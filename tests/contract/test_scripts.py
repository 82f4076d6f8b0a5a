"""functions.lua as a script: where functions are refused, EVALSHA does the same."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from local import stores
from local.servers import Server, start_redis
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.keys import position_key
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, StoreTrouble
from stream_rater.pipeline.ports import Apply, Position, StoredShard
from tests.builders.cases import cases
from tests.contract.test_store import BOB, RedisPerformer, application, apply, read
from tests.redis_cluster import RedisCluster, client_of

pytestmark = pytest.mark.integration

FUNCTIONS = ("-function", "-fcall")
SCRIPTS = ("-evalsha", "-script|load")
SHARDS = range(5)


@pytest.fixture(scope="module")
def server(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that knows functions and denies none, to whoever may call them."""
    with start_redis(tmp_path_factory.mktemp("redis"), store=stores.REDIS) as found:
        yield found


@pytest.fixture
def admin(server: Server) -> Iterator[Any]:
    """A client that may do everything on the server, which is empty."""
    with client_of(server) as client:
        client.flushall()
        client.function_flush()
        client.script_flush()
        yield client


def user(server: Server, admin: Any, *denied: str) -> Settings:
    """Settings of a user who may do everything except this."""
    admin.execute_command("ACL", "SETUSER", "user", "reset", "on", ">p", "~*", "+@all", *denied)
    return Settings(redis=server.address, redis_username="user", redis_password="p", buckets=2)


def on_each_shard(applied: int, belief: bytes) -> Apply:
    return Apply({s: application(applied - 1, applied, {BOB: belief}) for s in SHARDS})


def test_a_user_without_functions_writes_by_scripts(server: Server, admin: Any) -> None:
    """It says so, with what Redis answered, and leaves no functions behind."""
    performer = RedisPerformer(user(server, admin, *FUNCTIONS))
    assert performer.store.functions.startswith("redis: writes by EVALSHA, as a script, because: ")
    assert "'function|list'" in performer.store.functions
    assert apply(performer, 0, application(0, 1, {BOB: b"1"}))
    assert read(performer, 0, BOB) == StoredShard(Position(1, 0, b""), [b"1"])
    assert admin.function_list() == []
    admin.execute_command("ACL", "SETUSER", "user", "+@all")
    free = RedisPerformer(user(server, admin))
    assert free.store.functions == "redis: writes by FCALL, as a function"


def test_both_ways_work_side_by_side(server: Server, admin: Any) -> None:
    """A call by one way from before a call by the other way writes nothing."""
    scripts = RedisPerformer(user(server, admin, *FUNCTIONS))
    functions = RedisPerformer(Settings(redis=server.address, buckets=2))
    for turn, (one, other) in enumerate([(scripts, functions), (functions, scripts)] * 2):
        assert apply(one, 0, application(turn, turn + 1, {BOB: b"%d" % turn}))
        assert not apply(other, 0, application(turn, turn + 1, {BOB: b"late"}))
        assert read(other, 0, BOB) == StoredShard(Position(turn + 1, turn, b""), [b"%d" % turn])


def test_a_lost_script_is_loaded_within_the_effect(server: Server, admin: Any) -> None:
    """Each call of the effect is carried out once, as after a restart or a failover. Calls whose
    functions are denied while it runs are made by scripts, within the same effect. If one call of
    an effect fails, the effect does; the calls that were not run stay so."""
    performer = RedisPerformer(user(server, admin, *FUNCTIONS))
    for applied in (1, 2):
        admin.script_flush()
        assert performer.perform(on_each_shard(applied, b"x")) == dict.fromkeys(SHARDS, True)
        assert performer.perform(on_each_shard(applied, b"y")) == dict.fromkeys(SHARDS, False)
    assert read(performer, 3, BOB) == StoredShard(Position(2, 1, b""), [b"x"])
    admin.flushall()
    performer = RedisPerformer(user(server, admin))
    assert performer.perform(on_each_shard(1, b"1")) == dict.fromkeys(SHARDS, True)
    admin.execute_command("ACL", "SETUSER", "user", *FUNCTIONS)
    assert performer.perform(on_each_shard(2, b"2")) == dict.fromkeys(SHARDS, True)
    assert "EVALSHA" in performer.store.functions
    admin.flushall()
    performer = RedisPerformer(user(server, admin, *FUNCTIONS))
    admin.set(position_key(2), "no hash")
    with pytest.raises(StoreTrouble, match="WRONGTYPE"):
        performer.perform(on_each_shard(1, b"1"))
    admin.delete(position_key(2))
    done: Any = performer.perform(on_each_shard(1, b"1"))
    assert done[2]


@cases("denied", SCRIPTS)
def test_who_may_use_neither_is_denied(server: Server, admin: Any, denied: str) -> None:
    """The line names both rights, and nothing is written."""
    at = user(server, admin, *FUNCTIONS, denied)
    word = denied.removeprefix("-")
    with pytest.raises(Denied, match=f"'function.*; in its place: .*{word[:7]}") as caught:
        apply(RedisPerformer(at), 0, application(0, 1, {BOB: b"1"}))
    assert BOB[1] not in str(caught.value)
    assert not admin.exists(position_key(0))


def test_one_node_of_a_cluster_lost_the_script(
    redis_cluster: RedisCluster, cluster_settings: Settings
) -> None:
    """It is loaded there, and no call is carried out twice."""
    performer = RedisPerformer(cluster_settings)
    performer.store._functions.refusal = "the test says so"
    performer.store.prepare()
    for applied, node in enumerate(redis_cluster.servers, 1):
        with client_of(node) as client:
            client.script_flush()
        assert performer.perform(on_each_shard(applied, b"x")) == dict.fromkeys(SHARDS, True)


@pytest.mark.parametrize("name", ["redis-6", "no-functions"])
def test_a_store_without_functions_is_asked_once(other_store: Any, name: str) -> None:
    """The line in the log has what the store answered, without the data of a call."""
    if name not in stores.ALL:
        pytest.skip("this run is about another store")
    at = Settings(redis=other_store(name), buckets=2)
    performer = RedisPerformer(at)
    assert performer.store.functions.startswith("redis: writes by EVALSHA")
    unprepared = type(performer.store)(msgspec.structs.replace(at))
    performer.store = unprepared
    assert apply(performer, 0, application(0, 1, {BOB: b"1"}))
    assert BOB[1] not in unprepared.functions and "EVALSHA" in unprepared.functions
    with connect(at) as client:
        assert client.hget(position_key(0), "applied") == b"1"
