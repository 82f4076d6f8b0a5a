"""Clients of Redis: one server, or a Redis Cluster, in which a shard is at home in one slot.

Nothing is retried here, but for what a cluster's node did not do and named another node for.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import redis
from redis import cluster as untyped_cluster
from redis import connection as untyped_connection
from redis._parsers import hiredis as untyped_parser
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import (
    AskError,
    ClusterDownError,
    NoPermissionError,
    RedisClusterException,
)
from redis.retry import Retry

from stream_rater.adapters.access import redis_options
from stream_rater.config import BadConfiguration, Settings, without_password
from stream_rater.pipeline.ports import Denied, StoreTrouble

TIMEOUT_S = 5.0

FAILURES = (redis.RedisError, RedisClusterException)
"""Whatever a client raises: that of a cluster has a family of its own."""

ELSEWHERE = (redis.ConnectionError, redis.TimeoutError, AskError, ClusterDownError)
"""After these a cluster's slot may be with another node."""

MUCH_BYTES = 2**16
"""Is sent; what is less waits for more."""

NO_CLUSTER = "Cluster mode is not enabled"

Client = Any
"""redis.Redis or RedisCluster, whose type stubs have little in common."""


class Call(NamedTuple):
    """A call of a function."""

    key: str
    """In whose slot all of its keys are."""
    declared: int
    """How many keys it declares."""
    keys: bytes
    """They, `bulk` one behind the other, the first one first."""
    arguments: tuple[bytes, ...]


_cluster_module: Any = untyped_cluster
_connection_module: Any = untyped_connection
NOTHING_YET = getattr(untyped_parser, "NOT_ENOUGH_DATA", None)
"""What the client's reader says before a reply is whole."""


def connect(settings: Settings) -> Client:
    """A client of what is configured; BadConfiguration where that makes no sense.

    One of a cluster asks for its slots at once: StoreTrouble where no node answers, Denied where
    they answer that we may not.
    """
    first, *others = settings.redis.split(",")
    address = first if "://" in first else f"redis://{first}/0"
    options: dict[str, Any] = {
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": TIMEOUT_S,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        **redis_options(settings, address),
    }
    try:
        if settings.redis_cluster:
            return _cluster(address, others, options)
        if others:
            raise ValueError("several addresses are those of a cluster: set redis_cluster")
        return redis.Redis.from_url(address, **options)
    except ValueError as error:
        shown = without_password(settings.redis)
        reason = error if shown == settings.redis else "no URL that makes sense"
        raise BadConfiguration(f"redis {shown!r}: {reason}") from None


def _cluster(address: str, others: Iterable[str], options: dict[str, Any]) -> Client:
    """Any node tells of all others: more than one is named for when the first is down."""
    if _connection_module.parse_url(address).get("db"):
        raise ValueError("a cluster has no database but 0")
    nodes = []
    for host, _, port in (other.rpartition(":") for other in others):
        nodes.append(_cluster_module.ClusterNode(host, int(port)))
    try:
        return RedisCluster.from_url(
            address, startup_nodes=nodes, require_full_coverage=False, **options
        )
    except (redis.AuthenticationError, NoPermissionError) as error:
        raise Denied(f"redis: {error}") from None
    except FAILURES as error:
        # The client says so of a user who may not ask for the slots, too.
        hint = ", or not to be seen by us (+cluster|slots)" if NO_CLUSTER in str(error) else ""
        raise StoreTrouble(f"redis: {error}{hint}") from None


def is_cluster(client: Client) -> bool:
    """Whether it is a client of a cluster."""
    return isinstance(client, RedisCluster)


def servers(client: Client) -> list[Any]:
    """Each server that takes writes, as a client of its own."""
    if not is_cluster(client):
        return [client]
    return [client.get_redis_connection(node) for node in client.get_primaries()]


def nothing() -> None:
    """Do so."""


def called(
    client: Client, function: str, calls: Iterable[Call], meanwhile: Callable[[], None] = nothing
) -> list[Any]:
    """What a function answers to each call, in one round trip to each server, once `meanwhile` is
    done.

    StoreTrouble where a cluster's slot is not where we thought; next time we know better.
    """
    with _slots_known(client), _Lines(client) as lines:
        asked = []
        for call in calls:
            line = lines.to(call.key)
            lines.say(line, _called(function, call))
            asked.append(line)
        lines.send()
        meanwhile()
        return [next(received(line, 1)) for line in asked]


def _called(function: str, call: Call) -> tuple[bytes, ...]:
    """The command, as the protocol has it."""
    words = 3 + call.declared + len(call.arguments)
    opening = bulk("FCALL", function, str(call.declared))
    return of_words(words, opening), call.keys, *map(_bulk, call.arguments)


