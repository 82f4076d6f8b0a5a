"""Validates the corrections of one ladder in a pass through the log, from its start or a
checkpoint.

Corrections that were accepted before are accepted again at the offset at which they were applied.
The others are validated, each only by the log before it.
"""

from collections.abc import Collection, Generator, Iterable
from itertools import chain
from typing import Any, TypeVar

from stream_rater.contract.corrections import EVENT_TYPE, Correction
from stream_rater.contract.errors import NotesOfAnotherLog
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.correction_ports import NotedCorrection
from stream_rater.pipeline.corrections.edits_in_force import APPLIED, correction_of, is_about
from stream_rater.pipeline.corrections.log_context import LogContext, QueuedCorrection
from stream_rater.pipeline.ports import Effect
from stream_rater.replay.checkpoint import Place
from stream_rater.replay.edited_log import LoggedRounds
from stream_rater.replay.ledger import Base, Ledger
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.rounds.validation import Invalid

T = TypeVar("T")

Steps = Generator[Effect[Any] | None, Any, T]
"""Work that yields effects, and None wherever it may pause."""

JUDGED_AT_ONCE = 100
LOOKED_AT_ONCE = 10_000
"""The work pauses after JUDGED_AT_ONCE verdicts, or after LOOKED_AT_ONCE rounds were examined for
verdicts."""

Refusals = list[tuple[Record, Invalid]]
"""The records of rejected corrections, and why each is rejected."""


def queued_of(partition: int, noted: NotedCorrection) -> QueuedCorrection:
    """Rebuild a waiting correction from its ladder event."""
    headers = ((EVENT_TYPE, noted.event_type.encode()),)
    record = Record(partition, noted.offset, bytes(noted.correction), headers)
    return QueuedCorrection(record, correction_of(noted))


def too_late(queued: Iterable[QueuedCorrection], start: int) -> Refusals:
    """Reject corrections because the log does not contain its first rounds any more, so that no
    replay can compute their effect. `start`: the offset at which the log begins."""
    refused: Refusals = []
    for record, correction in queued:
        text = f"round-completed begins at offset {start}: the rounds before it were deleted"
        invalid = Invalid("unknown-round", text)
        invalid.tell(correction.ladder, getattr(correction, "round_id", ""))
        refused.append((record, invalid))
    return refused


class CorrectionJudge:
    """Validates the corrections of one ladder by the records that it receives in order."""

    def __init__(
        self, log: LogContext, partition: int, decoder: RoundDecoder,
        before: Iterable[NotedCorrection], asked: Iterable[Correction], first: int = 0,
        base: Base | None = None, in_base: Collection[Place] = (),
    ) -> None:  # fmt: skip
        """`before`: the corrections that were accepted before, in that order. `asked`: all other
        corrections that will be validated. `base`: what is known of the rounds before `first`, if
        the pass begins at that offset; `in_base` has the places of the corrections that the base
        includes."""
        before = list(before)
        corrections = [*(correction_of(each) for each in before), *asked]
        self.ledger = Ledger(corrections, decoder.read, base)
        self._log = log
        self._partition = partition
        self._in_base = in_base
        self._due: dict[int, list[NotedCorrection]] = {}
        """By the offset at which they were applied, the corrections in `before` that this pass
        reaches."""
        for each in before:
            if each.at >= first and each.event_type != APPLIED:
                self._due.setdefault(each.at, []).append(each)
        self.wanted = {each.offset for some in self._due.values() for each in some}
        """The offsets of the records of these corrections."""
        self._records: dict[int, Record] = {}
        self._made = self._looked_at = 0
        """The number of verdicts since the last pause (`_made`), and of rounds examined before that
        pause."""

    @property
    def offsets(self) -> set[int]:
        """The offsets of all records that must be passed to `reach`."""
        return self.wanted | self._due.keys()

    def add(self, some: LoggedRounds) -> None:
        """Read accepted rounds of the ladder."""
        self.ledger.add(some.rounds, some.offset, self._partition)

    def remember(self, record: Record) -> None:
        """Read a correction that may be applied later."""
        if record.offset in self.wanted:
            self._records[record.offset] = record

    def reach(self, record: Record) -> Steps[None]:
        """Read a correction. The corrections that were applied at its offset are accepted again.
        Raises Earlier, or NotesOfAnotherLog."""
        self.remember(record)
        for noted in self._due.pop(record.offset, ()):
            own, correction = self._noted(noted)
            if noted.place in self._in_base:
                self.ledger.repeat(correction, own.received_s)
            else:
                self.ledger.accept(correction, own.received_s, noted.offset)
            yield from self._pause()

    def _noted(self, noted: NotedCorrection) -> tuple[Record, Correction]:
        """The record of a correction that has a ladder event, and the decoded correction. Raises
        NotesOfAnotherLog if the log has no such correction there."""
        own = self._records.pop(noted.offset, None)
        try:
            correction = None if own is None else self._log.correction(own)
        except Invalid:
            correction = None
        if own is None or correction is None or not is_about(noted, correction):
            raise NotesOfAnotherLog(correction_of(noted).ladder, noted.offset)
        return own, correction

    def judge(self, each: QueuedCorrection) -> Steps[int | Invalid | None]:
        """Validate a correction. Returns why it is rejected, or the offset of the first round that
        it changes, or None if it changes no round. `reach` must have received all corrections that
        were applied before. Raises Earlier, or NotesOfAnotherLog."""
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

    def _pause(self) -> Steps[None]:
        self._made += 1
        looked_at = self.ledger.looked_at - self._looked_at
        if self._made >= JUDGED_AT_ONCE or looked_at >= LOOKED_AT_ONCE:
            self._made, self._looked_at = 0, self.ledger.looked_at
            yield None
