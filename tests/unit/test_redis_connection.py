"""Connections to Redis: replies, failures and settings; and beliefs as plain loops send them."""

import errno
import itertools
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby, product
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.connection import Connection
from redis.exceptions import AskError, ClusterDownError, MovedError, NoPermissionError

from stream_rater.adapters.redis import client, encoding
from stream_rater.adapters.redis.calls import CallBatch, Caller, LuaFunctions, bulk, encode_command
from stream_rater.adapters.redis.connection import Dialer
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, StoreMismatch, StoreTrouble
from stream_rater.contract.record import Player
from tests.builders.cases import cases

REFUSED = os.strerror(errno.ECONNREFUSED)
PING = encode_command(1, bulk("PING"))


@contextmanager
def answering(*connections: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that sends these bytes to one connection each. Yields URL and what it receives."""
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
        with pytest.raises(Denied, match="redis: invalid password"), client.translated_failures():
            Dialer(settings).connect()
    assert sent == [encode_command(3, bulk("AUTH", "u", "p"))] * 2


@cases("text, kind, rest", [
    ("ERR value is not an integer", redis.ResponseError, "value is not an integer"),
    ("WRONGTYPE of key", redis.ResponseError, "WRONGTYPE of key"),
    ("READONLY a replica", redis.ReadOnlyError, "a replica"),
    ("LOADING a dump", redis.BusyLoadingError, "a dump"),
    ("NOPERM no right", NoPermissionError, "no right"), ("ASK 3 h:1", AskError, "3 h:1"),
    ("MOVED 3 h:1", MovedError, "3 h:1"), ("MASTERDOWN link", ClusterDownError, "link"),
])  # fmt: skip
def test_errors_have_the_classes_of_redis_py(text: str, kind: type, rest: str) -> None:
    """One parser serves both connections, and the store distinguishes errors by their classes."""
    error = client.error_of(text)
    assert isinstance(error, kind) and str(error) == rest
    greeted = b"+OK\r\n+OK\r\n"  # redis-py sends its name and its release first
    with answering(greeted + b"-%b\r\n" % text.encode()) as (address, _):
        line = client.connect(Settings(redis=address)).connection_pool.make_connection()
        line.send_command("PING")
        with pytest.raises(kind) as found:
            line.read_response()
    assert (type(found.value), str(found.value)) == (type(error), rest), "as redis-py does"


def test_a_connection_that_the_server_closed_is_replaced() -> None:
    """Before it is used, as nobody asked for what arrived: here its end."""
    with answering(b"+1\r\n", b"+2\r\n") as (address, sent):
        settings = Settings(redis=address)
        caller = Caller(client.connect(settings), settings)
        ping = [CallBatch("k", (PING,), 1)]
        assert caller.call_batches(ping) == [[b"1"]]
        (idle,) = caller._idle[None]
        while idle.is_quiet():  # until the end of the connection is here
            pass
        assert caller.call_batches(ping) == [[b"2"]]
        assert len(sent) == 2
        caller.close()


@contextmanager
def nobody() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{free.getsockname()[1]}"


@cases(
    "ask",
    [lambda settings: Dialer(settings).connect(), lambda settings: client.connect(settings).ping()],
)
def test_a_server_that_is_away_and_one_without_tls(ask: Callable[[Settings], object]) -> None:
    """The text says where it is; the cause is that of the error below, which redis-py keeps."""
    with nobody() as away, pytest.raises(StoreTrouble) as found, client.translated_failures():
        ask(Settings(redis=away))
    assert str(found.value) == f"redis: Error {errno.ECONNREFUSED} connecting to {away}. {REFUSED}."
    assert found.value.cause == "redis"
    no_tls = answering(b"-ERR no TLS here\r\n" * 9)
    with no_tls as (address, _), pytest.raises(StoreTrouble) as found, client.translated_failures():
        ask(Settings(redis=f"rediss://{address}"))
    assert str(found.value).startswith(f"redis: Error 1 connecting to {address}. [SSL: ")
    assert found.value.cause == "tls"


def test_tls_files_are_read_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that was renewed counts from the next connection on."""
    made = Mock(wraps=ssl.create_default_context)
    monkeypatch.setattr(ssl, "create_default_context", made)
    dialer = Dialer(Settings(redis="rediss://127.0.0.1:1"))
    for _ in range(2):
        dialer.options().ssl_context.get()
    assert made.call_count == 2


# --- settings of the server -----------------------------------------------------------------------

KEEPING = ("noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl")
PLACE = "h:1"


def server(config: dict[str, str] | None, info: dict[str, Any] | None) -> Any:
    """One that answers CONFIG GET and INFO with these, and denies what is None."""

    def config_get(pattern: str) -> dict[str, str]:
        if config is None:
            raise redis.ResponseError("unknown command 'CONFIG'")
        return {k: v for k, v in config.items() if k.startswith(pattern.rstrip("*"))}

    def info_of(section: str) -> dict[str, Any]:
        assert section == "memory"
        if info is None:
            raise NoPermissionError("no permissions to run the 'info' command")
        return info

    pool = SimpleNamespace(connection_kwargs={"host": "h", "port": 1})
    return SimpleNamespace(config_get=config_get, info=info_of, connection_pool=pool)


def configured(policy: str, limit_bytes: int) -> dict[str, str]:
    return {"maxmemory-policy": policy, "maxmemory": str(limit_bytes)}


def informed(policy: str, limit_bytes: int) -> dict[str, Any]:
    return {"maxmemory_policy": policy, "maxmemory": limit_bytes, "used_memory": 1}


@cases("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random", "allkeys-lrm"])
def test_a_server_that_evicts_any_key_is_refused(policy: str) -> None:
    """It is refused in one line with the cure, or without a memory limit warned of."""
    with pytest.raises(StoreMismatch) as refused:
        client.memory_warnings(PLACE, client.Memory(policy, 1000))
    assert str(refused.value).startswith(
        f"redis at h:1: maxmemory-policy is {policy} and maxmemory is 1000, so Redis deletes "
        "ratings when memory is full: run `CONFIG SET maxmemory-policy noeviction`"
    )
    (line,) = client.memory_warnings(PLACE, client.Memory(policy, 0))
    assert line.startswith(
        f"redis at h:1: maxmemory-policy is {policy}, so Redis deletes ratings once "
    )
    assert "run `CONFIG SET maxmemory-policy noeviction`" in line
    assert "\n" not in line + str(refused.value)


