"""Appends rounds that clients send to a log, for the event loop of a process: to Kafka, or by the
turns of the engine of a standalone process."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import Appended, NewRecord, NotAppended
from stream_rater.runtime.engine import Engine, Full

ACKNOWLEDGED_S = 10.0
"""The seconds within which a record must be on the disk. After that its outcome is unknown."""


class RoundLog(Protocol):
    """Appends records to `round-completed`. All methods are for one event loop."""

    @property
    def partitions(self) -> int:
        """The number of partitions of `round-completed`. Raises LogTrouble while it is unknown."""

    @property
    def waiting(self) -> int:
        """The number of records whose outcome is not known yet."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connect. Outcomes go to this event loop."""

    def close(self) -> None:
        """End. Records that still wait are delivered, or fail, within seconds."""

    def end_of(self, partition: int) -> int:
        """The end of a partition, as far as it is known. The true end may be greater."""

    async def append(self, records: Sequence[NewRecord]) -> list[Appended]:
        """Append records, in this order. Returns the outcome of each once all are known. A place
        means that the record is stored for good. This takes a bounded time."""


def round_log_of(settings: Settings, trouble: Callable[[str], None]) -> RoundLog:
    """The log on Kafka. `trouble` receives the reason why Kafka does not answer."""
    from stream_rater.adapters.kafka.round_log import KafkaRoundLog

    return KafkaRoundLog(settings, trouble)


class FileRoundLog:
    """The log in a data file (`RoundLog`)."""

    def __init__(self, engine: Engine, partitions: int) -> None:
        self._engine, self.partitions = engine, partitions
        self.end_of = engine.end_of

    @property
    def waiting(self) -> int:
        """The number of records that are not on the disk yet."""
        return self._engine.waiting

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing: the engine runs."""

    def close(self) -> None:
        """Nothing: the engine ends by itself."""

    async def append(self, records: Sequence[NewRecord]) -> list[Appended]:
        """Append records, in this order, in one turn."""
        try:
            future = self._engine.append(records)
        except Full:
            full = f"{self._engine.waiting:,} records wait for the disk: send it later"
            return [NotAppended("busy", full)] * len(records)
        try:
            async with asyncio.timeout(ACKNOWLEDGED_S):
                return [*await asyncio.wrap_future(future)]
        except TimeoutError:
            why = self._engine.trouble or "the disk is slow"
        except LogTrouble as trouble:
            why = str(trouble)
        return [NotAppended("unavailable", why)] * len(records)
