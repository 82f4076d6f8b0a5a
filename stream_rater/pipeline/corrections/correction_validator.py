"""Validates the corrections of one ladder in a pass through the log, from its start or a
checkpoint.

Corrections that were accepted before are accepted again at the offset at which they were applied.
The others are validated, each only by the log before it.
"""

from collections.abc import Collection, Generator, Iterable
from itertools import chain
from typing import Any, TypeVar

from stream_rater.contract.corrections import EVENT_TYPE, Correction
from stream_rater.contract.errors import LadderEventsMismatch
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.edits_in_force import APPLIED, correction_of, matches
from stream_rater.pipeline.corrections.log_context import LogContext, QueuedCorrection
from stream_rater.pipeline.ports import Effect, RecordedCorrection
from stream_rater.replay.checkpoint import RecordPlace
from stream_rater.replay.edited_log import LoggedRounds
from stream_rater.replay.ledger import Base, Ledger
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.rounds.seed_records import Seed
from stream_rater.rounds.validation import Invalid

T = TypeVar("T")

Steps = Generator[Effect[Any] | None, Any, T]
"""Work that yields effects, and None wherever it may pause."""

VERDICTS_AT_ONCE = 100
ROUNDS_AT_ONCE = 10_000
"""The work pauses after VERDICTS_AT_ONCE verdicts, or after ROUNDS_AT_ONCE rounds were examined
for verdicts."""

Rejections = list[tuple[Record, Invalid]]
"""The records of rejected corrections, and why each is rejected."""


def queued_of(partition: int, recorded: RecordedCorrection) -> QueuedCorrection:
    """Rebuild a waiting correction from its ladder event."""
    headers = ((EVENT_TYPE, recorded.event_type.encode()),)
    record = Record(partition, recorded.offset, bytes(recorded.correction), headers)
    return QueuedCorrection(record, correction_of(recorded))


def reject_incomplete_log(queued: Iterable[QueuedCorrection], start: int) -> Rejections:
    """Reject corrections because the log does not contain its first rounds any more, so that no
    replay can compute their effect. `start`: the offset at which the log begins."""
    rejected: Rejections = []
    for record, correction in queued:
        text = f"round-completed begins at offset {start}: the rounds before it were deleted"
        invalid = Invalid("unknown-round", text)
        invalid.set_round(correction.ladder, getattr(correction, "round_id", ""))
        rejected.append((record, invalid))
    return rejected


class CorrectionValidator:
    """Validates the corrections of one ladder by the records that it receives in order."""

    def __init__(
        self, log: LogContext, partition: int, decoder: RoundDecoder,
        before: Iterable[RecordedCorrection], to_validate: Iterable[Correction], first: int = 0,
        base: Base | None = None, base_places: Collection[RecordPlace] = (),
    ) -> None:  # fmt: skip
        """`before`: the corrections that were accepted before, in that order. `to_validate`: all
        other corrections that will be validated. `base`: what is known of the rounds before
        `first`, if the pass begins at that offset; `base_places` has the places of the corrections
        that the base includes."""
        before = list(before)
        corrections = [*(correction_of(each) for each in before), *to_validate]
        self.ledger = Ledger(corrections, decoder.read, base)
        self._log = log
        self._partition = partition
        self._base_places = base_places
        self._due: dict[int, list[RecordedCorrection]] = {}
        """By the offset at which they were applied, the corrections in `before` that this pass
        reaches."""
        for each in before:
            if each.at >= first and each.event_type != APPLIED:
                self._due.setdefault(each.at, []).append(each)
        self.wanted = {each.offset for batch in self._due.values() for each in batch}
        """The offsets of the records of these corrections."""
        self._records: dict[int, Record] = {}
        self._verdicts = self._examined_before = 0
        """The number of verdicts since the last pause (`_verdicts`), and of rounds examined before
        that pause."""

    @property
    def offsets(self) -> set[int]:
        """The offsets of all records that must be passed to `reach`."""
        return self.wanted | self._due.keys()

    def add(self, batch: LoggedRounds) -> None:
        """Read accepted rounds of the ladder."""
        self.ledger.add(batch.rounds, batch.offset, self._partition)

    def add_seed(self, seed: Seed) -> None:
        """Read an accepted seed or reset of the ladder."""
        self.ledger.add_seed(seed)

    def remember(self, record: Record) -> None:
        """Read a correction that may be applied later."""
        if record.offset in self.wanted:
            self._records[record.offset] = record

    def reach(self, record: Record) -> Steps[None]:
        """Read a correction. The corrections that were applied at its offset are accepted again.
        Raises NeedsEarlierRounds, or LadderEventsMismatch."""
        self.remember(record)
        for recorded in self._due.pop(record.offset, ()):
            own, correction = self._recorded(recorded)
            if recorded.place in self._base_places:
                self.ledger.repeat(correction, own.received_s)
            else:
                self.ledger.accept(correction, own.received_s, recorded.offset)
            yield from self._pause()

    def _recorded(self, recorded: RecordedCorrection) -> tuple[Record, Correction]:
        """The record of a correction that has a ladder event, and the decoded correction. Raises
        LadderEventsMismatch if the log has no such correction there."""
        own = self._records.pop(recorded.offset, None)
        try:
            correction = None if own is None else self._log.correction(own)
        except Invalid:
            correction = None
        if own is None or correction is None or not matches(recorded, correction):
            raise LadderEventsMismatch(correction_of(recorded).ladder, recorded.offset)
        return own, correction

    def validate(self, each: QueuedCorrection) -> Steps[int | Invalid | None]:
        """Validate a correction. Returns why it is rejected, or the offset of the first round that
        it changes, or None if it changes no round. `reach` must have received all corrections that
        were applied before. Raises NeedsEarlierRounds, or LadderEventsMismatch."""
        for recorded in chain.from_iterable(self._due.values()):  # the log has no correction there
            raise LadderEventsMismatch(correction_of(recorded).ladder, recorded.offset)
        verdict: int | Invalid | None
        try:
            verdict = self.ledger.validate(
                each.correction, each.record.received_s, each.record.offset
            )
        except Invalid as invalid:
            invalid.set_round(each.correction.ladder, getattr(each.correction, "round_id", ""))
            verdict = invalid
        yield from self._pause()
        return verdict

    def _pause(self) -> Steps[None]:
        self._verdicts += 1
        rounds_examined = self.ledger.rounds_examined - self._examined_before
        if self._verdicts >= VERDICTS_AT_ONCE or rounds_examined >= ROUNDS_AT_ONCE:
            self._verdicts, self._examined_before = 0, self.ledger.rounds_examined
            yield None
