"""The ladder events on Kafka: reads the topic `ladders-noted` to its end, and appends to it. Ladder
events record the parameters by which ladders are rated, and the corrections in force. An estimator
polls a round before it reads them. `read` asks for the end of the topic after that, so it sees
every event that was acknowledged before the round was polled."""

import threading
import time
from collections.abc import Container, Mapping, Sequence

from stream_rater.adapters.kafka import producers, topics
from stream_rater.adapters.kafka.reader import Reader
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble
from stream_rater.pipeline import ladder_history
from stream_rater.pipeline.ports import CorrectionsByLadder

TIMEOUT_S = 10.0
AT_ONCE = 10_000
WAIT_S = 0.1
RECREATE = (
    "notes were deleted, so it is unknown how ladders were rated. Stop all workers, delete the "
    "topic, and run `stream-rater rebuild --replace`, which creates the topic again"
)


class LadderEvents:
    """Reads and appends ladder events, for one thread. Makes no request before it is used."""

    def __init__(
        self, settings: Settings, admin: topics.Admin, stop: threading.Event | None = None
    ) -> None:
        self._settings, self._admin, self._topic = settings, admin, admin.topics.ladder_events
        self._ladder_log, self._next = ladder_history.LadderLog(), 0
        self._reader: Reader | None = None
        self._producer = producers.PartsProducer(settings, self._topic, stop)

    def read(self) -> ladder_history.LadderLog:
        """Read and combine all events that exist now. Raises LogTrouble or Denied."""
        (end,) = self._admin.ends(self._topic, 1)
        if self._next == 0:
            (start,) = self._admin.starts(self._topic, 1)
            if start > 0:
                raise LogTrouble(f"{self._topic} starts at offset {start}: {RECREATE}")
        if end < self._next:
            raise LogTrouble(
                f"{self._topic} ends at offset {end} and was read up to {self._next}: {RECREATE}"
            )
        try:
            self._read_to(end)
        except (LogTrouble, Denied):
            self.close()  # the consumer may be past events that were not added
            raise
        return self._ladder_log

    def _read_to(self, end: int) -> None:
        deadline_s, reader = time.monotonic() + TIMEOUT_S, self._reader
        while self._next < end:
            if time.monotonic() > deadline_s:
                raise LogTrouble(f"kafka: {self._topic} could not be read within {TIMEOUT_S:g} s")
            if reader is None:
                reader = self._reader = Reader(self._settings, self._topic)
                reader.start_at({0: self._next})
            for record in reader.read(WAIT_S, AT_ONCE):
                try:
                    self._ladder_log.read(record.value or b"")
                except ladder_history.UnknownLadderEvent as error:
                    why = f"{self._topic}: offset {record.offset}: {error}"
                    raise LogTrouble(why) from None
                self._next = record.offset + 1
            # The control records of transactions use offsets, too.
            self._next = max(self._next, reader.ends.get(0, 0))

    def write(self, messages: Sequence[bytes]) -> None:
        """Append events. They are in the log when this returns. Raises LogTrouble or Denied."""
        self._producer.scatter([(0, message) for message in messages])

    def agree(
        self, histories: Mapping[str, ladder_history.History], only_read: Container[str]
    ) -> dict[str, ladder_history.History]:
        """Append an event for each ladder that has none yet, but for those in `only_read`. Returns,
        by ladder, the history that rounds may be rated by. Raises LogTrouble or Denied."""
        ladder_log = self.read()
        if new := ladder_history.to_note(histories, only_read, ladder_log):
            self.write(ladder_history.encode_histories("noted", new))
            ladder_log = self.read()
        return ladder_history.agreed_histories(histories, ladder_log)

    def correct(self, corrections: CorrectionsByLadder) -> None:
        """Append events for these corrections. Raises LogTrouble or Denied."""
        self.write(ladder_history.encode_corrections(corrections))

    def close(self) -> None:
        """Close the consumer. The next read opens another."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
