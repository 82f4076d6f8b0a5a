"""Logs for tests of what reads a whole log."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stream_rater.contract.record import Record


@dataclass(frozen=True)
class ListedRecords:
    """Some records, read in batches of so many (a `log_reading.LogSource`)."""

    records: Sequence[Record]
    at_once: int = 1000

    def __call__(self, ends: Mapping[int, int]) -> Iterator[Sequence[Record]]:
        wanted = [each for each in self.records if each.offset < ends.get(each.partition, 0)]
        for first in range(0, len(wanted), self.at_once):
            yield wanted[first : first + self.at_once]


@dataclass(frozen=True)
class FailingRecords:
    """The same, but reading them fails after the first batch."""

    records: Sequence[Record]
    error: Exception

    def __call__(self, ends: Mapping[int, int]) -> Iterator[Sequence[Record]]:
        yield from ListedRecords(self.records)(ends)
        raise self.error
