"""The log on Kafka as one worker writes it: transactions, and the parts outside of them.

A transaction that was slow to end, or saw a connection break, is in doubt even when it reports
success: a retried request may still arrive and end the *next* transaction. So its producer is
thrown away, and the next one begins by fencing whatever may still be on its way.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from stream_rater.adapters.access import (
    CALLBACK_FAILURES,
    LARGEST_RESPONSE_BYTES,
    QUIET,
    client_options,
    trouble_of,
)
from stream_rater.adapters.deadlines import Patience
from stream_rater.adapters.kafka import TIMEOUT_S, Input
from stream_rater.config import Settings
from stream_rater.pipeline.ports import LogTrouble, Regrouped

DELIVERY_TIMEOUT_S = 30.0

SLOW_COMMIT_S = 2.0
"""A transaction whose end took longer may have been retried on the way: treat it as in doubt."""

NEW_PRODUCER_EVERY_S = 0.2
"""Trouble that comes back at once must not spin."""

LARGEST_REQUEST_BYTES = LARGEST_RESPONSE_BYTES
"""As much as we read: what is too large is for the broker, or us, to say by topic."""

ANY = -1
"""The partition is for the client to choose, by the key."""

NOW = 0
"""The timestamp is for the client to choose."""

Headers = list[tuple[str, Any]]

DISCONNECTS = frozenset(
    {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
)

SYSLOG_INFO = 6
"""The level at which the client logs a connection that broke. One that nobody used for a minute is
logged below it: no request can have been under way."""
CONNECTION_FAILED = "FAIL"
"""How such lines begin in the client's log."""


