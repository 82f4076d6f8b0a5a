"""Connections to Redis: scripts in the place of functions, changes of a password file, and how a
client leaves a master that became a replica for the one that its name or the sentinels lead to."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from local import stores
from local.servers import Server, start_redis
from stream_rater.adapters.redis import sentinel
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.encoding import position_key
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.config import files
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LayoutMismatch, StoreTrouble
from stream_rater.pipeline.ports import Apply, Position, StoredShard
from tests.builders.cases import cases
from tests.contract.test_store import BOB, RedisPerformer, application, apply, read
from tests.redis_cluster import RedisCluster, client_of
from tests.sentinels import NAME, Watched, a_watched_redis
from tests.waits import wait_until

pytestmark = pytest.mark.integration

FUNCTIONS = ("-function", "-fcall")
SCRIPTS = ("-evalsha", "-script|load")
SHARDS = range(5)


@pytest.fixture(scope="module")
def server(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that knows functions. Its default user may do everything."""
    with start_redis(tmp_path_factory.mktemp("redis"), store=stores.REDIS) as found:
        yield found


@pytest.fixture
def admin(server: Server) -> Iterator[Any]:
    """A client that may do everything on the server, which is empty at the start."""
    with client_of(server) as client:
        client.flushall()
        client.function_flush()
        client.script_flush()
        yield client


def user(server: Server, admin: Any, *denied: str) -> Settings:
    """Settings of a user who may do everything except what is denied."""
    admin.execute_command("ACL", "SETUSER", "user", "reset", "on", ">p", "~*", "+@all", *denied)
    return Settings(redis=server.address, redis_username="user", redis_password="p", buckets=2)


def on_each_shard(applied: int, belief: bytes) -> Apply:
    return Apply({s: application(applied - 1, applied, {BOB: belief}) for s in SHARDS})


def test_a_user_without_functions_writes_by_scripts(server: Server, admin: Any) -> None:
    """The store reports it with the reason that Redis gave, and leaves no functions behind."""
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
    """A call that was overtaken by a call of the other way writes nothing."""
    scripts = RedisPerformer(user(server, admin, *FUNCTIONS))
    functions = RedisPerformer(Settings(redis=server.address, buckets=2))
    for turn, (one, other) in enumerate([(scripts, functions), (functions, scripts)] * 2):
        assert apply(one, 0, application(turn, turn + 1, {BOB: b"%d" % turn}))
        assert not apply(other, 0, application(turn, turn + 1, {BOB: b"late"}))
        assert read(other, 0, BOB) == StoredShard(Position(turn + 1, turn, b""), [b"%d" % turn])


def test_a_lost_script_is_loaded_within_the_effect(server: Server, admin: Any) -> None:
    """Each call is carried out once, as after a restart. Calls whose functions become denied are
    made by scripts. If one call fails, so does the effect; calls that were not run stay so."""
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
    """The error, which comes at the start, names the rights to both. So does a later one, and
    nothing is written."""
    word = denied.removeprefix("-")[:7]
    neither = f"'function.*; in its place: .*{word}.*: allow FUNCTION and FCALL, or SCRIPT and"
    with pytest.raises(Denied, match=neither):
        RedisPerformer(user(server, admin, *FUNCTIONS, denied))
    performer = RedisPerformer(user(server, admin, *FUNCTIONS))
    admin.script_flush()
    admin.execute_command("ACL", "SETUSER", "user", denied)
    with pytest.raises(Denied, match=neither) as caught:
        apply(performer, 0, application(0, 1, {BOB: b"1"}))
    assert BOB[1] not in str(caught.value)
    assert not admin.exists(position_key(0))


def test_one_node_of_a_cluster_lost_the_script(
    redis_cluster: RedisCluster, cluster_settings: Settings
) -> None:
    """The script is loaded on that node, and no call is carried out twice."""
    performer = RedisPerformer(cluster_settings)
    performer.store._functions.refusal = "the test says so"
    performer.store.prepare()
    for applied, node in enumerate(redis_cluster.servers, 1):
        with client_of(node) as client:
            client.script_flush()
        assert performer.perform(on_each_shard(applied, b"x")) == dict.fromkeys(SHARDS, True)


@pytest.mark.parametrize("name", ["redis-6", "no-functions"])
def test_a_store_without_functions_is_asked_once(other_store: Any, name: str) -> None:
    """The line in the log has the store's answer, without the data of a call."""
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


# --- a password in a file ---

USER = "rater"


