"""What the store on Redis remembers of itself: what it was laid out for, and by which release.

All but the shards' own keys, which `rebuild` deletes and makes anew.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

import redis

from stream_rater.adapters.store_keys import position_key
from stream_rater.pipeline.ports import UNFINISHED

LAYOUT_KEY = "stream-rater:layout"
LADDERS_KEY = "stream-rater:ladders"
"""Where releases before `ladders-noted` remembered how ladders are rated: an entry a field."""
KERNEL = "kernel"
"""Field of the layout: the first workers' kernel version, or that of the last rebuild."""
REBUILDING = "rebuilding"
"""Field of the layout that is there while a rebuild is under way, or was given up."""
OF_THE_ROUNDS = frozenset({"partitions", "topic"})
"""What the layout says of round-completed, whose offsets order each ladder's rounds."""
WAY_OUT = "restore the setting, or stop all workers and run `stream-rater rebuild --replace`"
NO_WAY_BACK = (
    "offsets no longer order the rounds; begin with another topic_prefix and an empty database, "
    "and submit the rounds there"
)
KEY = re.compile(rb"\{\d+\}:(position|belief:.*)", re.DOTALL)
"""Of a shard."""


class LayoutMismatch(Exception):
    """The store was laid out for other shards, buckets or topics; `rebuild` is the way out."""


class Layout:
    """The layout of one store; `guard` turns what Redis raises into StoreTrouble."""

    def __init__(self, client: "redis.Redis", guard: Callable[[Callable[[], Any]], Any]) -> None:
        self._client = client
        self._guard = guard

    def check(self, layout: Mapping[str, str]) -> None:
        """Remember how the store is laid out, or refuse one laid out otherwise."""
        self._guard(lambda: self._check(layout))

    def _check(self, layout: Mapping[str, str]) -> None:
        if self._client.hexists(LAYOUT_KEY, REBUILDING):
            raise LayoutMismatch(
                "a rebuild of the store was not finished: run `stream-rater rebuild --replace`"
            )
        for name, value in layout.items():
            self._client.hsetnx(LAYOUT_KEY, name, value)
            held: Any = self._client.hget(LAYOUT_KEY, name)
            if held is not None and held != value.encode():
                raise LayoutMismatch(
                    f"the store was laid out with {name} = {held.decode()}, this service has "
                    f"{value}: {NO_WAY_BACK if name in OF_THE_ROUNDS else WAY_OUT}"
                )

    def check_rebuildable(self, layout: Mapping[str, str]) -> None:
        """Refuse what no rebuild can make good: rounds that lost their order."""
        for name in OF_THE_ROUNDS & layout.keys():
            held: Any = self._guard(partial(self._client.hget, LAYOUT_KEY, name))
            if held is not None and held.decode() != layout[name]:
                raise LayoutMismatch(
                    f"the store was laid out with {name} = {held.decode()}, this service has "
                    f"{layout[name]}: {NO_WAY_BACK}"
                )

    def old_notes(self) -> dict[str, list[str]]:
        """How ladders are rated, as an older release noted it here."""
        held: dict[bytes, bytes] = self._guard(partial(self._client.hgetall, LADDERS_KEY))
        found: dict[str, dict[int, str]] = {}
        for field, entry in held.items():
            ladder, _, number = field.decode().rpartition(":")
            found.setdefault(unquote(ladder), {})[int(number)] = entry.decode()
        return {each: [told[i] for i in sorted(told)] for each, told in found.items()}

    def begin(self, kernel: int) -> None:
        """Remember the kernel version of the first ratings."""
        self._guard(partial(self._client.hsetnx, LAYOUT_KEY, KERNEL, kernel))

    def begun_by(self, kernel: int) -> int:
        """The kernel version by which the oldest ratings here were computed; if none, this one."""
        held: Any = self._guard(partial(self._client.hget, LAYOUT_KEY, KERNEL))
        return kernel if held is None else int(held)

    def is_empty(self) -> bool:
        """Whether the store holds nothing of ours but perhaps its layout and what it notes."""

        def found() -> bool:
            keys = self._client.scan_iter(match="{*}:*", count=10_000)
            return any(KEY.fullmatch(key) for key in keys)

        return not self._guard(found)

    def begin_rebuild(self, shards: int) -> None:
        """Mark the store and each shard as unfinished, then delete all that it holds of ours."""

        def clear() -> None:
            self._client.hset(LAYOUT_KEY, REBUILDING, "1")
            unfinished = {position_key(shard).encode() for shard in range(shards)}
            for key in unfinished:
                for name in ("applied", "start"):
                    self._client.hset(key, name, UNFINISHED)
            for key in self._client.scan_iter(match="{*}:*", count=10_000):
                if KEY.fullmatch(key) and key not in unfinished:
                    self._client.unlink(key)
            self._client.unlink(LADDERS_KEY)

        self._guard(clear)

    def end_rebuild(self, layout: Mapping[str, str], kernel: int) -> None:
        """Lay the store out like this; from now on workers may use it."""

        def finish() -> None:
            for name, value in layout.items():
                self._client.hset(LAYOUT_KEY, name, value)
            self._client.hset(LAYOUT_KEY, KERNEL, kernel)
            self._client.hdel(LAYOUT_KEY, REBUILDING)

        self._guard(finish)
