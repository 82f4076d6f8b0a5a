"""A client leaves a master that became a replica, for the server that its name leads to now."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.servers import Server, start_redis
from local.tools import find_redis_server
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.player_column import BeliefColumn
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import StoreTrouble
from stream_rater.pipeline.ports import Application, Position
from tests.contract.test_store import BOB
from tests.integration.processes import wait_until
from tests.redis_cluster import client_of

pytestmark = pytest.mark.integration

NAME = "redis.test"


class Pair:
    """A master and its replica, and a host name that leads to one of them."""

    def __init__(self, first: Server, second: Server) -> None:
        self.first, self.second = first, second
        self.named = first

    def look_up(self, host: Any, *given: Any, **named: Any) -> Any:
        """Look up a host as `socket.getaddrinfo` does, including this name."""
        if host != NAME:
            return LOOK_UP(host, *given, **named)
        _, *rest = given
        return LOOK_UP("127.0.0.1", self.named.port, *rest, **named)

    def replicate(self, master: Server, replica: Server) -> None:
        """Make one server the master of the other, and wait until the other has all data."""
        with client_of(master) as above, client_of(replica) as below:
            above.replicaof("NO", "ONE")
            below.replicaof("127.0.0.1", master.port)
            wait_until(lambda: followed(above, below), "the replica has all")


def followed(master: Any, replica: Any) -> bool:
    """Whether the only replica of a master is in sync. Valkey's master says so before the replica
    has read the snapshot."""
    reply = master.info("replication")
    seen = reply.get("slave0", {})
    return bool(
        seen.get("state") == "online"
        and seen["offset"] == reply["master_repl_offset"]
        and replica.info("replication")["master_link_status"] == "up"
    )


LOOK_UP = socket.getaddrinfo


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """The pair, with the name leading to the master."""
    if find_redis_server() is None:
        pytest.skip("Redis is given, and none is installed here")
    at_once = {"repl-diskless-sync-delay": "0"}
    with (
        start_redis(tmp_path / "first", settings=at_once) as first,
        start_redis(tmp_path / "second", settings=at_once) as second,
    ):
        found = Pair(first, second)
        monkeypatch.setattr(socket, "getaddrinfo", found.look_up)
        yield found


def apply(store: RedisStore, turn: int) -> bool:
    """Write a shard's next belief; returns whether it was written."""
    call = Application(Position(turn + 1, turn), BeliefColumn.of([(BOB, b"%d" % turn)]))
    return store.apply({0: call})[0]


def lay_out(store: RedisStore, turn: int) -> bool:
    """Make a plain write, of the layout."""
    store.check_layout({f"turn {turn}": "1"})
    return True


def test_a_master_that_became_a_replica_is_left(pair: Pair) -> None:
    """The refused write raises StoreTrouble, whether it calls a function or is a plain one. The
    next one goes where the name leads now, although the old connection was intact."""
    for write in (apply, lay_out):
        store = RedisStore(Settings(redis=f"{NAME}:1", buckets=2))
        store.prepare()
        assert write(store, 0)
        old, new = pair.named, pair.second if pair.named is pair.first else pair.first
        pair.replicate(old, new)
        pair.replicate(new, old)
        pair.named = new
        with pytest.raises(StoreTrouble, match="read only replica"):
            write(store, 1)
        assert write(store, 1)
        with client_of(new) as client:
            assert client.role()[0] == b"master"
        store.close()
