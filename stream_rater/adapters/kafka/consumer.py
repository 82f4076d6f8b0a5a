"""A worker's input on Kafka: a member of a consumer group that reads one topic.

Every failure or doubt raises LogTrouble. The machine then asks for new producers and starts over.

A transaction commits offsets in the name of a group member. `Input` takes the member id and
generation at a poll after which the assignment did not change. If they were read later, librdkafka
might have left the group after the poll (session or poll interval exceeded) and name no member.
The broker does not fence a transaction without a member.
"""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from stream_rater.adapters import access
from stream_rater.adapters.kafka.records import Messages, source_commit
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.errors import Denied, LogTrouble
from stream_rater.pipeline.ports import POLL_RECORDS, Poll, Polled, SourceCommit

TIMEOUT_S = 5.0
DRAIN_S = 0.05  # How long a static member serves outstanding callbacks before it closes.
STATISTICS_MS = 5000  # The interval at which the client reports how far it has fetched.

MEMBER_S = 0.05
"""The interval at which the group membership is read while the assignment does not change. The
client asks another thread, and holds Python's lock until it answers. If the generation is out of
date, the broker only answers that it is old."""

HEARTBEAT_MS = 200
SETTLE_S = 2.0  # A new member without partitions after this time is a standby.
REJOIN_S = 0.2  # How long a poll waits for metadata of the topic.
WAKE_S = 2.0
"""For this long after an assignment changed, a poll without records wakes the fetching thread."""
FATAL = frozenset({KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID})
"""Errors that are reported once; after them the consumer returns nothing for ever."""
AGAIN_S = 60.0
"""For this long after it has joined again, a named member believes that it is fenced."""
REPORTED_ERRORS = FATAL | {KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION}
FAILED = frozenset({KafkaError._TRANSPORT, KafkaError._SSL})
"""Errors of one broker. librdkafka continues with the others, or reports that none is left."""


NO_PROTOCOL = "API version not supported"
STILL_USED = "still used by another member"
"""What a fatal error says, which has no code of its own, where brokers do not have the protocol
`consumer`, and where a killed member's session is not over: then its name is not free yet."""


def _is_fatal(error: KafkaError) -> bool:
    return error.fatal() or error.code() in FATAL


TRANSIENT = frozenset({
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._RESOLVE,
    KafkaError._MAX_POLL_EXCEEDED,
})  # fmt: skip
"""Errors that librdkafka recovers from by itself. A loss of partitions is reported separately."""


class _Fetching(msgspec.Struct):
    """What the client's statistics say of a partition, by librdkafka's names."""

    partition: int
    next_offset: int  # The next offset to fetch.
    fetchq_cnt: int  # The number of messages that were fetched and not yet read.


class _TopicStatistics(msgspec.Struct):
    partitions: dict[str, _Fetching]


class _Statistics(msgspec.Struct):
    topics: dict[str, _TopicStatistics]


_STATISTICS = msgspec.json.Decoder(_Statistics)


