"""Asks Redis from an event loop, without a thread and without waiting in turn: questions go out as
they are asked, and answers are matched by their order.

redis-py's own asyncio client takes at least four times as much of the processor for a question: it
awaits each answer on a connection by itself. Its connections say how to connect, hiredis packs and
parses. On a Redis Cluster its client is used as it is: it knows where slots are.
"""

import asyncio
from collections import deque
from typing import Any, Protocol

import hiredis
from redis.asyncio import ConnectionPool, RedisCluster
from redis.asyncio import cluster as untyped_cluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from stream_rater.adapters.redis.client import (
    TIMEOUT_S,
    client_options,
    failures_named,
    is_denial_text,
    named_addresses,
    nodes_of,
)
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, StoreTrouble

_cluster_module: Any = untyped_cluster


class Asked(Protocol):
    """What can be asked. For one event loop."""

    async def ask(self, *command: Any) -> Any:
        """The reply to a command that reads. Raises StoreTrouble or Denied."""

    async def close(self) -> None:
        """Close the connections."""


def asked(settings: Settings) -> Asked:
    """The servers of these settings. Makes no request. Raises BadConfiguration."""
    return _Cluster(settings) if settings.redis_cluster else _Server(settings)


class _Line(asyncio.Protocol):
    """A connection to a server."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._answered = 0
        self._watched = False
        self.open = False

    def ask(self, *command: Any) -> "asyncio.Future[Any]":
        """The reply to come, which may be an error of hiredis."""
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
        """Close it at once."""
        self._transport.abort()

    def _watch(self) -> None:
        """Close the connection if nothing is answered for TIMEOUT_S while somebody waits."""
        self._watched = bool(self._waiting)
        if self._watched:
            self._loop.call_later(TIMEOUT_S, self._check, self._answered)

    def _check(self, answered: int) -> None:
        if self._waiting and self._answered == answered:
            self._transport.abort()
        else:
            self._watch()

    # --- what asyncio calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.open = transport, True

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while self._waiting and (reply := self._reader.gets()) is not False:
            self._answered += 1
            waiting = self._waiting.popleft()
            if not waiting.done():  # who asked may have gone
                waiting.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        why = f"redis: {exc}" if exc else "redis: the connection was closed"
        while self._waiting:
            if not (waiting := self._waiting.popleft()).done():
                waiting.set_exception(StoreTrouble(why))


class _Server:
    """One server. A connection that is lost is made again with the next question."""

    def __init__(self, settings: Settings) -> None:
        with named_addresses(settings) as (address, _):
            pool: Any = ConnectionPool.from_url(address, **client_options(settings, address))
            self._how = pool.make_connection()
        self._line: _Line | None = None
        self._connecting = asyncio.Lock()

    async def ask(self, *command: Any) -> Any:
        line = self._line
        if line is None or not line.open:
            line = await self._connected()
        reply = await line.ask(*command)
        if isinstance(reply, hiredis.HiredisError):
            raise _named(reply)
        return reply

    async def close(self) -> None:
        if self._line is not None and self._line.open:
            self._line.close()

    async def _connected(self) -> _Line:
        async with self._connecting:
            if self._line is None or not self._line.open:
                try:
                    async with asyncio.timeout(TIMEOUT_S):
                        self._line = await self._connect()
                except TimeoutError:
                    raise StoreTrouble(f"redis: no answer within {TIMEOUT_S:g} s") from None
                except OSError as error:
                    raise StoreTrouble(f"redis: {error}") from None
            return self._line

    async def _connect(self) -> _Line:
        """A new connection, as the user of the settings, to their database."""
        how, loop = self._how, asyncio.get_running_loop()
        tls = how.ssl_context.get() if hasattr(how, "ssl_context") else None
        if path := getattr(how, "path", None):
            _, line = await loop.create_unix_connection(_Line, path)
        else:
            _, line = await loop.create_connection(_Line, how.host, how.port, ssl=tls)
        greetings = []
        if how.password or how.username:
            user = [how.username] if how.username else []
            greetings.append(["AUTH", *user, how.password or ""])
        if how.db:
            greetings.append(["SELECT", how.db])
        for words in greetings:
            reply = await line.ask(*words)
            if isinstance(reply, hiredis.HiredisError):
                line.close()
                raise _named(reply)
        return line


class _Cluster:
    """The nodes of a Redis Cluster."""

    def __init__(self, settings: Settings) -> None:
        with named_addresses(settings) as (address, others):
            self._client: Any = RedisCluster.from_url(
                address, startup_nodes=nodes_of(others, _cluster_module.ClusterNode),
                require_full_coverage=False, retry=Retry(NoBackoff(), 0),
                **client_options(settings, address),
            )  # fmt: skip

    async def ask(self, *command: Any) -> Any:
        with failures_named():
            return await self._client.execute_command(*command)

    async def close(self) -> None:
        await self._client.aclose()


def _named(error: Exception) -> StoreTrouble | Denied:
    return (Denied if is_denial_text(str(error)) else StoreTrouble)(f"redis: {error}")
