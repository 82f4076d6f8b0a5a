"""The store on Redis: beliefs are fields of small hashes. Plain commands in a transaction read
them, and functions.lua writes them: as a Redis Function, or as a script (`calls.py`).

Reads and writes are atomic for each shard. All shards of an effect share one round trip. Nothing is
retried here: the outcome of a failed call is unknown, and the state machines determine it.

Plain commands read at half the cost of a function, because Lua allocates and hashes a string for
everything that passes through it. Compare-and-set needs a function, or one more round trip.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import redis
from redis.exceptions import MovedError

from stream_rater.adapters.redis import calls, client, encoding, login, metadata
from stream_rater.columns import arrays, player_column
from stream_rater.config.settings import Settings, origin
from stream_rater.contract import events, record
from stream_rater.contract.errors import Denied, StoreTrouble
from stream_rater.pipeline.ports import Application, Position, Priors, StoredShard
from stream_rater.rating.record import HEADER_SIZE

NO_CONNECTION = " connecting to "  # A part of the client's message if no connection could be made.
LOST = redis.ConnectionError, redis.TimeoutError  # After these, another server may be the master.
NO_HEADER = bytes(HEADER_SIZE)
POSITION = "applied", "start", "fresh", "epoch", "tail"

Values = Sequence[Sequence[bytes | None]]  # The values that each command read.
_Read = tuple[int, Position, arrays.Ints, Values]
"""A shard, its position, the index of the player of each value, and the values."""


def _reason(error: Exception) -> str:
    """The error of Redis without the command, which contains ids and binary data."""
    if isinstance(error, MovedError):
        return "redis: this is a node of a Redis Cluster: set STREAM_RATER_REDIS_CLUSTER=true"
    return f"redis: {str(error).rpartition(' caused error: ')[2]}"


def _beliefs_on(server: client.Client) -> Iterator[list[tuple[record.Player, bytes]]]:
    """Yield the beliefs on one server, in batches."""
    # The pattern leaves out REBUILT, whose ladder is empty.
    keys = server.scan_iter(match="{*}:belief:?*:*", count=10_000)
    while batch := list(itertools.islice(keys, 1000)):
        pipeline = server.pipeline(transaction=False)
        for key in batch:
            pipeline.hgetall(key)
        yield [
            ((encoding.ladder_of(key.decode()), player.decode("utf-8", "surrogatepass")), data)
            for key, stored in zip(batch, pipeline.execute(), strict=True)
            for player, data in stored.items()
        ]


def _position(reply: Sequence[bytes | None]) -> Position:
    applied, start, fresh, epoch, tail = reply
    of, _, checksum = (tail or b"").partition(b":")
    known = int(checksum) if checksum and of == applied else None
    return Position(int(applied or 0), int(start or 0), fresh or b"", epoch or b"", known)


def _tail(position: Position) -> bytes:
    """The field `tail`: `applied` and the checksum of the record before it; empty if unknown."""
    return b"" if position.tail is None else b"%d:%d" % (position.applied, position.tail)


@cache
def _read_position(key: str) -> bytes:
    """The encoded command that reads a shard's position. `key` is the key of the position."""
    words = "HMGET", key, *POSITION
    return calls.encode_command(len(words), calls.bulk(*words))


def _headers(order: arrays.Ints, values: Values) -> bytes:
    """The headers of the records, in the order of the players; zeros where there is no record."""
    found = [NO_HEADER] * len(order)
    for i, value in zip(order.tolist(), itertools.chain.from_iterable(values), strict=True):
        if value:
            found[i] = value[:HEADER_SIZE]
    return b"".join(found)


