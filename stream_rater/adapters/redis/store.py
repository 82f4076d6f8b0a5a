"""The store on Redis: beliefs are fields of small hashes. Plain commands in a transaction read
them, and functions.lua writes them: as a Redis Function, or as a script (`calls.py`).

Reads and writes are atomic for each shard. All shards of an effect share one round trip. Nothing is
retried here: the outcome of a failed call is unknown, and the state machines determine it.

Plain commands read at half the cost of a function, because Lua allocates and hashes a string for
everything that passes through it. Compare-and-set needs a function, or one more round trip.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import redis
from redis.exceptions import MovedError

from stream_rater.adapters.redis import calls, client
from stream_rater.adapters.redis.checkpoints import RedisCheckpoints
from stream_rater.adapters.redis.encoding import (
    belief_key,
    encode_reads,
    encode_writes,
    ladder_of,
    position_key,
)
from stream_rater.adapters.redis.login import login_of
from stream_rater.adapters.redis.metadata import StoreMetadata
from stream_rater.columns.arrays import Ints
from stream_rater.columns.player_column import PlayerColumn, RecordColumn
from stream_rater.config.settings import Settings, origin
from stream_rater.contract.errors import Denied, StoreTrouble
from stream_rater.contract.record import Player
from stream_rater.pipeline.ports import Application, Position, Priors, StoredShard
from stream_rater.rating.record import HEADER_SIZE

NO_CONNECTION = " connecting to "
"""A part of the client's message that shows that no connection could be made."""
LOST = redis.ConnectionError, redis.TimeoutError
"""Errors after which sentinels may name another master."""
NO_HEADER = bytes(HEADER_SIZE)
POSITION = "applied", "start", "fresh", "epoch", "tail"

Values = Sequence[Sequence[bytes | None]]  # The values that each command read.
_Read = tuple[int, Position, Ints, Values]
"""A shard, its position, the index of the player of each value, and the values."""


def _reason(error: Exception) -> str:
    """The error of Redis without the command, which contains ids and binary data."""
    if isinstance(error, MovedError):
        return "redis: this is a node of a Redis Cluster: set STREAM_RATER_REDIS_CLUSTER=true"
    return f"redis: {str(error).rpartition(' caused error: ')[2]}"


def _belief_keys(server: client.Client) -> Iterator[list[bytes]]:
    """Yield the keys of hashes of beliefs on one server, in batches."""
    # The pattern leaves out REBUILT, whose ladder is empty.
    keys = server.scan_iter(match="{*}:belief:?*:*", count=10_000)
    while batch := list(itertools.islice(keys, 1000)):
        yield batch


def _count_on(ladders: Collection[str] | None, server: client.Client) -> int:
    """The number of beliefs on one server, or of those of some ladders."""
    total = 0
    for batch in _belief_keys(server):
        pipeline = server.pipeline(transaction=False)
        for key in batch:
            if ladders is None or ladder_of(key.decode()) in ladders:
                pipeline.hlen(key)
        total += sum(pipeline.execute())
    return total