@cases("policy, limit_bytes", product(KEEPING, [0, 1000]))
def test_one_that_evicts_none_of_our_keys_is_accepted(policy: str, limit_bytes: int) -> None:
    """Without a word: no key of ours has an expiry, which `volatile-` policies look for."""
    assert client.memory_warnings(PLACE, client.Memory(policy, limit_bytes)) == []


NONE_EVICTED = configured("noeviction", 0)


@cases("config, info", [
    *((config, informed("allkeys-lru", 1000)) for config in (None, {}, {"maxmemory": "0"})),
    (configured("allkeys-lru", 1000), None),
])  # fmt: skip
def test_info_shows_what_config_does_not(config: Any, info: Any) -> None:
    """Hosted servers deny CONFIG, or answer it with less. INFO may be denied, too."""
    with pytest.raises(StoreMismatch, match="policy is allkeys-lru and maxmemory is 1000"):
        client.check_server(server(config, info))
    kept = info and informed("volatile-lru", 1000)
    assert client.check_server(server(config if info else NONE_EVICTED, kept)) == []


def test_what_cannot_be_known_is_said() -> None:
    """One line says so, and names the right to give. Small hashes are warned of, too."""
    nothing: list[dict[str, Any] | None] = [None, {}]
    for info in nothing:
        (line,) = client.check_server(server(None, info))
        assert "it is unknown" in line and "`+info`" in line and "\n" not in line
    (line,) = client.check_server(server({"hash-max-listpack-value": "64"} | NONE_EVICTED, None))
    assert line.startswith("redis: hash-max-listpack-value is 64. ")