def _column(order: arrays.Ints, values: Values) -> player_column.RecordColumn:
    """The values in the order of the players, as a column."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return player_column.RecordColumn.of([*itertools.chain.from_iterable(values)]).take(place)


class RedisStore:
    """Reads and writes positions and beliefs. The methods raise StoreTrouble or Denied."""

    def __init__(self, settings: Settings) -> None:
        self._client = client.connect(settings)
        self._caller = calls.Caller(self._client, settings)
        self._functions = calls.LuaFunctions()
        self._login = login.login_of(settings)
        self._origin = origin("redis", settings.redis)
        self._buckets = settings.buckets
        self.layout = metadata.StoreMetadata(self._client, self._guard)
        self.check_layout = self.layout.check
        self.checkpoints = RedisCheckpoints(self._client, self._guard)
        self.expected_layout: Mapping[str, str] | None = None
        """The layout that each new master must have. None: new masters are not checked."""
        self._masters_checked = 0

    def prepare(self) -> list[str]:
        """Check the servers' settings and load functions.lua. Returns warnings, one line each.
        Raises StoreMismatch if a server would delete ratings, StoreTrouble, or Denied."""
        found = self._guard(lambda: [*map(client.check_server, client.servers(self._client))])
        self._guard(self._load_functions)
        return list(dict.fromkeys(itertools.chain(*found)))

    def _load_functions(self) -> None:
        for server in client.servers(self._client):
            self._functions.load(server)

    @property
    def functions(self) -> str:
        """How functions.lua is run, in one line; known once it was loaded or called."""
        if not self._functions.refusal:
            return "redis: writes by FCALL, as a function"
        return f"redis: writes by EVALSHA, as a script, because: {self._functions.refusal}"

    def _check_master(self) -> None:
        """Check settings and layout of a master that was found after the start, before anything is
        read or written there. Its positions and epochs are compared by the state machines, which
        start over because the first call fails."""
        if (masters := self._caller.dialer.masters) != self._masters_checked:
            if self.expected_layout is not None:
                self.prepare()
                self.check_layout(self.expected_layout)
            self._masters_checked = masters

    def read_priors(self, players: Mapping[int, player_column.PlayerColumn]) -> dict[int, Priors]:
        """The `applied`, the epoch and the players' belief headers of each shard."""
        return {
            shard: Priors(position.applied, _headers(order, values), position.epoch)
            for shard, position, order, values in self._read(players)
        }

    def read(self, players: Mapping[int, player_column.PlayerColumn]) -> dict[int, StoredShard]:
        """The position and the players' whole records of each shard."""
        return {
            shard: StoredShard(position, _column(order, values))
            for shard, position, order, values in self._read(players)
        }

    def _read(self, players: Mapping[int, player_column.PlayerColumn]) -> Iterator[_Read]:
        """The position and the players' records of each shard, read atomically for each shard."""
        asked = [encoding.encode_reads(n, own, self._buckets) for n, own in players.items()]
        keys = map(encoding.position_key, players)
        batches = [
            calls.CallBatch(key, (_read_position(key), each.data), 1 + each.commands)
            for key, each in zip(keys, asked, strict=True)
        ]
        self._check_master()
        replies = self._guard(lambda: self._caller.call_batches(batches))
        for shard, each, (position, *values) in zip(players, asked, replies, strict=True):
            yield shard, _position(position), each.order, values

    def apply(
        self, applications: Mapping[int, Application], on_sent: Callable[[], object] = lambda: None
    ) -> dict[int, bool]:
        """Write to each shard by compare-and-set; by shard, whether it was written. `on_sent` runs
        while Redis works."""
        self._check_master()
        called = itertools.starmap(self._call, applications.items())
        replies = self._guard(lambda: self._caller.call(self._functions, called, on_sent))
        return {shard: reply == 1 for shard, reply in zip(applications, replies, strict=True)}

    def _call(self, shard: int, application: Application) -> calls.Call:
        """A call of functions.lua: every key that it touches, declared, and the arguments."""
        position, beliefs = application.position, application.beliefs
        packed = encoding.encode_writes(shard, beliefs, self._buckets)
        key = encoding.position_key(shard)
        # ARGV of functions.lua: 1 start, 2 applied, 3 fresh, 4 number of beliefs by hash, 5 epoch,
        # 6 absent, 7 tail; then the beliefs.
        arguments = (
            b"%d" % position.start, b"%d" % position.applied, position.fresh, packed.counts,
            position.epoch, b"" if application.absent is None else b"%d" % application.absent,
            _tail(position),
        )  # fmt: skip
        words = 1 + packed.hashes + len(arguments) + 2 * len(beliefs)
        data = calls.bulk(key), packed.keys, calls.bulk(*arguments), packed.beliefs
        return calls.Call(key, 1 + packed.hashes, words, data)

    def encoding(self, shard: int, player: record.Player) -> str:
        """Redis' encoding of the hash of a player's belief; empty if it does not return it."""
        key = encoding.belief_key(shard, player[0], player[1].encode(), self._buckets)
        try:
            found: Any = self._client.object("encoding", key)
        except client.FAILURES:  # used for a metric only
            return ""
        return found.decode() if found else ""

    def _guard(self, action: Any) -> Any:
        """Run an action, and convert the exceptions of Redis into StoreTrouble or Denied."""
        try:
            return action()
        except client.FAILURES as error:
            if client.is_denial(error) and client.is_final(error, self._login):
                raise Denied(_reason(error)) from None
            if "Function not found" in str(error):
                self._guard(self._load_functions)
            lost = self._caller.dialer.has_sentinels and isinstance(error, LOST)
            if lost or isinstance(error, redis.ReadOnlyError):
                self._guard(self._caller.rediscover)
            where = f" {self._origin}" if NO_CONNECTION in str(error) else ""
            raise StoreTrouble(f"{_reason(error)}{where}", client.cause_of(error)) from None

    def beliefs(self) -> Iterator[list[tuple[record.Player, bytes]]]:
        """Yield every belief in the store, in batches; a player may appear twice."""
        for server in self._guard(lambda: client.servers(self._client)):
            batches = _beliefs_on(server)
            while (batch := self._guard(partial(next, batches, None))) is not None:
                yield batch

    def close(self) -> None:
        """Close the connections."""
        self._caller.close()
        self._client.close()


