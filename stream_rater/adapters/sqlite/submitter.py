"""Appends rounds and corrections to a data file that no process has open, for `submit`."""

import uuid
from datetime import UTC, datetime

from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.log import NewRound, SqliteLog
from stream_rater.columns.sharding import partition_of
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import ROUND_COMPLETED, cloud_event_headers
from stream_rater.contract.record import Headers

TOGETHER = 1000
"""The most records that one transaction appends."""
TOGETHER_BYTES = 16 * 2**20
"""The bytes of records from which on a transaction appends them."""


class FileSubmitter:
    """Appends records to the log in a data file, as `producers.Submitter` does on Kafka. They are
    rated once `standalone` opens the file."""

    def __init__(self, database: Database) -> None:
        self._log = SqliteLog(database)
        self._waiting: list[tuple[NewRound, bool]] = []
        """Records, and whether each is a correction."""
        self._bytes = 0
        """The bytes of these records."""
        self.failures: list[str] = []
        """Nothing: a failure is raised."""
        self.corrections: list[tuple[int, int]] = []
        """Partition and offset of each correction that was appended, in order."""

    def end_of(self, ladder: str) -> int:
        """The end of a ladder's partition."""
        rounds = self._log.rounds
        return rounds.end(partition_of(ladder, len(rounds)))

    def submit(self, ladder: str, round_id: str, completed_at: str, value: bytes) -> None:
        """Append one round. Raises LogTrouble, Denied or Unusable."""
        headers = cloud_event_headers(round_id, ROUND_COMPLETED, completed_at)
        self._add(ladder, value, headers, corrects=False)

    def correct(self, ladder: str, kind: str, value: bytes, subject: str) -> None:
        """Append one correction of this kind. Raises LogTrouble, Denied or Unusable."""
        now = datetime.now(UTC).isoformat()
        headers = cloud_event_headers(uuid.uuid4().hex, kind, now)
        headers.append((EVENT_TYPE, kind.encode()))
        self._add(ladder, value, headers, corrects=True)

    def _add(self, ladder: str, value: bytes, headers: Headers, *, corrects: bool) -> None:
        received_s = datetime.now(UTC).timestamp()
        partition = partition_of(ladder, len(self._log.rounds))
        new = NewRound(partition, value, headers, received_s, ladder.encode())
        self._waiting.append((new, corrects))
        self._bytes += len(value)
        if len(self._waiting) >= TOGETHER or self._bytes >= TOGETHER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Wait until all records are on the disk. Raises LogTrouble, Denied or Unusable."""
        records = [record for record, _ in self._waiting]
        offsets = self._log.submit_all(records) if records else []
        for (record, corrects), offset in zip(self._waiting, offsets, strict=True):
            if corrects:
                self.corrections.append((record.partition, offset))
        self._waiting, self._bytes = [], 0
