"""Blocking connections to Redis: what is sent, how replies are read, what failures are called."""

import errno
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import redis
from redis.exceptions import AskError, ClusterDownError, MovedError, NoPermissionError

from stream_rater.adapters.redis.calls import CallBatch, Caller, bulk, encode_command
from stream_rater.adapters.redis.client import connect, error_of, translated_failures
from stream_rater.adapters.redis.connection import Dialer
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, StoreTrouble
from tests.builders.cases import cases

REFUSED = os.strerror(errno.ECONNREFUSED)
PING = encode_command(1, bulk("PING"))


@contextmanager
def answering(*connections: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that sends these bytes to its connections, one after the other, whatever it is
    asked, then closes each. Yields its URL, and what it was sent."""
    sent: list[bytes] = []

    def serve(server: socket.socket) -> None:
        for data in connections:
            with suppress(OSError), server.accept()[0] as connection:  # a client may break off
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sent.append(connection.recv(1000))
                for i in range(len(data)):  # a byte at a time: replies come in any pieces
                    connection.sendall(data[i : i + 1])
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1000):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", sent


def test_replies_come_in_order_and_in_any_pieces() -> None:
    """Also those of which one packet has several, and nested ones."""
    with answering(b"$3\r\nabc\r\n*2\r\n$-1\r\n:7\r\n+OK\r\n") as (address, sent):
        connection = Dialer(Settings(redis=address)).connect()
        connection.send(PING)
        assert list(connection.replies(3)) == [b"abc", [None, 7], b"OK"]
        assert sent == [PING]
        with pytest.raises(redis.ConnectionError, match="closed by server"):
            next(connection.replies(1))
        connection.close()


def test_a_connection_begins_with_its_user_and_database() -> None:
    """Each command waits for its reply, and an error ends the connection."""
    with answering(b"+OK\r\n+OK\r\n", b"-WRONGPASS invalid password\r\n") as (address, sent):
        settings = Settings(redis=f"redis://{address}/3", redis_username="u", redis_password="p")
        Dialer(settings).connect().close()
        with pytest.raises(Denied, match="redis: invalid password"), translated_failures():
            Dialer(settings).connect()
    assert sent == [encode_command(3, bulk("AUTH", "u", "p"))] * 2


@cases(
    ("text", "kind", "rest"),
    [
        ("ERR value is not an integer", redis.ResponseError, "value is not an integer"),
        ("WRONGTYPE of key", redis.ResponseError, "WRONGTYPE of key"),
        ("READONLY a replica", redis.ReadOnlyError, "a replica"),
        ("LOADING a dump", redis.BusyLoadingError, "a dump"),
        ("NOPERM no right", NoPermissionError, "no right"),
        ("ASK 3 h:1", AskError, "3 h:1"),
        ("MOVED 3 h:1", MovedError, "3 h:1"),
        ("MASTERDOWN link", ClusterDownError, "link"),
    ],
)
def test_errors_have_the_classes_of_redis_py(text: str, kind: type, rest: str) -> None:
    """One parser serves both connections, and the store distinguishes errors by their classes."""
    error = error_of(text)
    assert isinstance(error, kind) and str(error) == rest
    greeted = b"+OK\r\n+OK\r\n"  # redis-py sends its name and its release first
    with answering(greeted + b"-%b\r\n" % text.encode()) as (address, _):
        line = connect(Settings(redis=address)).connection_pool.make_connection()
        line.send_command("PING")
        with pytest.raises(kind) as found:
            line.read_response()
    assert (type(found.value), str(found.value)) == (type(error), rest), "as redis-py does"


def test_a_connection_that_the_server_closed_is_replaced() -> None:
    """Before it is used, as nobody asked for what arrived: here its end."""
    with answering(b"+1\r\n", b"+2\r\n") as (address, sent):
        settings = Settings(redis=address)
        caller = Caller(connect(settings), settings)
        ping = [CallBatch("k", (PING,), 1)]
        assert caller.call_batches(ping) == [[b"1"]]
        (idle,) = caller._idle[None]
        while idle.is_quiet():  # until the end of the connection is here
            pass
        assert caller.call_batches(ping) == [[b"2"]]
        assert len(sent) == 2
        caller.close()


def trouble_at(address: str) -> tuple[str, str]:
    """The text and the cause of the failure to connect."""
    settings = Settings(redis=address)
    with pytest.raises(StoreTrouble) as ours, translated_failures():
        Dialer(settings).connect()
    return str(ours.value), ours.value.cause


def test_a_server_that_is_away_and_one_without_tls() -> None:
    """The text says where it was sought; the cause is that of the error below."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        away = f"127.0.0.1:{free.getsockname()[1]}"
    assert trouble_at(away) == (
        f"redis: Error {errno.ECONNREFUSED} connecting to {away}. {REFUSED}.",
        "redis",
    )
    with answering(b"-ERR no TLS here\r\n" * 9) as (address, _):
        why, cause = trouble_at(f"rediss://{address}")
    assert why.startswith(f"redis: Error 1 connecting to {address}. [SSL: ")
    assert cause == "tls"


def test_tls_files_are_read_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that was renewed counts from the next connection on."""
    made: list[ssl.SSLContext] = []
    create = ssl.create_default_context

    def counted() -> ssl.SSLContext:
        made.append(create())
        return made[-1]

    monkeypatch.setattr(ssl, "create_default_context", counted)
    dialer = Dialer(Settings(redis="rediss://127.0.0.1:1"))
    for _ in range(2):
        dialer.options().ssl_context.get()
    assert len(made) == 2
