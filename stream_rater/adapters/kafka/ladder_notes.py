"""The ladders' notes on Kafka: reads the topic `ladders-noted` to its end, and writes to it.

An estimator polls a round before it reads the notes. `read` asks for the end of the topic after
that, so it sees every note that was acknowledged before the round was polled.
"""

import threading
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from stream_rater.adapters.access import trouble_of
from stream_rater.adapters.kafka.producers import Parts
from stream_rater.adapters.kafka.reader import PASSING, lone_consumer
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble
from stream_rater.pipeline.corrections.correction_ports import Noted
from stream_rater.pipeline.ladder_history import (
    History,
    LadderLog,
    UnknownNote,
    correction_notes,
    notes,
)

TIMEOUT_S = 10.0
AT_ONCE = 10_000
RECREATE = (
    "notes were deleted, so it is unknown how ladders were rated. Stop all workers, delete the "
    "topic, and run `stream-rater rebuild --replace`, which creates the topic again"
)


class LadderNotes:
    """Reads and writes the notes of one worker. The constructor makes no request to Kafka."""

    def __init__(
        self, settings: Settings, admin: Admin, stop: threading.Event | None = None
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._topic = admin.topics.notes
        self._ladder_log = LadderLog()
        self._next = 0
        self._consumer: Consumer | None = None
        self._producer = Parts(settings, self._topic, stop)

    def read(self) -> LadderLog:
        """The fold of all notes that exist now. Raises LogTrouble or Denied."""
        (end,) = self._admin.ends(self._topic, 1)
        if self._next == 0:
            (start,) = self._admin.starts(self._topic, 1)
            if start > 0:
                raise LogTrouble(f"{self._topic} starts at offset {start}: {RECREATE}")
        if end < self._next:
            raise LogTrouble(
                f"{self._topic} ends at offset {end} and was read up to {self._next}: {RECREATE}"
            )
        deadline_s = time.monotonic() + TIMEOUT_S
        try:
            while self._next < end:
                if time.monotonic() > deadline_s:
                    raise LogTrouble(
                        f"kafka: {self._topic} could not be read within {TIMEOUT_S:g} s"
                    )
                self._read_some()
        except (LogTrouble, Denied):
            self.close()  # the consumer may be past notes that were not added
            raise
        return self._ladder_log

    def _read_some(self) -> None:
        try:
            messages = self._reader().consume(AT_ONCE, 0.1)
        except KafkaException as error:
            raise trouble_of(error) from None
        for message in messages:
            failure = message.error()
            if failure is None:
                self._add(message.offset() or 0, message.value() or b"")
            elif failure.code() == KafkaError._PARTITION_EOF:  # also after transaction markers
                self._next = message.offset() or 0
            elif failure.code() not in PASSING:
                raise trouble_of(failure)

    def _add(self, offset: int, message: bytes) -> None:
        try:
            self._ladder_log.read(message)
        except UnknownNote as error:
            raise LogTrouble(f"{self._topic}: offset {offset}: {error}") from None
        self._next = offset + 1

    def _reader(self) -> Consumer:
        if self._consumer is None:
            self._consumer = lone_consumer(self._settings)
            self._consumer.assign([TopicPartition(self._topic, 0, self._next)])
        return self._consumer

    def write(self, messages: Sequence[bytes]) -> None:
        """Append notes. They are in the log when this returns. Raises LogTrouble."""
        self._producer.scatter([(0, message) for message in messages])

    def agree(self, histories: Mapping[str, History]) -> dict[str, History]:
        """Note the ladders that have no note yet. Returns, by ladder, the history that rounds may
        be rated by."""
        ladder_log = self.read()
        new = {ladder: own for ladder, own in histories.items() if not ladder_log.noted(ladder)}
        if new:
            self.write(notes("noted", new))
            ladder_log = self.read()
        return {ladder: ladder_log.of(ladder) for ladder in histories}

    def correct(self, noted: Noted) -> None:
        """Append notes of corrections. Raises LogTrouble."""
        self.write(correction_notes(noted))

    def close(self) -> None:
        """Close the consumer. The next read opens another."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
