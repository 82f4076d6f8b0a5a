"""A password of Redis in a file that changes: connections made later use the new one."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.servers import Server, start_redis
from stream_rater.adapters.redis.connection import async_client
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config import changing_credentials
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, StoreTrouble
from stream_rater.serve.index.writer import IndexWriter
from tests.contract.test_store import BOB, RedisPerformer, application, apply
from tests.redis_cluster import RedisCluster, client_of

pytestmark = pytest.mark.integration

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
        """Change the password on the servers, which close the user's connections; and the file."""
        if in_the_file:
            self.write(password)
        for server in self._servers:
            with client_of(server) as admin:
                rules = "reset", "on", f">{password}", "~*", "&*", "+@all"
                admin.execute_command("ACL", "SETUSER", USER, *rules)
                admin.execute_command("CLIENT", "KILL", "USER", USER)

    def settings(self, **more: Any) -> Settings:
        """As `read_settings` makes them."""
        return Settings(
            redis_username=USER, redis_password=self.file.read_text().strip(),
            redis_password_file=str(self.file), buckets=2, **more,
        )  # fmt: skip


@pytest.fixture(scope="module")
def server(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose user changes."""
    with start_redis(tmp_path_factory.mktemp("redis")) as found:
        yield found


@pytest.fixture
def account(server: Server, tmp_path: Path) -> Account:
    """The user, on an empty server."""
    with client_of(server) as admin:
        admin.flushall()
    return Account(tmp_path / "password", server)


def test_a_store_goes_on_with_the_new_password(account: Account, server: Server) -> None:
    """Commands and calls do. What was under way when the connection ended is unknown."""
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
    """Once the patience is over; without a file at once."""
    store = RedisPerformer(account.settings(redis=server.address))
    account.write("wrong")
    store.store.close()
    with pytest.raises(StoreTrouble):
        apply(store, 0, application(0, 1, {BOB: b"x"}))
    monkeypatch.setattr(changing_credentials, "PATIENCE_S", 0.0)
    with pytest.raises(Denied, match="invalid username-password"):
        apply(store, 0, application(0, 1, {BOB: b"x"}))
    given = Settings(redis=server.address, redis_username=USER, redis_password="wrong")
    with pytest.raises(Denied, match="invalid username-password"):
        RedisStore(given).prepare()


def test_the_index_is_written_and_read_with_the_new_password(
    account: Account, server: Server
) -> None:
    """By the clients of `serve`, which are others than the store's."""
    at = account.settings(redis=server.address)
    writer = IndexWriter(at)

    async def ask_twice() -> None:
        reader = async_client(at)
        assert await reader.ask("PING") == b"PONG"
        account.rotate("second")
        with pytest.raises(StoreTrouble, match="closed"):
            await reader.ask("PING")
        assert await reader.ask("PING") == b"PONG"
        await reader.close()

    asyncio.run(ask_twice())
    account.rotate("third", in_the_file=False)
    with pytest.raises(StoreTrouble):
        writer.begin("rating-changed", 1)
    account.write("third")
    assert writer.begin("rating-changed", 1) == [0]


@pytest.mark.usefixtures("cluster_settings")
def test_a_cluster_whose_password_changes(redis_cluster: RedisCluster, tmp_path: Path) -> None:
    """Every node of an empty cluster is asked with the new one."""
    account = Account(tmp_path / "password", *redis_cluster.servers)
    store = RedisPerformer(account.settings(redis=redis_cluster.address, redis_cluster=True))
    account.rotate("second")
    store.store.close()
    for shard in range(5):
        assert apply(store, shard, application(0, 1, {BOB: b"x"}))
