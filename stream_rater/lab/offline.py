"""Rounds from a file through the sequential replay: what `rate` and `verify` run."""

import math
from collections.abc import Iterable, Iterator, Sequence

from stream_rater.config import Ladder, Ladders
from stream_rater.lab.replay import Pool
from stream_rater.pipeline.ports import Record
from stream_rater.pipeline.verdicts import Verdicts
from stream_rater.rating.parameters import RatingConfig
from stream_rater.scanning import Scanned
from stream_rater.standings import Reader, Standings


class Judge:
    """The verdicts on all records of a log, each partition's by what came before in it."""

    def __init__(self, ladders: Ladders, window: int) -> None:
        self._reader = Reader(ladders)
        self._window = window
        self._ladders = ladders
        self._verdicts: dict[int, Verdicts] = {}
        self._unchanging: dict[str, RatingConfig] = {}
        """By ladder, of those rated by the same parameters from the first offset on."""

    def scan(self, records: Sequence[Record]) -> list[Scanned | None]:
        """Records read together, each to be judged with what was scanned of it."""
        return self._reader.scan([each.value for each in records])

    def judge(self, record: Record, scanned: Scanned | None = None) -> Standings:
        """The round in a record, of which this was scanned; raises Invalid."""
        verdicts = self._verdicts.get(record.partition)
        if verdicts is None:
            verdicts = self._verdicts[record.partition] = Verdicts(self._reader, self._window)
        return verdicts.judge(record, scanned)

    def rating(self, ladder: str, offset: int) -> RatingConfig:
        """By what a ladder's round at this offset is to be rated."""
        rating = self._unchanging.get(ladder)
        if rating is None:
            rating = self._reader.terms(ladder, offset).rating
            if len(self._ladders.history(ladder)) == 1:
                self._unchanging[ladder] = rating
        return rating


class Replay:
    """The sequential truth about a log: every ladder's pool, fed one record at a time."""

    def __init__(self, ladders: Ladders, window: int) -> None:
        self._judge = Judge(ladders, window)
        self.pools: dict[str, Pool] = {}
        """By ladder."""

    def feed(self, record: Record) -> None:
        """Rate the round in a record of `round-completed`; raises Invalid."""
        standings = self._judge.judge(record)
        self._pool(standings.ladder, record.offset).rate(standings, record.offset)

    def _pool(self, ladder: str, offset: int) -> Pool:
        """A ladder's pool, by what holds at an offset."""
        rating = self._judge.rating(ladder, offset)
        pool = self.pools.get(ladder)
        if pool is None:
            pool = self.pools[ladder] = Pool(Ladder(rating=rating))
        pool.follow(rating)
        return pool


def records_of(lines: Iterable[bytes]) -> Iterator[Record]:
    """Each line that is not blank as a record, numbered from 0 as in the file, always in time."""
    for number, line in enumerate(lines):
        if line.strip():
            yield Record(0, number, line, received_s=math.inf)
