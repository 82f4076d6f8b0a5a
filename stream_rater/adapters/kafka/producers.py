"""The producers on Kafka: one for transactions, and one without, for parts and for commands. A
transaction that was slow to end, or during which a connection broke, is in doubt even if it reports
success: a retried request may arrive later and end the *next* transaction. So its producer is
discarded, and the next producer first fences whatever may still be in flight."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from stream_rater.adapters import access
from stream_rater.adapters.kafka.consumer import TIMEOUT_S, Input
from stream_rater.adapters.kafka.envelopes import Headers, Sender
from stream_rater.adapters.kafka.records import committing
from stream_rater.adapters.kafka.topic_rules import MESSAGE_BYTES, advice_to_enlarge
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble, Regrouped
from stream_rater.contract.record import ANY_OFFSET, Record
from stream_rater.pipeline.ports import NO_TAILS, Tails

DELIVERY_TIMEOUT_S = 30.0
SUBMIT_S = 300.0  # The delivery time-out of a round that a command sends; librdkafka's default.
FLUSH_S = 60.0  # The longest time that a command waits for the acknowledgements of its messages.
SLOW_COMMIT_S = 2.0
"""A transaction whose end took longer may have been retried, so it counts as in doubt."""
NEW_PRODUCER_EVERY_S = 0.2
"""The shortest time between two new producers, so that a persistent failure does not spin."""
LARGEST_REQUEST_BYTES = access.LARGEST_RESPONSE_BYTES
"""The client's own limit, as large as the readers'. Brokers enforce the limit of each topic."""
ANY = -1  # Let the client choose the partition by the key.
NOW = 0  # Let the client set the timestamp.

Delivered = Callable[[KafkaError | None, Message], None]
"""Receives the outcome of one message: an error, or the message with its place."""

DISCONNECTS = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}

SYSLOG_INFO = 6
"""The level at which the client logs a broken connection. It logs a connection that was idle for a
minute below this level; no request can have been in flight on it."""
IN_DOUBT = frozenset({"FAIL", "REQTMOUT"})
"""The kinds of the lines in the client's log about a connection that broke, and about a request
that the client gave up and may send again."""


def produce(producer: Producer, message: tuple[Any, ...], slices: Iterable[float]) -> None:
    """Produce one message. While the client's queue is full, serve callbacks, which make room, for
    these slices of time. Raises LogTrouble if the queue stays full, and the client's exceptions.
    `message` has the client's positional arguments, from the topic on: they take 25 % to 33 % less
    time than keywords."""
    try:
        producer.produce(*message)
        return
    except BufferError:
        for slice_s in slices:
            producer.poll(slice_s)
            with suppress(BufferError):
                producer.produce(*message)
                return
    raise LogTrouble("kafka: the producer's queue stays full")


class DisconnectHandler(logging.Handler):
    """A log handler that reports broken connections from the client's log. Since librdkafka 2.11.1
    the error callback reports connections that are refused, and the loss of all brokers. If a
    connection to one of several brokers is closed, or a request times out, it only logs it."""

    def __init__(self, on_disconnect: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._on_disconnect = on_disconnect

    def emit(self, record: logging.LogRecord) -> None:
        """The client logs `%s [%s] %s`: the kind of line, its own name, and thread and text."""
        match record.args:
            case (kind, _, str(text)) if kind in IN_DOUBT:
                self._on_disconnect(text.partition("]: ")[2] or text)


class Transactions:
    """A transactional producer that is replaced as soon as a transaction is in doubt."""

    def __init__(
        self, settings: Settings, role: str, input_: Input | None,
        stop: threading.Event | None = None,
    ) -> None:  # fmt: skip
        """`input_`: the topic whose offsets transactions commit; None if they commit none."""
        name = settings.instance_id or uuid.uuid4().hex
        self._options = access.client_options(settings) | {
            "transactional.id": f"{settings.topic_prefix}stream-rater-{role}-{name}",
            "transaction.timeout.ms": settings.transaction_timeout_ms,
            "message.max.bytes": LARGEST_REQUEST_BYTES, "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 512 * 1024,
            "linger.ms": 20,  # the flush at a transaction's end does not wait for it
            "error_cb": self._on_error, "log_level": SYSLOG_INFO, "log.connection.close": True,
        }  # fmt: skip
        self._log = logging.Logger("stream_rater.librdkafka.transactions", logging.INFO)
        self._log.addHandler(DisconnectHandler(self._on_disconnect))
        self._settings, self._input = settings, input_
        self._deadlines = access.Deadlines(stop)
        self._longest_s = settings.transaction_timeout_ms / 1000.0
        self._producer: Producer | None = None
        self._doubt = ""
        """Why the producer's present transaction is in doubt: the last connection that broke."""
        self._refusal: KafkaError | None = None
        """The producer's last error about a password or token that Kafka has refused."""
        self._made_s = 0.0

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in access.UNAUTHENTICATED:
            self._refusal = error
        if error.code() in DISCONNECTS | access.UNAUTHENTICATED or error.fatal():
            self._doubt = error.str()

    def _on_disconnect(self, reason: str) -> None:
        self._doubt = reason

    def _call_back(self, producer: Producer) -> None:
        """Let the client call back about broken connections. Its own end it raises."""
        try:
            producer.poll(0)
        except access.CALLBACK_FAILURES as error:
            self._doubt = str(access.trouble_of(error)).removeprefix("kafka: ")

    def renew(self) -> None:
        """Make another producer with the same id. The broker aborts what the old one left open."""
        wait_s = self._made_s + NEW_PRODUCER_EVERY_S - time.monotonic()
        if wait_s > 0.0:
            time.sleep(wait_s)
        self._made_s = time.monotonic()
        self._producer, self._doubt, self._refusal = None, "", None
        producer = access.new_producer(self._settings, self._options, self._log)
        try:
            self._deadlines.call(2 * TIMEOUT_S, producer.init_transactions)
        except LogTrouble:
            self._call_back(producer)
            if self._refusal is not None:  # the call itself only timed out
                raise access.trouble_of(self._refusal) from None
            raise
        self._producer = producer

    def ready(self) -> Producer:
        """The producer. A transaction that a former process of the same id left open is aborted."""
        if self._producer is not None:
            self._call_back(self._producer)
        if self._producer is None or self._doubt:
            self.renew()
        return self._begun

    def run(
        self, send: Callable[[Producer], None], offsets: Mapping[int, int], tails: Tails = NO_TAILS
    ) -> None:
        """Run one transaction: what `send` produces, and the input's offsets."""
        self.begin(send)
        self.end(offsets, tails)

    def begin(self, send: Callable[[Producer], None]) -> None:
        """Begin a transaction and send its messages."""
        producer = self.ready()
        with access.translated_failures():
            producer.begin_transaction()
            send(producer)

    def abort(self) -> None:
        """Abort the transaction, after all messages are flushed. The broker may not know yet that
        there is a transaction; it would then answer the abort with an error that ends the client
        (librdkafka's issue 4849)."""
        self._flush(self._begun)
        self._conclude(self._begun, self._begun.abort_transaction)

    def commit(self) -> None:
        """Commit the transaction without offsets."""
        self._flush(self._begun)
        self._conclude(self._begun, self._begun.commit_transaction)

    def end(self, offsets: Mapping[int, int], tails: Tails = NO_TAILS) -> None:
        """Add the offsets to the transaction, and commit it."""
        assert self._input is not None
        ends = committing(self._input.topic, offsets, tails)
        member, producer = self._input.membership(), self._begun
        self._flush(producer)
        self._send_offsets(producer, ends, member)
        self._conclude(producer, producer.commit_transaction)

    @property
    def _begun(self) -> Producer:
        """The producer of the transaction that was begun."""
        assert self._producer is not None
        return self._producer

    def _conclude(self, producer: Producer, action: Callable[[float], Any]) -> None:
        """Commit or abort. Raises LogTrouble if a retried request may end the next transaction."""
        began_s = time.monotonic()
        self._deadlines.call(TIMEOUT_S, action)
        took_s = time.monotonic() - began_s
        self._call_back(producer)
        if self._doubt or took_s > SLOW_COMMIT_S:
            doubt = self._doubt or f"it took {took_s:.1f} s"
            why = f"kafka: the end of a transaction is in doubt: {doubt}"
            raise LogTrouble(why, access.cause_in(self._doubt))

    def _send_offsets(self, producer: Producer, ends: list[TopicPartition], member: Any) -> None:
        """Add offsets to the transaction. If the group has changed, abort and raise Regrouped."""
        send = producer.send_offsets_to_transaction
        try:
            self._deadlines.call(
                TIMEOUT_S, lambda s: access.call_or_abandon(lambda: send(ends, member, s), s)
            )
        except Regrouped:
            self._conclude(producer, producer.abort_transaction)
            raise

    def _flush(self, producer: Producer) -> None:
        """Wait until all messages, which may be many, are acknowledged."""
        for slice_s in self._deadlines.slices(self._longest_s):
            with access.translated_failures():
                left = producer.flush(slice_s)
            if left == 0:
                return
            if self._doubt:
                raise LogTrouble(f"kafka: {self._doubt}", access.cause_in(self._doubt))
        raise LogTrouble("kafka: the messages of a transaction were not acknowledged in time")

    def produce_all(
        self, producer: Producer, topic: str,
        messages: Iterable[tuple[int, bytes | None, bytes | None, Headers]],
    ) -> None:  # fmt: skip
        """Produce messages, given as (partition, key, value, headers), and wait while the client's
        queue is full."""
        send = producer.produce
        for partition, key, value, headers in messages:
            message = topic, value, key, partition, None, None, NOW, headers
            try:
                send(*message)
            except BufferError:
                produce(producer, message, self._deadlines.slices(DELIVERY_TIMEOUT_S))


