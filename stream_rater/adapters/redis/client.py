"""Clients of Redis, for one server or for a Redis Cluster, in which each shard lies in one slot.
Nothing is retried here, except a command that a cluster's node did not run and redirected to
another node."""

import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry

from stream_rater.adapters.redis.login import RedisLogin, login_of, redis_options
from stream_rater.adapters.redis.sentinel import is_sentinel, master_client, parsed
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings, without_password
from stream_rater.contract.errors import Cause, Denied, StoreMismatch, StoreTrouble

TIMEOUT_S = 5.0
FAILURES = (redis.RedisError, exceptions.RedisClusterException)
"""Everything that a client raises; the cluster client has an exception family of its own."""
NO_CLUSTER = "Cluster mode is not enabled"

Client = Any  # redis.Redis or RedisCluster; their type stubs have little in common.


def connect(settings: Settings) -> Client:
    """Make a client from the settings. Raises BadConfiguration if they are invalid. A cluster
    client asks for the slots at once. It raises StoreTrouble if no node answers, and Denied if the
    user may not ask."""
    with parsed_addresses(settings) as (address, others):
        options = client_options(settings, address) | {"retry": Retry(NoBackoff(), 0)}
        if settings.redis_cluster:
            return _cluster(address, others, options, login_of(settings))
        if is_sentinel(settings.redis):
            return master_client(settings, parsed(settings.redis), options)
        return redis.Redis.from_url(address, **options)


@contextmanager
def parsed_addresses(settings: Settings) -> Iterator[tuple[str, list[str]]]:
    """The URL of the first address, and the other addresses as `host:port`. For sentinels it is
    that of a client of the master, without its place. A ValueError in the block is about the
    addresses, and is raised as BadConfiguration."""
    try:
        if is_sentinel(settings.redis):
            if settings.redis_cluster:
                raise ValueError("Sentinel watches no cluster: set redis_cluster to false")
            yield parsed(settings.redis).url, []
            return
        first, *others = settings.redis.split(",")
        address = first if "://" in first else f"redis://{first}/0"
        if others and not settings.redis_cluster:
            raise ValueError("several addresses mean a cluster: set redis_cluster")
        if settings.redis_cluster and database_of(address):
            raise ValueError("a cluster has only database 0")
        yield address, others
    except BadConfiguration:
        raise
    except ValueError as error:
        shown = without_password(settings.redis)
        reason = error if shown == settings.redis else "the URL is not valid"
        raise BadConfiguration(f"redis {shown!r}: {reason}") from None


def database_of(address: str) -> int:
    """The number of the database that a URL names."""
    return int(redis.ConnectionPool.from_url(address).connection_kwargs.get("db") or 0)


def client_options(settings: Settings, address: str) -> dict[str, Any]:
    """Arguments of the clients besides the URL."""
    options: dict[str, Any] = {
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": TIMEOUT_S,
        "socket_keepalive": True,
        "protocol": 2,
        **redis_options(settings, address),
    }
    if login := login_of(settings):
        options = {name: options[name] for name in options if name not in ("username", "password")}
        options["credential_provider"] = login
    return options


def _cluster(
    address: str, others: Iterable[str], options: dict[str, Any], login: RedisLogin | None
) -> Client:
    """Make a cluster client. Further addresses serve when the first node is down."""
    parts = (each.rpartition(":") for each in others)
    nodes = [ClusterNode(h, int(p)) for h, _, p in parts]  # type: ignore[no-untyped-call]
    try:
        return RedisCluster.from_url(
            address, startup_nodes=nodes, require_full_coverage=False, **options
        )
    except FAILURES as error:
        if is_denial(error) and is_final(error, login):
            raise Denied(f"redis: {error}") from None
        # The client reports the same error for a user who may not ask for the slots.
        hint = ", or its user lacks the right +cluster|slots" if NO_CLUSTER in str(error) else ""
        raise StoreTrouble(f"redis: {error}{hint}", cause_of(error)) from None


def is_cluster(client: Client) -> bool:
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
"""Answers of Redis to a user without a right: in a script (7.0, and later releases), and at the
end of a transaction that could not begin without the right."""

LOGINS = "NOAUTH ", "WRONGPASS "  # How errors begin by which Redis demands a login, or refuses one.
DENIAL_PREFIXES = "NOPERM ", *LOGINS
"""How Redis' own error begins; redis-py has classes for them, hiredis has not."""

ERRORS: Mapping[str, type[redis.RedisError]] = {
    "ERR": redis.ResponseError,
    "ASK": exceptions.AskError,
    "MOVED": exceptions.MovedError,
    "CLUSTERDOWN": exceptions.ClusterDownError,
    "MASTERDOWN": exceptions.MasterDownError,
    "TRYAGAIN": exceptions.TryAgainError,
    "CROSSSLOT": exceptions.ClusterCrossSlotError,
    "LOADING": redis.BusyLoadingError,
    "READONLY": redis.ReadOnlyError,
    "EXECABORT": exceptions.ExecAbortError,
    "OOM": redis.OutOfMemoryError,
    "NOPERM": exceptions.NoPermissionError,
    "NOSCRIPT": exceptions.NoScriptError,
    "NOAUTH": redis.AuthenticationError,
    "WRONGPASS": redis.AuthenticationError,
}
"""redis-py's classes by the word that an error begins with. Its own table is private."""


