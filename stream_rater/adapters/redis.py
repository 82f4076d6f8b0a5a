"""The store on Redis: beliefs in small hashes, read in transactions, written by a Redis Function.

One of either a shard, all shards of an effect in one round trip. Neither is retried here: what a
failed call did is unknown, and the state machines know how to find out.

Plain commands read at half the price of a function, whose language makes and hashes a string of
all that passes; compare and set takes a function, or one round trip more.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import redis
from redis.exceptions import MovedError, NoPermissionError

from stream_rater.adapters.redis_checks import check
from stream_rater.adapters.redis_client import (
    FAILURES,
    Batch,
    Call,
    Client,
    at_one_instant,
    bulk,
    called,
    connect,
    find_again,
    nothing,
    of_words,
    servers,
)
from stream_rater.adapters.redis_encoding import reads, writes
from stream_rater.adapters.store_keys import belief_key, position_key
from stream_rater.adapters.store_metadata import Layout, LayoutMismatch
from stream_rater.columns.arrays import Ints
from stream_rater.config import Settings
from stream_rater.contract.record import Player
from stream_rater.pipeline.ports import Application, Denied, Held, Position, Priors, StoreTrouble
from stream_rater.rating.record import HEADER_SIZE

LIBRARY = "stream_rater_4"
NO_HEADER = bytes(HEADER_SIZE)
POSITION = "applied", "start", "fresh"
DENIED_INSIDE = ("The user executing the script", "ACL failure in script", "because of: NOPERM")
"""How Redis 7.0, and later ones, tell that a function's user lacks a right, and how any of them
does of who may not end a transaction."""


def _reason(error: Exception) -> str:
    """What Redis said, without the command, which holds ids and binary data."""
    if isinstance(error, MovedError):
        return "redis: a node of a cluster: set STREAM_RATER_REDIS_CLUSTER=true"
    return f"redis: {str(error).rpartition(' caused error: ')[2]}"


def _load(server: Client, code: str) -> None:
    """Load the functions into one server, unless it has them."""
    if _loaded_code(server) is None:
        try:
            server.function_load(code, replace=False)
        except redis.ResponseError as error:
            if "already exists" not in str(error):  # another worker was quicker
                raise
    if _loaded_code(server) != code:
        raise LayoutMismatch(
            f"Redis has another {LIBRARY} than this release: "
            f"stop the other workers and run `redis-cli FUNCTION DELETE {LIBRARY}`"
        )


def _loaded_code(server: Client) -> str | None:
    libraries = server.function_list(library=LIBRARY, withcode=True)
    if not libraries:
        return None
    fields: list[Any] = libraries[0]
    code: bytes = dict(zip(fields[::2], fields[1::2], strict=True))[b"library_code"]
    return code.decode()


def _beliefs_on(server: Client) -> int:
    """How many beliefs one server holds."""
    keys = server.scan_iter(match="{*}:belief:?*:*", count=10_000)  # not of REBUILT's ladder
    total = 0
    while batch := list(itertools.islice(keys, 1000)):
        pipeline = server.pipeline(transaction=False)
        for key in batch:
            pipeline.hlen(key)
        total += sum(pipeline.execute())
    return total


def _position(reply: Sequence[bytes | None]) -> Position:
    applied, start, fresh = reply
    return Position(int(applied or 0), int(start or 0), fresh or b"")


@cache
def _where(shard: int) -> bytes:
    """The command that reads a shard's position."""
    return of_words(2 + len(POSITION), bulk("HMGET", position_key(shard), *POSITION))


def _headers(records: Sequence[bytes | None]) -> bytes:
    return b"".join([each[:HEADER_SIZE] if each else NO_HEADER for each in records])


def _in_order(order: Ints, values: Sequence[Sequence[bytes | None]]) -> list[bytes | None]:
    """What is told in this order of the players, in the players' own."""
    found: list[bytes | None] = [None] * len(order)
    for i, value in zip(order.tolist(), itertools.chain.from_iterable(values), strict=True):
        found[i] = value
    return found


