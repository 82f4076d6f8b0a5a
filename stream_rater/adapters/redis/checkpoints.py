"""The checkpoints of ladders, in Redis. They may be deleted at any time: corrections then take
longer.

They are a cache. If Redis is full, read-only or slow, nothing waits for them: a call that fails
reports it by its result, and `on_failure` receives the reason. Denied is raised.

`rebuild` leaves them, because each checkpoint records its own dependencies.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import redis

from stream_rater.adapters.redis.client import servers
from stream_rater.adapters.redis.keys import CHECKPOINT_KEYS, checkpoint_piece_key, checkpoints_key
from stream_rater.contract.errors import StoreTrouble


class RedisCheckpoints:
    """Reads and writes heads and pieces of checkpoints. `guard` runs a call to Redis and turns its
    errors into StoreTrouble or Denied."""

    on_failure: Callable[[str], None]
    """Receives the reason of each call that fails."""

    def __init__(self, client: "redis.Redis", guard: Callable[[Callable[[], Any]], Any]) -> None:
        self._client = client
        self._guard = guard
        self.on_failure = lambda _: None

    def heads(self, ladder: str) -> Mapping[str, bytes]:
        """The heads of a ladder's checkpoints, by name; none if they cannot be read."""
        stored: dict[bytes, bytes] = {}
        with self._reporting_failures():
            stored = self._call(self._client.hgetall, checkpoints_key(ladder))
        return {name.decode(): head for name, head in stored.items()}

    def read(self, ladder: str, name: str, number: int) -> bytes | None:
        """A piece; None if it is not there, or cannot be read."""
        piece: bytes | None = None
        with self._reporting_failures():
            piece = self._call(self._client.get, checkpoint_piece_key(ladder, name, number))
        return piece

    def write(self, ladder: str, name: str, number: int, data: bytes) -> bool:
        """Write a piece. Returns whether the write certainly succeeded."""
        with self._reporting_failures():
            self._call(self._client.set, checkpoint_piece_key(ladder, name, number), data)
            return True
        return False

    def keep(self, ladder: str, name: str, head: bytes) -> bool:
        """Write a head. Returns whether the write certainly succeeded."""
        with self._reporting_failures():
            self._call(self._client.hset, checkpoints_key(ladder), name, head)
            return True
        return False

    def drop(self, ladder: str, name: str, pieces: int) -> bool:
        """Delete a checkpoint with this many pieces. Returns whether that certainly succeeded."""
        with self._reporting_failures():
            for number in range(pieces):
                self._call(self._client.unlink, checkpoint_piece_key(ladder, name, number))
            self._call(self._client.hdel, checkpoints_key(ladder), name)
            return True
        return False

    def drop_all(self) -> None:
        """Delete the checkpoints of all ladders. A failure raises StoreTrouble, because checkpoints
        contain the ids of players."""
        for server in servers(self._client):
            for key in self._call(list, server.scan_iter(match=CHECKPOINT_KEYS, count=10_000)):
                self._call(self._client.unlink, key)

    @contextmanager
    def _reporting_failures(self) -> Iterator[None]:
        try:
            yield
        except StoreTrouble as trouble:
            self.on_failure(str(trouble))

    def _call(self, command: Callable[..., Any], *given: Any) -> Any:
        return self._guard(partial(command, *given))
