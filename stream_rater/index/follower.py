"""Follows a log for a process that answers: writes the index, and passes new events to the feed."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO
from urllib.parse import unquote

import msgspec

from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.contract.errors import Denied, LogTrouble, Trouble, Unrecoverable
from stream_rater.contract.events import (
    UNDECODABLE,
    RatingChanged,
    rating_changed_from_json,
    to_json,
)
from stream_rater.contract.record import Record, checksum
from stream_rater.contract.season_ended import decoded
from stream_rater.index import folder
from stream_rater.index.entries import IndexedPlayer, PlayerErased
from stream_rater.index.log import FollowedLog, FollowedRecords, FollowedTopic, NewEvent, Watcher
from stream_rater.index.tables import Tail, is_id
from stream_rater.index.writer import AT_ONCE, IndexWriter, PlacedEvent
from stream_rater.pipeline.ports import pause_s

POLL_S = 0.2
FEED_SIZE = 10_000  # The most earlier events that are passed to the feed, which keeps no more.
SWEEP_S = 1.0  # The interval at which players whose moment has come leave the leaderboards.
SWEEPS = 20  # The most sweeps in a row. The rest follow between the next polls.
CHECKPOINT_S = 2.0  # The interval of reporting positions and of removing ended readers.
COMMIT_S = 60.0  # The interval at which an unchanged index stores that it is up to date.


LOOK_S = 10.0  # The interval at which it looks for the topic, while there is none.
DENIED_S = 60.0  # The pause after a denied right.
SEASON_BATCHES = 50  # The most batches of records in one call.
FIRST_WAIT_S = 0.2


class SeasonFollower:
    """Keeps the standings of past seasons in the index up to date. Their topic need not exist, and
    the right to read it may be missing: then there are no past seasons."""

    def __init__(
        self, log: FollowedLog, writer: IndexWriter, trouble: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        """`trouble` receives what failed and is tried again."""
        self._log, self._writer, self._trouble, self._clock = log, writer, trouble, clock
        self._topic: FollowedRecords | None = None
        self._positions: list[int] = []
        self._ends: Sequence[int] = ()
        self._again_s = clock()
        self.caught_up = False  # Whether all is written that existed at first and may be read.

    def poll(self) -> None:
        """Write what has arrived. Nothing is raised: what fails is tried again later."""
        if self._clock() < self._again_s:
            return
        try:
            if self._topic is None:
                self._open()
            if self._topic is not None:
                self._read(self._topic)
        except (Denied, Unrecoverable, Trouble) as error:
            is_final = isinstance(error, Denied | Unrecoverable)
            self.caught_up |= is_final  # no other data needs this right or this file
            self._trouble(f"past seasons: {error}")
            self.close()
            self._again_s = self._clock() + (DENIED_S if is_final else LOOK_S)

    def _open(self) -> None:
        """Begin to read the topic, if it exists."""
        self._topic = topic = self._log.standings()
        if topic is None:
            self.caught_up, self._again_s = True, self._clock() + LOOK_S
            return
        self._ends = topic.end_offsets()
        self._positions = list(self._writer.begin_seasons(topic.id, self._ends))
        topic.start_at(dict(enumerate(self._positions)))

    def _read(self, topic: FollowedRecords) -> None:
        for _ in range(SEASON_BATCHES):
            records = topic.gather(0.0 if self.caught_up else FIRST_WAIT_S)
            before = list(self._positions)
            for each in records:
                self._positions[each.partition] = each.offset + 1
            for partition, end in topic.ends.items():
                self._positions[partition] = max(self._positions[partition], end)
            if self._positions != before:
                self._writer.apply_seasons([*map(decoded, records)], self._positions)
            both = zip(self._positions, self._ends, strict=True)
            self.caught_up |= all(at >= end for at, end in both)
            if not records:
                break

    def close(self) -> None:
        """Close the topic. The next call of `poll` opens one again."""
        if self._topic is not None:
            self._topic.close()
            self._topic = None


class Follower:
    """Keeps the index in a folder up to date with a log."""

    def __init__(
        self, where: Path, connect: Callable[[], FollowedLog], max_changes: int, watcher: Watcher,
        ladders: Ladders = ANY_LADDER, clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """`where`: the folder, for which another process has the lock (`Hold`). `max_changes`: the
        most changes in a player's history. `ladders` has the views by which the index is made."""
        self._where, self._connect, self._max_changes = where, connect, max_changes
        self._watcher, self._ladders, self._clock, self._now = watcher, ladders, clock, now
        self._lock: IO[str] | None = None
        self._writer: IndexWriter | None = None
        self._swept_s = -SWEEP_S
        self._fed: list[int] = []  # By partition, the next offset for the feed; empty at first.
        self._stop = threading.Event()
        self._topic: FollowedTopic | None = None
        self.caught_up = False  # Whether the index has all that existed when reading began.
        self.lag = 0  # The number of known records of `rating-changed` that are not read yet.
        self.oldest_reader_s = 0.0  # How long the oldest reader has been reading, as far as known.

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stop.set()
        self.hurry()

    def hurry(self) -> None:
        """Look for events now. Another thread may call this."""
        if (topic := self._topic) is not None:
            topic.wake()

    def run(self) -> None:
        """Follow until `stop` is called. Raises Denied, TopicMismatch, LayoutMismatch or
        Unrecoverable; a retry after these cannot succeed."""
        troubles = 0
        try:
            while not self._stop.is_set():
                try:
                    self._follow()
                except Trouble as trouble:
                    if isinstance(trouble, folder.Damaged):
                        self._discard()
                    troubles = 1 if self.caught_up else troubles + 1
                    self.caught_up = False
                    self._watcher.trouble(str(trouble))
                    self._report()
                    self._stop.wait(pause_s(troubles))
        finally:
            with suppress(Trouble):
                self._close()
            if self._lock is not None:
                self._lock.close()

    def _report(self) -> None:
        self._watcher.polled(self.caught_up, self.lag, self.oldest_reader_s)

    # --- the index ---

    def _opened(self, topic: FollowedTopic) -> IndexWriter:
        """The index of a topic. It is made again if it was made from records that the topic does
        not have, or if the topic may have forgotten that a player was erased (I6)."""
        if self._writer is not None and self._writer.state.log != topic.id:
            self._close()
        writer = self._writer or self._open(topic)
        if why := self._mismatch(writer, topic):
            self._watcher.trouble(f"the index is made again: {why}")
            self._discard()
            writer = self._open(topic)
        return writer

    def _open(self, topic: FollowedTopic) -> IndexWriter:
        self._lock = self._lock or folder.writer_lock(self._where)
        self._store = folder.begin(self._where, topic.id, self._now())
        try:
            writer = IndexWriter(self._store, self._max_changes, self._ladders, self._now)
        except BaseException:
            folder.closed(self._store)
            raise
        self._writer = writer
        self._watcher.opened(self._store.path)
        return writer

    def _close(self) -> None:
        """Close the index in such a way that it is trusted later."""
        if (writer := self._writer) is not None:
            self._writer = None
            folder.end(self._store, writer.state.log, writer.state.positions)

    def _discard(self) -> None:
        """Delete the index."""
        if self._writer is not None:
            self._writer = None
            folder.closed(self._store)
        folder.discard(self._where)

    def _mismatch(self, writer: IndexWriter, topic: FollowedTopic) -> str:
        """Why the index does not match the topic as it is now; empty if it does."""
        ends, state = topic.end_offsets(), writer.state
        stored, tails = writer.positions(len(ends)), state.tails
        if len(stored) > len(ends):
            return f"rating-changed has {len(ends)} partitions, and had {len(stored)}"
        for p, end in enumerate(ends):
            if end < stored[p]:
                return f"partition {p} was read to {stored[p]}, and it ends at {end}"
        found = topic.checksums({p: tail.offset for p, tail in tails.items()})
        for p, sum_ in found.items():
            if sum_ is not None and sum_ != tails[p].checksum:
                return f"partition {p} has another record at offset {tails[p].offset}"
        is_old = self._is_old(writer, topic)
        return "it may have missed that a player was erased" if is_old else ""

    def _is_old(self, writer: IndexWriter, topic: FollowedTopic) -> bool:
        """Whether the topic may have lost a record which says that a player was erased (I6)."""
        return self._now() - writer.state.current_s > topic.forgets_s / 2

    # --- following ---

    def _follow(self) -> None:
        with closing(self._connect()) as log, closing(log.changed()) as topic:
            self._topic = topic
            ends = topic.end_offsets()  # read before the index is compared, which may have more
            writer = self._opened(topic)
            stored = writer.positions(topic.partitions)
            fed = [*self._fed, *[0] * (topic.partitions - len(self._fed))]
            newest = [max(0, end - FEED_SIZE // topic.partitions) for end in ends]
            self._fed = [
                min(pair) if self._fed else pair[1] for pair in zip(fed, newest, strict=True)
            ]
            start = [min(pair) for pair in zip(stored, self._fed, strict=True)]
            topic.start_at(dict(enumerate(start)))
            self._watcher.begun(self._fed)
            seasons = SeasonFollower(log, writer, self._watcher.trouble, self._clock)
            with closing(seasons):
                self._read(topic, writer, seasons, start, ends)

    def _read(
        self, topic: FollowedTopic, writer: IndexWriter, seasons: SeasonFollower,
        positions: list[int], ends: Sequence[int],
    ) -> None:  # fmt: skip
        checkpointed_s = -CHECKPOINT_S
        while not self._stop.is_set():
            self._read_some(topic, writer, positions)
            swept = self._sweep(writer)
            known = [max(topic.known_end(p), at) for p, at in enumerate(positions)]
            self.lag = sum(known) - sum(positions)
            seasons.poll()
            whole = all(at >= end for at, end in zip(positions, ends, strict=True))
            if not self.caught_up and seasons.caught_up and whole and swept:
                if self._is_old(writer, topic):
                    why = "reading took longer than half of delete.retention.ms: raise that"
                    raise LogTrouble(why)
                writer.reached(positions, current=True)  # now readers may answer
                self.caught_up, checkpointed_s = True, -CHECKPOINT_S
            now_s = self._clock()
            if self.caught_up and now_s - checkpointed_s >= CHECKPOINT_S:
                checkpointed_s = now_s
                self.oldest_reader_s = self._store.oldest_reader_s(now_s)
                is_recent = 0.0 <= self._now() - writer.state.current_s < COMMIT_S
                if self.lag < AT_ONCE and not is_recent:
                    writer.reached(positions, current=True)
                self._watcher.checkpointed(positions, known)
            self._report()

    def _read_some(self, topic: FollowedTopic, writer: IndexWriter, positions: list[int]) -> None:
        """Write what arrives in one wait. Raises `positions` to what the index then has."""
        changes: list[PlacedEvent] = []
        events: list[NewEvent] = []
        before, tails, back = list(positions), dict[int, Record](), ""
        records, ends = self._gather(topic)
        for record in records:
            if record.offset < (at := before[record.partition]):
                place = f"partition {record.partition} was read to {at}"
                back = f"{place}, and goes on at {record.offset}"
                break
            before[record.partition] = record.offset + 1
            self._add_record(record, changes, events)
            tails[record.partition] = record
        if not back:
            before = [max(at, ends.get(p, 0)) for p, at in enumerate(before)]
        if before != positions:
            last = {p: Tail(each.offset, checksum(each.value)) for p, each in tails.items()}
            made = writer.apply(changes, before, last)
            positions[:] = before
            if made:
                changed = [event for _, event in changes if isinstance(event, RatingChanged)]
                events = [
                    with_tier(new, made.get((event.ladder, event.player, event.offset)))
                    for new, event in zip(events, changed, strict=True)
                ]
            new = [each for each in events if each.offset >= self._fed[each.partition]]
            self._fed = [max(pair) for pair in zip(self._fed, positions, strict=True)]
            if new:
                self._watcher.read(new)
        if back:
            raise LogTrouble(f"{topic.id}: {back}")

    def _gather(self, topic: FollowedTopic) -> tuple[Sequence[Record], Mapping[int, int]]:
        """The records that one wait brings, and those that are there by then: what was published
        waits no longer. Stops once it has AT_ONCE of them. Also the ends that it has reached."""
        records, ends, wait_s = list[Record](), dict[int, int](), POLL_S
        while True:
            some = topic.gather(wait_s)
            records += some
            ends |= topic.ends
            wait_s = 0.0
            if not some or len(records) >= AT_ONCE or self._stop.is_set():
                return records, ends

    def _sweep(self, writer: IndexWriter) -> bool:
        """Let players leave the leaderboards if it is time. Returns whether none must leave now."""
        now_s = self._clock()
        if now_s - self._swept_s < SWEEP_S:
            return True
        for _ in range(SWEEPS):
            if not writer.sweep():
                self._swept_s = now_s
                return True
        return False

    def _add_record(
        self, record: Record, changes: list[PlacedEvent], events: list[NewEvent]
    ) -> None:
        """Add the change of the index that a record means, and its event, if it is one."""
        place = record.partition, record.offset
        try:
            if record.value is None:
                parts = (record.key or b"").decode().split(":")
                if len(parts) != 2:
                    raise msgspec.DecodeError("no key of a player")
                names = [unquote(part, errors="strict") for part in parts]
                changes.append((place, PlayerErased(*names)))
                return
            event = rating_changed_from_json(record.value)
            if not (is_id(event.ladder) and is_id(event.player)):
                raise msgspec.DecodeError("no id")
            changes.append((place, event))
            events.append(NewEvent(*place, event.ladder, record.value))
        except UNDECODABLE:
            self._watcher.skipped(*place)


def with_tier(new: NewEvent, player: IndexedPlayer | None) -> NewEvent:
    """The event with the fields `tier` and `previous_tier` at its end. `player` is the player after
    the event; without it, the event stays as it is."""
    if player is None or player.placement is None:
        return new
    placement = player.placement
    tier = player.tier_at(placement.played_s)
    fields = {"tier": tier, "previous_tier": None if tier is None else placement.previous_tier}
    head = new.value.rstrip().removesuffix(b"}")
    return new._replace(value=head + b"," + to_json(fields)[1:])