# --- beliefs as they are sent ---------------------------------------------------------------------


ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
players = st.tuples(st.sampled_from(["ranked", "a:b", "ß"]), ids)
shards = st.integers(0, 999)
buckets = st.integers(1, 3) | st.integers(1, 2**31 - 1)


def key_of(shard: int, player: Player, hashes: int) -> str:
    """Of the hash that a player is in."""
    return encoding.belief_key(shard, player[0], player[1].encode(), hashes)


def groups(shard: int, rows: Sequence[Player], hashes: int, order: list[int]) -> list[list[int]]:
    """Players in this order, those of a hash together, but not too many."""
    found = []
    for _, some in groupby(order, lambda i: key_of(shard, rows[i], hashes)):
        these = list(some)
        found += [
            these[i : i + encoding.MOST_TOGETHER]
            for i in range(0, len(these), encoding.MOST_TOGETHER)
        ]
    return found


@given(st.lists(players, max_size=30), shards, buckets)
def test_reads(rows: list[Player], shard: int, hashes: int) -> None:
    """Everybody is asked for once, hash by hash, as the client would pack it."""
    for some, found in (
        (rows, encoding.encode_reads(shard, PlayerColumn.of(rows), hashes)),
        (rows[1:], encoding.encode_reads(shard, PlayerColumn.of(rows)[1:], hashes)),
    ):
        order = found.order.tolist()
        assert sorted(order) == list(range(len(some)))
        together = groups(shard, some, hashes, order)
        keys = [key_of(shard, some[group[0]], hashes) for group in together]
        assert len(set(keys)) == len(keys) == found.commands
        packed = Connection().pack_commands(
            ("HMGET", key, *(some[i][1].encode() for i in group))
            for key, group in zip(keys, together, strict=True)
        )
        assert found.data == b"".join(packed)


@given(st.lists(st.tuples(players, st.binary(max_size=300)), max_size=30), shards, buckets)
def test_writes(beliefs: list[tuple[Player, bytes]], shard: int, hashes: int) -> None:
    """Each hash is declared as a key, and what is written to it stands at the key's place."""
    rows = [player for player, _ in beliefs]
    order = encoding.encode_reads(shard, PlayerColumn.of(rows), hashes).order.tolist()
    together = groups(shard, rows, hashes, order)
    words = list[bytes]()
    keys = [key_of(shard, rows[some[0]], hashes) for some in together]
    for i in itertools.chain(*together):
        words += [rows[i][1].encode(), beliefs[i][1]]
    found = encoding.encode_writes(shard, BeliefColumn.of(beliefs), hashes)
    assert found.hashes == len(keys)
    assert found.counts == bytes(map(len, together))
    assert as_sent(*keys) == found.keys
    assert as_sent(*words) == found.beliefs


def as_sent(*words: str | bytes) -> bytes:
    """Words as the client would send them behind a command's name."""
    return b"".join(Connection().pack_command("FCALL", *words)).partition(b"$5\r\nFCALL\r\n")[2]


def test_not_too_many_at_once() -> None:
    """Where one hash has far more than it should."""
    rows = [("ranked", f"p{i}") for i in range(2 * encoding.MOST_TOGETHER + 1)]
    assert encoding.encode_reads(0, PlayerColumn.of(rows), 1).commands == 3


def test_a_valkey_without_lua_is_refused() -> None:
    """In its own words (of 9.1), with the cure."""
    words = "Engine 'lua' not found", "Could not find scripting engine 'lua'"

    def refusing(text: str) -> Mock:
        return Mock(side_effect=redis.ResponseError(text))

    valkey = Mock(function_list=lambda **_: [])
    valkey.function_load, valkey.script_load = map(refusing, words)
    with pytest.raises(NoPermissionError, match="; in its place: ".join(words) + ".*: load it"):
        LuaFunctions().load(valkey)
