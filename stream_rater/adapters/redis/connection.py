"""Connections to Redis on the public interface of hiredis: a blocking one, for the store, and one
for an event loop, for `serve`, which needs no thread and matches replies by their order.

redis-py's own connections read one reply at a time. Its asyncio client takes at least four times as
much processor time for a command as the one here. redis-py still parses the URL and its options,
which include TLS, and knows the places of a cluster's slots.
"""

import asyncio
import select
import socket
import ssl
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

import hiredis
import redis
from redis.asyncio import ConnectionPool, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from stream_rater.adapters.redis import client
from stream_rater.adapters.redis.login import RedisLogin, login_of
from stream_rater.adapters.redis.sentinel import MasterFinder, Place, is_sentinel, parsed
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, StoreTrouble

READ_BYTES = 2**16
KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""How soon the system notices that the other end of an idle connection is gone, in seconds and
probes; as in redis-py."""


class Dialer:
    """Opens connections with the user, the database and the TLS options of the settings. Raises
    BadConfiguration if they are invalid."""

    def __init__(self, settings: Settings) -> None:
        with client.parsed_addresses(settings) as (address, _):
            pool: Any = ConnectionPool.from_url(address, **client.client_options(settings, address))
            self._finder: MasterFinder | None = None
            if is_sentinel(settings.redis):
                self._finder = MasterFinder(settings, parsed(settings.redis), pool)
        self.has_sentinels = self._finder is not None
        """Whether sentinels name the server."""
        self._kind, self._options = pool.connection_class, pool.connection_kwargs
        self.login = login_of(settings)
        self._master: Place | None = None
        """The master to which the last connection was made, if sentinels name it."""
        self.masters = 0
        """How often the sentinels have named another master than before."""

    def find(self) -> Place | None:
        """The master that the sentinels name now; None without sentinels. Raises
        redis.RedisError."""
        if self._finder is None:
            return None
        found = self._finder.find()
        if found != self._master:
            self.masters += self._master is not None
            self._master = found
        return found

    @property
    def is_due(self) -> bool:
        """Whether `has_moved` would ask the sentinels."""
        return self._finder is not None and self._finder.is_due

    def has_moved(self) -> bool:
        """Whether the sentinels now name another master than that of the last connection. They are
        asked at intervals only; in between the answer is no."""
        if self._finder is None or self._master is None:
            return False
        return self._finder.names_another(self._master)

    def options(self) -> Any:
        """A connection of redis-py with these settings, which is never opened. Its TLS context is
        made on request, from the present contents of the files."""
        return self._kind(**self._options)

    def connect(self, host: str | None = None, port: int | None = None) -> "RedisConnection":
        """Open a blocking connection to the server of the settings, or to this node of their
        cluster. Raises redis.RedisError, also if the sentinels name another master than before:
        whoever calls must look at the store again. The next call connects to it."""
        options = self.options()
        if self.has_sentinels:
            before = self.masters
            host, port = self.find() or (None, None)
            if self.masters != before:
                raise redis.ConnectionError(f"the sentinels name another master, {host}:{port}")
        connection = RedisConnection(options, host, port)
        try:
            for words in login_commands(options):
                connection.send(hiredis.pack_command(words))
                next(connection.replies(1))
        except BaseException:
            connection.close()
            raise
        if self.login:
            self.login.accepted()
        return connection


def login_commands(options: Any) -> Iterator[tuple[Any, ...]]:
    """The commands that a connection begins with: they choose the user and the database."""
    if options.credential_provider:
        yield "AUTH", *options.credential_provider.get_credentials()
    elif options.password or options.username:
        user = [options.username] if options.username else []
        yield "AUTH", *user, options.password or ""
    if options.db:
        yield "SELECT", options.db


def tls_of(options: Any) -> ssl.SSLContext | None:
    """The TLS context of a connection; None without TLS."""
    return options.ssl_context.get() if hasattr(options, "ssl_context") else None


class RedisConnection:
    """A blocking connection to one server, for one thread. Its methods raise redis.RedisError, as
    redis-py's do; after an error it is of no use."""

    def __init__(self, options: Any, host: str | None = None, port: int | None = None) -> None:
        """Connect. `options`: those of a Dialer."""
        path = getattr(options, "path", None)
        self._place = path or f"{host or options.host}:{port or options.port}"
        try:
            if path:
                self._socket = socket.socket(socket.AF_UNIX)
                self._socket.settimeout(options.socket_connect_timeout)
                self._socket.connect(path)
            else:
                self._socket = _connected(options, host or options.host, port or options.port)
            self._socket.settimeout(options.socket_timeout)
        except TimeoutError:
            raise redis.TimeoutError("Timeout connecting to server") from None
        except OSError as error:
            number, text = error.args if len(error.args) == 2 else (error, "")
            why = f"Error {number} connecting to {self._place}. {text}"
            raise redis.ConnectionError(f"{why}." if text else why.rstrip()) from error
        self._reader = hiredis.Reader(
            protocolError=redis.InvalidResponse, replyError=client.error_of
        )
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def is_quiet(self) -> bool:
        """Whether nothing unexpected has arrived: no data without a command, and no end of the
        connection."""
        return not self._poll.poll(0)

    def send(self, commands: bytes | bytearray) -> None:
        """Send encoded commands."""
        try:
            self._socket.sendall(commands)
        except TimeoutError:
            raise redis.TimeoutError("Timeout writing to socket") from None
        except OSError as error:
            number, text = error.args if len(error.args) == 2 else ("UNKNOWN", error)
            why = f"Error {number} while writing to socket. {text}."
            raise redis.ConnectionError(why) from error

    def replies(self, count: int) -> Iterator[Any]:
        """Yield the next `count` replies. Raises a reply that is an error; errors within a reply
        are elements of it."""
        for _ in range(count):
            reply = self.answer()
            if isinstance(reply, Exception):
                raise reply
            yield reply

    def answer(self) -> Any:
        """The next reply, which may be an error: the following ones can still be read."""
        while (reply := self._reader.gets()) is False:  # incomplete: no reply of RESP 2 is False
            self._receive()
        return reply

    def _receive(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise redis.TimeoutError(f"Timeout reading from {self._place}") from None
        except OSError as error:
            why = f"Error while reading from {self._place} : {error.args}"
            raise redis.ConnectionError(why) from error
        if not data:
            raise redis.ConnectionError("Connection closed by server.")
        self._reader.feed(data)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _connected(options: Any, host: str, port: int) -> socket.socket:
    """A socket that is connected to this server, by TLS if the options say so. Raises OSError."""
    found = socket.create_connection((host, port), options.socket_connect_timeout)
    try:
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE:
            if option := getattr(socket, name, None):
                found.setsockopt(socket.IPPROTO_TCP, option, value)
        if context := tls_of(options):
            found = context.wrap_socket(found, server_hostname=host)
    except BaseException:
        found.close()
        raise
    return found


# --- for an event loop ---------------------------------------------------------------------------


class AsyncClient(Protocol):
    """Sends commands that read, on one event loop."""

    async def ask(self, *command: Any) -> Any:
        """The reply to a command. Raises StoreTrouble or Denied."""

    async def close(self) -> None:
        """Close the connections."""


def async_client(settings: Settings) -> AsyncClient:
    """A client for the servers of these settings. Makes no request. Raises BadConfiguration."""
    return _Cluster(settings) if settings.redis_cluster else _Server(settings)


class _AsyncConnection(asyncio.Protocol):
    """A connection to a server on an event loop. Replies belong to the commands in their order."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._answered = 0
        self._watched = False
        self.open = False

    def ask(self, *command: Any) -> "asyncio.Future[Any]":
        """A future of the reply, which may be an error of hiredis."""
        reply = self._loop.create_future()
        if not self.open:
            reply.set_exception(StoreTrouble("redis: the connection was closed"))
            return reply
        self._waiting.append(reply)
        self._transport.write(hiredis.pack_command(command))
        if not self._watched:
            self._watch()
        return reply

    def close(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def _watch(self) -> None:
        """Close the connection if no reply arrives for TIMEOUT_S while a command waits for one."""
        self._watched = bool(self._waiting)
        if self._watched:
            self._loop.call_later(client.TIMEOUT_S, self._check, self._answered)

    def _check(self, answered: int) -> None:
        if self._waiting and self._answered == answered:
            self._transport.abort()
        else:
            self._watch()

    # --- callbacks of asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.open = transport, True

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while self._waiting and (reply := self._reader.gets()) is not False:
            self._answered += 1
            waiting = self._waiting.popleft()
            if not waiting.done():  # it may have been cancelled
                waiting.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        why = f"redis: {exc}" if exc else "redis: the connection was closed"
        while self._waiting:
            if not (waiting := self._waiting.popleft()).done():
                waiting.set_exception(StoreTrouble(why))


class _Server:
    """A client of one server. A lost connection is opened again with the next command."""

    def __init__(self, settings: Settings) -> None:
        self._dialer = Dialer(settings)
        self._connection: _AsyncConnection | None = None
        self._connecting = asyncio.Lock()

    async def ask(self, *command: Any) -> Any:
        connection = self._connection
        if connection is None or not connection.open or self._dialer.is_due:
            connection = await self._connected()
        reply = await connection.ask(*command)
        if isinstance(reply, hiredis.HiredisError):
            raise _translated(reply, self._dialer.login)
        return reply

    async def close(self) -> None:
        if self._connection is not None and self._connection.open:
            self._connection.close()

    async def _connected(self) -> _AsyncConnection:
        async with self._connecting:
            if self._dialer.is_due and await asyncio.to_thread(self._dialer.has_moved):
                await self.close()
                self._connection = None
            if self._connection is None or not self._connection.open:
                try:
                    async with asyncio.timeout(client.TIMEOUT_S):
                        self._connection = await self._connect()
                except TimeoutError:
                    raise StoreTrouble(f"redis: no answer within {client.TIMEOUT_S:g} s") from None
                except OSError as error:
                    raise StoreTrouble(f"redis: {error}") from None
            return self._connection

    async def _connect(self) -> _AsyncConnection:
        """Open a connection as the user of the settings, to their database."""
        options, loop = self._dialer.options(), asyncio.get_running_loop()
        if self._dialer.has_sentinels:
            with client.translated_failures(self._dialer.login):
                place: Any = await asyncio.to_thread(self._dialer.find)
                options.host, options.port = place
        if path := getattr(options, "path", None):
            _, connection = await loop.create_unix_connection(_AsyncConnection, path)
        else:
            _, connection = await loop.create_connection(
                _AsyncConnection, options.host, options.port, ssl=tls_of(options)
            )
        for words in login_commands(options):
            reply = await connection.ask(*words)
            if isinstance(reply, hiredis.HiredisError):
                connection.close()
                raise _translated(reply, self._dialer.login)
        if self._dialer.login:
            self._dialer.login.accepted()
        return connection


class _Cluster:
    """A client of a Redis Cluster."""

    def __init__(self, settings: Settings) -> None:
        self._login = login_of(settings)
        with client.parsed_addresses(settings) as (address, others):
            self._client: Any = RedisCluster.from_url(
                address, startup_nodes=client.nodes_of(others, ClusterNode),
                require_full_coverage=False, retry=Retry(NoBackoff(), 0),
                **client.client_options(settings, address),
            )  # fmt: skip

    async def ask(self, *command: Any) -> Any:
        with client.translated_failures(self._login):
            return await self._client.execute_command(*command)

    async def close(self) -> None:
        await self._client.aclose()


def _translated(error: Exception, login: RedisLogin | None) -> StoreTrouble | Denied:
    denied = client.is_denial_text(str(error)) and client.is_final(error, login)
    return (Denied if denied else StoreTrouble)(f"redis: {error}")
