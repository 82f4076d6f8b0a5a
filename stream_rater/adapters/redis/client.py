"""Clients of Redis, for one server or for a Redis Cluster, in which each shard lies in one slot.

Nothing is retried here, except a command that a cluster's node did not run and redirected to
another node.
"""

import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

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
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings, without_password
from stream_rater.contract.errors import Cause, Denied, StoreTrouble

TIMEOUT_S = 5.0

FAILURES = (redis.RedisError, RedisClusterException)
"""Everything that a client raises; the cluster client has an exception family of its own."""

ELSEWHERE = (redis.ConnectionError, redis.TimeoutError, AskError, ClusterDownError)
"""Errors after which a cluster's slot may be on another node."""

MUCH_BYTES = 2**16
"""Flush once this many bytes are buffered."""

NO_CLUSTER = "Cluster mode is not enabled"

Node = TypeVar("Node")

Client = Any
"""redis.Redis or RedisCluster; their type stubs have little in common."""


class Call(NamedTuple):
    """A call of a Redis Function."""

    key: str
    """The first key; all others share its slot."""
    declared: int
    """The number of declared keys."""
    keys: bytes
    """The declared keys, each encoded by `bulk`, the first key first."""
    arguments: tuple[bytes, ...]


_cluster_module: Any = untyped_cluster
_connection_module: Any = untyped_connection
NOT_COMPLETE = getattr(untyped_parser, "NOT_ENOUGH_DATA", None)
"""What hiredis' reader returns before a reply is complete; None without hiredis."""


def connect(settings: Settings) -> Client:
    """Make a client from the settings. Raises BadConfiguration if they make no sense.

    A cluster client asks for the slots at once. It raises StoreTrouble if no node answers, and
    Denied if the user may not ask.
    """
    with named_addresses(settings) as (address, others):
        options = client_options(settings, address) | {"retry": Retry(NoBackoff(), 0)}
        if settings.redis_cluster:
            return _cluster(address, others, options)
        return redis.Redis.from_url(address, **options)


@contextmanager
def named_addresses(settings: Settings) -> Iterator[tuple[str, list[str]]]:
    """The URL of the first address, and the further ones, `host:port`. A ValueError within the
    block is about them, and raised as BadConfiguration."""
    first, *others = settings.redis.split(",")
    address = first if "://" in first else f"redis://{first}/0"
    try:
        if others and not settings.redis_cluster:
            raise ValueError("several addresses mean a cluster: set redis_cluster")
        if settings.redis_cluster and _connection_module.parse_url(address).get("db"):
            raise ValueError("a cluster has only database 0")
        yield address, others
    except BadConfiguration:
        raise
    except ValueError as error:
        shown = without_password(settings.redis)
        reason = error if shown == settings.redis else "the URL is not valid"
        raise BadConfiguration(f"redis {shown!r}: {reason}") from None


def nodes_of(addresses: Iterable[str], node: Callable[[str, int], Node]) -> list[Node]:
    """Each `host:port` as a node of a client for clusters."""
    parts = (each.rpartition(":") for each in addresses)
    return [node(host, int(port)) for host, _, port in parts]


def client_options(settings: Settings, address: str) -> dict[str, Any]:
    """Arguments of the clients besides the URL."""
    return {
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": TIMEOUT_S,
        "socket_keepalive": True,
        "protocol": 2,
        **redis_options(settings, address),
    }


def _cluster(address: str, others: Iterable[str], options: dict[str, Any]) -> Client:
    """Make a cluster client. One node knows all others; further addresses serve when the first is
    down."""
    nodes = nodes_of(others, _cluster_module.ClusterNode)
    try:
        return RedisCluster.from_url(
            address, startup_nodes=nodes, require_full_coverage=False, **options
        )
    except (redis.AuthenticationError, NoPermissionError) as error:
        raise Denied(f"redis: {error}") from None
    except FAILURES as error:
        # The client reports the same error for a user who may not ask for the slots.
        hint = ", or its user lacks the right +cluster|slots" if NO_CLUSTER in str(error) else ""
        raise StoreTrouble(f"redis: {error}{hint}", cause_of(error)) from None


