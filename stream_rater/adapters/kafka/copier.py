"""Topics that are written once, whole, by one process: a new generation of the log.

A generation is all topics with the same prefix. `Copier` appends records to a topic that nobody
else writes to, and `delete_topics` deletes the topics of an old generation.
"""

from collections.abc import Callable, Iterable
from typing import Any

import confluent_kafka.admin as admin_api
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from stream_rater.adapters.access import CALLBACK_FAILURES, QUIET, client_options, trouble_of
from stream_rater.adapters.kafka.admin_results import TIMEOUT_S, result_of
from stream_rater.adapters.kafka.producers import DELIVERY_TIMEOUT_S, LARGEST_REQUEST_BYTES
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import Record

ANYWHERE = -1
"""The offset of a record that may come to lie at any."""


class Copier:
    """Appends records to a topic, in order, each to its partition and with its key and headers."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self._failure = ""
        """The first one, with its place."""
        self._producer = Producer(
            client_options(settings)
            | {
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 20,
                "compression.type": "lz4",
                "message.max.bytes": LARGEST_REQUEST_BYTES,
                "queue.buffering.max.kbytes": 128 * 1024,
                "delivery.timeout.ms": int(1000 * DELIVERY_TIMEOUT_S),
            },
            logger=QUIET,
        )

    def write(self, records: Iterable[Record]) -> int:
        """Append records, and wait until all are acknowledged. Returns how many there were.

        A record must come to lie at its own offset, unless that is ANYWHERE. Raises LogTrouble or
        Denied.
        """
        count = 0
        for record in records:
            self._append(record)
            count += 1
        while left := len(self._producer):
            if self._serve(lambda: self._producer.flush(2 * DELIVERY_TIMEOUT_S)) == left:
                raise LogTrouble(f"kafka: {self._topic}: records were not acknowledged in time")
        self._check()
        return count

    def _append(self, record: Record) -> None:
        """Append one record, and wait while the client's queue is full."""
        message: dict[str, Any] = {
            "value": record.value, "key": record.key, "headers": list(record.headers),
            "partition": record.partition, "on_delivery": self._delivered(record),
        }  # fmt: skip
        while True:
            try:
                self._producer.produce(self._topic, **message)
                break
            except BufferError:
                self._serve(lambda: self._producer.poll(0.1))
            except KafkaException as error:
                raise trouble_of(error) from None
        self._serve(lambda: self._producer.poll(0))
        self._check()

    def _delivered(self, record: Record) -> Callable[[KafkaError | None, Message], None]:
        partition, offset = record.partition, record.offset

        def callback(error: KafkaError | None, message: Message) -> None:
            place = f"{self._topic}, partition {partition}, offset {offset}"
            if error is not None:
                self._failure = self._failure or f"{place}: {error.str()}"
            elif offset not in (ANYWHERE, message.offset()):
                self._failure = self._failure or (
                    f"{place}: the record came to lie at {message.offset()}: something else writes "
                    "to this topic"
                )

        return callback

    def _check(self) -> None:
        if self._failure:
            raise LogTrouble(f"kafka: {self._failure}")

    def _serve(self, action: Callable[[], int]) -> int:
        """Call the client so that callbacks run. Raises the exception that ends the client, if
        there is one."""
        try:
            return action()
        except CALLBACK_FAILURES as error:
            raise trouble_of(error) from None


def delete_topics(settings: Settings, names: Iterable[str]) -> None:
    """Delete these topics. Raises LogTrouble or Denied."""
    client = admin_api.AdminClient(client_options(settings), logger=QUIET)
    for future in client.delete_topics(list(names), operation_timeout=TIMEOUT_S).values():
        result_of(future)
