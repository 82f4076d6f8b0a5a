"""The checkpoints of ladders, in Redis. They may be deleted at any time: corrections then take
longer.

They are a cache. If Redis is full, read-only or slow, nothing waits for them: a call that fails
reports it by its result, and `on_failure` receives the reason. Denied is raised.

`rebuild` leaves them, because each checkpoint records its own dependencies.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import redis

from stream_rater.adapters.redis.client import servers
from stream_rater.contract.errors import StoreTrouble
from stream_rater.contract.events import escape

CHECKPOINT_KEYS = "stream-rater:checkpoint*"  # A pattern of all keys of checkpoints.


def checkpoints_key(ladder: str) -> str:
    """The hash with the heads of a ladder's checkpoints."""
    return f"stream-rater:checkpoints:{escape(ladder)}"


def checkpoint_piece_key(ladder: str, name: str, number: int) -> str:
    """A piece of a checkpoint."""
    return f"stream-rater:checkpoint:{escape(ladder)}:{name}:{number}"


class RedisCheckpoints:
    """Reads and writes heads and pieces. `guard` turns errors into StoreTrouble or Denied."""

    on_failure: Callable[[str], None]  # Receives the reason of each call that fails.

    def __init__(self, client: "redis.Redis", guard: Callable[[Callable[[], Any]], Any]) -> None:
        self._client = client
        self._guard = guard
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
        for server in servers(self._client):
            keys: Any = partial(list, server.scan_iter(match=CHECKPOINT_KEYS, count=10_000))
            for key in self._guard(keys):
                self._guard(partial(self._client.unlink, key))

    def _call(self, command: Callable[..., Any], *given: Any) -> tuple[bool, Any]:
        """Whether the call succeeded, and its result."""
        try:
            return True, self._guard(partial(command, *given))
        except StoreTrouble as trouble:
            self.on_failure(str(trouble))
            return False, None
