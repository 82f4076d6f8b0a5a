"""The keys of a shard on Redis, and the metadata of the store: its layout of shards, buckets and
topics, and the kernel version of its ratings. `rebuild` deletes the shards' keys and writes them
again; the metadata is kept apart from them."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import redis

from stream_rater.adapters.redis import encoding, login
from stream_rater.adapters.redis.client import connect, servers, translated_failures
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LayoutMismatch
from stream_rater.pipeline.ports import UNFINISHED

LAYOUT_KEY = "stream-rater:layout"  # The hash with the layout. It also has the next four fields.
KERNEL = "kernel"  # The kernel version of the first workers, or of the last rebuild.
REBUILDING = "rebuilding"  # It exists while a rebuild is in progress, or after it was abandoned.
MOVING = b"move of "  # How the value of REBUILDING begins until what `move` has copied is whole.
MOVED = "moved"  # Where `move` has taken the log and the ratings.
WINDOW = "duplicate_window"  # The duplicate window by which rounds are validated.
OF_THE_ROUNDS = frozenset({"partitions", "topic"})
"""The fields about `round-completed`, whose offsets order the rounds of each ladder."""
REMEDY = "restore the setting, or stop all workers and run `stream-rater rebuild --replace`"
NO_WAY_BACK = (
    "offsets no longer order the rounds. Begin with another topic_prefix and an empty database, "
    "and submit the rounds again"
)
ERASED = (
    "if `stream-rater erase` has copied the log, set topic_prefix to that of the new topics, "
    "and delete the old ones, which hold the id. Otherwise "
)
KEY = re.compile(rb"\{\d+\}:(position|belief:.*)", re.DOTALL)  # A key that belongs to a shard.


def _check_field(name: str, stored: Any, wanted: str) -> None:
    """Raise LayoutMismatch, with the remedy, if a field of the layout is stored and differs."""
    if stored is not None and stored.decode() != wanted:
        of_the_rounds = f"{ERASED if name == 'topic' else ''}{NO_WAY_BACK}"
        raise LayoutMismatch(
            f"the store was laid out with {name} = {stored.decode()}, this service has {wanted}: "
            f"{of_the_rounds if name in OF_THE_ROUNDS else REMEDY}"
        )


def _check_not_moved(moved: Any) -> None:
    """Raise LayoutMismatch if the store was moved. `moved`: the field MOVED."""
    if moved is not None:
        raise LayoutMismatch(
            f"the ratings were moved to {moved.decode()}: use the settings of that place. To go on "
            "here, if nothing was rated there: run `stream-rater rebuild --replace`"
        )


def check_not_half(rebuilding: Any) -> None:
    """Raise LayoutMismatch if the field REBUILDING is that of an unfinished move to this place."""
    if rebuilding is not None and rebuilding.startswith(MOVING):
        source = rebuilding.removeprefix(MOVING).decode()
        raise LayoutMismatch(
            f"the move of {source} to this place is unfinished: use {source} on; or delete the "
            "topics here, empty this Redis, and run `stream-rater move` again"
        )


class StoreMetadata:
    """Reads and writes the metadata. `guard` turns errors of Redis into StoreTrouble."""

    def __init__(self, client: "redis.Redis", guard: Callable[[Callable[[], Any]], Any]) -> None:
        self._client, self._guard = client, guard

    def check(self, layout: Mapping[str, str]) -> None:
        """Store the layout on first use. Raises LayoutMismatch if another one is stored."""
        self._guard(lambda: self._check(layout))

    def _check(self, layout: Mapping[str, str]) -> None:
        if (rebuilding := self._client.hget(LAYOUT_KEY, REBUILDING)) is not None:
            check_not_half(rebuilding)
            raise LayoutMismatch(
                "a rebuild of the store is unfinished: run `stream-rater rebuild --replace`"
            )
        _check_not_moved(self._client.hget(LAYOUT_KEY, MOVED))
        for name, value in layout.items():
            self._client.hsetnx(LAYOUT_KEY, name, value)
            _check_field(name, self._client.hget(LAYOUT_KEY, name), value)

    def check_stored(self, layout: Mapping[str, str]) -> None:
        """Raise LayoutMismatch unless workers have stored this layout. Writes nothing."""
        names = [REBUILDING, MOVED, *layout]
        found: Any = self._guard(partial(self._client.hmget, LAYOUT_KEY, names))
        rebuilding, moved, *stored = found
        _check_not_moved(moved)
        if rebuilding is not None:
            check_not_half(rebuilding)
            raise LayoutMismatch("the store is being rebuilt: try again when it is finished")
        for (name, wanted), value in zip(layout.items(), stored, strict=True):
            if value is None:
                raise LayoutMismatch(
                    "this Redis holds no ratings of this release: set STREAM_RATER_REDIS to that "
                    "of the workers"
                )
            if value.decode() != wanted:
                raise LayoutMismatch(
                    f"the store was laid out with {name} = {value.decode()}, here it is {wanted}: "
                    "set what the workers have"
                )

    def check_window(self, window: int) -> None:
        """Raise LayoutMismatch if workers have another window, or a move here is unfinished."""
        names = [WINDOW, REBUILDING]
        stored, rebuilding = self._guard(partial(self._client.hmget, LAYOUT_KEY, names))
        check_not_half(rebuilding)
        if stored is not None and int(stored) != window:
            raise LayoutMismatch(
                f"the workers have {WINDOW} = {stored.decode()}, here it is {window}: set what the "
                "workers have: nothing was compared"
            )

    def check_not_half(self) -> None:
        """Raise LayoutMismatch if a move to this store is unfinished."""
        check_not_half(self._guard(partial(self._client.hget, LAYOUT_KEY, REBUILDING)))

    def check_rebuildable(self, layout: Mapping[str, str]) -> None:
        """Raise LayoutMismatch if a rebuild cannot help: other rounds, or an unfinished move."""
        self.check_not_half()
        for name in OF_THE_ROUNDS & layout.keys():
            stored = self._guard(partial(self._client.hget, LAYOUT_KEY, name))
            _check_field(name, stored, layout[name])

    def begin(self, kernel: int) -> None:
        """Store the kernel version of the first ratings, if none is stored."""
        self._guard(partial(self._client.hsetnx, LAYOUT_KEY, KERNEL, kernel))

    def begun_by(self, kernel: int) -> int:
        """The kernel version of the oldest ratings in the store, or `kernel` if none is stored."""
        stored: Any = self._guard(partial(self._client.hget, LAYOUT_KEY, KERNEL))
        return kernel if stored is None else int(stored)

    def is_empty(self) -> bool:
        """Whether the store has no key of a shard."""

        keys = self._client.scan_iter(match="{*}:*", count=10_000)
        return not self._guard(lambda: any(map(KEY.fullmatch, keys)))

    def is_unused(self) -> bool:
        """Whether the store never had ratings: it is empty, or is filled for the first time."""
        if self.is_empty():
            return True
        stored: Any = self._guard(partial(self._client.hmget, LAYOUT_KEY, [REBUILDING, "topic"]))
        rebuilding, topic = stored
        return rebuilding is not None and topic is None

    def mark_moved(self, place: str) -> None:
        """Store where the data went. Workers refuse this store from now on, until a rebuild."""
        self._guard(partial(self._client.hset, LAYOUT_KEY, MOVED, place))

    def mark_unfinished(self, move_of: str = "") -> None:
        """Mark the store as unfinished: by a move from a place, or until a rebuild."""
        mark = MOVING + move_of.encode() if move_of else b"1"
        self._guard(partial(self._client.hset, LAYOUT_KEY, REBUILDING, mark))

    def begin_rebuild(self, shards: int, epoch: bytes) -> None:
        """Mark the store and each shard as unfinished, then delete the shards' other keys. This
        epoch begins: from now on, Redis executes no call of an older one."""

        def mark() -> None:
            if self._client.hget(LAYOUT_KEY, REBUILDING) is None:  # else it may be that of a move
                self._client.hset(LAYOUT_KEY, REBUILDING, "1")

        def clear() -> None:
            mark()
            unfinished = {encoding.position_key(shard).encode() for shard in range(shards)}
            for key in unfinished:
                self._client.hset(key, "epoch", epoch)
                for name in ("applied", "start"):
                    self._client.hset(key, name, UNFINISHED)
            for key in self._client.scan_iter(match="{*}:*", count=10_000):
                if KEY.fullmatch(key) and key not in unfinished:
                    self._client.unlink(key)
            mark()  # a failover since then may have lost it

        self._guard(clear)

    def end_rebuild(self, layout: Mapping[str, str], kernel: int) -> None:
        """Store the new layout, and end the rebuild. Workers may then use the store."""

        def finish() -> None:
            for name, value in layout.items():
                self._client.hset(LAYOUT_KEY, name, value)
            self._client.hset(LAYOUT_KEY, KERNEL, kernel)
            self._client.hdel(LAYOUT_KEY, REBUILDING, MOVED)

        self._guard(finish)


# --- the index of earlier releases ----------------------------------------------------------------

EVERY_KEY = "*stream-rater:index*"  # A pattern of all keys of the index.


def drop_index(settings: Settings) -> None:
    """Delete the index that builds from before 0.1.0 kept here."""
    with translated_failures(login.login_of(settings)):
        for server in servers(connect(settings)):
            for key in list(server.scan_iter(match=EVERY_KEY, count=10_000)):
                server.unlink(key)
