"""Runs rounds through the sequential replay. `rate` and `verify` use this."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config import Ladder, Ladders
from stream_rater.contract.record import Record
from stream_rater.lab.replay import Pool
from stream_rater.rating.model import Evidence
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.rounds.duplicates import DuplicateWindow
from stream_rater.rounds.validation import Invalid, Standings


class Judge:
    """Judges all records of a log, each by the records before it in its partition. The log has
    `partitions` partitions."""

    def __init__(self, ladders: Ladders, window: int, partitions: int = ANYWHERE) -> None:
        self.round_decoder = RoundDecoder(ladders, partitions)
        self._window = window
        self._partitions = partitions
        self._verdicts: dict[int, DuplicateWindow] = {}

    def _of(self, partition: int) -> DuplicateWindow:
        verdicts = self._verdicts.get(partition)
        if verdicts is None:
            verdicts = DuplicateWindow(self.round_decoder.reader, self._window, self._partitions)
            self._verdicts[partition] = verdicts
        return verdicts

    def judge(self, record: Record) -> Standings:
        """Returns the round in a record. Raises Invalid."""
        return self._of(record.partition).judge(record)

    def are_new(self, records: Sequence[Record], rounds: RoundBatch) -> Flags:
        """(R,) whether each valid round, read from the record at the same place, is no
        duplicate."""
        new = []
        for record, head in zip(records, rounds.heads, strict=True):
            try:
                self._of(record.partition).check(record.offset, head)
            except Invalid:
                new.append(False)
            else:
                new.append(True)
        return np.array(new, np.bool_)


class Rated(NamedTuple):
    """A valid round and what it did to its ladder's pool."""

    standings: Standings
    pool: Pool
    changed: tuple[Ints, Evidence] | None
    """Rows of its players in the pool and their evidence; None where it changed nothing."""


class Replay:
    """Replays a log one record at a time. The state of every ladder's pool after it is the truth
    that the service must match."""

    def __init__(self, ladders: Ladders, window: int, partitions: int = ANYWHERE) -> None:
        self._judge = Judge(ladders, window, partitions)
        self.pools: dict[str, Pool] = {}
        """The pool of each ladder."""

    def feed(self, record: Record) -> Rated:
        """Rate the round in a record of `round-completed`. Raises Invalid."""
        standings = self._judge.judge(record)
        pool = self._pool(standings.ladder, record.offset)
        return Rated(standings, pool, pool.rate(standings, record.offset))

    def _pool(self, ladder: str, offset: int) -> Pool:
        """The pool of a ladder, set to the parameters that hold at an offset."""
        round_decoder = self._judge.round_decoder
        rating = round_decoder.ratings[round_decoder.rule(ladder, offset)]
        pool = self.pools.get(ladder)
        if pool is None:
            pool = self.pools[ladder] = Pool(Ladder(rating=rating))
        pool.follow(rating)
        return pool


def records_of(lines: Iterable[bytes]) -> Iterator[Record]:
    """Yield each line that is not blank as a record. Its offset is its line number from 0, and its
    time is never too late."""
    for number, line in enumerate(lines):
        if line.strip():
            yield Record(0, number, line, received_s=math.inf)
