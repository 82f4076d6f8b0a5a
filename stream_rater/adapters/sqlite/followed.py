"""The events and standings of a data file as topics of one partition, for an index."""

import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import structs

from stream_rater.adapters.sqlite import names, reading, season_file
from stream_rater.contract import season_ended
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import Record, checksum

SHARD = 0  # The only shard of a data file.
READ_TOGETHER = 5_000  # The most events that one call returns.


class FileLog:
    """A data file and the standings beside it (`index.log.FollowedLog`)."""

    def __init__(self, path: Path) -> None:
        self._file = reading.DataFile(path)
        self.close = self._file.close

    def changed(self) -> "FileEvents":
        """The events of the file."""
        return FileEvents(self._file)

    def standings(self) -> "FileStandings":
        """The standings of past seasons."""
        return FileStandings(self._file)


class FileEvents:
    """The events of a data file as a topic. The methods raise LogTrouble or Unusable."""

    partitions, forgets_s = 1, math.inf

    def __init__(self, file: reading.DataFile) -> None:
        self._file, self._next, self._end = file, 0, 0
        self._awake = threading.Event()
        self.id = str(file.meta("id"))
        self.ends: Mapping[int, int] = {}
        """The end of the partition if the last call of `gather` has reached it; else empty."""

    def end_offsets(self) -> Sequence[int]:
        return [self._file.changed_ends()[SHARD]]

    def checksums(self, offsets: Mapping[int, int]) -> Mapping[int, int | None]:
        """The checksum of the event at an offset; None if it was pruned."""
        found: dict[int, int | None] = {}
        for shard, offset in offsets.items():
            at, event = next(iter(self._file.events_from(shard, offset, 1)))
            found[shard] = checksum(event.value) if at == offset else None
        return found

    def start_at(self, offsets: Mapping[int, int]) -> None:
        """Let `gather` begin at this offset."""
        self._next = offsets[SHARD]

    def gather(self, wait_s: float) -> Sequence[Record]:
        """The next events, at most READ_TOGETHER. Without any, waits up to `wait_s` for `wake`."""
        some = self._file.events_from(SHARD, self._next, READ_TOGETHER)
        if not some and self._awake.wait(wait_s):
            self._awake.clear()
            some = self._file.events_from(SHARD, self._next, READ_TOGETHER)
        if some:
            self._next = some[-1][0] + 1
        self.ends = {} if some else {SHARD: self._next}
        (self._end,) = self.end_offsets()
        return [Record(SHARD, at, event.value, key=event.key) for at, event in some]

    def wake(self) -> None:
        """Let `gather` look for events now."""
        self._awake.set()

    def known_end(self, _: int) -> int:
        """The end of the events at the last call of `gather`."""
        return self._end

    def close(self) -> None:
        """Does nothing: `FileLog` closes the file."""


class FileStandings:
    """The standings of a data file as a topic (`index.log.FollowedRecords`). A position is the
    number of seasons that are kept. When it rises, all records come again: to write them once more
    changes nothing."""

    def __init__(self, file: reading.DataFile) -> None:
        self.id = str(file.meta("id"))
        self._path = names.seasons_path(file.path)
        self._file, self._next, self._seen = season_file.SeasonFile(self._path, self.id), 0, 0.0
        self.ends: Mapping[int, int] = {}
        """The end of the partition if the last call of `gather` has reached it; else empty."""

    def end_offsets(self) -> Sequence[int]:
        """The number of seasons."""
        found = map(season_ended.decoded, self._file.records(marks=True))
        return [sum(isinstance(each, season_ended.SeasonKept) for each in found)]

    def start_at(self, offsets: Mapping[int, int]) -> None:
        """Let `gather` begin after this many seasons."""
        self._next = offsets[SHARD]

    def gather(self, _: float) -> Sequence[Record]:
        """All records, if seasons were added. Raises LogTrouble if there are fewer."""
        changed_s = self._path.stat().st_mtime if self._path.exists() else -1.0
        if changed_s == self._seen:
            return []
        (count,), self._seen = self.end_offsets(), changed_s
        self.ends, before, self._next = {SHARD: count}, self._next, count
        if count < before:
            raise LogTrouble(f"{self._path} is another file now: reading begins again")
        if count == before:
            return []
        return [structs.replace(each, offset=count - 1) for each in self._file.records()]

    def close(self) -> None:
        """Does nothing: no file is open."""