# --- checkpoints ----------------------------------------------------------------------------------

CHECKPOINT_KEYS = "stream-rater:checkpoint*"  # A pattern of all keys of checkpoints.


def checkpoints_key(ladder: str) -> str:
    """The hash with the heads of a ladder's checkpoints."""
    return f"stream-rater:checkpoints:{events.escape(ladder)}"


def checkpoint_piece_key(ladder: str, name: str, number: int) -> str:
    """A piece of a checkpoint."""
    return f"stream-rater:checkpoint:{events.escape(ladder)}:{name}:{number}"


class RedisCheckpoints:
    """The checkpoints of ladders, which are a cache: no caller waits for a Redis that is full,
    read-only or slow. A call that fails with StoreTrouble says so by its result, and `on_failure`
    gets the reason; Denied is raised, and only `drop_all` raises StoreTrouble. `guard` raises both
    in place of Redis' errors. `rebuild` keeps checkpoints: each knows what it depends on."""

    on_failure: Callable[[str], None]  # Receives the reason of each call that fails.

    def __init__(self, connected: "redis.Redis", guard: Callable[[Callable[[], Any]], Any]) -> None:
        self._client, self._guard = connected, guard
        self.on_failure = lambda _: None

    def heads(self, ladder: str) -> Mapping[str, bytes]:
        """The heads of a ladder's checkpoints, by name; none if they cannot be read."""
        _, stored = self._call(self._client.hgetall, checkpoints_key(ladder))
        return {name.decode(): head for name, head in (stored or {}).items()}

    def read(self, ladder: str, name: str, number: int) -> bytes | None:
        """A piece; None if it is not there, or cannot be read."""
        piece: bytes | None
        _, piece = self._call(self._client.get, checkpoint_piece_key(ladder, name, number))
        return piece

    def write(self, ladder: str, name: str, number: int, data: bytes) -> bool:
        """Write a piece. Returns whether the write certainly succeeded."""
        return self._call(self._client.set, checkpoint_piece_key(ladder, name, number), data)[0]

    def keep(self, ladder: str, name: str, head: bytes) -> bool:
        """Write a head. Returns whether the write certainly succeeded."""
        return self._call(self._client.hset, checkpoints_key(ladder), name, head)[0]

    def drop(self, ladder: str, name: str, pieces: int) -> bool:
        """Delete a checkpoint with this many pieces. Returns whether that certainly succeeded."""
        for number in range(pieces):
            key = checkpoint_piece_key(ladder, name, number)
            if not self._call(self._client.unlink, key)[0]:
                return False
        return self._call(self._client.hdel, checkpoints_key(ladder), name)[0]

    def drop_all(self) -> None:
        """Delete all checkpoints. They contain ids of players, so a failure raises StoreTrouble."""
        for server in client.servers(self._client):
            keys: Any = partial(list, server.scan_iter(match=CHECKPOINT_KEYS, count=10_000))
            for key in self._guard(keys):
                self._guard(partial(self._client.unlink, key))

    def _call(self, command: Callable[..., Any], *given: Any) -> tuple[bool, Any]:
        """Run a command. Returns whether it succeeded, and its result."""
        try:
            return True, self._guard(partial(command, *given))
        except StoreTrouble as trouble:
            self.on_failure(str(trouble))
            return False, None
