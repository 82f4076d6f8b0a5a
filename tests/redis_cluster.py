"""A Redis Cluster on this machine: masters that share the slots, each with its replicas."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis

from local.processes import free_port
from local.servers import Server, start_redis

SLOTS = 16_384
NODE_TIMEOUT_MS = 1500
READY_S = 30.0


class RedisCluster:
    """Its servers, to be killed and started again."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = servers

    @property
    def address(self) -> str:
        """As the service's setting wants it."""
        return ",".join(server.address for server in self.servers)

    def role(self, server: Server) -> str:
        """`master`, `slave`, or nothing where the server is not there."""
        try:
            with client_of(server) as client:
                return str(client.role()[0].decode())
        except redis.RedisError:
            return ""

    def masters(self) -> list[Server]:
        """Who takes writes now."""
        return [server for server in self.servers if self.role(server) == "master"]

    def await_whole(self, masters: int) -> None:
        """Return once every running node finds all slots served by so many masters."""
        deadline_s = time.monotonic() + READY_S
        while not self._is_whole(masters):
            assert time.monotonic() < deadline_s, "the cluster does not come together"
            time.sleep(0.05)

    def _is_whole(self, masters: int) -> bool:
        running = [server for server in self.servers if server.running]
        return all(self._finds_all(s) for s in running) and len(self.masters()) == masters

    def _finds_all(self, server: Server) -> bool:
        try:
            with client_of(server) as client:
                state = client.execute_command("CLUSTER INFO")
                known = client.execute_command("CLUSTER NODES")
        except redis.RedisError:
            return False
        linked = self.role(server) != "slave" or _replicates(server)
        return state["cluster_state"] == "ok" and len(known) == len(self.servers) and linked


def _replicates(server: Server) -> bool:
    with client_of(server) as client:
        return bool(client.info("replication")["master_link_status"] == "up")


def client_of(server: Server) -> Any:
    """A client of this one server."""
    return redis.Redis(port=server.port, socket_timeout=5.0)


@contextmanager
def a_redis_cluster(
    folder: Path, masters: int = 3, replicas: int = 0, settings: Mapping[str, str] = {}
) -> Iterator[RedisCluster]:
    """A cluster that serves every slot; gone at the end of the block."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(start_redis(folder / str(i), settings=_settings() | settings))
            for i in range(masters * (1 + replicas))
        ]
        cluster = RedisCluster(servers)
        _join(servers, masters)
        cluster.await_whole(masters)
        yield cluster


def _settings() -> dict[str, str]:
    return {
        "cluster-enabled": "yes",
        "cluster-port": str(free_port()),
        "cluster-node-timeout": str(NODE_TIMEOUT_MS),
        "repl-diskless-sync-delay": "0",
    }


def _join(servers: Sequence[Server], masters: int) -> None:
    clients = [client_of(server) for server in servers]
    for i, client in enumerate(clients[:masters]):
        first, end = i * SLOTS // masters, (i + 1) * SLOTS // masters
        client.execute_command("CLUSTER ADDSLOTSRANGE", first, end - 1)
        client.execute_command("CLUSTER SET-CONFIG-EPOCH", i + 1)
    for server in servers[1:]:
        bus = client_of(server).config_get("cluster-port")["cluster-port"]
        clients[0].execute_command("CLUSTER MEET", "127.0.0.1", server.port, bus)
    for i, client in enumerate(clients[masters:]):
        _follow(client, clients[i % masters].execute_command("CLUSTER MYID"))


def _follow(client: Any, master: bytes) -> None:
    """Become a replica, once the node has heard of its master."""
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            client.execute_command("CLUSTER REPLICATE", master)
            return
        except redis.ResponseError:
            assert time.monotonic() < deadline_s, "nodes do not meet"
            time.sleep(0.05)
