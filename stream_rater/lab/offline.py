"""Runs rounds through the sequential replay. `rate` and `verify` use this."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config import Ladder, Ladders
from stream_rater.contract.record import Record
from stream_rater.lab.replay import Pool
from stream_rater.rating.model import Evidence
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds.batch import Standings
from stream_rater.rounds.decoder import DecodedRounds, RoundDecoder
from stream_rater.rounds.duplicates import DuplicateWindow
from stream_rater.rounds.validation import Invalid

BATCH_BYTES = 2**18
"""Records are decoded together while they have no more bytes than this."""


class Judge:
    """Judges all records of a log, each by the records before it in its partition. The log has
    `partitions` partitions."""

    def __init__(self, ladders: Ladders, window: int, partitions: int = ANYWHERE) -> None:
        self.round_decoder = RoundDecoder(ladders, partitions)
        self._window = window
        self._duplicates: dict[int, DuplicateWindow] = {}
        """By partition."""

    def decode(self, records: Sequence[Record]) -> DecodedRounds:
        """The rounds in these records, and why the others are refused: what the decoder says, and
        which rounds are duplicates."""
        decoded = self.round_decoder.decode(records)
        new, i = list[int](), 0
        for number, (record, refusal) in enumerate(zip(records, decoded.refusals, strict=True)):
            if refusal is not None:
                continue
            head = decoded.rounds.heads[i]
            try:
                self._of(record.partition).check(record.offset, head.ladder, head.round_id)
            except Invalid as duplicate:
                decoded.refusals[number] = duplicate
            else:
                new.append(i)
            i += 1
        if len(new) == i:
            return decoded
        chosen = np.array(new, np.int64)
        return decoded._replace(
            rounds=decoded.rounds.take(chosen),
            rule=decoded.rule[chosen],
            unknown=decoded.unknown[chosen],
        )

    def _of(self, partition: int) -> DuplicateWindow:
        window = self._duplicates.get(partition)
        if window is None:
            window = self._duplicates[partition] = DuplicateWindow(self._window)
        return window


class Rated(NamedTuple):
    """A valid round and what it did to its ladder's pool."""

    standings: Standings
    pool: Pool
    changed: tuple[Ints, Evidence] | None
    """Rows of its players in the pool and their evidence; None where it changed nothing."""


class Replay:
    """Replays a log one record after the other. The state of every ladder's pool after it is the
    truth that the service must match."""

    def __init__(self, ladders: Ladders, window: int, partitions: int = ANYWHERE) -> None:
        self._judge = Judge(ladders, window, partitions)
        self.pools: dict[str, Pool] = {}
        """The pool of each ladder."""

    def feed(self, record: Record) -> Rated:
        """Rate the round in a record of `round-completed`. Raises Invalid."""
        ((_, found),) = self.run([record])
        if isinstance(found, Invalid):
            raise found
        return found

    def run(self, records: Iterable[Record]) -> Iterator[tuple[Record, Rated | Invalid]]:
        """Rate the rounds in records of `round-completed`. Yields each record in turn, once its
        round is rated, or with the reason why it is refused."""
        for some in batches_of(records):
            decoded = self._judge.decode(some)
            ratings = [self._judge.round_decoder.ratings[number] for number in decoded.rule]
            rounds = zip(decoded.rounds, ratings, strict=True)
            for record, refusal in zip(some, decoded.refusals, strict=True):
                yield record, refusal or self._rate(*next(rounds), record.offset)

    def _rate(self, standings: Standings, rating: RatingConfig, offset: int) -> Rated:
        """Rate a round by these parameters."""
        pool = self.pools.get(standings.ladder)
        if pool is None:
            pool = self.pools[standings.ladder] = Pool(Ladder(rating=rating))
        pool.follow(rating)
        return Rated(standings, pool, pool.rate(standings, offset))


def records_of(lines: Iterable[bytes]) -> Iterator[Record]:
    """Yield each line that is not blank as a record. Its offset is its line number from 0, and its
    time is never too late."""
    for number, line in enumerate(lines):
        if line.strip():
            yield Record(0, number, line, received_s=math.inf)


def batches_of(records: Iterable[Record], most_bytes: int = BATCH_BYTES) -> Iterator[list[Record]]:
    """Yield records that follow each other, together while they have no more bytes than that."""
    some, size = list[Record](), 0
    for record in records:
        own = len(record.value or b"")
        if some and size + own > most_bytes:
            yield some
            some, size = [], 0
        some.append(record)
        size += own
    if some:
        yield some
