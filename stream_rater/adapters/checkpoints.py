"""The checkpoints of ladders, in Redis. They may be deleted at any time: corrections then take
longer.

`rebuild` leaves them: a checkpoint says itself what it depends on.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import redis

from stream_rater.adapters.redis_client import servers
from stream_rater.adapters.store_keys import (
    CHECKPOINT_KEYS,
    checkpoint_piece_key,
    checkpoints_key,
)


class RedisCheckpoints:
    """Reads and writes heads and pieces of checkpoints. `guard` runs a call to Redis and turns its
    errors into StoreTrouble or Denied."""

    def __init__(self, client: "redis.Redis", guard: Callable[[Callable[[], Any]], Any]) -> None:
        self._client = client
        self._guard = guard

    def heads(self, ladder: str) -> Mapping[str, bytes]:
        """The heads of a ladder's checkpoints, by name."""
        held: dict[bytes, bytes] = self._call(self._client.hgetall, checkpoints_key(ladder))
        return {name.decode(): head for name, head in held.items()}

    def read(self, ladder: str, name: str, number: int) -> bytes | None:
        """A piece, or None."""
        piece: bytes | None = self._call(
            self._client.get, checkpoint_piece_key(ladder, name, number)
        )
        return piece

    def write(self, ladder: str, name: str, number: int, data: bytes) -> None:
        """Write a piece."""
        self._call(self._client.set, checkpoint_piece_key(ladder, name, number), data)

    def keep(self, ladder: str, name: str, head: bytes) -> None:
        """Write a head."""
        self._call(self._client.hset, checkpoints_key(ladder), name, head)

    def drop(self, ladder: str, name: str, pieces: int) -> None:
        """Delete a checkpoint with this many pieces."""
        for number in range(pieces):
            self._call(self._client.unlink, checkpoint_piece_key(ladder, name, number))
        self._call(self._client.hdel, checkpoints_key(ladder), name)

    def drop_all(self) -> None:
        """Delete the checkpoints of all ladders."""
        for server in servers(self._client):
            for key in self._call(list, server.scan_iter(match=CHECKPOINT_KEYS, count=10_000)):
                self._call(self._client.unlink, key)

    def _call(self, command: Callable[..., Any], *given: Any) -> Any:
        return self._guard(partial(command, *given))