class Account:
    """A user of some servers, and the file with the user's password."""

    def __init__(self, file: Path, *servers: Server) -> None:
        self.file, self._servers = file, servers
        self.rotate("first")

    def write(self, password: str) -> None:
        """Change the file only."""
        self.file.write_text(password + "\n")

    def rotate(self, password: str, *, in_the_file: bool = True) -> None:
        """Change the password in the file and on servers, which close connections of the user."""
        if in_the_file:
            self.write(password)
        for server in self._servers:
            with client_of(server) as admin:
                rules = "reset", "on", f">{password}", "~*", "&*", "+@all"
                admin.execute_command("ACL", "SETUSER", USER, *rules)
                admin.execute_command("CLIENT", "KILL", "USER", USER)

    def settings(self, **more: Any) -> Settings:
        """Settings as `read_settings` makes them from a password file."""
        return Settings(
            redis_username=USER, redis_password=self.file.read_text().strip(),
            redis_password_file=str(self.file), buckets=2, **more,
        )  # fmt: skip


@pytest.fixture
def account(server: Server, admin: Any, tmp_path: Path) -> Account:
    """A user of an empty server."""
    return Account(tmp_path / "password", server)


def test_a_store_goes_on_with_the_new_password(account: Account, server: Server) -> None:
    """Calls and plain commands go on. What was in flight as the connection ended is unknown."""
    store = RedisPerformer(account.settings(redis=server.address))
    for turn in range(3):
        assert apply(store, 0, application(turn, turn + 1, {BOB: b"x"}))
        account.rotate(f"password {turn}")
        store.store.close()
        store.store.check_layout({f"turn {turn}": "1"})


def test_a_server_that_is_ahead_is_trouble(account: Account, server: Server) -> None:
    """The server has the new password before the file has it."""
    store = RedisPerformer(account.settings(redis=server.address))
    account.rotate("second", in_the_file=False)
    store.store.close()
    for _ in range(2):
        with pytest.raises(StoreTrouble, match="invalid username-password"):
            apply(store, 0, application(0, 1, {BOB: b"x"}))
    account.write("second")
    assert apply(store, 0, application(0, 1, {BOB: b"x"}))


