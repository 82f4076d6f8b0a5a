"""Rounds read many at a time: what nearly all are like in columns, what else one by one.

`Reader` says what is valid, and why a record is refused. What passes here at once is what it would
read without a second look: no check of its own makes a round valid, and none refuses one.
"""

import math
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from stream_rater.columns import timestamps
from stream_rater.columns.arrays import Flags, Floats, Hashes, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.sharding import ANYWHERE, partition_of
from stream_rater.columns.strings import are_distinct, lay_out
from stream_rater.config import Ladders, Terms
from stream_rater.contract.events import Round, header
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds.batch import Rounds, joined
from stream_rater.rounds.fastjson import LATER, Scan, runs, scan_all
from stream_rater.rounds.validation import (
    EARLIEST,
    LEAST_CEILING,
    MIN_ENTRIES,
    Invalid,
    Reader,
    Standings,
    check_partition,
)

TOGETHER_BYTES = 2**20
"""So much is scanned in one call."""
ALONE_BYTES = 2**16
"""What is longer is read alone."""

SHORT_ID = 32
"""Characters, which are never over 128 bytes."""
MOST_LADDERS = 10_000
"""Of which is remembered how they are rated: under a template any name is a ladder's."""

NO_LAW = np.empty(0, np.int64)
NOBODYS = Round(round_id="", ladder="", completed_at="")
"""Stands for what was not scanned."""


def read_alone(reader: Reader, record: Record, partitions: int = ANYWHERE) -> Standings:
    """The round in a record of a topic with so many partitions; raises Invalid."""
    if record.unreadable:
        raise Invalid("too-large", record.unreadable)
    standings = reader.read(record.value, record.headers, record.received_s, record.offset)
    if partitions:
        check_partition(standings, record.partition, partition_of(standings.ladder, partitions))
    return standings


class Heard(NamedTuple):
    """What records that were read together hold."""

    rounds: Rounds
    """Those that are valid, in order."""
    law: Ints
    """(R,) by which of the intake's ratings each is rated."""
    refusals: list[Invalid | None]
    """By record; None where the next of the rounds is its."""

    def valid(self, records: Sequence[Record]) -> list[Record]:
        """(R,) the record of each round."""
        return [each for each, why in zip(records, self.refusals, strict=True) if why is None]


class _Known(NamedTuple):
    """How the rounds of a ladder are rated, whatever their offset, and their limits."""

    law: int
    most_entries: int
    most_weight: float
    most_ahead_s: float
    home: int
    """The partition that it belongs in."""


_ASK = _Known(-1, 0, 0.0, 0.0, -1)
"""Of a ladder that is unknown, or whose rounds are rated by their offset."""


@kernel
def _resolve(distinct: Ints, ends: Ints, hashes: Hashes) -> Flags:
    """Whether nobody stands in a round twice, of whose names all have the hashes."""
    found = np.empty(len(ends), np.bool_)
    first = 0
    for r in range(len(ends)):
        last = ends[r]
        found[r] = are_distinct(hashes[first:last]) if distinct[r] == LATER else distinct[r] != 0
        first = last
    return found


