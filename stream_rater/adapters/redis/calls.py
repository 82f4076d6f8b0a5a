"""Calls functions.lua on the store's shards: as a Redis Function, or as a script where a server
refuses functions.

The calls of an effect take one round trip to each server. Commands are written, and replies read,
on connections of our own: redis-py offers no way to read several replies at once, and takes 0.9 us
to read one, where hiredis takes 0.16 us.

Some stores do not know Redis Functions (Redis 6, Dragonfly, KeyDB), and some hosted ones deny them.
EVALSHA then runs the same code, with the same keys and arguments. Both are the same compare-and-set
on the same hash, so workers of both kinds may work side by side on one store.

A function is part of the data. A script is not: a restart, a fail-over or SCRIPT FLUSH may forget
it. The server then answers NOSCRIPT and has run nothing, so the script is loaded and the call is
repeated within the same effect.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import resources
from typing import Any, NamedTuple

import redis
from redis.exceptions import AskError, ClusterDownError, NoPermissionError, NoScriptError

from stream_rater.adapters.redis.client import FAILURES, Client, cause_of, is_cluster, rediscover
from stream_rater.adapters.redis.connection import Dialer, RedisConnection
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LayoutMismatch, StoreTrouble

LIBRARY = "stream_rater_6"
APPLY = f"{LIBRARY}_apply"
CODE = resources.files(__package__).joinpath("functions.lua").read_text(encoding="utf-8")
"""The library, as FUNCTION LOAD takes it."""
REGISTRATION = f"redis.register_function{{function_name = '{APPLY}', callback = apply}}"
"""The last line of CODE."""
ABSENT = (
    "unknown command", "unsupported command", "command is not available",
    "engine 'lua' not found", "could not find scripting engine",
)  # fmt: skip
"""Parts of the answers, in lower case, of servers and proxies that do not know a command, and of a
Valkey without its module for Lua."""
CURE = (
    "ratings are written by Lua: allow FUNCTION and FCALL, or SCRIPT and EVALSHA "
    "(Valkey from 9.1 on may have Lua in a module: load it)"
)
NO_SCRIPT = 40 * "0"  # The name of a script that no server has.


_first, _, _rest = CODE.partition("\n")
_body, _registered, _after = _rest.rpartition(REGISTRATION)
assert _first.startswith("#!lua ") and _registered and not _after.strip(), "functions.lua"

SCRIPT = f"{_body}return apply(KEYS, ARGV)\n"
"""CODE for SCRIPT LOAD: without its first line, and with a call in place of the registration."""
SHA = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()
"""By which EVALSHA names SCRIPT."""


class LuaFunctions:
    """How functions.lua runs on a store: by FCALL, or by EVALSHA once it has refused functions."""

    def __init__(self) -> None:
        self.refusal = ""
        """Why functions are not used, as a server said it; empty while they are."""

    @property
    def command(self) -> tuple[str, str]:
        """The words with which a call begins."""
        return ("EVALSHA", SHA) if self.refusal else ("FCALL", APPLY)

    def load(self, server: Client) -> None:
        """Load the code into one server, unless it has it. Raises LayoutMismatch if it has other
        functions of this name, NoPermissionError if it runs neither functions nor scripts, and
        redis.RedisError."""
        if not self.refusal:
            try:
                _load_library(server)
            except redis.ResponseError as error:
                if not is_refused(error):
                    raise
                self.refusal = _said(error)
            else:
                return
        try:
            server.script_load(SCRIPT)
            server.evalsha(NO_SCRIPT, 0)
        except NoScriptError:
            return
        except redis.ResponseError as error:
            raise self.failure(error) from None

    def not_run(self, error: Exception) -> bool:
        """Whether the server certainly has not run the call that it answered so, and another try
        may succeed: the script must be loaded, or used in the place of the function."""
        if is_refused(error):
            self.refusal = self.refusal or _said(error)
            return True
        return isinstance(error, NoScriptError)

    def failure(self, reply: Any) -> Any:
        """A reply as it is; if it says that scripts are denied, too, an error with both reasons."""
        if not self.refusal or not _is_denied(reply, "'evalsha", "'script"):
            return reply
        return NoPermissionError(f"{self.refusal}; in its place: {_said(reply)}: {CURE}")


def _said(error: Exception) -> str:
    """The text of an error without the beginning of the command's arguments, which are data."""
    return str(error).partition(", with args")[0]


