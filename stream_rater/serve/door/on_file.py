"""What the door of a standalone process has of the data file."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol, TypeVar

from stream_rater.adapters.sqlite.database import connect_reader, error_of
from stream_rater.adapters.sqlite.log import SqliteLog, read_rejections
from stream_rater.contract import submissions
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.errors import LogTrouble, StoreTrouble
from stream_rater.contract.record import header
from stream_rater.runtime.engine import Engine, Full

ACKNOWLEDGED_S = 10.0
"""The seconds within which a record must be on the disk. After that its outcome is unknown."""
LOOK_BACK = 1000
"""The number of rejections that are read at the start."""
LOOK_S = 0.2

T = TypeVar("T")

_LAST_REJECTION = "SELECT coalesce(max(id), 0) FROM rejected"


class Ask(Protocol):
    """Answers a question in the engine's thread, between two turns."""

    def __call__(self, question: Callable[[], T], /) -> T:
        """The answer. Raises LogTrouble."""


class FileRoundLog:
    """Appends records to the data file, by the engine's turns."""

    def __init__(self, engine: Engine, partitions: int) -> None:
        self._engine, self.partitions = engine, partitions

    @property
    def waiting(self) -> int:
        """The number of records that are not on the disk yet."""
        return self._engine.waiting

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing: the engine runs."""

    def close(self) -> None:
        """Nothing: the engine ends by itself."""

    def end_of(self, partition: int) -> int:
        """The end of a partition."""
        return self._engine.end_of(partition)

    async def append(self, records: Sequence[submissions.NewRecord]) -> list[submissions.Appended]:
        """Append records, in this order, in one turn."""
        try:
            future = self._engine.append(records)
        except Full:
            full = f"{self._engine.waiting:,} records wait for the disk: send it later"
            return [submissions.NotAppended("busy", full)] * len(records)
        try:
            async with asyncio.timeout(ACKNOWLEDGED_S):
                return [*await asyncio.wrap_future(future)]
        except TimeoutError:
            why = self._engine.trouble or "the disk is slow"
        except LogTrouble as trouble:
            why = str(trouble)
        return [submissions.NotAppended("unavailable", why)] * len(records)


class FileProgress:
    """Reads how far the machines are, between two turns."""

    def __init__(self, ask: Ask, log: SqliteLog) -> None:
        self._ask, self._log = ask, log

    def read(self) -> submissions.Progress:
        """The progress now."""
        return self._ask(self._progress)

    def ends(self) -> list[int]:
        """The end of each partition of `round-completed`."""
        return self._ask(self._ends)

    def _progress(self) -> submissions.Progress:
        log, shards = self._log, range(len(self._log.parts))
        with log.database.reading(LogTrouble) as connection:
            (rejected,) = connection.execute(_LAST_REJECTION).fetchone()
        return submissions.Progress(
            [log.estimators.committed.get(p, 0) for p in range(len(log.rounds))],
            [log.parts.end(shard) for shard in shards],
            [log.updaters.committed.get(shard, 0) for shard in shards],
            [log.changed_end(shard) for shard in shards],
            [rejected + 1],
        )

    def _ends(self) -> list[int]:
        return [self._log.rounds.end(p) for p in range(len(self._log.rounds))]


class FileRejections:
    """Follows the rejections in the data file."""

    def __init__(self, path: Path, stop: threading.Event) -> None:
        self._path, self._stop = path, stop

    def run(
        self, begun: Callable[[], None],
        rejected: Callable[[Sequence[submissions.RejectedRecord], Sequence[int]], None],
    ) -> None:  # fmt: skip
        """Follow until `stop` is set. Raises StoreTrouble."""
        try:
            self._follow(begun, rejected)
        except sqlite3.Error as error:
            raise error_of(error, self._path, StoreTrouble) from None

    def _follow(
        self, begun: Callable[[], None],
        rejected: Callable[[Sequence[submissions.RejectedRecord], Sequence[int]], None],
    ) -> None:  # fmt: skip
        with closing(connect_reader(self._path)) as connection:
            (last,) = connection.execute(_LAST_REJECTION).fetchone()
            at = max(0, last - LOOK_BACK)
            begun()
            while not self._stop.is_set():
                found = []
                for number, each in read_rejections(connection, at):
                    place = submissions.Place(each.record.partition, each.record.offset)
                    is_round = not header(each.record.headers, EVENT_TYPE)
                    names = (each.ladder, each.round_id) if is_round else ("", "")
                    found.append(submissions.RejectedRecord(place, each.code, each.message, *names))
                    at = number
                rejected(found, [at + 1])
                self._stop.wait(LOOK_S)