class Intake:
    """Reads the records of a set of ladders, in a topic with so many partitions."""

    def __init__(self, ladders: Ladders, partitions: int = ANYWHERE) -> None:
        self.reader = Reader(ladders)
        self._partitions = partitions
        self.ratings: list[RatingConfig] = []
        """Those met, to be told by number."""
        self._ladders = ladders
        self._numbers: dict[int, int] = {}
        self._known: dict[str, _Known] = {}

    def law(self, ladder: str, offset: float) -> int:
        """By which of the ratings a known ladder's round at this offset is rated."""
        told = self._ask(ladder)
        return told.law if told is not _ASK else self._number(self.reader.terms(ladder, offset))

    def rates(self, rounds: Rounds, law: Ints) -> Flags:
        """(R,) whether anything can be learnt from each, which is rated so."""
        skip = np.array([each.skip_all_tied for each in self.ratings], np.bool_)
        return rounds.rates(skip[law])

    def _number(self, terms: Terms) -> int:
        number = self._numbers.setdefault(id(terms.rating), len(self.ratings))
        if number == len(self.ratings):
            self.ratings.append(terms.rating)
        return number

    def _ask(self, ladder: str) -> _Known:
        """What holds for all its rounds, if that can be said, and its id is short."""
        told = self._known.get(ladder)
        if told is None:
            if len(self._known) == MOST_LADDERS:
                self._known.clear()
            told = self._known[ladder] = self._look_up(ladder)
        return told

    def _look_up(self, ladder: str) -> _Known:
        terms = self._ladders.find(ladder, 0)
        steady = len(self._ladders.history(ladder)) == 1 and 0 < len(ladder) <= SHORT_ID
        if terms is None or not steady:
            return _ASK
        limits = terms.limits
        home = partition_of(ladder, self._partitions) if self._partitions else ANYWHERE
        return _Known(
            self._number(terms), limits.max_entries, limits.max_weight, limits.max_skew_s, home
        )

    def read(self, records: Sequence[Record]) -> Heard:
        """What they hold, in order."""
        values = [each.value or b"" for each in records]
        small = [each if len(each) <= ALONE_BYTES else b"" for each in values]
        left = iter(records)
        heard = [
            self._read(list(islice(left, len(some))), some) for some in runs(small, TOGETHER_BYTES)
        ]
        if len(heard) == 1:
            return heard[0]
        return Heard(
            joined([each.rounds for each in heard]),
            np.concatenate([NO_LAW, *(each.law for each in heard)]),
            [refusal for each in heard for refusal in each.refusals],
        )

    def _read(self, records: Sequence[Record], values: Sequence[bytes]) -> Heard:
        """Of some, scanned in one call."""
        limits = self._ladders.limits
        scanned = scan_all(values, limits.max_depth)
        rounds = _columns(scanned)
        law, most_entries, most_weight, most_ahead_s, home = self._held(rounds)
        plain = (
            _are_short([each.round_id for each in rounds.told])
            & np.array([_is_json(each) for each in records])
            & np.array([len(each) <= limits.max_bytes for each in values])
            & (rounds.time >= EARLIEST)
            & (rounds.time <= np.array([each.received_s for each in records]) + most_ahead_s)
            & (rounds.weight > 0.0) & (rounds.weight <= most_weight)
            & (rounds.ceiling >= LEAST_CEILING)
            & (rounds.entries >= MIN_ENTRIES) & (rounds.entries <= most_entries)
            & _resolve(scanned.distinct, scanned.ends, scanned.names.hashes)
            & ((home == [each.partition for each in records]) | (self._partitions == ANYWHERE))
        )  # fmt: skip
        heard = Heard(rounds, law.astype(np.int64), [None] * len(records))
        return heard if plain.all() else self._mixed(records, heard, plain)

    def _held(self, rounds: Rounds) -> Floats:
        """(5, R) what _Known has of each one's ladder."""
        which: dict[str, int] = {}
        number = [which.setdefault(each.ladder, len(which)) for each in rounds.told]
        return np.array([self._ask(each) for each in which], np.float64)[number].T

    def _mixed(self, records: Sequence[Record], heard: Heard, plain: Flags) -> Heard:
        """Of these the plain ones as heard, the others read one by one."""
        at_once, refusals = np.flatnonzero(plain), heard.refusals
        alone, places, laws = list[Standings](), list[int](), list[int]()
        for i in np.flatnonzero(~plain).tolist():
            try:
                standings = read_alone(self.reader, records[i], self._partitions)
            except Invalid as invalid:
                refusals[i] = invalid
                continue
            alone.append(standings)
            places.append(i)
            laws.append(self.law(standings.ladder, records[i].offset))
        order = np.argsort(np.append(at_once, np.array(places, np.int64)))
        law = np.append(heard.law[at_once], np.array(laws, np.int64))[order]
        return Heard(
            joined([heard.rounds.rows(at_once), Rounds.of(alone)]).rows(order), law, refusals
        )


def _columns(scanned: Scan) -> Rounds:
    """Each message's round, as far as it was scanned."""
    told = [each or NOBODYS for each in scanned.told]
    count, lines = np.diff(scanned.ends, prepend=0), len(scanned.place)
    return Rounds(
        told=told,
        time=timestamps.seconds(lay_out([each.completed_at for each in told])),
        weight=np.array([each.weight for each in told], np.float64),
        ceiling=np.array([_ceiling(each) for each in told], np.float64),
        entries=count,
        sizes=count,
        place=scanned.place,
        members=np.ones(lines, np.int64),
        share=np.ones(lines),
        names=scanned.names,
    )


def _are_short(ids: Sequence[str]) -> Flags:
    """And not empty."""
    sizes = np.array([len(each) for each in ids])
    return (sizes > 0) & (sizes <= SHORT_ID)


def _ceiling(told: Round) -> float:
    return math.inf if told.performance_ceiling is None else told.performance_ceiling


def _is_json(record: Record) -> bool:
    return "msgpack" not in header(record.headers, "content-type").lower()
