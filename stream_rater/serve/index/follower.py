"""Follows `rating-changed` for `serve`: writes the index, and passes the events to the feed."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from stream_rater.adapters.kafka.reader import Reader, record_sums
from stream_rater.adapters.kafka.topics import REQUEST_TIMEOUT_S, Admin
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble, Trouble
from stream_rater.contract.events import (
    UNDECODABLE,
    RatingChanged,
    rating_changed_from_json,
    to_json,
)
from stream_rater.contract.record import Record, checksum
from stream_rater.index.entries import EntryKey, IndexedPlayer, IndexEvent, PlayerErased
from stream_rater.pipeline.ports import pause_s
from stream_rater.serve.feed import RING_SIZE
from stream_rater.serve.index.reader import IndexReader
from stream_rater.serve.index.seasons import SeasonFollower
from stream_rater.serve.index.writer import (
    EventPlace,
    IndexLost,
    IndexWriter,
    Tail,
    other_topic_error,
)

POLL_S = 0.2
SWEEP_S = 1.0
"""The interval at which players whose moment has come leave the leaderboards."""
SWEEPS = 20
"""The most sweeps of all ladders at once. If more players must leave, the rest follow between the
next polls."""
CHECKPOINT_S = 2.0
"""The interval at which the positions of ladders without events are written, and the index is
checked for losses."""


class NewEvent(NamedTuple):
    """An event that is in the index, with its place in `rating-changed`."""

    partition: int
    offset: int
    ladder: str
    value: bytes
    """The event in JSON, with the player's tier if it is known."""


class Watcher:
    """The hooks by which a follower reports. All are called in one thread."""

    def begun(self, positions: Sequence[int]) -> None:
        """Report that reading begins at these offsets, one for each partition."""

    def read(self, events: Sequence[NewEvent]) -> None:
        """Report that these events are in the index."""

    def checkpointed(self, positions: Sequence[int]) -> None:
        """Report that the index of every ladder includes all events before these positions."""

    def trouble(self, why: str) -> None:
        """Report that something failed and is tried again; `why` is the error."""

    def skipped(self, partition: int, offset: int) -> None:
        """Report that the record at this place is not a valid event and is skipped."""

    def polled(self, caught_up: bool, lag: int) -> None:
        """Report that the follower has polled. The arguments are its attributes of these names."""


