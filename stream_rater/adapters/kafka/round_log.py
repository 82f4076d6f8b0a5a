"""What `serve` does on Kafka: appends to `round-completed`, and follows topics for an index."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from stream_rater.adapters import access
from stream_rater.adapters.kafka import reader, season_topic, topic_rules, topics
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble, TopicMismatch, Trouble
from stream_rater.contract.record import Appended, NewRecord, NotAppended, Record, RecordPlace

ACKNOWLEDGED_S = 10.0
"""The seconds within which Kafka must acknowledge a record. After that its outcome is unknown."""
LINGER_MS = 2  # How long a record waits for others of the same request to Kafka.
MOST_RECORDS = 10_000  # The most records that may wait for Kafka's acknowledgement.
MOST_BYTES = 64 * 1024 * 1024  # The most bytes of them.
UNEXPLAINED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL})
"""The outcomes of records of a producer that has failed. The producer itself reports the reason."""
_Outcome = tuple["asyncio.Future[Appended]", int, Appended]  # With the record's size in bytes.
POLL_S = 0.1
RETRY_S = 1.0
END_S = 3.0  # The seconds for which records are still delivered when the process ends.


class KafkaRoundLog:
    """Appends records, keyed by ladder, by an idempotent producer. A record that Kafka has
    acknowledged is on all in-sync replicas. A record whose acknowledgement did not arrive may be in
    the log."""

    def __init__(self, settings: Settings, trouble: Callable[[str], None] = lambda _: None) -> None:
        """`trouble` receives the reason why Kafka does not answer at the start."""
        self._settings, self._trouble = settings, trouble
        self._options: dict[str, Any] = access.client_options(settings) | {
            "enable.idempotence": True, "acks": "all", "compression.type": "lz4",
            "linger.ms": LINGER_MS, "error_cb": self._on_error,
            "message.max.bytes": topic_rules.MESSAGE_BYTES,
            "delivery.timeout.ms": int(1000 * ACKNOWLEDGED_S),
            "queue.buffering.max.messages": MOST_RECORDS,
            "queue.buffering.max.kbytes": 2 * MOST_BYTES // 1024,
        }  # fmt: skip
        self._producer: Producer | None = None
        self._topic = ""
        self._ends: list[int] = []
        self._why = "kafka: not connected yet"
        self._bytes = 0
        self.waiting = 0  # The number of records that wait for Kafka's acknowledgement.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._outcomes: list[_Outcome] = []
        """Outcomes that the event loop does not know yet. Only the thread uses it."""
        self._failed = False  # Whether the producer can no longer be used.
        self._failure = ""  # The last error that the producer reported of itself.
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="round-log", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connect in a thread, whose outcomes go to this event loop."""
        self._loop = loop
        self._thread.start()

    def close(self) -> None:
        """End the thread. Records that still wait are delivered, or fail, within END_S."""
        self._stop.set()
        if self._loop is not None:
            self._thread.join(2 * END_S)

    @property
    def partitions(self) -> int:
        """The number of partitions of `round-completed`. Raises LogTrouble while it is unknown."""
        if not self._ends:
            raise LogTrouble(self._why)
        return len(self._ends)

    def end_of(self, partition: int) -> int:
        """The end of a partition, as far as this process has seen it."""
        return self._ends[partition]

    async def append(self, records: Sequence[NewRecord]) -> list[Appended]:
        """Append records, in this order. Returns the outcome of each once all are known."""
        found = [self._send(each) for each in records]
        waiting = [each for each in found if isinstance(each, asyncio.Future)]
        if waiting:
            await asyncio.wait(waiting, timeout=ACKNOWLEDGED_S + END_S)
        return [_outcome_now(each) if isinstance(each, asyncio.Future) else each for each in found]

    def _send(self, record: NewRecord) -> "asyncio.Future[Appended] | Appended":
        producer, loop = self._producer, self._loop
        if producer is None or loop is None:
            return NotAppended("unavailable", self._why)
        size = len(record.value)
        if self.waiting >= MOST_RECORDS or self._bytes + size > MOST_BYTES:
            return _full(self.waiting)
        future: asyncio.Future[Appended] = loop.create_future()

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._outcomes.append((future, size, self._outcome(error, message)))

        try:
            # Positional arguments, as in `producers.produce`.
            producer.produce(
                self._topic, record.value, record.key, record.partition, delivered, None, 0,
                list(record.headers),
            )  # fmt: skip
        except BufferError:
            return _full(self.waiting)
        except KafkaException as error:
            return self._outcome_of(error.args[0])
        self.waiting += 1
        self._bytes += size
        return future

    def _run(self) -> None:
        while not self._stop.is_set() and not self._connect():
            self._stop.wait(RETRY_S)
        while not self._stop.is_set():
            self._poll(POLL_S)
            if self._failed:
                self._renew()
        end_s = time.monotonic() + END_S
        while self.waiting and time.monotonic() < end_s:
            self._poll(POLL_S)

    def _connect(self) -> bool:
        try:
            admin = topics.Admin(self._settings, request_timeout_s=topics.REQUEST_TIMEOUT_S)
            topic = admin.topics.rounds
            (partitions,) = admin.partitions_of(topic)
            ends = admin.ends(topic, partitions)
        except (Trouble, Denied, TopicMismatch) as error:
            self._why = str(error)
            self._trouble(self._why)
            return False
        self._topic = topic
        self._producer = access.new_producer(self._settings, self._options)
        self._ends = ends
        return True

    def _poll(self, wait_s: float) -> None:
        """Run the callbacks of records whose outcome is known, and report the outcomes."""
        assert self._producer is not None
        try:
            self._producer.poll(wait_s)
        except access.CALLBACK_FAILURES as error:
            why = str(access.trouble_of(error)).removeprefix("kafka: ")
            self._failed, self._failure = True, why
        self._report()

    def _report(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        if outcomes and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._resolve, outcomes)

    def _renew(self) -> None:
        """Replace a producer that has failed for good. All its records fail."""
        old = self._producer
        assert old is not None
        old.purge()
        old.flush(END_S)
        self._report()
        self._trouble(f"kafka: {self._failure}")
        self._stop.wait(RETRY_S)
        self._failed = False
        self._producer = access.new_producer(self._settings, self._options)

    def _on_error(self, error: KafkaError) -> None:
        self._failed |= error.fatal()
        self._failure = error.str()

    def _outcome(self, error: KafkaError | None, message: Message) -> Appended:
        if error is not None:
            return self._outcome_of(error)
        place = RecordPlace(message.partition() or 0, message.offset() or 0)
        self._ends[place.partition] = max(self._ends[place.partition], place.offset + 1)
        return place

    def _outcome_of(self, error: KafkaError) -> Appended:
        self._failed |= error.fatal() or error.code() == KafkaError._FATAL
        if error.code() in UNEXPLAINED and self._failure:
            return NotAppended("unavailable", f"kafka: {self._failure}")
        if error.code() in access.TOO_LARGE:
            text = f"Kafka takes no record of this size: {error.str()}: send it by a producer"
            return NotAppended("too-large", text)
        return NotAppended("unavailable", f"kafka: {error.str()}")

    def _resolve(self, outcomes: "Sequence[_Outcome]") -> None:
        for future, size, outcome in outcomes:
            self.waiting -= 1
            self._bytes -= size
            if not future.done():
                future.set_result(outcome)


