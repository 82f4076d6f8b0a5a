"""Follows the events of a data file for a standalone process: writes the index, and passes the
events to the feed. It does what `follower.Follower` does on Kafka and Redis."""

import itertools
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from stream_rater.adapters.sqlite.database import connect_reader
from stream_rater.adapters.sqlite.events import end_of_changed, read_events
from stream_rater.adapters.sqlite.names import index_path
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.contract.errors import StoreTrouble, Unrecoverable
from stream_rater.contract.events import UNDECODABLE, RatingChanged, rating_changed_from_json
from stream_rater.contract.record import checksum
from stream_rater.index.entries import EntryKey, IndexedPlayer
from stream_rater.pipeline.ports import Event, pause_s
from stream_rater.serve.feed import RING_SIZE
from stream_rater.serve.index import file_index
from stream_rater.serve.index.follower import NewEvent, Watcher, key_of, with_tier

READ_TOGETHER = 50_000
"""The most events that are in memory."""
AT_ONCE = 5_000
"""The most events that one transaction adds to the index."""
LOOK_S = 1.0
"""The interval at which it looks for events without being woken."""
SHARD = 0
"""The only shard of a data file."""


class FileFollower:
    """Keeps the index up to date with the events of a data file."""

    def __init__(
        self, data: Path, max_changes: int, watcher: Watcher, ladders: Ladders = ANY_LADDER
    ) -> None:
        """`max_changes`: the number of changes that the index keeps of each player. `ladders` has
        the views by which it is made."""
        self._path, self._max_changes, self._watcher = data, max_changes, watcher
        self._ladders = ladders
        self._stopping = False
        self._awake = threading.Event()

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stopping = True
        self._awake.set()

    def hurry(self) -> None:
        """Look for events now. Another thread may call this."""
        self._awake.set()

    def run(self) -> None:
        """Follow until `stop` is called. Raises Unrecoverable or Denied."""
        troubles = 0
        while not self._stopping:
            try:
                self._follow()
            except StoreTrouble as trouble:
                if isinstance(trouble, file_index.Damaged):
                    self._check_index()
                troubles += 1
                self._watcher.trouble(str(trouble))
                time.sleep(pause_s(troubles))

    def _check_index(self) -> None:
        """Delete a damaged index. Raises Unrecoverable then: others have it open."""
        index = index_path(self._path)
        if index.exists() and file_index.is_damaged(index):
            file_index.delete(index)
            raise Unrecoverable(
                f"{index} was damaged, and is deleted: the next start makes it again"
            )

    def _follow(self) -> None:
        connection = connect_reader(self._path)
        with file_index.failures():
            writer = file_index.FileIndexWriter(
                index_path(self._path), self._max_changes, self._ladders
            )
            try:
                self._read(connection, writer)
            finally:
                writer.close()
                connection.close()

    def _read(self, connection: sqlite3.Connection, writer: file_index.FileIndexWriter) -> None:
        end = end_of_changed(connection, SHARD)
        (data,) = connection.execute("SELECT value FROM meta WHERE name = 'id'").fetchone()
        stored = writer.begin(data, end, lambda at: _tail_at(connection, at))
        # The feed gets the newest events again, although the index has them.
        reported = max(0, end - RING_SIZE)
        at = min(stored, reported)
        self._watcher.begun([reported])
        while not self._stopping:
            self._awake.clear()
            while events := _read_some(connection, at):
                at = events[-1][0] + 1
                for first in range(0, len(events), AT_ONCE):
                    some = events[first : first + AT_ONCE]
                    after = self._add(some, stored, writer)
                    self._watcher.read([*self._new_events(some, reported, after)])
                if self._stopping:
                    return
            while writer.sweep() and not self._stopping:
                pass
            self._watcher.checkpointed([max(at, stored)])
            self._watcher.polled(True, 0)
            self._awake.wait(LOOK_S)

    def _add(
        self, some: Sequence[tuple[int, Event]], stored: int, writer: file_index.FileIndexWriter
    ) -> Mapping[EntryKey, IndexedPlayer]:
        """Add events to the index, but not those before `stored`. Returns the players after events
        of ladders with tiers."""
        changes: list[RatingChanged] = []
        for offset, event in some:
            if offset < stored:
                continue
            try:
                changes.append(rating_changed_from_json(event.value))
            except UNDECODABLE:
                self._watcher.skipped(SHARD, offset)
        end = some[-1][0] + 1
        return writer.apply(changes, end, checksum(some[-1][1].value)) if end > stored else {}

    def _new_events(
        self, some: Sequence[tuple[int, Event]], first: int,
        after: Mapping[EntryKey, IndexedPlayer],
    ) -> Iterator[NewEvent]:  # fmt: skip
        """The events from an offset on, for the feed."""
        for offset, event in some:
            if offset >= first:
                with suppress(*UNDECODABLE):
                    new = NewEvent(SHARD, offset, _ladder_of(event.value).ladder, event.value)
                    if after:
                        change = rating_changed_from_json(event.value)
                        new = with_tier(new, change, after.get(key_of(change)))
                    yield new


def _read_some(connection: sqlite3.Connection, first: int) -> list[tuple[int, Event]]:
    """The next events from an offset on, at one instant: old events move to another table. No
    transaction is open after that, however long it takes to add them to the index."""
    with file_index.instant(connection):
        return [*itertools.islice(read_events(connection, SHARD, first), READ_TOGETHER)]


def _tail_at(connection: sqlite3.Connection, end: int) -> int:
    """The checksum of the event before an offset; 0 before the first one, and where the file does
    not have it any more."""
    with file_index.instant(connection):
        last = next(read_events(connection, SHARD, end - 1), None) if end else None
    return checksum(last[1].value) if last is not None and last[0] == end - 1 else 0


class _OfLadder(msgspec.Struct):
    ladder: str


_ladder_of = msgspec.json.Decoder(_OfLadder).decode