def is_refused(error: Exception) -> bool:
    """Whether a server refused a command about functions, so that nothing was done."""
    return _is_denied(error, "'fcall", "'function")


def _is_denied(error: Any, *commands: str) -> bool:
    """Whether an error says that a command is unknown, or that one of these is denied."""
    text = str(error).lower()
    if isinstance(error, NoPermissionError):
        return any(each in text for each in commands)
    return isinstance(error, redis.ResponseError) and any(each in text for each in ABSENT)


def _load_library(server: Client) -> None:
    if _loaded_code(server) is None:
        try:
            server.function_load(CODE, replace=False)
        except redis.ResponseError as error:
            if "already exists" not in str(error):  # another worker loaded them first
                raise
    if _loaded_code(server) != CODE:
        raise LayoutMismatch(
            f"Redis has a function library {LIBRARY} that differs from this release's: "
            f"stop the other workers and run `redis-cli FUNCTION DELETE {LIBRARY}`"
        )


def _loaded_code(server: Client) -> str | None:
    libraries = server.function_list(library=LIBRARY, withcode=True)
    if not libraries:
        return None
    fields: list[Any] = libraries[0]
    code: bytes = dict(zip(fields[::2], fields[1::2], strict=True))[b"library_code"]
    return code.decode()


# --- calls ----------------------------------------------------------------------------------------

SEND_BYTES = 2**16  # Commands are sent once this many bytes are buffered.
SLOT_ERRORS = (redis.ConnectionError, redis.TimeoutError, AskError, ClusterDownError)
"""Errors after which a cluster's slot may be on another node."""

Node = tuple[str, int] | None  # Host and port of a cluster's node; None: the only server.


class Call(NamedTuple):
    """A call of functions.lua."""

    key: str  # The first key; all others share its slot.
    declared: int  # The number of declared keys.
    words: int  # The number of declared keys and of arguments.
    data: tuple[bytes, ...]
    """The keys, the first one first, and the arguments, all as bulk strings (`bulk`)."""


class CallBatch(NamedTuple):
    """Commands that read keys of one slot atomically."""

    key: str  # A key in the slot of all keys.
    data: tuple[bytes, ...]  # The encoded commands.
    commands: int  # The number of commands.


class Caller:
    """Calls shards. `client` knows the nodes of a cluster; the connections are our own."""

    def __init__(self, client: Client, settings: Settings) -> None:
        """Makes no request."""
        self._client = client
        self.dialer = Dialer(settings)
        self._idle: defaultdict[Node, list[RedisConnection]] = defaultdict(list)

    def call(
        self,
        functions: LuaFunctions,
        calls: Iterable[Call],
        on_sent: Callable[[], object] = lambda: None,
    ) -> list[Any]:
        """Call functions.lua. Returns the replies. `on_sent` runs after the calls are sent and
        before the replies are read. A call that a server certainly has not run is repeated, as
        EVALSHA, after the script was loaded. Raises StoreTrouble if a cluster's slot has moved; the
        next call knows its new place."""
        with self._refreshing_slots(), _Connections(self._borrowed) as connections:
            asked = []
            for call in calls:
                asked.append((connections.to(self._node_of(call.key)), call))
                connections.buffer(asked[-1][0], _encode_call(functions, call))
            connections.send()
            on_sent()
            found = [connection.answer() for connection, _ in asked]
            again = [
                i for i, reply in enumerate(found)
                if isinstance(reply, Exception) and functions.not_run(reply)
            ]  # fmt: skip
            if again:
                _raise_first(each for i, each in enumerate(found) if i not in again)
                repeated = _repeat(connections, functions, [asked[i] for i in again])
                for i, reply in zip(again, repeated, strict=True):
                    found[i] = reply
            _raise_first(map(functions.failure, found))
            return found

    def call_batches(self, batches: Iterable[CallBatch]) -> list[list[Any]]:
        """Run each batch atomically, all of them in one round trip to each server. Returns the
        replies of each batch. Raises StoreTrouble as `call` does."""
        with self._refreshing_slots(), _Connections(self._borrowed) as connections:
            asked = []
            for batch in batches:
                connection = connections.to(self._node_of(batch.key))
                alone = batch.commands == 1  # several commands are a transaction
                connections.buffer(connection, batch.data if alone else (MULTI, *batch.data, EXEC))
                asked.append((connection, batch.commands))
            connections.send()
            return [_replies(connection, commands) for connection, commands in asked]

    def rediscover(self) -> None:
        """Look the servers up again: after a failover, a name may lead to another one."""
        self.close()
        rediscover(self._client)

    def close(self) -> None:
        """Close the connections. The next call opens others."""
        for connections in self._idle.values():
            while connections:
                connections.pop().close()

    def _node_of(self, key: str) -> Node:
        if not is_cluster(self._client):
            return None
        node = self._client.get_node_from_key(key)
        return node.host, node.port

    @contextmanager
    def _borrowed(self, node: Node) -> Iterator[RedisConnection]:
        """Take a connection. After a failure it is closed, because late replies may follow."""
        if self.dialer.has_moved():
            self.rediscover()  # the new connection notices it
        idle = self._idle[node]
        connection = idle.pop() if idle else None
        if connection is not None and not connection.is_quiet():  # closed by the server, perhaps
            connection.close()
            connection = None
        if connection is None:
            connection = self.dialer.connect(*(node or (None, None)))
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        idle.append(connection)

    @contextmanager
    def _refreshing_slots(self) -> Iterator[None]:
        """Convert a failure of a moved slot into StoreTrouble, and look the slots up again."""
        try:
            yield
        except SLOT_ERRORS as error:
            if not is_cluster(self._client) or isinstance(error, redis.AuthenticationError):
                raise
            with suppress(*FAILURES):
                self.rediscover()
            moved = "a slot moved: " if isinstance(error, AskError) else ""
            raise StoreTrouble(f"redis: {moved}{error}", cause_of(error)) from None