class Follower:
    """Keeps the index in Redis up to date with `rating-changed`."""

    def __init__(
        self, settings: Settings, watcher: Watcher,
        clock: Callable[[], float] = time.monotonic, ladders: Ladders = ANY_LADDER,
    ) -> None:  # fmt: skip
        """`ladders` has the views by which the index is made."""
        self._settings, self._watcher, self._clock = settings, watcher, clock
        self._ladders, self._swept_s = ladders, -SWEEP_S
        self._stop, self._hurried = threading.Event(), threading.Event()
        self.caught_up = False
        """Whether the index has every record that existed when reading began."""
        self.last_poll_s = clock()
        self.lag = 0
        """The number of known records of `rating-changed` that are not read yet."""

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stop.set()

    def hurry(self) -> None:
        """Store the positions once more soon, if they have moved. Another thread may call this."""
        self._hurried.set()

    def run(self) -> None:
        """Follow until `stop` is called. Raises Denied, TopicMismatch, LayoutMismatch or
        Unrecoverable; a retry after these cannot succeed."""
        troubles = 0
        while not self._stop.is_set():
            try:
                self._follow()
            except (Trouble, IndexLost) as trouble:
                troubles = 1 if self.caught_up else troubles + 1
                self.caught_up = False
                self._watcher.trouble(str(trouble))
                self._watcher.polled(self.caught_up, self.lag)
                self._stop.wait(pause_s(troubles))

    def _follow(self) -> None:
        admin = Admin(self._settings, request_timeout_s=REQUEST_TIMEOUT_S)
        topic = admin.topics.changed
        (partitions,) = admin.partitions_of(topic)
        writer = IndexWriter(self._settings, self._ladders)
        writer.check()
        asyncio.run(_check_rights(self._settings, self._ladders))
        stored, tails = writer.begin(topic, partitions), writer.tails()  # before the ends are read
        seasons = SeasonFollower(self._settings, admin, self._watcher.trouble, self._clock)
        with closing(seasons), Reader(self._settings, topic) as reader:
            ends = [reader.bounds(p)[1] for p in range(partitions)]
            self._check_topic(admin, topic, ends, stored, tails)
            # The feed gets some events again from before the stored place; the index has them.
            start = [max(0, at - RING_SIZE // partitions) for at in stored]
            reader.start_at(dict(enumerate(start)))
            self._watcher.begun(start)
            self._read(reader, writer, seasons, start, ends)

    def _check_topic(
        self, admin: Admin, topic: str, ends: Sequence[int], stored: Sequence[int],
        tails: Mapping[int, Tail],
    ) -> None:  # fmt: skip
        """Raise Unrecoverable if the topic does not have what the index was made from. `ends`: the
        end of each partition. `stored`: the positions of the index. `tails`: its last records."""
        for p, end in enumerate(ends):
            reached = max(stored[p], tails[p].offset + 1 if p in tails else 0)
            if end < reached:
                raise other_topic_error(
                    topic, f"partition {p} was read to {reached}, and it ends at {end}"
                )
        known = {p: tail for p, tail in tails.items() if p < len(ends)}
        offsets = {p: tail.offset for p, tail in known.items()}
        for p, found in record_sums(self._settings, admin, topic, offsets).items():
            if found is not None and found != known[p].checksum:
                raise other_topic_error(
                    topic, f"partition {p} has another record at offset {known[p].offset}"
                )

    def _read(
        self, reader: Reader, writer: IndexWriter, seasons: SeasonFollower, positions: list[int],
        ends: list[int],
    ) -> None:  # fmt: skip
        checkpointed_s, ended, stored = -CHECKPOINT_S, set[int](), list[int]()
        last: dict[int, Record] = {}
        while not self._stop.is_set():
            if added := reader.added(len(positions)):
                raise LogTrouble(
                    f"kafka: {reader.topic} has {added.stop} partitions now: reading begins again"
                )
            self.last_poll_s = self._clock()
            changes: list[tuple[EventPlace, IndexEvent]] = []
            events: list[NewEvent] = []
            for record in reader.gather(POLL_S):
                if record.offset < (at := positions[record.partition]):
                    _store_tails(writer, last)
                    raise LogTrouble(
                        f"kafka: {reader.topic}: partition {record.partition} was read to {at}, "
                        f"and goes on at {record.offset}"
                    )
                self._add_record(record, changes, events)
                positions[record.partition] = record.offset + 1
                last[record.partition] = record
            for partition, end in reader.ends.items():
                positions[partition] = max(positions[partition], end)
            ended |= reader.ends.keys()
            if changes:
                places, applied = zip(*changes, strict=True)
                if after := writer.apply(applied, positions, places):
                    of_events = (each for each in applied if isinstance(each, RatingChanged))
                    events = [
                        with_tier(event, change, after.get(key_of(change)))
                        for event, change in zip(events, of_events, strict=True)
                    ]
            self._sweep(writer)
            if events:
                self._watcher.read(events)
            self.lag = sum(max(0, reader.known_end(p) - at) for p, at in enumerate(positions))
            now_s = self._clock()
            seasons.poll()
            if not self.caught_up:
                done = seasons.caught_up and all(
                    at >= end or p in ended
                    for p, (at, end) in enumerate(zip(positions, ends, strict=True))
                )
                if done and not self._sweep(writer):
                    self._checkpoint(writer, positions, last)
                    self.caught_up, checkpointed_s = True, now_s
            elif now_s - checkpointed_s >= CHECKPOINT_S or (
                self._hurried.is_set() and positions != stored
            ):
                self._hurried.clear()
                self._checkpoint(writer, positions, last)
                checkpointed_s, stored = now_s, list(positions)
            self._watcher.polled(self.caught_up, self.lag)

    def _sweep(self, writer: IndexWriter) -> bool:
        """Let players leave the leaderboards if it is time to. Returns whether more must leave."""
        now_s, more = self._clock(), True
        if now_s - self._swept_s < SWEEP_S:
            return False
        for _ in range(SWEEPS):
            if not (more := writer.sweep()):
                self._swept_s = now_s
                break
        return more

    def _checkpoint(
        self, writer: IndexWriter, positions: Sequence[int], last: dict[int, Record]
    ) -> None:
        """`last` has the last record of each partition since the last checkpoint."""
        _store_tails(writer, last)
        writer.checkpoint(positions)
        self._watcher.checkpointed(positions)

    def _add_record(
        self, record: Record, changes: list[tuple[EventPlace, IndexEvent]], events: list[NewEvent]
    ) -> None:
        """Add the change of the index that a record means, and its event, if it is one."""
        value = record.value
        place = record.partition, record.offset
        try:
            if value is None:
                changes.append((place, PlayerErased(*_ladder_and_player(record.key or b""))))
                return
            event = rating_changed_from_json(value)
            events.append(NewEvent(*place, event.ladder, value))
            changes.append((place, event))
        except UNDECODABLE:
            self._watcher.skipped(*place)


def _store_tails(writer: IndexWriter, last: dict[int, Record]) -> None:
    """Store the last record of each partition, and forget them."""
    writer.store_tails({p: Tail(each.offset, checksum(each.value)) for p, each in last.items()})
    last.clear()


def key_of(event: RatingChanged) -> EntryKey:
    """The ladder, the player and the offset of an event."""
    return event.ladder, event.player, event.offset


def with_tier(new: NewEvent, event: RatingChanged, player: IndexedPlayer | None) -> NewEvent:
    """The event with the fields `tier` and `previous_tier` at its end. `player` is the player after
    the event; without it, the event stays as it is."""
    if player is None or player.placement is None:
        return new
    placement = player.placement
    tier = player.tier_at(placement.played_s)
    fields = {"tier": tier, "previous_tier": None if tier is None else placement.previous_tier}
    head = new.value.rstrip().removesuffix(b"}")
    return new._replace(value=head + b"," + to_json(fields)[1:])


def _ladder_and_player(key: bytes) -> tuple[str, str]:
    """The ladder and the player in a record's key. Raises one of UNDECODABLE."""
    parts = key.decode().split(":")
    if len(parts) != 2:
        raise msgspec.DecodeError("no key of a player")
    return unquote(parts[0], errors="strict"), unquote(parts[1], errors="strict")


async def _check_rights(settings: Settings, ladders: Ladders) -> None:
    """Try all rights that reading needs. Raises Denied or StoreTrouble."""
    reader = IndexReader(settings, ladders=ladders)
    try:
        await reader.check()
    finally:
        await reader.close()