def is_cluster(client: Client) -> bool:
    """Whether this is a cluster client."""
    return isinstance(client, RedisCluster)


def servers(client: Client) -> list[Any]:
    """A client for each server that accepts writes."""
    if not is_cluster(client):
        return [client]
    return [client.get_redis_connection(node) for node in client.get_primaries()]


DENIALS = (
    "The user executing the script", "ACL failure in script", "because of: NOPERM",
    "EXEC without MULTI",
)  # fmt: skip
"""What Redis answers to a user without a right: in a script (7.0, and later releases), and at the
end of a transaction, which could not begin without the right to."""


REFUSALS = "NOPERM ", "NOAUTH ", "WRONGPASS "
"""How Redis' own error begins; redis-py has classes for them, hiredis has not."""


def is_denial(error: Exception) -> bool:
    """Whether a user lacks a right."""
    denied = isinstance(error, (redis.AuthenticationError, NoPermissionError))
    return denied or is_denial_text(str(error))


def is_denial_text(text: str) -> bool:
    """The same of an error as Redis sent it."""
    return text.startswith(REFUSALS) or any(each in text for each in DENIALS)


def cause_of(error: BaseException) -> Cause:
    """The cause of an error: "tls" if a TLS handshake failed, which the client's error follows
    from. The end of a connection is no matter of TLS, though OpenSSL has errors of its own for
    it."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, ssl.SSLError) and not isinstance(at, ENDS_OF_TLS):
            return "tls"
        at = at.__cause__ or at.__context__
    return "redis"


ENDS_OF_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


@contextmanager
def failures_named() -> Iterator[None]:
    """Turn a client's errors into Denied and StoreTrouble."""
    try:
        yield
    except FAILURES as error:
        if is_denial(error):
            raise Denied(f"redis: {error}") from None
        raise StoreTrouble(f"redis: {error}", cause_of(error)) from None


def executed(transaction: Any) -> bool:
    """Execute a transaction; False if another client changed a watched key, and nothing happened.
    The transaction can then be used again."""
    try:
        transaction.execute()
    except redis.WatchError:
        return False
    return True


def nothing() -> None:
    """Do nothing."""


def called(
    client: Client, function: str, calls: Iterable[Call], meanwhile: Callable[[], None] = nothing
) -> list[Any]:
    """Call a function, all calls in one round trip to each server. Returns the replies, after
    `meanwhile` has run.

    Raises StoreTrouble if a cluster's slot has moved; the next call knows its new place.
    """
    with _slots_known(client), _Connections(client) as connections:
        asked = []
        for call in calls:
            connection = connections.to(call.key)
            connections.buffer(connection, _called(function, call))
            asked.append(connection)
        connections.send()
        meanwhile()
        return [next(received(connection, 1)) for connection in asked]


def _called(function: str, call: Call) -> tuple[bytes, ...]:
    """Encode a call as a command."""
    words = 3 + call.declared + len(call.arguments)
    opening = bulk("FCALL", function, str(call.declared))
    return of_words(words, opening), call.keys, *map(_bulk, call.arguments)


class CallBatch(NamedTuple):
    """Commands that read keys of one slot atomically."""

    key: str
    """A key in the slot of all keys."""
    data: tuple[bytes, ...]
    """The encoded commands."""
    commands: int
    """The number of commands."""


def at_one_instant(client: Client, batches: Iterable[CallBatch]) -> list[list[Any]]:
    """Run each batch atomically, all of them in one round trip to each server. Returns the replies
    of each batch.

    Raises StoreTrouble if a cluster's slot has moved; the next call knows its new place.
    """
    with _slots_known(client), _Connections(client) as connections:
        asked = []
        for batch in batches:
            connection = connections.to(batch.key)
            connections.buffer(connection, _packed(batch))
            asked.append((connection, batch.commands))
        connections.send()
        return [_replies(connection, commands) for connection, commands in asked]


