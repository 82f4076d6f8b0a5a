"""Judges the corrections of a whole log: two passes through it, before a third one that rates it.

The first pass finds the corrections, the second one whether what they are about is there.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.contract.corrections import (
    Batched,
    Correction,
    CorrectionsApplied,
    SeasonStarted,
)
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import Season
from stream_rater.replay.ledger import Ledger
from stream_rater.replay.sequential import Judge, Unjudged, batches_of
from stream_rater.replay.verdicts import Verdicts, WorkedIn
from stream_rater.rounds.corrections import decode, places_of
from stream_rater.rounds.validation import Invalid

Place = tuple[int, int]
"""Partition and offset."""

T = TypeVar("T")


def with_verdicts(
    run: Callable[[Verdicts | None], T], again: Callable[[], Iterable[Record]], ladders: Ladders,
    window: int, partitions: int = ANYWHERE,
) -> T:  # fmt: skip
    """What `run` gives. First it gets no verdicts, which a log without corrections does not need;
    if it raises Unjudged, it begins again with those on the log's corrections."""
    try:
        return run(None)
    except Unjudged:
        verdicts = judged(again, ladders, window, partitions)
    return run(verdicts)


def judged(
    again: Callable[[], Iterable[Record]], ladders: Ladders, window: int,
    partitions: int = ANYWHERE,
) -> Verdicts:  # fmt: skip
    """The verdicts on the corrections in the records of `round-completed`, which `again` yields
    from the first one on, each time."""
    found: dict[Place, Correction] = {}
    judge = _Corrections(ladders, window, partitions)
    for records in batches_of(again()):
        for i in places_of(records):
            place = records[i].partition, records[i].offset
            try:
                found[place] = decode(records[i], ladders, partitions)
            except Invalid as invalid:
                judge.refusals[place] = invalid
    if not found:
        return Verdicts({}, judge.refusals)
    judge.expect(found)
    for records in batches_of(again()):
        judge.read(records)
    return judge.verdicts()


class _Corrections:
    """The second pass."""

    def __init__(self, ladders: Ladders, window: int, partitions: int) -> None:
        self.refusals: dict[Place, Invalid] = {}
        self._judge = Judge(ladders, window, partitions)
        self._starts: dict[Place, tuple[str, Season]] = {}
        self._found: dict[Place, Correction] = {}
        self._ledgers: dict[str, Ledger] = {}
        self._batched: dict[str, list[tuple[Record, Correction]]] = {}
        """By ladder, the corrections that wait for `corrections-applied`."""
        self._worked_in: dict[str, list[WorkedIn]] = {}

    def expect(self, found: dict[Place, Correction]) -> None:
        """These are the corrections."""
        self._found = found
        by_ladder: dict[str, list[Correction]] = {}
        for correction in found.values():
            by_ladder.setdefault(correction.ladder, []).append(correction)
        read = self._judge.round_decoder.read
        self._ledgers = {ladder: Ledger(some, read) for ladder, some in by_ladder.items()}

    def read(self, records: Sequence[Record]) -> None:
        """Read records in order."""
        first = 0
        for i in [*places_of(records), len(records)]:
            self._read_rounds(records[first:i])
            first = i + 1
            if i < len(records):
                correction = self._found.get((records[i].partition, records[i].offset))
                if correction is not None:
                    self._meet(records[i], correction)

    def _read_rounds(self, records: Sequence[Record]) -> None:
        decoded = self._judge.decode(records)
        own = decoded.valid(records)
        ladders: dict[tuple[str, int], list[int]] = {}
        for i, head in enumerate(decoded.rounds.heads):
            if head.ladder in self._ledgers:
                ladders.setdefault((head.ladder, own[i].partition), []).append(i)
        for (ladder, partition), chosen in ladders.items():
            offsets = np.array([own[i].offset for i in chosen], np.int64)
            rounds = decoded.rounds.take(np.array(chosen, np.int64))
            self._ledgers[ladder].add(rounds, offsets, partition)

    def _meet(self, record: Record, correction: Correction) -> None:
        waiting = self._batched.setdefault(correction.ladder, [])
        if isinstance(correction, Batched) and correction.batched:
            waiting.append((record, correction))
            self._note(record, correction, -1)
        elif isinstance(correction, CorrectionsApplied):
            for each in waiting:
                self._judge_one(*each, record.offset)
            waiting.clear()
            self._note(record, correction, record.offset)
        else:
            self._judge_one(record, correction, record.offset)

    def _note(self, record: Record, correction: Correction, at: int) -> None:
        noted = WorkedIn(record.offset, correction, at)
        self._worked_in.setdefault(correction.ladder, []).append(noted)

    def _judge_one(self, record: Record, correction: Correction, at: int) -> None:
        ledger, place = self._ledgers[correction.ladder], (record.partition, record.offset)
        try:
            ledger.judge(correction, record.received_s, record.offset)
            if isinstance(correction, SeasonStarted):
                self._starts[place] = correction.ladder, ledger.last_season
            self._note(record, correction, at)
        except Invalid as invalid:
            invalid.tell(correction.ladder, getattr(correction, "round_id", ""))
            self.refusals[place] = invalid

    def verdicts(self) -> Verdicts:
        """What becomes of all corrections."""
        edits = {ladder: ledger.edits for ladder, ledger in self._ledgers.items()}
        return Verdicts(edits, self.refusals, self._starts, self._worked_in)
