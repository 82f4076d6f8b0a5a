"""A connection of the store to Redis, on the public interface of hiredis. redis-py's own
connections read one reply at a time. redis-py still parses the URL and its options, which include
TLS, and knows the places of a cluster's slots."""

import select
import socket
from collections.abc import Iterator
from typing import Any

import hiredis
import redis
from redis.asyncio import ConnectionPool

from stream_rater.adapters.redis import client, login
from stream_rater.adapters.redis.sentinel import MasterFinder, Place, is_sentinel, parsed
from stream_rater.config.settings import Settings

READ_BYTES = 2**16
KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""How soon the system notices that an idle connection is gone (s and probes), as in redis-py."""


class Dialer:
    """Opens connections with the user, the database and the TLS options of the settings. Raises
    BadConfiguration if they are invalid."""

    def __init__(self, settings: Settings) -> None:
        with client.parsed_addresses(settings) as (address, _):
            pool: Any = ConnectionPool.from_url(address, **client.client_options(settings, address))
            self._finder: MasterFinder | None = None
            if is_sentinel(settings.redis):
                self._finder = MasterFinder(settings, parsed(settings.redis), pool)
        self.has_sentinels = self._finder is not None  # Whether sentinels name the server.
        self._kind, self._options = pool.connection_class, pool.connection_kwargs
        self.login = login.login_of(settings)
        self._master: Place | None = None
        """The master to which the last connection was made, if sentinels name it."""
        self.masters = 0  # How often the sentinels have named another master than before.

    def find(self) -> Place | None:
        """The master that the sentinels name, None without sentinels. Raises redis.RedisError."""
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
        """Whether nothing unexpected has arrived: neither data nor the end of the connection."""
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
        """Yield the next `count` replies. Raises an error reply, not an error within a reply."""
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
        if hasattr(options, "ssl_context"):
            found = options.ssl_context.get().wrap_socket(found, server_hostname=host)
    except BaseException:
        found.close()
        raise
    return found
