"""The log on Kafka as one worker reads it: a member of a consumer group.

Every failure, and every doubt, is LogTrouble: the machine then asks for new producers and starts
over.

Whoever commits says as whom: the member and generation of a poll since which nothing moved. Asked
for later, librdkafka may have left the group meanwhile (session or poll interval over) and tell of
no member at all, and a transaction in nobody's name is not fenced by the broker.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from stream_rater.adapters.access import QUIET, client_options, trouble_of
from stream_rater.adapters.deadlines import LAST_MOMENTS_S, Patience
from stream_rater.adapters.records import Unreadable, record_of
from stream_rater.config import Settings
from stream_rater.contract.record import Record
from stream_rater.pipeline.ports import POLL_RECORDS, LogTrouble, Poll, Polled

TIMEOUT_S = 5.0
DRAIN_S = 0.05
"""How long callbacks that are due are served before a static member closes."""

ENDS_EVERY_S = 1.0
"""How often the ends of partitions are noted, for metrics."""

MEMBER_S = 0.05
"""How often it is noted who we are in the group, if nothing moves: the client asks a thread of its
own, and keeps Python's lock meanwhile. Of what is older the broker can only say that it is old."""

HEARTBEAT_MS = 200
SETTLE_S = 2.0
"""A newcomer who has no share after so long is in reserve."""

REJOIN_S = 0.2
"""How long a poll waits for an answer about topics."""

WAKE_S = 2.0
"""For so long after a share moved, a poll that finds nothing wakes those who fetch."""

FATAL = frozenset({KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID})
"""Told once; from then on the consumer is silent for ever."""

NOTICED = FATAL | {KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION}

FAILED = frozenset({KafkaError._TRANSPORT, KafkaError._SSL})
"""Of one broker: librdkafka goes on with the others, or tells that none is left."""


def _is_fatal(error: KafkaError) -> bool:
    return error.fatal() or error.code() in FATAL


PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._PARTITION_EOF,
        KafkaError._MAX_POLL_EXCEEDED,
    }
)
"""What a consumer may be told and librdkafka mends itself; a loss of partitions is told apart."""


class Fenced(Exception):
    """This worker can never go on: another process uses its `instance_id`."""