class PlainProducer:
    """An idempotent producer without transactions, made on first use."""

    def __init__(
        self, settings: Settings, stop: threading.Event | None = None,
        *, delivery_s: float = DELIVERY_TIMEOUT_S, **options: Any,
    ) -> None:  # fmt: skip
        """`delivery_s`: how long a message may take until it has failed. `options`: further
        settings of the client, with `_` for `.` in their names."""
        self._settings = settings
        self._deadlines = access.Deadlines(stop)
        self._delivery_s = delivery_s
        self._options = access.client_options(settings) | {
            "enable.idempotence": True, "acks": "all", "compression.type": "lz4",
            "message.max.bytes": LARGEST_REQUEST_BYTES,
            "delivery.timeout.ms": int(1000 * delivery_s),
        }  # fmt: skip
        self._options |= {name.replace("_", "."): value for name, value in options.items()}
        self._client: Producer | None = None

    def renew(self) -> None:
        """Make another client. What the old one had in flight may still arrive, which is harmless.
        The new one asks the broker for its producer id at once, in the background. That takes half
        a second if the first attempt comes before the connection."""
        self._client = access.new_producer(self._settings, self._options)

    def ready(self) -> Producer:
        """The client."""
        if self._client is None:
            self.renew()
        assert self._client is not None
        return self._client

    def append(
        self, topic: str, value: bytes | None, delivered: Delivered, key: bytes | None = None,
        partition: int = ANY, headers: Headers | None = None,
    ) -> None:  # fmt: skip
        """Append one message. Raises LogTrouble if the queue stays full, and client errors."""
        message = topic, value, key, partition, delivered, None, NOW, headers
        # A message leaves the queue no later than its delivery time-out.
        produce(self.ready(), message, self._deadlines.slices(2 * self._delivery_s))

    def run_callbacks(self) -> None:
        """Run callbacks of known outcomes. Raises LogTrouble or Denied if the client has ended."""
        with access.translated_failures():
            self.ready().poll(0.0)

    def flush(self, timeout_s: float) -> int:
        """Wait until the outcome of every message is known, or the time is over. Returns how many
        are left. Raises LogTrouble or Denied if the client has ended."""
        left = len(self.ready())
        for slice_s in self._deadlines.slices(timeout_s):
            with access.translated_failures():
                left = self.ready().flush(slice_s)
            if left == 0:
                break
        return left