class RedisStore:
    """Positions and beliefs of all shards."""

    def __init__(self, settings: Settings) -> None:
        self._client = connect(settings)
        self._buckets = settings.buckets
        self.layout = Layout(self._client, self._guard)

    # --- at start ---

    def prepare(self) -> list[str]:
        """Check the servers' settings and load the functions; returns warnings, a line each.

        StoreMismatch where a server would delete ratings.
        """
        found = self._guard(lambda: [check(server) for server in servers(self._client)])
        self._guard(self._load_functions)
        return list(dict.fromkeys(itertools.chain(*found)))

    def _load_functions(self) -> None:
        code = resources.files(__package__).joinpath("functions.lua").read_text()
        for server in servers(self._client):
            _load(server, code)

    def check_layout(self, layout: Mapping[str, str]) -> None:
        """Remember how the store is laid out, or refuse one laid out otherwise."""
        self.layout.check(layout)

    # --- the protocol's calls ---

    def read_priors(self, players: Mapping[int, Sequence[Player]]) -> dict[int, Priors]:
        """`applied` and headers, by shard."""
        return {
            shard: Priors(position.applied, _headers(records))
            for shard, (position, records) in self._read(players).items()
        }

    def read(self, players: Mapping[int, Sequence[Player]]) -> dict[int, Held]:
        """Positions and whole records, by shard."""
        return {shard: Held(*found) for shard, found in self._read(players).items()}

    def _read(
        self, players: Mapping[int, Sequence[Player]]
    ) -> dict[int, tuple[Position, list[bytes | None]]]:
        """Of each shard, its position and the players' records, of one instant."""
        asked = [reads(shard, wanted, self._buckets) for shard, wanted in players.items()]
        batches = [
            Batch(position_key(shard), (_where(shard), each.data), 1 + each.commands)
            for shard, each in zip(players, asked, strict=True)
        ]
        replies = self._guard(lambda: at_one_instant(self._client, batches))
        return {
            shard: (_position(position), _in_order(each.order, values))
            for shard, each, (position, *values) in zip(players, asked, replies, strict=True)
        }

    def apply(
        self, applications: Mapping[int, Application], meanwhile: Callable[[], None] = nothing
    ) -> dict[int, bool]:
        """Compare and set, by shard; `meanwhile` has its time while Redis works."""
        calls = itertools.starmap(self._call, applications.items())
        function = f"{LIBRARY}_apply"
        replies = self._guard(lambda: called(self._client, function, calls, meanwhile))
        return {shard: reply == 1 for shard, reply in zip(applications, replies, strict=True)}

    def _call(self, shard: int, application: Application) -> Call:
        """What the function is called with: every key that it touches, declared, and arguments."""
        position, packed = application.position, writes(shard, application.beliefs, self._buckets)
        key = position_key(shard)
        return Call(
            key,
            1 + packed.hashes,
            bulk(key) + packed.keys,
            (b"%d" % position.start, b"%d" % position.applied, position.fresh, packed.beliefs),
        )

    def encoding(self, shard: int, player: Player) -> str:
        """How Redis holds the hash with this player's belief; empty where it does not tell."""
        ladder, name = player
        key = belief_key(shard, ladder, name.encode(), self._buckets)
        try:
            told: Any = self._client.object("encoding", key)
        except FAILURES:  # nothing depends on it
            return ""
        return told.decode() if told else ""

    def _guard(self, action: Any) -> Any:
        """Run an action; whatever Redis raises is StoreTrouble, or Denied."""
        try:
            return action()
        except (redis.AuthenticationError, NoPermissionError) as error:
            raise Denied(_reason(error)) from None
        except redis.ResponseError as error:
            if any(told in str(error) for told in DENIED_INSIDE):
                raise Denied(_reason(error)) from None
            if "Function not found" in str(error):
                self._guard(self._load_functions)
            if isinstance(error, redis.ReadOnlyError):
                self._guard(lambda: find_again(self._client))
            raise StoreTrouble(_reason(error)) from None
        except FAILURES as error:
            raise StoreTrouble(_reason(error)) from None

    # --- for operators ---

    def count_beliefs(self) -> int:
        """How many beliefs the store holds in all."""

        counted: int = self._guard(lambda: sum(map(_beliefs_on, servers(self._client))))
        return counted

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
