"""The ladders' notes on Kafka: `ladders-noted`, read to its end and written by one worker.

Whoever asks has polled a round before. What was acknowledged by then is read, because the end is
asked for after that.
"""

import threading
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from stream_rater.adapters.access import trouble_of
from stream_rater.adapters.producers import Parts
from stream_rater.adapters.reader import PASSING, lone_consumer
from stream_rater.adapters.topics import Admin
from stream_rater.config import Settings
from stream_rater.pipeline.ladder_history import History, Story, UnknownNote, notes
from stream_rater.pipeline.ports import Denied, LogTrouble

TIMEOUT_S = 10.0
AT_ONCE = 10_000
MADE_ANEW = (
    "notes were deleted, and nobody knows how ladders were rated: stop all workers, delete the "
    "topic, and run `stream-rater rebuild --replace`, which makes it anew"
)


class LadderNotes:
    """Their fold, as far as it was read, and a producer. Made without asking Kafka for anything."""

    def __init__(
        self, settings: Settings, admin: Admin, stop: threading.Event | None = None
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._topic = admin.topics.notes
        self._story = Story()
        self._next = 0
        self._consumer: Consumer | None = None
        self._producer = Parts(settings, self._topic, stop)

    def read(self) -> Story:
        """The fold of all notes that there are now; raises LogTrouble."""
        (end,) = self._admin.ends(self._topic, 1)
        if self._next == 0:
            (start,) = self._admin.starts(self._topic, 1)
            if start > 0:
                raise LogTrouble(f"{self._topic} starts at {start}: {MADE_ANEW}")
        if end < self._next:
            raise LogTrouble(
                f"{self._topic} ends at {end}, before the {self._next} read: {MADE_ANEW}"
            )
        deadline_s = time.monotonic() + TIMEOUT_S
        try:
            while self._next < end:
                if time.monotonic() > deadline_s:
                    raise LogTrouble(f"kafka: {self._topic} is not read within {TIMEOUT_S:g} s")
                self._read_some()
        except (LogTrouble, Denied):
            self.close()  # it may be past notes that were not added
            raise
        return self._story

    def _read_some(self) -> None:
        try:
            messages = self._reader().consume(AT_ONCE, 0.1)
        except KafkaException as error:
            raise trouble_of(error) from None
        for message in messages:
            failure = message.error()
            if failure is None:
                self._add(message.offset() or 0, message.value() or b"")
            elif failure.code() == KafkaError._PARTITION_EOF:  # behind what is no record, too
                self._next = message.offset() or 0
            elif failure.code() not in PASSING:
                raise trouble_of(failure)

    def _add(self, offset: int, message: bytes) -> None:
        try:
            self._story.read(message)
        except UnknownNote as error:
            raise LogTrouble(f"{self._topic}: offset {offset}: {error}") from None
        self._next = offset + 1

    def _reader(self) -> Consumer:
        if self._consumer is None:
            self._consumer = lone_consumer(self._settings)
            self._consumer.assign([TopicPartition(self._topic, 0, self._next)])
        return self._consumer

    def write(self, messages: Sequence[bytes]) -> None:
        """Add notes; they are there when this returns."""
        self._producer.scatter([(0, message) for message in messages])

    def agree(self, histories: Mapping[str, History]) -> dict[str, History]:
        """Note ladders of which nothing is noted yet; by what rounds of each may be rated now."""
        story = self.read()
        new = {ladder: own for ladder, own in histories.items() if not story.noted(ladder)}
        if new:
            self.write(notes("noted", new))
            story = self.read()
        return {ladder: story.of(ladder) for ladder in histories}

    def close(self) -> None:
        """Close the reader's connection; it is opened again where it is needed."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