class PartsProducer(PlainProducer):
    """The producer of parts, or of ladder events."""

    def __init__(self, settings: Settings, topic: str, stop: threading.Event | None = None) -> None:
        super().__init__(settings, stop, linger_ms=0, queue_buffering_max_messages=1_000_000)
        self._topic = topic

    def scatter(self, parts: Sequence[tuple[int, bytes]]) -> list[int]:
        """Append parts (partition, bytes). Returns their offsets. Raises LogTrouble or Denied."""
        offsets: list[int | None] = [None] * len(parts)
        failures: list[KafkaError] = []

        def delivered(index: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                offsets[index] = message.offset()

        with access.translated_failures():
            for i, (shard, data) in enumerate(parts):
                self.append(self._topic, data, partial(delivered, i), partition=shard)
        self.flush(DELIVERY_TIMEOUT_S + TIMEOUT_S)
        if any(each.code() == KafkaError.MSG_SIZE_TOO_LARGE for each in failures):
            largest = max(len(data) for _, data in parts)
            raise LogTrouble(f"kafka: {advice_to_enlarge(self._settings, self._topic, largest)}")
        if failures:
            raise access.trouble_of(failures[0])
        known = [offset for offset in offsets if offset is not None]
        if len(known) < len(parts):
            raise LogTrouble("kafka: parts were not acknowledged in time")
        return known


class KafkaSubmitter(Sender):
    """Produces rounds and corrections, and collects delivery failures."""

    def __init__(self, settings: Settings, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self._producer = PlainProducer(
            settings, delivery_s=SUBMIT_S, partitioner="murmur2_random", linger_ms=5,
            message_max_bytes=MESSAGE_BYTES,
        )  # fmt: skip

    def _send(
        self, name: str, ladder: str, value: bytes, headers: Headers, *, corrects: bool
    ) -> None:
        """Send one record, and wait while the client's queue is full."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(f"{name}: {error.str()}")
            elif corrects:
                self.corrections.append((message.partition() or 0, message.offset() or 0))

        try:
            self._producer.append(self._topic, value, delivered, ladder.encode(), headers=headers)
        except KafkaException as error:
            self.failures.append(f"{name}: {error.args[0].str()}")
        self._producer.run_callbacks()

    def flush(self) -> None:
        if left := self._producer.flush(FLUSH_S):
            self.failures.append(f"{left} records were not acknowledged in time")


class Copier:
    """Appends records to a topic, in order, each to its partition and with its key and headers."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self._failure = ""
        """The first failure, with its place; empty if there is none."""
        self._producer = PlainProducer(
            settings, linger_ms=20, queue_buffering_max_kbytes=128 * 1024
        )

    def write(self, records: Iterable[Record]) -> int:
        """Append records, and wait until all are acknowledged. Returns their number. A record must
        get its own offset again, unless that is ANY_OFFSET. Raises LogTrouble or Denied."""
        count = 0
        for record in records:
            self._append(record)
            count += 1
        while left := len(self._producer.ready()):
            if self._producer.flush(2 * DELIVERY_TIMEOUT_S) == left:
                raise LogTrouble(f"kafka: {self._topic}: records were not acknowledged in time")
        self._check()
        return count

    def _append(self, record: Record) -> None:
        with access.translated_failures():
            self._producer.append(
                self._topic, record.value,
                partial(self._delivered, record.partition, record.offset),  # not the whole record
                record.key, record.partition, list(record.headers),
            )  # fmt: skip
        self._producer.run_callbacks()
        self._check()

    def _delivered(
        self, partition: int, offset: int, error: KafkaError | None, message: Message
    ) -> None:
        place = f"{self._topic}, partition {partition}, offset {offset}"
        if error is not None:
            self._failure = self._failure or f"{place}: {error.str()}"
        elif offset not in (ANY_OFFSET, message.offset()):
            self._failure = self._failure or (
                f"{place}: the record got offset {message.offset()}: something else writes to this "
                "topic"
            )

    def _check(self) -> None:
        if self._failure:
            raise LogTrouble(f"kafka: {self._failure}")