class Breaks(logging.Handler):
    """Hears in the client's log of connections that break.

    Since librdkafka 2.11.1 the error callback is called for those that are refused, and when no
    broker is left. A connection to one of several brokers that is closed is only logged.
    """

    def __init__(self, on_break: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._on_break = on_break

    def emit(self, record: logging.LogRecord) -> None:
        """The client logs `%s [%s] %s`: the kind, its own name, and thread and text."""
        match record.args:
            case (kind, _, str(text)) if kind == CONNECTION_FAILED:
                self._on_break(text.partition("]: ")[2] or text)


class Transactions:
    """A transactional producer that is thrown away at the first doubt."""

    def __init__(
        self, settings: Settings, role: str, input_: Input, stop: threading.Event | None = None
    ) -> None:
        name = settings.instance_id or uuid.uuid4().hex
        self._options = client_options(settings) | {
            "transactional.id": f"{settings.topic_prefix}stream-rater-{role}-{name}",
            "transaction.timeout.ms": settings.transaction_timeout_ms,
            "message.max.bytes": LARGEST_REQUEST_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 512 * 1024,
            "linger.ms": 20,  # what ends a transaction's messages, a flush, does not wait for it
            "compression.type": "lz4",
            "error_cb": self._noticed,
            "log_level": SYSLOG_INFO,
            "log.connection.close": True,
        }
        self._log = logging.Logger("stream_rater.librdkafka.transactions", logging.INFO)
        self._log.addHandler(Breaks(self._broke))
        self._input = input_
        self._patience = Patience(stop)
        self._longest_s = settings.transaction_timeout_ms / 1000.0
        self._producer: Producer | None = None
        self._doubt = ""
        """The last connection that broke since the producer was made."""
        self._made_s = 0.0

    def _noticed(self, error: KafkaError) -> None:
        if error.code() in DISCONNECTS or error.fatal():
            self._broke(error.str())

    def _broke(self, told: str) -> None:
        self._doubt = told

    def renew(self) -> None:
        """Another producer of the same transactional id: what the old one left open is aborted."""
        wait_s = self._made_s + NEW_PRODUCER_EVERY_S - time.monotonic()
        if wait_s > 0.0:
            time.sleep(wait_s)
        self._made_s = time.monotonic()
        self._producer = None
        self._doubt = ""
        producer = Producer(self._options, logger=self._log)
        self._patience.call(2 * TIMEOUT_S, producer.init_transactions)
        self._producer = producer

    def ready(self) -> Producer:
        """The producer, whatever a former process of the same id left open aborted."""
        if self._producer is not None:
            self._producer.poll(0)  # tells of connections that broke
        if self._producer is None or self._doubt:
            self.renew()
        assert self._producer is not None
        return self._producer

    def run(self, send: Callable[[Producer], None], offsets: Mapping[int, int]) -> None:
        """One transaction: what `send` produces, and the input's offsets."""
        self.begin(send)
        self.end(offsets)

    def begin(self, send: Callable[[Producer], None]) -> None:
        """A transaction's first half."""
        producer = self.ready()
        try:
            producer.begin_transaction()
            send(producer)
        except CALLBACK_FAILURES as error:
            raise trouble_of(error) from None

    def undo(self) -> None:
        """As if it had never begun.

        Not before the broker has it all: it may not know yet that there is a transaction, and tell
        the client that to abort it is a mistake, which ends the client (librdkafka's issue 4849).
        """
        producer = self._producer
        assert producer is not None
        self._flush(producer)
        self._conclude(producer, producer.abort_transaction)

    def end(self, offsets: Mapping[int, int]) -> None:
        """A transaction's other half."""
        producer = self._producer
        assert producer is not None
        ends = [TopicPartition(self._input.topic, p, o) for p, o in offsets.items()]
        member = self._input.membership()
        self._flush(producer)
        self._send_offsets(producer, ends, member)
        self._conclude(producer, producer.commit_transaction)

    def _conclude(self, producer: Producer, how: Callable[[float], Any]) -> None:
        """Commit or abort; LogTrouble where either may come once more, into the next one."""
        began_s = time.monotonic()
        self._patience.call(TIMEOUT_S, how)
        took_s = time.monotonic() - began_s
        producer.poll(0)  # tells of connections that broke on the way
        if self._doubt or took_s > SLOW_COMMIT_S:
            raise LogTrouble(f"kafka: a transaction's end is in doubt: {self._doubt or 'slow'}")

    def _send_offsets(self, producer: Producer, ends: list[TopicPartition], member: Any) -> None:
        """Raises Regrouped, with the transaction undone, where the group changed meanwhile."""
        try:
            self._patience.call(
                TIMEOUT_S, lambda s: producer.send_offsets_to_transaction(ends, member, s)
            )
        except Regrouped:
            self._conclude(producer, producer.abort_transaction)
            raise

    def _flush(self, producer: Producer) -> None:
        """Wait until all is with the broker: it may be much, unlike what ends a transaction."""
        for slice_s in self._patience.slices(self._longest_s):
            try:
                left = producer.flush(slice_s)
            except CALLBACK_FAILURES as error:
                raise trouble_of(error) from None
            if left == 0:
                return
            if self._doubt:
                raise LogTrouble(f"kafka: {self._doubt}")
        raise LogTrouble("kafka: a transaction's messages were not acknowledged in time")

    def produce(
        self, producer: Producer, topic: str, value: bytes | None, key: bytes | None,
        headers: Headers, partition: int = ANY,
    ) -> None:  # fmt: skip
        """Produce one message, waiting while the queue is full."""
        message = topic, value, key, partition, None, None, NOW, headers
        try:  # by position, which takes the client two thirds to three quarters of the time
            producer.produce(*message)
        except BufferError:
            self._produce_later(producer, partial(producer.produce, *message))

    def _produce_later(self, producer: Producer, produce: Callable[[], None]) -> None:
        for slice_s in self._patience.slices(DELIVERY_TIMEOUT_S):
            producer.poll(slice_s)
            with suppress(BufferError):
                produce()
                return
        raise LogTrouble("kafka: the producer's queue stays full")


class Parts:
    """The idempotent producer of parts."""

    def __init__(self, settings: Settings, topic: str, stop: threading.Event | None = None) -> None:
        self._topic = topic
        self._patience = Patience(stop)
        self._options = client_options(settings) | {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            "compression.type": "lz4",
            "message.max.bytes": LARGEST_REQUEST_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.timeout.ms": int(1000 * DELIVERY_TIMEOUT_S),
        }
        self._producer: Producer | None = None

    def renew(self) -> None:
        """Another producer; what the old one had in flight may still arrive, which is harmless.

        It asks the broker for its id at once, in the background: that takes half a second where
        the first attempt comes before the connection.
        """
        self._producer = Producer(self._options, logger=QUIET)

    def ready(self) -> Producer:
        """The producer."""
        if self._producer is None:
            self.renew()
        assert self._producer is not None
        return self._producer

    def scatter(self, parts: Sequence[tuple[int, bytes]]) -> list[int]:
        """Append; the parts' offsets once all are acknowledged."""
        producer = self.ready()
        offsets: list[int | None] = [None] * len(parts)
        failures: list[KafkaError] = []

        def delivered(index: int) -> Callable[[KafkaError | None, Message], None]:
            def callback(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    failures.append(error)
                else:
                    offsets[index] = message.offset()

            return callback

        try:
            for i, (shard, data) in enumerate(parts):
                producer.produce(self._topic, data, partition=shard, on_delivery=delivered(i))
        except KafkaException as error:
            raise trouble_of(error) from None
        except BufferError as error:
            raise LogTrouble(f"kafka: {error}") from None
        try:
            self._await_all(producer)
        except CALLBACK_FAILURES as error:  # what ends the client for good
            raise trouble_of(error) from None
        if failures:
            raise trouble_of(failures[0])
        known = [offset for offset in offsets if offset is not None]
        if len(known) < len(parts):
            raise LogTrouble("kafka: parts were not acknowledged in time")
        return known

    def _await_all(self, producer: Producer) -> None:
        """Until everything is acknowledged or has failed, or for as long as it may take."""
        for slice_s in self._patience.slices(DELIVERY_TIMEOUT_S + TIMEOUT_S):
            if producer.flush(slice_s) == 0:
                return
