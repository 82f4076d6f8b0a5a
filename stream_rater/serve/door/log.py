"""What the door needs of the log. Kafka and the file of a standalone process have it."""

from collections.abc import Sequence
from typing import Protocol

from stream_rater.contract.submissions import Appended, NewRecord, Progress


class RoundLog(Protocol):
    """Appends records to `round-completed`. All methods are for one event loop."""

    @property
    def partitions(self) -> int:
        """The number of partitions of `round-completed`. Raises LogTrouble while it is unknown."""

    def end_of(self, partition: int) -> int:
        """The end of a partition, as far as it is known. The true end may be greater."""

    async def append(self, records: Sequence[NewRecord]) -> list[Appended]:
        """Append records, in this order. Returns the outcome of each once all are known. A place
        means that the record is stored for good. This takes a bounded time."""


class ProgressReader(Protocol):
    """Reads how far the workers are. It is for one thread. The methods raise LogTrouble or
    Denied."""

    def read(self) -> Progress:
        """The progress now. Each field is read after the one before it."""

    def ends(self) -> list[int]:
        """The end of each partition of `round-completed`."""