def test_a_password_that_stays_wrong_is_denied(
    account: Account, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is denied once it has been wrong for too long; without a file, at once."""
    store = RedisPerformer(account.settings(redis=server.address))
    account.write("wrong")
    store.store.close()
    with pytest.raises(StoreTrouble):
        apply(store, 0, application(0, 1, {BOB: b"x"}))
    monkeypatch.setattr(files, "PATIENCE_S", 0.0)
    with pytest.raises(Denied, match="invalid username-password"):
        apply(store, 0, application(0, 1, {BOB: b"x"}))
    given = Settings(redis=server.address, redis_username=USER, redis_password="wrong")
    with pytest.raises(Denied, match="invalid username-password"):
        RedisStore(given).prepare()


@pytest.mark.usefixtures("cluster_settings")
def test_a_cluster_whose_password_changes(redis_cluster: RedisCluster, tmp_path: Path) -> None:
    """Every node of a cluster is asked with the new password."""
    account = Account(tmp_path / "password", *redis_cluster.servers)
    store = RedisPerformer(account.settings(redis=redis_cluster.address, redis_cluster=True))
    account.rotate("second")
    store.store.close()
    for shard in range(5):
        assert apply(store, shard, application(0, 1, {BOB: b"x"}))


# --- masters ---

LAYOUT = {"shards": "1"}


@pytest.fixture(scope="module")
def servers(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with a_watched_redis(tmp_path_factory.mktemp("watched")) as found:
        yield found


@pytest.fixture
def watched(servers: Watched) -> Watched:
    """A master, a replica and sentinels, whole and empty."""
    servers.wait_until_whole()
    with client_of(servers.master) as client:
        client.flushall()
    return servers


def a_store(watched: Watched) -> RedisStore:
    found = RedisStore(Settings(redis=watched.address, buckets=2))
    found.prepare()
    found.check_layout(LAYOUT)
    found.expected_layout = LAYOUT
    return found


def put(store: RedisStore, turn: int) -> bool:
    """Write a shard's next belief; returns whether it was written."""
    return store.apply({0: application(turn, turn + 1, {BOB: b"%d" % turn})})[0]


def applied(store: RedisStore) -> int:
    return store.read({0: PlayerColumn.of([BOB])})[0].position.applied


def until_done(action: Callable[[], object], what: str) -> None:
    """Repeat an action until it raises no StoreTrouble, as a worker does."""

    def done() -> bool:
        try:
            action()
        except StoreTrouble:
            return False
        return True

    wait_until(done, what)


def fail_over(watched: Watched) -> None:
    """Let the replica take over, and the old master follow it, without a loss."""
    old, new = watched.master, watched.other
    with client_of(watched.sentinels[0]) as client:
        client.execute_command("SENTINEL FAILOVER", NAME)
    watched.wait_for_master(new)
    wait_until(lambda: watched.master is new, "the sentinels agree")
    watched.wait_until_whole()
    assert watched.other is old


def test_a_store_goes_on_with_the_new_master(watched: Watched) -> None:
    """The first call fails, so that machines look at the store again. Settings and layout are
    checked first: a master with another layout is another store, and nothing is written there."""
    store, late = a_store(watched), a_store(watched)
    assert put(store, 0)
    assert applied(late) == 1
    old = watched.master
    fail_over(watched)
    with pytest.raises(StoreTrouble):
        put(store, 1)
    until_done(lambda: put(store, 1), "the store writes to the new master")
    with client_of(watched.master) as new, client_of(old) as client:
        assert new.hget("{0}:position", "applied") == b"2"
        assert client.role()[0] == b"slave"
        new.hset("stream-rater:layout", "shards", "2")
        with pytest.raises(LayoutMismatch, match="shards = 2"):
            until_done(lambda: put(late, 2), "the store finds the new master")
        assert new.hget("{0}:position", "applied") == b"2"
    store.close()
    late.close()


def test_a_right_on_the_sentinels_is_missing(watched: Watched) -> None:
    """The store is denied, and the error names the right. One sentinel that answers is enough."""
    at = Settings(
        redis=watched.address, redis_sentinel_username="u", redis_sentinel_password="p", buckets=2
    )

    def allow(sentinel: Server, right: str) -> None:
        with client_of(sentinel) as client:
            client.execute_command("ACL", "SETUSER", "u", "reset", "on", ">p", right)

    for each in watched.sentinels:
        allow(each, "-@all")
    with pytest.raises(Denied, match=r"sentinel .*'sentinel\|masters'.*_SENTINEL_USERNAME"):
        RedisStore(at).prepare()
    allow(watched.sentinels[0], "+sentinel|masters")
    RedisStore(at).prepare()


def test_an_isolated_master_is_left(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers and takes writes, but no sentinel and no replica reaches it: a store leaves it."""
    monkeypatch.setattr(sentinel, "LOOK_S", 0.0)
    store = a_store(watched)
    assert put(store, 0)
    old, new = watched.master, watched.other
    watched.cut_off(old)
    try:
        watched.wait_for_master(new)
        with client_of(old) as isolated:
            assert isolated.role()[0] == b"master"
            isolated.hset("{0}:position", "applied", 7)
        with pytest.raises(StoreTrouble, match="another master"):
            applied(store)
        assert applied(store) == 1
    finally:
        watched.heal(old)
    store.close()


def test_a_killed_master(watched: Watched) -> None:
    """Nothing is written until the replica has taken over. The position is that of the replica."""
    store = a_store(watched)
    assert put(store, 0)
    old, new = watched.master, watched.other
    with client_of(old) as client:
        client.wait(1, 0)
    watched.cut_off(old, "follower")
    assert put(store, 1)
    old.kill()
    with pytest.raises(StoreTrouble):
        put(store, 2)
    until_done(lambda: applied(store), "the store finds the new master")
    assert watched.master is new
    assert applied(store) == 1
    assert put(store, 1)
    old.start()
    store.close()


# --- a host name ---

HOST = "redis.test"


def replicate(master: Server, replica: Server) -> None:
    """Replicate, and wait until the replica has all. Valkey's master reports that too early."""
    with client_of(master) as above, client_of(replica) as below:

        def in_sync() -> bool:
            reply = above.info("replication")
            seen = reply.get("slave0", {})
            return bool(
                seen.get("state") == "online"
                and seen["offset"] == reply["master_repl_offset"]
                and below.info("replication")["master_link_status"] == "up"
            )

        above.replicaof("NO", "ONE")
        below.replicaof("127.0.0.1", master.port)
        wait_until(in_sync, "the replica has all")


def lay_out(store: RedisStore, turn: int) -> bool:
    """Write the layout, which is a plain command and no function."""
    store.check_layout({f"turn {turn}": "1"})
    return True


def test_a_master_that_became_a_replica_is_left(
    redis_installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused write, of a function or plain, raises StoreTrouble; then the name is followed."""
    at_once, look_up = {"repl-diskless-sync-delay": "0"}, socket.getaddrinfo
    with (
        start_redis(tmp_path / "first", settings=at_once) as old,
        start_redis(tmp_path / "second", settings=at_once) as new,
    ):
        leads_to = {HOST: old}

        def look_up_here(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
            if host in leads_to:
                host, port = "127.0.0.1", leads_to[host].port
            return look_up(host, port, *rest, **named)

        monkeypatch.setattr(socket, "getaddrinfo", look_up_here)
        for write in (put, lay_out):
            store = RedisStore(Settings(redis=f"{HOST}:1", buckets=2))
            store.prepare()
            assert write(store, 0)
            replicate(old, new)
            replicate(new, old)
            leads_to[HOST] = new
            with pytest.raises(StoreTrouble, match="read only replica"):
                write(store, 1)
            assert write(store, 1)
            with client_of(new) as client:
                assert client.role()[0] == b"master"
            store.close()
            old, new = new, old
