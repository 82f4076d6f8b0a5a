"""Writes whole topics once, in one process: a new generation of the log.

A generation is all topics with the same prefix. `Copier` appends records to a topic that nobody
else writes to, and `delete_topics` deletes the topics of an old generation.
"""

from collections.abc import Iterable

from confluent_kafka import KafkaError, Message

from stream_rater.adapters.access import client_options, new_admin, translated_failures
from stream_rater.adapters.kafka.producers import DELIVERY_TIMEOUT_S, Delivered, PlainProducer
from stream_rater.adapters.kafka.topics import TIMEOUT_S, result_of
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import ANY_OFFSET, Record


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
        """Append records, and wait until all are acknowledged. Returns their number.

        A record must get its own offset again, unless that is ANY_OFFSET. Raises LogTrouble or
        Denied.
        """
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
        """Append one record, and wait while the client's queue is full."""
        with translated_failures():
            self._producer.append(
                self._topic, record.value, self._delivered(record), record.key, record.partition,
                list(record.headers),
            )  # fmt: skip
        self._producer.run_callbacks()
        self._check()

    def _delivered(self, record: Record) -> Delivered:
        partition, offset = record.partition, record.offset

        def callback(error: KafkaError | None, message: Message) -> None:
            place = f"{self._topic}, partition {partition}, offset {offset}"
            if error is not None:
                self._failure = self._failure or f"{place}: {error.str()}"
            elif offset not in (ANY_OFFSET, message.offset()):
                self._failure = self._failure or (
                    f"{place}: the record got offset {message.offset()}: something else writes to "
                    "this topic"
                )

        return callback

    def _check(self) -> None:
        if self._failure:
            raise LogTrouble(f"kafka: {self._failure}")


def delete_topics(settings: Settings, names: Iterable[str]) -> None:
    """Delete these topics. Raises LogTrouble or Denied."""
    client = new_admin(settings, client_options(settings))
    for future in client.delete_topics(list(names), operation_timeout=TIMEOUT_S).values():
        result_of(future)