class Input:
    """A group member that reads one topic from offsets that we choose."""

    def __init__(
        self, settings: Settings, topic: str, group: str, stop: threading.Event | None = None,
        *, calm: bool = False,
    ) -> None:  # fmt: skip
        """`calm`: nothing is fetched while anything waits, so that answers are few and large."""
        self.topic = topic
        self._patience = Patience(stop)
        self._lost: set[int] = set()
        self._gained: set[int] = set()
        self._owned: set[int] = set()
        self._reading: set[int] = set()
        """Owned partitions that were sought; nothing is fetched of the others."""
        self._resting: set[int] = set()
        """Those of them that are paused because the machine wants none of them now."""
        self._next: dict[int, int] = {}
        """Where each of those that are read goes on. (The client forgets it as shares move.)"""
        self._moved_s = -math.inf
        """When partitions last came or went."""
        self._unreadable = Unreadable()
        self._ends: dict[int, int] = {}
        """High watermark by partition; replaced, never changed: metrics read it in their thread."""
        self._ends_due_s = 0.0
        self._member: str | None = None
        """As whom we were in the group at the last poll; None: not at all."""
        self._metadata: Any = None
        self._noted_s = -math.inf
        """When that was noted."""
        self._rejoins = False
        """Whether the group may ask us to join again soon."""
        self._joined_s = math.inf
        """Since when the group counts us in, monotonic seconds."""
        self._noticed: KafkaError | None = None
        self._why = ""
        """The last failure of one broker, for when all are down."""
        """What the client told beside the records, and nobody heard yet."""
        self.on_committed: Callable[[Mapping[int, int]], None] = lambda _: None
        """Told the committed offsets that were read."""
        options = client_options(settings) | {
            "group.id": settings.topic_prefix + group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": settings.session_timeout_ms,
            # A member learns of a rebalance with its next heartbeat: all wait for the last one.
            "heartbeat.interval.ms": min(settings.session_timeout_ms // 4, HEARTBEAT_MS),
            "queued.max.messages.kbytes": 65_536,
            # The first batch comes whole, however large. Not much behind it: all of an answer is
            # decompressed at once.
            "fetch.message.max.bytes": 2**20,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 10,  # after a batch that cannot be read: 500 ms by default
            "fetch.queue.backoff.ms": 10,  # while something waits in the queue: 1 s by default
            "error_cb": self._notice,
        }
        if calm:
            options["queued.min.messages"] = 1
        self._static = bool(settings.instance_id)
        if self._static:
            options["group.instance.id"] = settings.instance_id
        self.consumer = Consumer(options, logger=QUIET)
        self._subscribed = False

    def _notice(self, error: KafkaError) -> None:
        told = self._noticed is not None and _is_fatal(self._noticed)
        if error.code() in NOTICED and not told:
            self._noticed = error
        elif error.code() in FAILED:
            self._why = error.str()

    def _subscribe(self) -> None:
        """Join the group: at the first poll, since only who polls on can leave it in peace."""
        self.consumer.subscribe(
            [self.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        self._subscribed = True

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._joined_s = min(self._joined_s, time.monotonic())
        self._rejoins = True
        self._moved_s = time.monotonic()
        numbers = {each.partition for each in partitions}
        self._gained |= numbers
        self._owned |= numbers
        # Nothing is read before the machine has chosen where to begin. The call tells librdkafka
        # that we see to it ourselves.
        consumer.incremental_assign([])

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._rejoins = True
        self._moved_s = time.monotonic()
        numbers = {each.partition for each in partitions}
        consumer.incremental_unassign(self._tps(dict.fromkeys(numbers & self._reading, 0)))
        self._lost |= numbers
        for mine in (self._gained, self._owned, self._reading, self._resting):
            mine -= numbers

    def poll(self, wish: Poll) -> Polled:
        """What the next moment brings: the first record is waited for, and others are taken."""
        try:
            if not self._subscribed:
                self._subscribe()
            self._rest(self._reading if wish.full else self._reading & wish.resting)
            first = self.consumer.poll(wish.timeout_s)
            rest = [] if wish.full else self._others(first, wish)
            if first is None and not wish.full and time.monotonic() < self._moved_s + WAKE_S:
                self._wake(self._reading - self._resting)
            if max(self._moved_s, time.monotonic() - MEMBER_S) >= self._noted_s:
                self._note_membership()
            self._note_ends()
            if self._rejoins:
                self._hurry_to_rejoin()
        except KafkaException as error:
            raise self._named(error.args[0]) from None
        messages = rest if first is None else [first, *rest]
        self._raise_noticed(messages)
        self._unreadable.begin()
        records = [r for each in messages if (r := self._record(each)) is not None]
        self._next |= {each.partition: each.offset + 1 for each in records}
        self._skip_unreadable()
        polled = Polled(time.monotonic(), frozenset(self._lost), frozenset(self._gained), records)
        self._lost.clear()
        self._gained.clear()
        return polled

    def _others(self, first: Message | None, wish: Poll) -> list[Message]:
        """Those that come with the first while there are not enough, and all that are there."""
        awaited = wish.enough - 1 if first is not None and wish.gather_s else 0
        come = self.consumer.consume(awaited, wish.gather_s) if awaited > 0 else []
        return come + self.consumer.consume(POLL_RECORDS - len(come), 0.0)

    def _raise_noticed(self, messages: Sequence[Message]) -> None:
        """What the client told beside the records; what ends it, among them, is told only once."""
        if self._noticed is None:
            return
        noticed, self._noticed = self._noticed, None
        if noticed.code() == KafkaError._ALL_BROKERS_DOWN and self._why:
            noticed = KafkaError(noticed.code(), f"{noticed.str()}: {self._why}")
            self._why = ""
        errors = [error for each in messages if (error := each.error()) is not None]
        raise self._named(next(filter(_is_fatal, errors), noticed))

    def _rest(self, wanted: set[int]) -> None:
        """Pause these of what is read, and go on with the others."""
        if wanted - self._resting:
            self.consumer.pause(self._tps(dict.fromkeys(wanted - self._resting, 0)))
        if back := self._resting - wanted:
            self.consumer.resume(self._tps(dict.fromkeys(back, 0)))
            self._wake(back)
        self._resting = set(wanted)

    def _wake(self, partitions: Set[int]) -> None:
        """librdkafka's fetching thread, which has nothing to do while partitions rest or move,
        does not hear that they go on: it finds out within a second. A seek tells it, even one to
        where we are."""
        for each in self._tps({p: self._next[p] for p in partitions}):
            with suppress(KafkaException):  # it is on the move: whoever ends that, begins to fetch
                self.consumer.seek(each)

    def _hurry_to_rejoin(self) -> None:
        """librdkafka joins a group once a second, and a share that moves takes two joins. An answer
        about topics lets it join again at once; without one it is only slower."""
        self._rejoins = False
        with suppress(KafkaException):
            self.consumer.list_topics(self.topic, REJOIN_S)

    def _note_membership(self) -> None:
        """Who we are in the group, as long as what the machine was told is what we own."""
        metadata = self.consumer.consumer_group_metadata()
        self._noted_s = time.monotonic()
        # In this order: once it has no member id, it gets another only inside a later poll.
        self._member = self.consumer.memberid() or None
        self._metadata = metadata if self._member else None
        if self._member is None:
            self._joined_s = math.inf

    @property
    def joined(self) -> bool:
        """Whether the group counts us in, if only to say that there is nothing to own yet."""
        return self._joined_s < math.inf

    @property
    def settled(self) -> bool:
        """Whether we have a share, or would have it by now if there were one for us: a newcomer's
        first is empty, since others have to give theirs up."""
        return bool(self._owned) or time.monotonic() > self._joined_s + SETTLE_S

    def membership(self) -> Any:
        """The group metadata of the last poll, for a transaction."""
        if self._metadata is None:
            raise LogTrouble("kafka: no member of the group any more")
        return self._metadata

    def _named(self, error: KafkaError) -> Exception:
        if _is_fatal(error):
            return Fenced(f"kafka: {error.str()}")
        return trouble_of(error)

    def _record(self, message: Message) -> Record | None:
        error = message.error()
        if error is None:
            return record_of(message)
        if error.code() in PASSING:
            return None
        if error.code() == KafkaError._BAD_COMPRESSION:
            return self._unreadable.record(message)
        raise self._named(error)

    def _skip_unreadable(self) -> None:
        skips = {p: o for p, o in self._unreadable.skips.items() if p in self._reading}
        self._next |= skips
        try:
            for each in self._tps(skips):
                self._seek_one(each)
        except KafkaException as error:
            raise trouble_of(error) from None

    def _tps(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, p, o) for p, o in offsets.items()]

    def committed(self, partitions: frozenset[int]) -> dict[int, int | None]:
        """Stable committed offsets: pending transactions are waited for."""
        asked = self._tps(dict.fromkeys(partitions, 0))
        reply: Any = self._patience.call(
            TIMEOUT_S, lambda slice_s: self.consumer.committed(asked, timeout=slice_s)
        )
        for each in reply:
            if each.error is not None:
                raise trouble_of(each.error)
        found = {each.partition: each.offset if each.offset >= 0 else None for each in reply}
        self.on_committed({partition: offset or 0 for partition, offset in found.items()})
        return found

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Read from these offsets, with nothing left of what was fetched before.

        Never by unassigning what we keep: were a rebalance under way, librdkafka would take that
        for the answer to it, and others would own what we have not been told we lost.
        """
        self._unreadable.begin_at(offsets)
        mine = {p: o for p, o in offsets.items() if p in self._owned}
        begun = {p: o for p, o in mine.items() if p in self._reading}
        try:
            self.consumer.incremental_assign(
                self._tps({p: o for p, o in mine.items() if p not in begun})
            )
            self._reading |= mine.keys()
            self._next |= mine
            for each in self._tps(begun):
                self._seek_one(each)
            # All of them: one that was lost while it rested comes back resting.
            self.consumer.resume(self._tps(mine))
        except KafkaException as error:
            raise trouble_of(error) from None
        self._resting -= mine.keys()

    def _seek_one(self, to: TopicPartition) -> None:
        try:
            self.consumer.seek(to)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            # It stopped fetching, as after an offset out of range: only this starts it again.
            self.consumer.incremental_unassign([to])
            self.consumer.incremental_assign([to])

    def unopened(self) -> list[int]:
        """Partitions that are owned and not read yet."""
        return sorted(self._owned - self._reading)

    def lag(self) -> dict[int, int]:
        """High watermark of each owned partition, as a fetch saw it a second ago at most."""
        return self._ends

    def _note_ends(self) -> None:
        """For `lag`, in the polling thread: the client serves one thread at a time, and another
        one's call would starve beside a thread that always polls."""
        if time.monotonic() < self._ends_due_s:
            return
        self._ends_due_s = time.monotonic() + ENDS_EVERY_S
        ends = {}
        for partition in self._reading:
            with suppress(KafkaException):  # nothing was fetched yet
                _, end = self.consumer.get_watermark_offsets(
                    TopicPartition(self.topic, partition), cached=True
                )
                if end >= 0:
                    ends[partition] = end
        self._ends = ends

    def close(self) -> None:
        """Leave the group.

        First nothing is owned any more, then the consumer is closed: librdkafka hangs for ever (and
        in our callback, so with Python's lock held) if a rebalance comes while it closes. A static
        member does not leave: a successor of its name takes its partitions over as they are.
        """
        if self._subscribed:
            if not self._static:
                self.consumer.unsubscribe()
            end_s = time.monotonic() + (DRAIN_S if self._static else LAST_MOMENTS_S)
            while self._owned and time.monotonic() < end_s:
                self.consumer.poll(0.01)
        self.consumer.close()