@contextmanager
def _slots_known(client: Client) -> Iterator[None]:
    """Turn a failure that may come from a moved slot into StoreTrouble, and look the slots up
    again."""
    try:
        yield
    except ELSEWHERE as error:
        if not is_cluster(client) or isinstance(error, redis.AuthenticationError):
            raise
        with suppress(*FAILURES):
            find_again(client)
        moved = "a slot moved: " if isinstance(error, AskError) else ""
        raise StoreTrouble(f"redis: {moved}{error}", cause_of(error)) from None


class _Connections(ExitStack):
    """One connection to each server that is asked, held until the end of the block."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self._connections: dict[Client, Any] = {}
        self._unsent: dict[Any, bytearray] = {}

    def to(self, key: str) -> Any:
        """The connection to a key's server."""
        server = _server_of(self._client, key)
        if server not in self._connections:
            self._connections[server] = self.enter_context(_connection(server.connection_pool))
        return self._connections[server]

    def buffer(self, connection: Any, pieces: Iterable[bytes]) -> None:
        """Buffer bytes for a connection, and send them once there are many. Each system call may
        wake Redis, which then works on many commands at a time."""
        unsent = self._unsent.setdefault(connection, bytearray())
        for piece in pieces:
            unsent += piece
        if len(unsent) >= MUCH_BYTES:
            del self._unsent[connection]
            connection.send_packed_command([unsent])

    def send(self) -> None:
        """Send what is still buffered."""
        for connection, unsent in self._unsent.items():
            connection.send_packed_command([unsent])
        self._unsent.clear()


def bulk(*words: str) -> bytes:
    """Encode words of a command as bulk strings."""
    return b"".join([_bulk(word.encode()) for word in words])


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)


def of_words(count: int, *words: bytes) -> bytes:
    """Encode a command of `count` words, which the given bulk strings hold."""
    return b"*%d\r\n%b" % (count, b"".join(words))


MULTI, EXEC = of_words(1, bulk("MULTI")), of_words(1, bulk("EXEC"))


def _packed(batch: CallBatch) -> tuple[bytes, ...]:
    """The commands of a batch, in a transaction if there are several."""
    return batch.data if batch.commands == 1 else (MULTI, *batch.data, EXEC)


def _replies(connection: Any, commands: int) -> list[Any]:
    """The replies to a batch of this many commands."""
    if commands == 1:
        return list(received(connection, 1))
    # OK for MULTI, QUEUED for each command, and the replies of EXEC
    *_, replies = received(connection, 1 + commands + 1)
    for each in replies:
        if isinstance(each, Exception):
            raise each
    return list(replies)


def received(connection: Any, count: int) -> Iterator[Any]:
    """Yield `count` replies of a connection, as its `read_response` does; raise an error reply.

    `read_response` takes 0.9 us for each reply. The hiredis reader below it takes 0.16 us for a
    reply that has already reader, but redis-py 8.1 has no public way to it: neither connections
    nor parsers offer to read several replies at once. So this reaches for the private reader, and
    uses `read_response` where there is none, or where a reply is not complete.
    """
    reader = reader_of(connection)
    for _ in range(count):
        reply = NOT_COMPLETE if reader is None else reader.gets()
        if reply is NOT_COMPLETE:
            reply = connection.read_response()
        if isinstance(reply, Exception):
            raise reply
        yield reply


READER = "_reader"


def reader_of(connection: Any) -> Any:
    """The hiredis reader of a connection; None if redis-py does not keep one at its present
    place."""
    return getattr(getattr(connection, "_parser", None), READER, None) if NOT_COMPLETE else None


@contextmanager
def _connection(pool: Any) -> Iterator[Any]:
    """Take a connection from the pool. After a failure it is closed, because late replies may
    follow."""
    connection = pool.get_connection()
    try:
        yield connection
    except BaseException:
        connection.disconnect()
        raise
    finally:
        pool.release(connection)


def _server_of(client: Client, key: str) -> Client:
    if not is_cluster(client):
        return client
    return client.get_redis_connection(client.get_node_from_key(key))


def find_again(client: Client) -> None:
    """Look the servers up again: after a failover, the same name may lead to another server."""
    if is_cluster(client):
        client.nodes_manager.initialize()
    else:
        client.connection_pool.disconnect()
