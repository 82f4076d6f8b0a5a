"""Hears the corrections of one ladder in a pass through the log, from its start or a checkpoint.

Corrections that were accepted before are accepted again where they were worked in. Others are
judged, each by what is before it alone.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.contract.corrections import EVENT_TYPE, Correction
from stream_rater.contract.errors import NotesOfAnotherLog
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.correction_ports import NotedCorrection
from stream_rater.pipeline.corrections.edits_in_force import APPLIED, correction_of
from stream_rater.pipeline.corrections.judged_log import Judged, Proposed
from stream_rater.pipeline.corrections.noting import is_about
from stream_rater.pipeline.ports import Effect
from stream_rater.replay.checkpoint import Place
from stream_rater.replay.ledger import Base, Ledger
from stream_rater.replay.sequential import Judge
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.corrections import places_of
from stream_rater.rounds.decoder import DecodedRounds, RoundDecoder
from stream_rater.rounds.validation import Invalid

T = TypeVar("T")

Course = Generator[Effect[Any] | None, Any, T]
"""Work that yields effects, and None wherever it may pause."""

JUDGED_AT_ONCE = 100
LOOKED_AT_ONCE = 10_000
"""After so many verdicts, or so many rounds that they have looked at, others have their turn."""

Refusals = list[tuple[Record, Invalid]]
"""Corrections, and why each is refused."""


def proposed_in(partition: int, noted: NotedCorrection) -> Proposed:
    """A correction that waits, as far as its note tells."""
    headers = ((EVENT_TYPE, noted.event_type.encode()),)
    record = Record(partition, noted.offset, bytes(noted.correction), headers)
    return Proposed(record, correction_of(noted))


def too_late(proposed: Iterable[Proposed], start: int) -> Refusals:
    """Refuses corrections on a log that does not hold its first rounds any more: no replay can tell
    what they taught. `start`: where it begins."""
    refused: Refusals = []
    for record, correction in proposed:
        text = f"round-completed begins at offset {start}: the rounds before it were deleted"
        invalid = Invalid("unknown-round", text)
        invalid.tell(correction.ladder, getattr(correction, "round_id", ""))
        refused.append((record, invalid))
    return refused


def parted(
    records: Sequence[Record], judge: Judge
) -> Iterator[tuple[Sequence[Record], DecodedRounds | None]]:
    """The rounds in some records, together up to each correction, which comes alone."""
    first = 0
    for i in [*places_of(records), len(records)]:
        if rounds := records[first:i]:
            yield rounds, judge.decode(rounds)
        first = i + 1
        if i < len(records):
            yield records[i:first], None


class Hearing:
    """What is heard of one ladder."""

    def __init__(
        self, log: Judged, partition: int, decoder: RoundDecoder,
        before: Iterable[NotedCorrection], asked: Iterable[Correction], first: int = 0,
        base: Base | None = None, in_base: Collection[Place] = (),
    ) -> None:  # fmt: skip
        """`before`: what was accepted before, in that order. `asked`: all other corrections that
        will be judged. `base`: of a pass that begins at the offset `first`, and `in_base` has the
        corrections that it knows."""
        before = list(before)
        corrections = [*(correction_of(each) for each in before), *asked]
        self.ledger = Ledger(corrections, decoder.read, base)
        self._log = log
        self._partition = partition
        self._in_base = in_base
        self._due: dict[int, list[NotedCorrection]] = {}
        """By where they were worked in, those of before that this pass comes to."""
        for each in before:
            if each.at >= first and each.event_type != APPLIED:
                self._due.setdefault(each.at, []).append(each)
        self.wanted = {each.offset for some in self._due.values() for each in some}
        """The offsets of their records."""
        self._records: dict[int, Record] = {}
        self._made = self._looked_at = 0
        """Verdicts since the last pause, and what was looked at before it."""

    @property
    def offsets(self) -> set[int]:
        """Of all records that `meet` has to get."""
        return self.wanted | self._due.keys()

    def add(self, rounds: RoundBatch, records: Sequence[Record]) -> None:
        """Read accepted rounds of the ladder, which were in these records."""
        offsets: Ints = np.array([each.offset for each in records], np.int64)
        self.ledger.add(rounds, offsets, self._partition)

    def remember(self, record: Record) -> None:
        """Read a correction that may be worked in later."""
        if record.offset in self.wanted:
            self._records[record.offset] = record

    def meet(self, record: Record) -> Course[None]:
        """Read a correction: what was worked in here is accepted again. Raises Earlier, or
        NotesOfAnotherLog."""
        self.remember(record)
        for noted in self._due.pop(record.offset, ()):
            own, correction = self._noted(noted)
            if noted.place in self._in_base:
                self.ledger.repeat(correction, own.received_s)
            else:
                self.ledger.accept(correction, own.received_s, noted.offset)
            yield from self._pause()

    def _noted(self, noted: NotedCorrection) -> tuple[Record, Correction]:
        """The record of a noted correction, and what it says."""
        own = self._records.pop(noted.offset, None)
        try:
            correction = None if own is None else self._log.correction(own)
        except Invalid:
            correction = None
        if own is None or correction is None or not is_about(noted, correction):
            raise NotesOfAnotherLog(correction_of(noted).ladder, noted.offset)
        return own, correction

    def judge(self, each: Proposed) -> Course[int | Invalid | None]:
        """The verdict on a correction: why it is refused, or the first round that it changes, if
        there is one. All that was worked in before has been met. Raises Earlier, or
        NotesOfAnotherLog."""
        for noted in chain.from_iterable(self._due.values()):  # the log has no correction there
            raise NotesOfAnotherLog(correction_of(noted).ladder, noted.offset)
        verdict: int | Invalid | None
        try:
            verdict = self.ledger.judge(each.correction, each.record.received_s, each.record.offset)
        except Invalid as invalid:
            invalid.tell(each.correction.ladder, getattr(each.correction, "round_id", ""))
            verdict = invalid
        yield from self._pause()
        return verdict

    def _pause(self) -> Course[None]:
        self._made += 1
        looked_at = self.ledger.looked_at - self._looked_at
        if self._made >= JUDGED_AT_ONCE or looked_at >= LOOKED_AT_ONCE:
            self._made, self._looked_at = 0, self.ledger.looked_at
            yield None