def _of_protocol(settings: Settings) -> dict[str, Any]:
    """The options of a member by its group protocol. The new one has the others on the brokers."""
    if settings.group_protocol == "consumer":
        return {"group.protocol": "consumer"}
    return {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": settings.session_timeout_ms,
        # Members learn of a rebalance at their next heartbeat, and all wait for the last one.
        "heartbeat.interval.ms": min(settings.session_timeout_ms // 4, HEARTBEAT_MS),
    }


def _generation(metadata: bytes) -> int:
    """The group's generation, or a member's epoch, in the client's form; 0 or less: of no member.
    Under the protocol `consumer` a client has its member id before it joins, and keeps it."""
    return int.from_bytes(metadata[len("CGMDv2:") :][:4], sys.byteorder, signed=True)


class Fenced(Exception):
    """This worker cannot continue: another process uses its `instance_id`."""


class Input:
    """A member of a consumer group that reads one topic from offsets that the machine chooses."""

    def __init__(
        self, settings: Settings, topic: str, group: str, stop: threading.Event | None = None,
        *, prefer_large_fetches: bool = False,
    ) -> None:  # fmt: skip
        """`prefer_large_fetches`: fetch only while the client's queue is empty, so that responses
        are few and large."""
        self.topic, self.group, self._settings = topic, group, settings
        self._deadlines = access.Deadlines(stop)
        self._lost, self._gained, self._owned = set[int](), set[int](), set[int]()
        self._reading: set[int] = set()
        """Owned partitions whose offset was set by a seek. Nothing is fetched from the others."""
        self._paused: set[int] = set()
        """Those of `_reading` that are paused because the machine does not want them now."""
        self._next: dict[int, int] = {}
        """The next offset of each partition. The client forgets it when assignments change."""
        self._moved_s = -math.inf
        """When partitions were last assigned or revoked."""
        self._messages = Messages(TRANSIENT, self._translated)
        self.log_ends: Mapping[int, int] = {}
        """The end of each partition as another thread has read it: this thread may be stuck."""
        self._fetched: dict[int, int] = {}
        """The next offset that the client fetches of a partition, if it had nothing for us then.
        It may be out of date while a partition is paused."""
        self._metadata: Any = None
        """The group's metadata at the last poll; None if the worker was no member."""
        self._member_read_s = -math.inf
        """When the membership was last read."""
        self._may_rejoin = False
        """Whether the group may soon ask its members to rejoin."""
        self._joined_s = math.inf
        """When the worker became a member of the group, in monotonic seconds."""
        self._reported_error: KafkaError | None = None
        """An error that the client reported by callback and that no poll has raised yet."""
        self._broker_failure = ""
        """The text of the last error of one broker, which explains why all are down."""
        self.on_committed: Callable[[Mapping[int, int]], None] = lambda _: None
        """Receives the committed offsets whenever they are read."""
        options = access.client_options(settings) | {
            "group.id": settings.topic_prefix + group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **_of_protocol(settings),
            "queued.max.messages.kbytes": 65_536,
            # The first batch is always sent whole, however large it is. Little may follow it,
            # because the client decompresses a whole response at once.
            "fetch.message.max.bytes": 2**20,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 10,  # after an unreadable batch; default 500
            "fetch.queue.backoff.ms": 10,  # while the queue has records; default 1000
            "error_cb": self._on_error,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": self._on_statistics,
        }
        if prefer_large_fetches:
            options["queued.min.messages"] = 1
        self._static = bool(settings.instance_id)
        if self._static:
            options["group.instance.id"] = settings.instance_id
        self._options, self._again_s = options, -math.inf
        self.client_id: str = options["client.id"]
        self.consumer = access.new_consumer(settings, options)
        self._subscribed = False

    def _join_again(self, error: KafkaError) -> None:
        """Give up all partitions, and let the next poll join the group as a fresh member."""
        self._reported_error = error  # the next poll tries again if there is no new client
        consumer = access.new_consumer(self._settings, self._options)
        self._again_s = self._moved_s = time.monotonic()
        self.close()
        self._lose(self._owned.copy())
        self.consumer, self._subscribed, self._reported_error = consumer, False, None

    def _lose(self, partitions: Set[int]) -> None:
        self._lost |= partitions
        for mine in (self._gained, self._owned, self._reading, self._paused):
            mine -= partitions

    def _on_error(self, error: KafkaError) -> None:
        is_over = self._reported_error is not None and _is_fatal(self._reported_error)
        if error.code() in REPORTED_ERRORS and not is_over:
            self._reported_error = error
        elif error.code() in FAILED:
            self._broker_failure = error.str()

    def _on_statistics(self, text: str) -> None:
        self._fetched = {
            each.partition: each.next_offset
            for topic in _STATISTICS.decode(text).topics.values()
            for each in topic.partitions.values()
            if each.fetchq_cnt == 0
        }

    def _subscribe(self) -> None:
        """Join the group, at the first poll: a member that does not poll delays the others."""
        self.consumer.subscribe(
            [self.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        self._subscribed = True

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._joined_s = min(self._joined_s, time.monotonic())
        self._may_rejoin = True
        self._moved_s = time.monotonic()
        numbers = {each.partition for each in partitions}
        self._gained |= numbers
        self._owned |= numbers
        # Nothing is read before the machine has chosen an offset. With the empty
        # assignment librdkafka knows that the application assigns the partitions itself.
        consumer.incremental_assign([])

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._may_rejoin = True
        self._moved_s = time.monotonic()
        numbers = {each.partition for each in partitions}
        consumer.incremental_unassign(self._topic_partitions(numbers & self._reading))
        self._lose(numbers)

    def poll(self, effect: Poll) -> Polled:
        """Poll once: wait for a first record, and take the others that are there."""
        try:
            if not self._subscribed:
                self._subscribe()
            self._pause(self._reading if effect.no_fetch else self._reading & effect.paused)
            first = self.consumer.poll(effect.timeout_s)
            rest = [] if effect.no_fetch else self._rest(first, effect)
            moved = time.monotonic() < self._moved_s + WAKE_S
            # The seeks that wake the client go to `_next`, which lies before the records in `rest`.
            if first is None and not rest and moved and not effect.no_fetch:
                self._wake(self._reading - self._paused)
            if max(self._moved_s, time.monotonic() - MEMBER_S) >= self._member_read_s:
                self._read_membership()
            if self._may_rejoin:
                self._rejoin_at_once()
        except KafkaException as error:
            raise self._translated(error.args[0]) from None
        messages = rest if first is None else [first, *rest]
        self._raise_reported(messages)
        records = self._messages.records(messages)
        self._next |= {each.partition: each.offset + 1 for each in records}
        self._skip_unreadable()
        polled = Polled(time.monotonic(), frozenset(self._lost), frozenset(self._gained), records)
        self._lost.clear()
        self._gained.clear()
        return polled

    def _rest(self, first: Message | None, effect: Poll) -> list[Message]:
        """The records after the first: wait for enough of them or for the time, then take all."""
        missing = effect.enough - 1 if first is not None and effect.gather_s else 0
        gathered = self.consumer.consume(missing, effect.gather_s) if missing > 0 else []
        return gathered + self.consumer.consume(POLL_RECORDS - len(gathered), 0.0)

    def _raise_reported(self, messages: Sequence[Message]) -> None:
        """Raise the error that the client reported by callback. A fatal one among the messages goes
        first, because it is reported only once."""
        if self._reported_error is None:
            return
        reported, self._reported_error = self._reported_error, None
        if reported.code() == KafkaError._ALL_BROKERS_DOWN and self._broker_failure:
            reported = KafkaError(reported.code(), f"{reported.str()}: {self._broker_failure}")
            self._broker_failure = ""
        errors = [error for each in messages if (error := each.error()) is not None]
        raise self._translated(next(filter(_is_fatal, errors), reported))

    def _pause(self, wanted: set[int]) -> None:
        """Pause these partitions, and resume the others."""
        self._forget_fetched(wanted ^ self._paused)
        if new := wanted - self._paused:
            self.consumer.pause(self._topic_partitions(new))
        if back := self._paused - wanted:
            self.consumer.resume(self._topic_partitions(back))
            self._wake(back)
        self._paused = set(wanted)

    def _wake(self, partitions: Set[int]) -> None:
        """Wake librdkafka's fetching thread for these partitions. While partitions are paused or
        move, the thread sleeps, and it notices a change only within a second. A seek wakes it, even
        a seek to the present position."""
        for each in self._topic_partitions({p: self._next[p] for p in partitions}):
            with suppress(KafkaException):  # it is being moved: fetching begins when that ends
                self.consumer.seek(each)

    def _rejoin_at_once(self) -> None:
        """Let librdkafka rejoin at once, by a metadata response: alone it tries once a second."""
        self._may_rejoin = False
        with suppress(KafkaException):
            self.consumer.list_topics(self.topic, REJOIN_S)

    def _read_membership(self) -> None:
        """Read the member id and the group's metadata, which may be out of date soon (MEMBER_S)."""
        metadata = self.consumer.consumer_group_metadata()
        self._member_read_s = time.monotonic()
        # Read after the metadata: a client that has no member id gets one only in a later poll.
        is_member = _generation(metadata) > 0 and self.consumer.memberid()
        self._metadata = metadata if is_member else None
        # Under the protocol `consumer`, an assignment of no partitions is not reported.
        self._joined_s = min(self._joined_s, self._member_read_s) if is_member else math.inf

    @property
    def joined(self) -> bool:
        """Whether the worker is a member of the group, with or without partitions."""
        return self._joined_s < math.inf

    @property
    def settled(self) -> bool:
        """Whether the worker owns partitions, or has been a member for SETTLE_S: a new member's
        first assignment is empty, because others must release partitions first."""
        return bool(self._owned) or time.monotonic() > self._joined_s + SETTLE_S

    def membership(self) -> Any:
        """The group metadata of the last poll. Raises LogTrouble if the worker is no member."""
        if self._metadata is None:
            raise LogTrouble("kafka: this worker is no longer a member of its group")
        return self._metadata

    def _translated(self, error: KafkaError) -> Exception:
        if not _is_fatal(error):
            return access.trouble_of(error)
        why, name = f"kafka: {error.str()}", f"{PREFIX}INSTANCE_ID={self._settings.instance_id}"
        if NO_PROTOCOL in why:
            return Denied(f"{why}: {PREFIX}GROUP_PROTOCOL=consumer takes Kafka 4.0 or newer")
        is_again = time.monotonic() < self._again_s + AGAIN_S and STILL_USED not in why
        if not self._static or is_again:
            return Fenced(f"{why}: another worker has {name}, too" if self._static else why)
        # A broker that was restarted may say so of a name that nobody shares.
        self._join_again(error)
        return LogTrouble(f"{why}: if nobody else has {name}, joining again helps")

    def _skip_unreadable(self) -> None:
        skips = {p: o for p, o in self._messages.skips.items() if p in self._reading}
        self._next |= skips
        with access.translated_failures():
            for each in self._topic_partitions(skips):
                self._seek_one(each)

    def _topic_partitions(self, which: Mapping[int, int] | Set[int]) -> list[TopicPartition]:
        """These partitions in the client's form, with their offsets, or with offset 0."""
        offsets = which if isinstance(which, Mapping) else dict.fromkeys(which, 0)
        return [TopicPartition(self.topic, p, o) for p, o in offsets.items()]

    def committed(self, partitions: frozenset[int]) -> dict[int, int | None]:
        """The committed offsets, once no transaction is pending on them; None: never committed."""
        found = self.committed_source(partitions)
        return {p: None if each is None else each.offset for p, each in found.items()}

    def committed_source(self, partitions: frozenset[int]) -> dict[int, SourceCommit | None]:
        """The committed offsets with the checksums that were committed with them, once no
        transaction is pending on them; None: never committed."""
        asked = self._topic_partitions(partitions)
        reply: Any = self._deadlines.call(
            TIMEOUT_S, lambda slice_s: self.consumer.committed(asked, timeout=slice_s)
        )
        access.raise_first(reply)
        self.on_committed({each.partition: max(0, each.offset) for each in reply})
        return {each.partition: source_commit(each) for each in reply}

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Read from these offsets, and drop what was fetched before. A kept partition is never
        unassigned: during a rebalance, librdkafka would take that as its answer, and other members
        would own partitions that the machine has not yet released."""
        self._messages.begin_at(offsets)
        self._forget_fetched(offsets)
        mine = {p: o for p, o in offsets.items() if p in self._owned}
        already_read = {p: o for p, o in mine.items() if p in self._reading}
        with access.translated_failures():
            self.consumer.incremental_assign(
                self._topic_partitions({p: o for p, o in mine.items() if p not in already_read})
            )
            self._reading |= mine.keys()
            self._next |= mine
            for each in self._topic_partitions(already_read):
                self._seek_one(each)
            # Resume all: a partition that was lost while it was paused is still paused when it is
            # assigned again.
            self.consumer.resume(self._topic_partitions(mine))
        self._paused -= mine.keys()

    def _seek_one(self, to: TopicPartition) -> None:
        try:
            self.consumer.seek(to)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            # The client stopped fetching it, as after an offset out of range. Only a new assignment
            # starts it again.
            self.consumer.incremental_unassign([to])
            self.consumer.incremental_assign([to])

    def not_read(self) -> list[int]:
        """Partitions that are owned and not yet read."""
        return sorted(self._owned - self._reading)

    def ends(self) -> dict[int, int]:
        """The end of each partition that is owned, as old as `log_ends`, for any thread. It is the
        high watermark. But where the client has fetched up to there, and we have read all that it
        found, it is the offset after the last record: the ends of transactions and aborted records
        take offsets that nobody finishes. The client reports how far it has fetched every
        STATISTICS_MS."""
        ends = {p: end for p, end in self.log_ends.items() if p in self._owned}
        for p, end in ends.items():
            read = p in self._reading and p not in self._paused
            if read and end <= self._fetched.get(p, -1):
                ends[p] = min(end, self._next.get(p, end))
        return ends

    def _forget_fetched(self, partitions: Iterable[int]) -> None:
        """Forget how far these partitions were fetched, because they are fetched again."""
        for partition in partitions:
            self._fetched.pop(partition, None)

    def close(self) -> None:
        """Leave the group and close the consumer. The member first gives up all partitions, then
        closes. If a rebalance begins while librdkafka closes, it hangs for ever in a callback that
        holds Python's lock. A static member does not leave the group: its successor of the same
        name takes its partitions over."""
        if self._subscribed:
            if not self._static:
                self.consumer.unsubscribe()
            end_s = time.monotonic() + (DRAIN_S if self._static else access.STOP_GRACE_S)
            while self._owned and time.monotonic() < end_s:
                self.consumer.poll(0.01)
        self.consumer.close()
