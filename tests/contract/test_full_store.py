"""A store that does not take checkpoints, or does not give them: nothing waits for that. Beliefs
must be taken."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local.servers import Server, start_redis
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.player_column import BeliefColumn
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import StoreTrouble
from stream_rater.pipeline.ports import Application, Position
from tests.redis_cluster import client_of

pytestmark = pytest.mark.integration

BELIEFS = Application(Position(1, 0), BeliefColumn.of([(("duel", "ann"), b"belief")]))


def full(client: Any) -> None:
    """No more memory, as in a server that is too small."""
    client.config_set("maxmemory", 1)


def replica(client: Any) -> None:
    """A replica that has lost its master: nothing is written."""
    client.config_set("replica-serve-stale-data", "yes")
    client.replicaof("127.0.0.1", 1)


def stale_replica(client: Any) -> None:
    """One that does not answer from old data either."""
    client.config_set("replica-serve-stale-data", "no")
    client.replicaof("127.0.0.1", 1)


def gone(client: Any) -> None:
    """No server."""
    client.shutdown(nosave=True)


@pytest.fixture
def server(redis_installed: None, tmp_path: Path) -> Iterator[Server]:
    with start_redis(tmp_path) as found:
        yield found


@pytest.mark.parametrize(
    ("ill", "reads", "deletes", "why"),
    [
        (full, True, True, "command not allowed when used memory > 'maxmemory'"),
        (replica, True, False, "read only replica"),
        (stale_replica, False, False, "MASTER is down|read only replica"),
        (gone, False, False, "connecting to|Connection"),
    ],
)
def test_what_the_store_does_not_do_is_reported_and_not_raised(
    server: Server, ill: Callable[[Any], None], *, reads: bool, deletes: bool, why: str
) -> None:
    """Each call says whether it was done, and reports the reason. A call that changes beliefs
    raises it."""
    store, reported = RedisStore(Settings(redis=server.address)), list[str]()
    store.prepare()
    kept = store.checkpoints
    kept.on_failure = reported.append
    assert (kept.write("duel", "7-ab", 0, b"piece"), kept.keep("duel", "7-ab", b"head")) == (
        True, True
    )  # fmt: skip
    assert reported == []
    with client_of(server) as client:
        ill(client)
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