class CallBatch(NamedTuple):
    """Commands that read, which an answer is wanted of that is of one instant."""

    key: str
    """In whose slot all of them are."""
    data: tuple[bytes, ...]
    """They, as the protocol has them, one behind the other."""
    commands: int
    """How many."""


def at_one_instant(client: Client, batches: Iterable[CallBatch]) -> list[list[Any]]:
    """Replies of each batch, all of them in one round trip to each server.

    StoreTrouble where a cluster's slot is not where we thought; next time we know better.
    """
    with _slots_known(client), _Lines(client) as lines:
        asked = []
        for batch in batches:
            line = lines.to(batch.key)
            lines.say(line, _packed(batch))
            asked.append((line, batch.commands))
        lines.send()
        return [_replies(line, commands) for line, commands in asked]


@contextmanager
def _slots_known(client: Client) -> Iterator[None]:
    """What fails because a cluster's slot is elsewhere is StoreTrouble, after a look at them."""
    try:
        yield
    except ELSEWHERE as error:
        if not is_cluster(client) or isinstance(error, redis.AuthenticationError):
            raise
        with suppress(*FAILURES):
            find_again(client)
        told = "a slot moved: " if isinstance(error, AskError) else ""
        raise StoreTrouble(f"redis: {told}{error}") from None


class _Lines(ExitStack):
    """A connection to each server that is asked, until the end of the block."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self._lines: dict[Client, Any] = {}
        self._unsent: dict[Any, bytearray] = {}

    def to(self, key: str) -> Any:
        """That to a key's server."""
        server = _server_of(self._client, key)
        if server not in self._lines:
            self._lines[server] = self.enter_context(_line(server.connection_pool))
        return self._lines[server]

    def say(self, line: Any, pieces: Iterable[bytes]) -> None:
        """Much of it at a time: each system call may wake Redis, which works on much meanwhile."""
        unsent = self._unsent.setdefault(line, bytearray())
        for piece in pieces:
            unsent += piece
        if len(unsent) >= MUCH_BYTES:
            del self._unsent[line]
            line.send_packed_command([unsent])

    def send(self) -> None:
        """What is left to say."""
        for line, unsent in self._unsent.items():
            line.send_packed_command([unsent])
        self._unsent.clear()


def bulk(*words: str) -> bytes:
    """Words of a command, as the protocol has them."""
    return b"".join([_bulk(word.encode()) for word in words])


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)


def of_words(count: int, *some: bytes) -> bytes:
    """A command of so many words, which stand in some `bulk`s."""
    return b"*%d\r\n%b" % (count, b"".join(some))


MULTI, EXEC = of_words(1, bulk("MULTI")), of_words(1, bulk("EXEC"))


def _packed(batch: CallBatch) -> tuple[bytes, ...]:
    """One command is of one instant anyway."""
    return batch.data if batch.commands == 1 else (MULTI, *batch.data, EXEC)


def _replies(line: Any, commands: int) -> list[Any]:
    """To so many commands."""
    if commands == 1:
        return list(received(line, 1))
    *_, replies = received(line, 1 + commands + 1)  # that it is begun, and each queued
    for each in replies:
        if isinstance(each, Exception):
            raise each
    return list(replies)


def received(line: Any, count: int) -> Iterator[Any]:
    """So many replies, as a connection's `read_response` returns or raises them.

    That takes 0.9 us each, the client's own reader beneath it 0.16.
    """
    arrived = arrived_on(line)
    for _ in range(count):
        reply = NOTHING_YET if arrived is None else arrived.gets()
        if reply is NOTHING_YET:
            reply = line.read_response()
        if isinstance(reply, Exception):
            raise reply
        yield reply


READER = "_reader"


def arrived_on(line: Any) -> Any:
    """What reads from what has come on a connection, if it is where we look for it."""
    return getattr(getattr(line, "_parser", None), READER, None) if NOTHING_YET else None


@contextmanager
def _line(pool: Any) -> Iterator[Any]:
    """A connection of our own; after a failure nobody knows what is still to come on it."""
    line = pool.get_connection()
    try:
        yield line
    except BaseException:
        line.disconnect()
        raise
    finally:
        pool.release(line)


def _server_of(client: Client, key: str) -> Client:
    if not is_cluster(client):
        return client
    return client.get_redis_connection(client.get_node_from_key(key))


def find_again(client: Client) -> None:
    """After a failover: the same name may lead to another server."""
    if is_cluster(client):
        client.nodes_manager.initialize()
    else:
        client.connection_pool.disconnect()
