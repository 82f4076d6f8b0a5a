"""Rounds from a file through the sequential replay: what `rate` and `verify` run."""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from stream_rater.columns.arrays import Flags
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config import Ladder, Ladders
from stream_rater.contract.record import Record
from stream_rater.lab.replay import Pool
from stream_rater.rounds.batch import Rounds
from stream_rater.rounds.decoder import Intake
from stream_rater.rounds.duplicates import Verdicts
from stream_rater.rounds.validation import Invalid, Standings


class Judge:
    """The verdicts on all records of a log with so many partitions, each partition's by what came
    before in it."""

    def __init__(self, ladders: Ladders, window: int, partitions: int = ANYWHERE) -> None:
        self.intake = Intake(ladders, partitions)
        self._window = window
        self._partitions = partitions
        self._verdicts: dict[int, Verdicts] = {}

    def _of(self, partition: int) -> Verdicts:
        verdicts = self._verdicts.get(partition)
        if verdicts is None:
            verdicts = Verdicts(self.intake.reader, self._window, self._partitions)
            self._verdicts[partition] = verdicts
        return verdicts

    def judge(self, record: Record) -> Standings:
        """The round in a record; raises Invalid."""
        return self._of(record.partition).judge(record)

    def are_new(self, records: Sequence[Record], rounds: Rounds) -> Flags:
        """(R,) which of the valid rounds of as many records are no duplicates."""
        new = []
        for record, told in zip(records, rounds.told, strict=True):
            try:
                self._of(record.partition).check(record.offset, told)
            except Invalid:
                new.append(False)
            else:
                new.append(True)
        return np.array(new, np.bool_)


class Replay:
    """The sequential truth about a log: every ladder's pool, fed one record at a time."""

    def __init__(self, ladders: Ladders, window: int, partitions: int = ANYWHERE) -> None:
        self._judge = Judge(ladders, window, partitions)
        self.pools: dict[str, Pool] = {}
        """By ladder."""

    def feed(self, record: Record) -> None:
        """Rate the round in a record of `round-completed`; raises Invalid."""
        standings = self._judge.judge(record)
        self._pool(standings.ladder, record.offset).rate(standings, record.offset)

    def _pool(self, ladder: str, offset: int) -> Pool:
        """A ladder's pool, by what holds at an offset."""
        intake = self._judge.intake
        rating = intake.ratings[intake.law(ladder, offset)]
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