def _outcome_now(future: "asyncio.Future[Appended]") -> Appended:
    """The outcome of a record. It is unknown if the client itself has not reported it in time."""
    if future.done():
        return future.result()
    return NotAppended("unavailable", f"kafka: no acknowledgement within {ACKNOWLEDGED_S:g} s")


def _full(waiting: int) -> NotAppended:
    return NotAppended("busy", f"{waiting:,} records wait for Kafka: send it later")


# --- what an index follows (`index.log`) ----------------------------------------------------------

KEEPS_TOMBSTONES_MS = 86_400_000
"""The default of delete.retention.ms, used if this service may not read the topic's own value."""


class KafkaLog:
    """The topics of a service, as an index follows them (`index.log.FollowedLog`)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin = topics.Admin(settings, request_timeout_s=topics.REQUEST_TIMEOUT_S)

    def changed(self) -> "KafkaTopic":
        """The events of `rating-changed`."""
        topic = self._admin.topics.changed
        (partitions,) = self._admin.partitions_of(topic)
        return KafkaTopic(self._settings, self._admin, topic, partitions)

    def standings(self) -> "KafkaTopic | None":
        """The records of `season-ended`; None if there is no such topic yet."""
        topic = season_topic.topic_of(self._settings)
        partitions = self._admin.partitions_if_any(topic)
        if partitions is None:
            return None
        return KafkaTopic(self._settings, self._admin, topic, partitions)

    def close(self) -> None:
        """Does nothing: each topic has its own connections."""


class KafkaTopic(reader.Reader):
    """A topic that an index follows (`index.log.FollowedTopic`)."""

    def __init__(
        self, settings: Settings, admin: topics.Admin, topic: str, partitions: int
    ) -> None:
        super().__init__(settings, topic)
        self._settings, self._admin = settings, admin
        self.id, self.partitions = f"{topic}:{admin.topic_id(topic)}", partitions

    @property
    def forgets_s(self) -> float:
        """The time after which Kafka may delete a record without a value."""
        found = None
        with suppress(Denied):
            found = self._admin.configuration(self.topic).get("delete.retention.ms")
        return int(found or KEEPS_TOMBSTONES_MS) / 1000.0

    def end_offsets(self) -> Sequence[int]:
        """The end of each partition."""
        return [self.bounds(partition)[1] for partition in range(self.partitions)]

    def checksums(self, offsets: Mapping[int, int]) -> Mapping[int, int | None]:
        """By partition, the checksum of the record at an offset before the end; None: no record."""
        return reader.record_sums(self._settings, self._admin, self.topic, offsets)

    def gather(self, wait_s: float) -> Sequence[Record]:
        """The same as of every reader. Raises LogTrouble if partitions were added."""
        if added := self.added(self.partitions):
            raise LogTrouble(
                f"kafka: {self.topic} has {added.stop} partitions now: reading begins again"
            )
        return super().gather(wait_s)

    def wake(self) -> None:
        """Does nothing: `gather` returns soon by itself."""
