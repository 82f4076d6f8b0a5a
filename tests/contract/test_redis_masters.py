"""Every client leaves a master that became a replica, for the server that its name leads to now, or
that the sentinels name."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local.servers import Server, start_redis
from stream_rater.adapters.redis import sentinel
from stream_rater.adapters.redis.connection import async_client
from stream_rater.adapters.redis.index_keys import ROOT
from stream_rater.adapters.redis.metadata import LayoutMismatch
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import StoreTrouble
from stream_rater.serve.index.writer import IndexWriter
from tests.contract.test_store import BOB, application
from tests.redis_cluster import client_of
from tests.sentinels import NAME, Watched, a_watched_redis
from tests.waits import wait_until

pytestmark = pytest.mark.integration

LAYOUT = {"shards": "1"}


@pytest.fixture(scope="module")
def servers(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Master, replica and sentinels."""
    with a_watched_redis(tmp_path_factory.mktemp("watched")) as found:
        yield found


@pytest.fixture
def watched(servers: Watched) -> Watched:
    """The same, whole and empty."""
    servers.wait_until_whole()
    with client_of(servers.master) as client:
        client.flushall()
    return servers


def a_store(watched: Watched) -> RedisStore:
    """A worker's store."""
    found = RedisStore(Settings(redis=watched.address, buckets=2))
    found.prepare()
    found.check_layout(LAYOUT)
    found.expected_layout = LAYOUT
    return found


def apply(store: RedisStore, turn: int) -> bool:
    """Write a shard's next belief; returns whether it was written."""
    return store.apply({0: application(turn, turn + 1, {BOB: b"%d" % turn})})[0]


def applied(store: RedisStore) -> int:
    """The shard's position."""
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
    """The first call fails, so that the state machines look at the store again. Then the settings
    and the layout are checked before anything is read there: a new master of another layout is
    another store, and nothing is written to it."""
    store, late = a_store(watched), a_store(watched)
    assert apply(store, 0)
    assert applied(late) == 1
    old = watched.master
    fail_over(watched)
    with pytest.raises(StoreTrouble):
        apply(store, 1)
    until_done(lambda: apply(store, 1), "the store writes to the new master")
    with client_of(watched.master) as new, client_of(old) as client:
        assert new.hget("{0}:position", "applied") == b"2"
        assert client.role()[0] == b"slave"
        new.hset("stream-rater:layout", "shards", "2")
        with pytest.raises(LayoutMismatch, match="shards = 2"):
            until_done(lambda: apply(late, 2), "the store finds the new master")
        assert new.hget("{0}:position", "applied") == b"2"
    store.close()
    late.close()


def test_an_isolated_master_is_left(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old master answers and takes writes, and the sentinels and the replica do not reach it.
    A store that uses it all the time leaves it, and so do the index's clients."""
    monkeypatch.setattr(sentinel, "LOOK_S", 0.0)
    store = a_store(watched)
    index = IndexWriter(store_settings := Settings(redis=watched.address))
    index.begin("topic", 1)
    assert apply(store, 0)
    old, new = watched.master, watched.other

    async def story() -> None:
        client = async_client(store_settings)
        assert await client.ask("HGET", "{0}:position", "applied") == b"1"
        watched.cut_off(old)
        try:
            await asyncio.to_thread(watched.wait_for_master, new)
            with client_of(old) as isolated:
                assert isolated.role()[0] == b"master"
                isolated.hset("{0}:position", "applied", 7)
            with pytest.raises(StoreTrouble, match="another master"):
                applied(store)
            assert applied(store) == 1
            assert await client.ask("HGET", "{0}:position", "applied") == b"1"
            index.begin("topic", 1)
            with client_of(new) as client_of_new:
                assert index.begin("topic", 1) == [0]
                assert client_of_new.exists(ROOT)
        finally:
            watched.heal(old)
            await client.close()

    asyncio.run(story())
    store.close()


def test_a_killed_master(watched: Watched) -> None:
    """Nothing is written until the replica has taken over. What the replica lacks is lost, and the
    position says so."""
    store = a_store(watched)
    assert apply(store, 0)
    old, new = watched.master, watched.other
    with client_of(old) as client:
        client.wait(1, 0)
    watched.cut_off(old, "follower")
    assert apply(store, 1)
    old.kill()
    with pytest.raises(StoreTrouble):
        apply(store, 2)
    until_done(lambda: applied(store), "the store finds the new master")
    assert watched.master is new
    assert applied(store) == 1
    assert apply(store, 1)
    old.start()
    store.close()


# --- a host name ---

HOST = "redis.test"


def replicate(master: Server, replica: Server) -> None:
    """Make one server the master of the other, and wait until the other has all data. Valkey's
    master says so before the replica has read the snapshot."""
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
    """Make a plain write, of the layout."""
    store.check_layout({f"turn {turn}": "1"})
    return True


def test_a_master_that_became_a_replica_is_left(
    redis_installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused write raises StoreTrouble, whether it calls a function or is a plain one. The
    next one goes where the name leads now, although the old connection was intact."""
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
        for write in (apply, lay_out):
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
