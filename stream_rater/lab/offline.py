"""Rounds from a file or a log through the sequential replay: what `rate` and `verify` run."""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config import Ladder, Ladders
from stream_rater.contract.record import Record
from stream_rater.lab.replay import Pool
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds.decoder import DecodedRounds, RoundDecoder
from stream_rater.rounds.duplicates import DuplicateWindow
from stream_rater.rounds.validation import Invalid

BATCH_BYTES = 2**18
"""Records are decoded together while they have no more bytes than that."""


class Judge:
    """The verdicts on all records of a log with so many partitions, in order: what the decoder says
    of each record, and which rounds are duplicates of earlier ones in their partition."""

    def __init__(self, ladders: Ladders, window: int, partitions: int = ANYWHERE) -> None:
        self.round_decoder = RoundDecoder(ladders, partitions)
        self._window = window
        self._duplicates: dict[int, DuplicateWindow] = {}
        """By partition."""

    def decode(self, records: Sequence[Record]) -> DecodedRounds:
        """The rounds in these records, and why the others are refused."""
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


class Replay:
    """The sequential truth about a log: every ladder's pool, fed some records at a time."""

    def __init__(self, ladders: Ladders, window: int, partitions: int = ANYWHERE) -> None:
        self._judge = Judge(ladders, window, partitions)
        self.pools: dict[str, Pool] = {}
        """By ladder."""

    def feed(self, records: Sequence[Record]) -> list[Invalid | None]:
        """Rate the rounds in records of `round-completed`, one after the other; returns why records
        are refused, None for the others."""
        decoded = self._judge.decode(records)
        ratings = self._judge.round_decoder.ratings
        rules = decoded.rule.tolist()
        for i, record in enumerate(decoded.valid(records)):
            standings = decoded.rounds[i]
            self._pool(standings.ladder, ratings[rules[i]]).rate(standings, record.offset)
        return decoded.refusals

    def _pool(self, ladder: str, rating: RatingConfig) -> Pool:
        """A ladder's pool, which rates by these parameters from now on."""
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


def batches_of(records: Iterable[Record], most_bytes: int = BATCH_BYTES) -> Iterator[list[Record]]:
    """Records that follow each other, together while they have no more bytes than that."""
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
