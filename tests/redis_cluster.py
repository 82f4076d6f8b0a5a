"""A Redis Cluster on this machine: masters that share the slots, each with its replicas."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from local.processes import LOOPBACK, free_port
from local.servers import Server, start_redis
from tests.waits import wait_until

SLOTS = 16_384
NODE_TIMEOUT_MS = 1500


class RedisCluster:
    """The servers of a cluster, which tests kill and start again."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = servers

    @property
    def address(self) -> str:
        """The address in the form of the service's setting."""
        return ",".join(server.address for server in self.servers)

    def masters(self) -> list[Server]:
        """The servers that are masters now."""
        return [server for server in self.servers if role_of(server) == "master"]

    def owner(self, slot: int, asked: Server | None = None) -> Server:
        """The master that owns a slot, as far as the server that is asked knows."""
        with client_of(asked or self.masters()[0]) as client:
            for first, last, (_, port, *_), *_ in client.execute_command("CLUSTER SLOTS"):
                if first <= slot <= last:
                    return next(each for each in self.servers if each.port == port)
        raise AssertionError(f"nobody has slot {slot}")

    def wait_for_owner(self, slot: int, owner: Server) -> None:
        """Return once every running node knows that this is the owner of the slot."""
        wait_until(
            lambda: all(self.owner(slot, each) is owner for each in self.servers if each.running),
            "the nodes have heard of a slot's move",
        )

    def move(self, slot: int) -> "SlotMove":
        """The move of a slot from its owner to another master, not begun."""
        owner = self.owner(slot)
        return SlotMove(slot, owner, next(each for each in self.masters() if each is not owner))

    def wait_until_whole(self, masters: int) -> None:
        """Return once every running node finds all slots served by so many masters."""
        wait_until(lambda: self._is_whole(masters), "the cluster has come together")

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
        linked = role_of(server) != "slave" or _replicates(server)
        return state["cluster_state"] == "ok" and len(known) == len(self.servers) and linked


@dataclass
class SlotMove:
    """A slot's move to another master, step by step as `redis-cli --cluster reshard` does it: both
    masters are informed, then keys are moved, then the new owner is announced."""

    slot: int
    source: Server
    target: Server

    def begin(self) -> None:
        """Inform both masters. From now on a key of the slot may be with either of them."""
        with client_of(self.source) as source, client_of(self.target) as target:
            target.execute_command(
                "CLUSTER SETSLOT", self.slot, "IMPORTING", source.execute_command("CLUSTER MYID")
            )
            source.execute_command(
                "CLUSTER SETSLOT", self.slot, "MIGRATING", target.execute_command("CLUSTER MYID")
            )

    def keys(self) -> list[str]:
        """The keys of the slot that are not moved yet."""
        with client_of(self.source) as source:
            return [
                key.decode() if isinstance(key, bytes) else key
                for key in source.execute_command("CLUSTER GETKEYSINSLOT", self.slot, 10_000)
            ]

    def send(self, keys: Iterable[str]) -> None:
        """Move these keys, one by one."""
        with client_of(self.source) as source:
            for key in keys:
                source.execute_command(*self._migrate(key))

    def send_late(self, key: str, late_ms: int) -> int:
        """Move a key while writes to the source wait. Returns how many calls failed by that."""
        with client_of(self.source) as source:
            before = _not_carried_out(source)
            with source.pipeline(transaction=False) as at_once:
                at_once.client_pause(late_ms, all=False)
                at_once.execute_command(*self._migrate(key))
                at_once.execute()
            return _not_carried_out(source) - before

    def wait_for_refusal(self, errors: Sequence[str] = ("ASK",)) -> None:
        """Return once the source has refused another call, with one of `errors`, for moved keys."""
        with client_of(self.source) as source:
            before = _sent_away(source, errors)
            wait_until(
                lambda: _sent_away(source, errors) != before, "somebody calls for what has gone",
                every_s=0.02,
            )  # fmt: skip

    def _migrate(self, key: str) -> tuple[str | int, ...]:
        return "MIGRATE", LOOPBACK, self.target.port, key, 0, 5000

    def finish(self) -> None:
        """Move the other keys, and announce the target as the owner."""
        while keys := self.keys():
            self.send(keys)
        with client_of(self.target) as target:
            owner = target.execute_command("CLUSTER MYID")
        for server in (self.target, self.source):
            with client_of(server) as client:
                client.execute_command("CLUSTER SETSLOT", self.slot, "NODE", owner)


def _not_carried_out(client: Any) -> int:
    """How many calls of functions (FCALL) a server has rejected, or begun and failed."""
    calls = client.info("commandstats").get("cmdstat_fcall", {})
    return int(calls.get("rejected_calls", 0) + calls.get("failed_calls", 0))


def _sent_away(client: Any, errors: Sequence[str]) -> int:
    """How many commands a server has refused with these errors, because keys were elsewhere."""
    counts = client.info("errorstats")
    return sum(int(counts.get(f"errorstat_{each}", {}).get("count", 0)) for each in errors)


def _replicates(server: Server) -> bool:
    with client_of(server) as client:
        return bool(client.info("replication")["master_link_status"] == "up")


def role_of(server: Server) -> str:
    """`master`, `slave`, or an empty text if the server does not answer."""
    with suppress(redis.RedisError), client_of(server) as client:
        return str(client.role()[0].decode())
    return ""


def client_of(server: Server) -> Any:
    return redis.Redis(port=server.port, socket_timeout=60.0)


@contextmanager
def a_redis_cluster(
    folder: Path, masters: int = 3, replicas: int = 0, settings: Mapping[str, str] = {}
) -> Iterator[RedisCluster]:
    """A cluster that serves every slot; it is stopped at the end of the block."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(start_redis(folder / str(i), settings={**_settings(), **settings}))
            for i in range(masters * (1 + replicas))
        ]
        cluster = RedisCluster(servers)
        _join(servers, masters)
        cluster.wait_until_whole(masters)
        yield cluster


def _settings() -> dict[str, str]:
    return {
        "cluster-enabled": "yes", "cluster-port": str(free_port()),
        "cluster-node-timeout": str(NODE_TIMEOUT_MS), "repl-diskless-sync-delay": "0",
    }  # fmt: skip


def _join(servers: Sequence[Server], masters: int) -> None:
    clients = [client_of(server) for server in servers]
    for i, client in enumerate(clients[:masters]):
        first, end = i * SLOTS // masters, (i + 1) * SLOTS // masters
        client.execute_command("CLUSTER ADDSLOTSRANGE", first, end - 1)
        client.execute_command("CLUSTER SET-CONFIG-EPOCH", i + 1)
    for server in servers[1:]:
        bus = client_of(server).config_get("cluster-port")["cluster-port"]
        clients[0].execute_command("CLUSTER MEET", LOOPBACK, server.port, bus)
    for i, client in enumerate(clients[masters:]):
        _follow(client, clients[i % masters].execute_command("CLUSTER MYID"))


def _follow(client: Any, master: bytes) -> None:
    """Make a node a replica, once it knows its master."""

    def follows() -> bool:
        try:
            client.execute_command("CLUSTER REPLICATE", master)
        except redis.ResponseError:
            return False
        return True

    wait_until(follows, "the nodes have met")