def error_of(text: str) -> redis.RedisError:
    """An error that Redis sent, as redis-py raises it: without a first word that has a class."""
    word, _, rest = text.partition(" ")
    return ERRORS[word](rest) if word in ERRORS else redis.ResponseError(text)


def is_denial(error: Exception) -> bool:
    """Whether a user lacks a right, by the error's class or by its text as Redis sent it."""
    denied = isinstance(error, (redis.AuthenticationError, exceptions.NoPermissionError))
    text = str(error)
    return denied or text.startswith(DENIAL_PREFIXES) or any(each in text for each in DENIALS)


def is_final(denial: Exception, login: RedisLogin | None) -> bool:
    """Whether a denial ends the process. A refused login does not, if the password is in a file
    that may have changed since, or that the server does not know yet."""
    if login is None:
        return True
    refused = isinstance(denial, redis.AuthenticationError) or str(denial).startswith(LOGINS)
    return not refused or login.is_final()


def cause_of(error: BaseException) -> Cause:
    """The cause of an error: "tls" if a failed TLS handshake caused the client's error. The end of
    a connection is not a TLS failure, although OpenSSL has errors of its own for it."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, ssl.SSLError) and not isinstance(at, ENDS_OF_TLS):
            return "tls"
        at = at.__cause__ or at.__context__
    return "redis"


ENDS_OF_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


@contextmanager
def translated_failures(login: RedisLogin | None = None) -> Iterator[None]:
    """Convert a client's errors into Denied and StoreTrouble. `login`: how it logs in."""
    try:
        yield
    except FAILURES as error:
        if is_denial(error) and is_final(error, login):
            raise Denied(f"redis: {error}") from None
        raise StoreTrouble(f"redis: {error}", cause_of(error)) from None


def rediscover(client: Client) -> None:
    """Look the servers up again: after a failover, the same name may lead to another server."""
    if is_cluster(client):
        client.nodes_manager.initialize()
    else:
        client.connection_pool.disconnect()


# --- how a server is configured -------------------------------------------------------------------

SMALL_HASH_BYTES = 512  # With beliefs up to this length, Redis must keep a hash compact.
EVICTS_ANY_KEY = "allkeys-"
"""The prefix of policies that evict keys without an expiry. Our keys have no expiry, so policies
that begin with `volatile-` evict none of them; writes then fail as with `noeviction`."""

REMEDY = (
    "run `CONFIG SET maxmemory-policy noeviction` on it, and set the same in redis.conf or in "
    "the settings of the hosted server"
)


class Memory(NamedTuple):
    """The settings of a server for the case that its memory is full."""

    policy: str
    limit_bytes: int  # The limit in bytes; 0 means none.


def check_server(server: Client) -> list[str]:
    """Warnings about a server's settings. Raises StoreMismatch if it evicts ratings."""
    found: dict[str, str] = {}
    try:
        found = server.config_get("hash-max-listpack-*")
        found |= server.config_get("maxmemory*")
    except redis.ResponseError:  # the command is denied
        found = {}
    return hash_warnings(found) + memory_warnings(_place(server), _memory(server, found))


def _memory(server: Client, configured: Mapping[str, str]) -> Memory | None:
    """The memory settings from `CONFIG GET`, or else from `INFO`; None if both are denied."""
    if {"maxmemory-policy", "maxmemory"} <= configured.keys():
        return Memory(configured["maxmemory-policy"], int(configured["maxmemory"]))
    with suppress(redis.ResponseError):
        reply: dict[str, Any] = server.info("memory")
        if {"maxmemory_policy", "maxmemory"} <= reply.keys():
            return Memory(reply["maxmemory_policy"], reply["maxmemory"])
    return None


def hash_warnings(configured: Mapping[str, str]) -> list[str]:
    """A warning if hashes of beliefs take more memory than they need."""
    value = int(configured.get("hash-max-listpack-value", SMALL_HASH_BYTES))
    if value >= SMALL_HASH_BYTES:
        return []
    return [
        f"redis: hash-max-listpack-value is {value}. Beliefs are longer, so Redis stores hashes "
        f"of them as tables, which take more memory: set it to {SMALL_HASH_BYTES} or more"
    ]


def memory_warnings(place: str, memory: Memory | None) -> list[str]:
    """A warning if a server might delete ratings. Raises StoreMismatch if it would."""
    if memory is None:
        return [
            "redis: this service's user may run neither CONFIG GET nor INFO, so it is unknown "
            "whether ratings are deleted when memory is full: allow `+info`, or make sure that "
            "maxmemory-policy is noeviction"
        ]
    if not memory.policy.startswith(EVICTS_ANY_KEY):
        return []
    if memory.limit_bytes > 0:
        raise StoreMismatch(
            f"redis at {place}: maxmemory-policy is {memory.policy} and maxmemory is "
            f"{memory.limit_bytes}, so Redis deletes ratings when memory is full: {REMEDY}"
        )
    return [
        f"redis at {place}: maxmemory-policy is {memory.policy}, so Redis deletes ratings once a "
        f"maxmemory is set and memory is full: {REMEDY}"
    ]


def _place(server: Client) -> str:
    if master := getattr(server.connection_pool, "master_address", None):  # named by sentinels
        return ":".join(map(str, master))
    given = server.connection_pool.connection_kwargs
    return given.get("path") or f"{given.get('host')}:{given.get('port')}"