def _beliefs_on(server: client.Client) -> Iterator[list[tuple[Player, bytes]]]:
    """Yield the beliefs on one server, in batches."""
    for batch in _belief_keys(server):
        pipeline = server.pipeline(transaction=False)
        for key in batch:
            pipeline.hgetall(key)
        yield [
            ((ladder_of(key.decode()), player.decode("utf-8", "surrogatepass")), data)
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
def _read_position(shard: int) -> bytes:
    """The encoded command that reads a shard's position."""
    words = "HMGET", position_key(shard), *POSITION
    return calls.encode_command(len(words), calls.bulk(*words))


def _headers(records: Sequence[bytes | None]) -> bytes:
    return b"".join([each[:HEADER_SIZE] if each else NO_HEADER for each in records])


def _in_order(order: Ints, values: Values) -> list[bytes | None]:
    """Move values from the order of the commands to the order of the players."""
    found: list[bytes | None] = [None] * len(order)
    for i, value in zip(order.tolist(), itertools.chain.from_iterable(values), strict=True):
        found[i] = value
    return found


def _column(order: Ints, values: Values) -> RecordColumn:
    """The values in the order of the players, as a column."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return RecordColumn.of([*itertools.chain.from_iterable(values)]).take(place)


class RedisStore:
    """Reads and writes positions and beliefs. The methods raise StoreTrouble or Denied."""

    def __init__(self, settings: Settings) -> None:
        self._client = client.connect(settings)
        self._caller = calls.Caller(self._client, settings)
        self._functions = calls.LuaFunctions()
        self._login = login_of(settings)
        self._origin = origin("redis", settings.redis)
        self._buckets = settings.buckets
        self.layout = StoreMetadata(self._client, self._guard)
        self.checkpoints = RedisCheckpoints(self._client, self._guard)
        self.expected_layout: Mapping[str, str] | None = None
        """The layout that each new master must have. None: new masters are not checked."""
        self._masters_checked = 0

    # --- at start ---

    def prepare(self) -> list[str]:
        """Check the servers' settings and load functions.lua. Returns warnings, one line each.

        Raises StoreMismatch if a server would delete ratings, StoreTrouble, or Denied.
        """
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

    def check_layout(self, layout: Mapping[str, str]) -> None:
        """Store the layout on first use. Raises LayoutMismatch if another one is stored."""
        self.layout.check(layout)

    def _check_master(self) -> None:
        """Check settings and layout of a master that was found after the start, before anything is
        read or written there. Its positions and epochs are compared by the state machines, which
        start over because the first call fails."""
        if (masters := self._caller.dialer.masters) != self._masters_checked:
            if self.expected_layout is not None:
                self.prepare()
                self.check_layout(self.expected_layout)
            self._masters_checked = masters

    # --- the protocol's calls ---

    def read_priors(self, players: Mapping[int, PlayerColumn]) -> dict[int, Priors]:
        """The `applied` and the players' belief headers of each shard."""
        return {
            shard: Priors(position.applied, _headers(_in_order(order, values)))
            for shard, position, order, values in self._read(players)
        }

    def read(self, players: Mapping[int, PlayerColumn]) -> dict[int, StoredShard]:
        """The position and the players' whole records of each shard."""
        return {
            shard: StoredShard(position, _column(order, values))
            for shard, position, order, values in self._read(players)
        }

    def _read(self, players: Mapping[int, PlayerColumn]) -> Iterator[_Read]:
        """The position and the players' records of each shard, read atomically for each shard."""
        asked = [encode_reads(shard, wanted, self._buckets) for shard, wanted in players.items()]
        batches = [
            calls.CallBatch(position_key(n), (_read_position(n), each.data), 1 + each.commands)
            for n, each in zip(players, asked, strict=True)
        ]
        self._check_master()
        replies = self._guard(lambda: self._caller.call_batches(batches))
        for shard, each, (position, *values) in zip(players, asked, replies, strict=True):
            yield shard, _position(position), each.order, values

    def apply(
        self, applications: Mapping[int, Application], on_sent: Callable[[], None] = calls.nothing
    ) -> dict[int, bool]:
        """Write to each shard by compare-and-set, if it can. `on_sent` runs while Redis works."""
        self._check_master()
        called = itertools.starmap(self._call, applications.items())
        replies = self._guard(lambda: self._caller.call(self._functions, called, on_sent))
        return {shard: reply == 1 for shard, reply in zip(applications, replies, strict=True)}

    def _call(self, shard: int, application: Application) -> calls.Call:
        """A call of functions.lua: every key that it touches, declared, and the arguments."""
        position, beliefs = application.position, application.beliefs
        packed = encode_writes(shard, beliefs, self._buckets)
        key = position_key(shard)
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

    def encoding(self, shard: int, player: Player) -> str:
        """Redis' encoding of the hash of a player's belief; empty if it does not return it."""
        ladder, name = player
        key = belief_key(shard, ladder, name.encode(), self._buckets)
        try:
            encoding: Any = self._client.object("encoding", key)
        except client.FAILURES:  # used for a metric only
            return ""
        return encoding.decode() if encoding else ""

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

    # --- for operators ---

    def count_beliefs(self, ladders: Collection[str] | None = None) -> int:
        """The number of beliefs in the store, or of those of some ladders."""
        count = partial(_count_on, ladders)
        counted: int = self._guard(lambda: sum(map(count, client.servers(self._client))))
        return counted

    def beliefs(self) -> Iterator[list[tuple[Player, bytes]]]:
        """Yield every belief in the store, in batches; a player may appear twice."""
        for server in self._guard(lambda: client.servers(self._client)):
            batches = _beliefs_on(server)
            while (batch := self._guard(partial(next, batches, None))) is not None:
                yield batch

    def close(self) -> None:
        """Close the connections."""
        self._caller.close()
        self._client.close()
