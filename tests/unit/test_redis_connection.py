"""Questions to Redis from an event loop: answers are matched by their order, whatever is lost."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stream_rater.adapters.redis import connection
from stream_rater.adapters.redis.connection import AsyncClient, async_client
from stream_rater.cli.service import serve_api
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, StoreTrouble

Reply = Callable[[list[bytes]], bytes | None]


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    """The words of one command."""
    words = []
    for _ in range(int((await reader.readuntil(b"\r\n"))[1:])):
        size = int((await reader.readuntil(b"\r\n"))[1:])
        words.append((await reader.readexactly(size + 2))[:-2])
    return words


def commands_of(
    reply: Reply, story: Callable[[AsyncClient], Awaitable[None]], **more: Any
) -> list[list[bytes]]:
    """Play a story with a server that answers so; None: it closes the connection, empty: it says
    nothing. Returns the commands that it was sent."""
    commands: list[list[bytes]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                commands.append(await _command(reader))
                if (data := reply(commands[-1])) is None:
                    break
                writer.write(data)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def play() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        redis = async_client(
            Settings(redis=f"redis://127.0.0.1:{port}/{more.pop('db', 0)}", **more)
        )
        try:
            await story(redis)
        finally:
            await redis.close()
            server.close()

    asyncio.run(play())
    return commands


def echo(words: list[bytes]) -> bytes:
    """The last word."""
    return b"$%d\r\n%b\r\n" % (len(words[-1]), words[-1])


def test_many_at_once_and_some_who_leave() -> None:
    """Each gets its own answer, though others were cancelled before theirs came."""

    async def story(redis: AsyncClient) -> None:
        await redis.ask("GET", "first")
        tasks = [asyncio.ensure_future(redis.ask("GET", f"k{i}")) for i in range(200)]
        await asyncio.sleep(0)  # they are sent
        for task in tasks[::3]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for i, each in enumerate(found):
            if i % 3:
                assert each == b"k%d" % i
            else:
                assert isinstance(each, asyncio.CancelledError)

    assert len(commands_of(echo, story)) == 201


def test_who_asks_as_whom() -> None:
    """The user and the database of the settings, on each new connection."""

    async def story(redis: AsyncClient) -> None:
        await redis.ask("GET", "k")

    found = commands_of(echo, story, db=3, redis_username="ann", redis_password="s3cret")
    assert found == [[b"AUTH", b"ann", b"s3cret"], [b"SELECT", b"3"], [b"GET", b"k"]]


def test_errors_are_named() -> None:
    """By what Redis says; the connection stays, and the next answer is the next question's."""
    kinds = {
        b"-NOPERM No permissions to access a key\r\n": Denied,
        b"-WRONGPASS invalid username-password pair\r\n": Denied,
        b"-ERR ACL failure in script: x\r\n": Denied,
        b"-BUSY Redis is busy\r\n": StoreTrouble,
    }
    errors = [*kinds]

    async def story(redis: AsyncClient) -> None:
        for number, (error, kind) in enumerate(kinds.items()):
            for _ in range(2):
                with pytest.raises(kind, match=error[1:5].decode()):
                    await redis.ask("BAD", str(number))
                assert await redis.ask("GET", "good") == b"good"

    commands_of(lambda words: errors[int(words[-1])] if words[0] == b"BAD" else echo(words), story)


def test_a_denied_greeting() -> None:
    """Nothing is asked by somebody else than the user."""

    async def story(redis: AsyncClient) -> None:
        with pytest.raises(Denied, match="WRONGPASS"):
            await redis.ask("GET", "k")

    found = commands_of(lambda _: b"-WRONGPASS no\r\n", story, redis_password="x")
    assert found == [[b"AUTH", b"x"]]


def test_a_lost_connection() -> None:
    """All waiting questions fail, and the next one makes another connection."""

    async def story(redis: AsyncClient) -> None:
        asked_at_once = [redis.ask("GET", each) for each in ("a", "end", "b")]
        found = await asyncio.gather(*asked_at_once, return_exceptions=True)
        assert found[0] == b"a"
        assert [type(each) for each in found[1:]] == [StoreTrouble, StoreTrouble]
        assert await redis.ask("GET", "c") == b"c"

    commands_of(lambda words: None if words[-1] == b"end" else echo(words), story)


def test_a_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting questions fail after a while. As long as answers come, none of them fails."""
    monkeypatch.setattr(connection, "TIMEOUT_S", 0.05)

    async def story(redis: AsyncClient) -> None:
        assert await redis.ask("GET", "a") == b"a"
        with pytest.raises(StoreTrouble):
            await asyncio.wait_for(redis.ask("GET", "silence"), 10.0)
        assert await redis.ask("GET", "b") == b"b"

    commands_of(lambda words: b"" if words[-1] == b"silence" else echo(words), story)


@contextmanager
def _nobody() -> Iterator[str]:
    """An address where nobody listens."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{free.getsockname()[1]}"


def test_no_server() -> None:
    """The question fails at once."""

    async def story(address: str) -> None:
        with pytest.raises(StoreTrouble, match="redis: "):
            await async_client(Settings(redis=address)).ask("GET", "a")

    with _nobody() as address:
        asyncio.run(story(address))


def test_addresses_that_make_no_sense() -> None:
    """They are refused before anything is asked, and `serve` blames no other setting."""
    for given, why in (
        (Settings(redis="a:1,b:2"), "several addresses mean a cluster"),
        (Settings(redis="a:1,b:x", redis_cluster=True), "invalid literal"),
        (Settings(redis="redis://a:1/3", redis_cluster=True), "only database 0"),
        (Settings(redis="http://a:1"), "redis 'http://a:1': "),
    ):
        with pytest.raises(BadConfiguration, match=why) as refused:
            async_client(given)
        with pytest.raises(BadConfiguration) as ended:
            serve_api(given)
        assert str(ended.value) == str(refused.value)
