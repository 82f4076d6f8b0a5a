"""A master, its replica, and three sentinels that watch them, on this machine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import redis

from local.processes import LOOPBACK, Launch, Server, start_on
from local.redis_node import answers
from local.servers import start_redis
from local.stores import chosen
from tests.redis_cluster import client_of, role_of
from tests.waits import wait_until

NAME = "ratings"
SENTINELS, QUORUM = 3, 2
DOWN_AFTER_MS, FAILOVER_MS = 1500, 6000  # Until a silent server is down; failover-timeout.
START_TIMEOUT_S = 30.0


WATCHER, FOLLOWER = "watcher", "follower"  # Sentinels' and replica's users on both servers.
USERS = "\nuser ".join(f"{each} on >{each} ~* &* +@all" for each in (WATCHER, FOLLOWER))

WATCHED_BY = {False: ("-ping", "-slaveof", "-replicaof"), True: ("+@all",)}
"""Rights of the default user, as whom sentinels act that could not log in: cut off, or not."""


class Watched:
    """Two servers of which one is the master, and the sentinels."""

    def __init__(self, servers: Sequence[Server], sentinels: Sequence[Server]) -> None:
        self.servers, self.sentinels = servers, sentinels

    @property
    def address(self) -> str:
        return f"redis+sentinel://{','.join(each.address for each in self.sentinels)}/{NAME}"

    @property
    def master(self) -> Server:
        """The server that most sentinels name as the master."""
        named = [self.named_by(each) for each in self.sentinels if each.running]
        port = max(named, key=named.count)
        return next(each for each in self.servers if each.port == port)

    @property
    def other(self) -> Server:
        master = self.master
        return next(each for each in self.servers if each is not master)

    def named_by(self, sentinel: Server) -> int:
        with client_of(sentinel) as client:
            return int(client.sentinel_get_master_addr_by_name(NAME)[1])

    def wait_for_master(self, server: Server) -> None:
        """Return once every running sentinel names this server, and it takes writes."""

        def named() -> bool:
            asked = [each for each in self.sentinels if each.running]
            are_named = all(self.named_by(each) == server.port for each in asked)
            return are_named and role_of(server) == "master"

        wait_until(named, "the sentinels have promoted the replica")

    def cut_off(self, server: Server, *users: str) -> None:
        """From now on a server refuses the sentinels and the replica, or only the given users."""
        with client_of(server) as client:
            for user in users or (WATCHER, FOLLOWER):
                client.execute_command("ACL", "SETUSER", user, "off")
                if user == WATCHER:
                    client.execute_command("ACL", "SETUSER", "default", *WATCHED_BY[False])
                client.execute_command("CLIENT", "KILL", "USER", user)

    def heal(self, server: Server) -> None:
        """The server accepts sentinels and replica again."""
        with client_of(server) as client:
            for user in (WATCHER, FOLLOWER):
                client.execute_command("ACL", "SETUSER", user, "on")
            client.execute_command("ACL", "SETUSER", "default", *WATCHED_BY[True])

    def wait_until_whole(self) -> None:
        """Return once the other server follows the master and every sentinel could promote it."""
        wait_until(self._is_whole, "master, replica and sentinels have come together")

    def _is_whole(self) -> bool:
        return _follows(self.other, self.master.port) and all(map(_knows, self.sentinels))


def _follows(replica: Server, port: int) -> bool:
    with suppress(redis.RedisError), client_of(replica) as client:
        found = client.info("replication")
        link = found["role"], found.get("master_port"), found.get("master_link_status")
        return link == ("slave", port, "up")
    return False


def _knows(sentinel: Server) -> bool:
    """Whether a sentinel knows all others, and a replica that could take over."""
    with suppress(redis.RedisError), client_of(sentinel) as client:
        found = client.sentinel_master(NAME)
        replicas = client.sentinel_slaves(NAME)
        up = [r for r in replicas if not r["is_sdown"] and r["master-link-status"] == "ok"]
        others = found["num-other-sentinels"] == SENTINELS - 1
        return bool(others and up and not found["is_sdown"])
    return False


def written(server: Server) -> int:
    """The replication offset of a server: how many bytes of writes it has."""
    with client_of(server) as client:
        return int(client.info("replication")["master_repl_offset"])


def start_sentinel(folder: Path, settings: str, probe: Callable[[int], bool] = answers) -> Server:
    """Start a sentinel. Its settings, with PORT for its port, are in the file that it rewrites."""
    program = chosen().find()
    assert program is not None

    def start(port: int) -> Server:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "sentinel.conf"
        place = f"bind {LOOPBACK}\ndir {folder.resolve()}\n"
        file.write_text(place + settings.replace("PORT", str(port)))
        command = (str(program), str(file.resolve()), "--sentinel")
        return Server(Launch("sentinel", command, folder, port, probe, START_TIMEOUT_S)).start()

    return start_on(None, start)


@contextmanager
def a_watched_redis(folder: Path, settings: Mapping[str, str] = {}) -> Iterator[Watched]:
    """Master, replica and sentinels, stopped at the end. `settings`: those of both servers."""
    own = {
        "repl-diskless-sync-delay": "0", "user": USERS, "masteruser": FOLLOWER,
        "masterauth": FOLLOWER, **settings,
    }  # fmt: skip
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(start_redis(folder / name, settings=own))
            for name in ("first", "second")
        )
        with client_of(second) as client:
            client.replicaof(LOOPBACK, first.port)
        wait_until(partial(_follows, second, first.port), "the replica follows its master")
        watching = (
            f"port PORT\nsentinel monitor {NAME} {LOOPBACK} {first.port} {QUORUM}\n"
            f"sentinel auth-user {NAME} {WATCHER}\nsentinel auth-pass {NAME} {WATCHER}\n"
            f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {NAME} {FAILOVER_MS}\n"
        )
        sentinels = [
            stack.enter_context(start_sentinel(folder / f"sentinel-{i}", watching))
            for i in range(SENTINELS)
        ]
        found = Watched((first, second), sentinels)
        found.wait_until_whole()
        yield found