class _Connections(ExitStack):
    """One connection to each server that is asked, kept until the end of the block."""

    def __init__(self, borrowed: Callable[[Node], Any]) -> None:
        super().__init__()
        self._borrowed = borrowed
        self._connections: dict[Node, RedisConnection] = {}
        self._unsent: dict[RedisConnection, bytearray] = {}

    def to(self, node: Node) -> RedisConnection:
        """The connection to a server."""
        if node not in self._connections:
            self._connections[node] = self.enter_context(self._borrowed(node))
        return self._connections[node]

    def buffer(self, connection: RedisConnection, pieces: Iterable[bytes]) -> None:
        """Buffer bytes for a connection, and send them once there are many. Each system call may
        wake Redis, which then works on many commands at a time."""
        unsent = self._unsent.setdefault(connection, bytearray())
        for piece in pieces:
            unsent += piece
        if len(unsent) >= SEND_BYTES:
            del self._unsent[connection]
            connection.send(unsent)

    def send(self) -> None:
        """Send what is still buffered."""
        for connection, unsent in self._unsent.items():
            connection.send(unsent)
        self._unsent.clear()


def _repeat(
    connections: _Connections, functions: LuaFunctions,
    asked: Sequence[tuple[RedisConnection, Call]],
) -> list[Any]:  # fmt: skip
    """Load the script on each connection, and call again. Returns the replies, maybe errors."""
    loading = encode_command(3, bulk("SCRIPT", "LOAD", SCRIPT))
    without_script = dict.fromkeys(connection for connection, _ in asked)
    for connection in without_script:
        connections.buffer(connection, [loading])
    for connection, call in asked:
        connections.buffer(connection, _encode_call(functions, call))
    connections.send()
    _raise_first(functions.failure(connection.answer()) for connection in without_script)
    return [connection.answer() for connection, _ in asked]


def _raise_first(replies: Iterable[Any]) -> None:
    for each in replies:
        if isinstance(each, Exception):
            raise each


# --- encoding -------------------------------------------------------------------------------------


def _encode_call(functions: LuaFunctions, call: Call) -> tuple[bytes, ...]:
    opening = bulk(*functions.command, str(call.declared))
    return encode_command(3 + call.words, opening), *call.data


def bulk(*words: str | bytes) -> bytes:
    """Encode words of a command as bulk strings."""
    encoded = [word.encode() if isinstance(word, str) else word for word in words]
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded])


def encode_command(count: int, *words: bytes) -> bytes:
    """Encode a command of `count` words, which the given bulk strings hold."""
    return b"*%d\r\n%b" % (count, b"".join(words))


MULTI, EXEC = encode_command(1, bulk("MULTI")), encode_command(1, bulk("EXEC"))


def _replies(connection: RedisConnection, commands: int) -> list[Any]:
    """The replies to a batch of this many commands."""
    if commands == 1:
        return list(connection.replies(1))
    # OK for MULTI, QUEUED for each command, and the replies of EXEC
    *_, replies = connection.replies(1 + commands + 1)
    _raise_first(replies)
    return list(replies)
