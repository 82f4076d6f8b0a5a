"""Rounds from a file through the sequential replay: what `rate` and `verify` run."""

import gzip
import io
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from stream_rater.config import Ladder, Ladders
from stream_rater.lab.replay import Pool
from stream_rater.pipeline.ports import Record
from stream_rater.pipeline.verdicts import Verdicts
from stream_rater.standings import Reader, Standings

CHUNK = 1 << 18
"""Bytes decompressed at once: by the usual 8 KiB it takes half as long again."""


class Replay:
    """The sequential truth about a log: every ladder's pool, fed one record at a time."""

    def __init__(self, ladders: Ladders, window: int) -> None:
        self._reader = Reader(ladders)
        self._window = window
        self._verdicts: dict[int, Verdicts] = {}
        self.pools: dict[str, Pool] = {}
        """By ladder."""

    def feed(self, record: Record) -> None:
        """Rate the round in a record of `round-completed`; raises Invalid."""
        self.rate(self.judge(record), record.offset)

    def judge(self, record: Record) -> Standings:
        """The round in a record, not yet rated; raises Invalid."""
        verdicts = self._verdicts.get(record.partition)
        if verdicts is None:
            verdicts = self._verdicts[record.partition] = Verdicts(self._reader, self._window)
        return verdicts.judge(record)

    def rate(self, standings: Standings, offset: int) -> None:
        """Rate a round."""
        self._pool(standings.ladder, offset).rate(standings, offset)

    def _pool(self, ladder: str, offset: int) -> Pool:
        """A ladder's pool, by what holds at an offset."""
        rating = self._reader.terms(ladder, offset).rating
        pool = self.pools.get(ladder)
        if pool is None:
            pool = self.pools[ladder] = Pool(Ladder(rating=rating))
        pool.follow(rating)
        return pool


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, gzip-compressed if its name ends in .gz."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        yield from io.BufferedReader(cast(io.RawIOBase, file), CHUNK)


def records_of(lines: Iterable[bytes]) -> Iterator[Record]:
    """Each line that is not blank as a record, numbered from 0 as in the file, always in time."""
    for number, line in enumerate(lines):
        if line.strip():
            yield Record(0, number, line, received_s=math.inf)
