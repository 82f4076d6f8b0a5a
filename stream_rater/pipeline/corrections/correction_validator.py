"""Validates the corrections of one ladder in a pass through the log, from its start or a
checkpoint.

Corrections that were accepted before are accepted again at the offset at which they were applied.
The others are validated, each only by the log before it. So one pass for the first correction of a
queue can validate the whole queue in advance (`Lookahead`), with the verdicts of any other pass.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from stream_rater.config.ladders import Ladders
from stream_rater.contract.corrections import EVENT_TYPE, Batched, Correction, CorrectionsApplied
from stream_rater.contract.errors import LadderEventsMismatch
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.edits_in_force import APPLIED, correction_of, matches
from stream_rater.pipeline.ports import Effect, RecordedCorrection
from stream_rater.replay import checkpoint
from stream_rater.replay.checkpoint import RecordPlace
from stream_rater.replay.edited_log import LoggedRounds, RecordValidator
from stream_rater.replay.edits import indices_by
from stream_rater.replay.ledger import Base, Ledger, NeedsEarlierRounds
from stream_rater.rounds.correction_records import Seed, about, names_in, rejection, well_formed
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.rounds.validation import Invalid


class QueuedCorrection(NamedTuple):
    """A well-formed correction that was read and is not validated against the log yet."""

    record: Record
    correction: Correction

    @property
    def ladder(self) -> str:
        """The ladder."""
        return self.correction.ladder

    @property
    def partition(self) -> int:
        """The partition of the record."""
        return self.record.partition

    @property
    def offset(self) -> int:
        """The offset of the record."""
        return self.record.offset

    @property
    def waits(self) -> bool:
        """Whether it waits for the next `corrections-applied`, and gets only a ladder event now."""
        return isinstance(self.correction, Batched) and self.correction.batched


class LogContext(NamedTuple):
    """The settings that decide which records of the log are accepted."""

    ladders: Ladders
    window: int  # The duplicate window, in records.
    partitions: int
    checkpoint_every: int = 0
    """A correction makes a checkpoint if the last one is at least this many records behind. With 0,
    corrections neither make nor use checkpoints."""

    def validator(self) -> RecordValidator:
        """A validator of the log that has not read any record yet."""
        return RecordValidator(self.ladders, self.window, self.partitions)

    def correction(self, record: Record) -> Correction:
        """Decode the correction in a record. Raises Invalid if it is not well-formed."""
        return well_formed(record, self.ladders, self.partitions)

    def rejection(self, queued: QueuedCorrection) -> Invalid | None:
        """Why the ladder accepts no corrections at this offset; None if it accepts them."""
        return rejection(queued.correction, self.ladders, queued.record.offset)

    def rules(self, ladder: str, offset: int) -> bytes:
        """A digest of all settings that decide how the ladder's rounds before an offset are
        validated and rated (`checkpoint.rules_of`)."""
        return checkpoint.rules_of(self.ladders, ladder, offset, self.window, self.partitions)


T = TypeVar("T")

Steps = Generator[Effect[Any] | None, Any, T]
"""Work that yields effects, and None wherever it may pause."""

VERDICTS_AT_ONCE = 100
ROUNDS_AT_ONCE = 10_000
"""The work pauses after VERDICTS_AT_ONCE verdicts, or after ROUNDS_AT_ONCE rounds were examined for
verdicts."""

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
        rejected.append((record, about(correction, Invalid("unknown-round", text))))
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
        `first`, the offset at which the pass begins; `base_places` has the places of the
        corrections that the base includes."""
        before = list(before)
        corrections = [*(correction_of(each) for each in before), *to_validate]
        self.ledger = Ledger(corrections, decoder.read, base)
        self._log = log
        self._partition = partition
        self._base_places = base_places
        self._due: dict[int, list[RecordedCorrection]] = {}
        """The corrections in `before` that this pass reaches, by the offset of application."""
        for each in before:
            if each.at >= first and each.event_type != APPLIED:
                self._due.setdefault(each.at, []).append(each)
        self.wanted = {each.offset for batch in self._due.values() for each in batch}
        """The offsets of the records of these corrections."""
        self._records: dict[int, Record] = {}
        self._verdicts = self._examined_before = 0
        """The number of verdicts since the last pause, and of rounds examined before that pause."""

    @property
    def offsets(self) -> set[int]:
        """The offsets of all records that must be passed to `reach`."""
        return self.wanted | self._due.keys()

    def add(self, batch: LoggedRounds) -> None:
        """Read accepted rounds of the ladder."""
        self.ledger.add(batch.rounds, batch.offset, self._partition)

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
            verdict = invalid
        yield from self._pause()
        return verdict

    def _pause(self) -> Steps[None]:
        self._verdicts += 1
        rounds_examined = self.ledger.rounds_examined - self._examined_before
        if self._verdicts >= VERDICTS_AT_ONCE or rounds_examined >= ROUNDS_AT_ONCE:
            self._verdicts, self._examined_before = 0, self.ledger.rounds_examined
            yield None


# --- in advance ---


class CorrectionQueue(NamedTuple):
    """The corrections of a ladder that were polled and are not applied yet."""

    ladder: str
    polled: Sequence[QueuedCorrection]  # The queued corrections, in the order of the log.
    waiting: Sequence[RecordedCorrection]
    """Earlier corrections that wait for `corrections-applied`."""
    accepted: Sequence[RecordedCorrection]  # Corrections that were applied before the queued ones.

    @property
    def to_validate(self) -> list[Correction]:
        """All corrections that will be validated."""
        recorded = [correction_of(each) for each in self.waiting]
        return recorded + [each.correction for each in self.polled]

    @property
    def names(self) -> set[str]:
        """The players whom the queue and the corrections before it name."""
        before = [correction_of(each) for each in self.accepted]
        return {name for each in (*before, *self.to_validate) for name in names_in(each)}


class QueueLookahead:
    """Validates the corrections of a queue, in a pass through the log that is made for one of them.
    Only rejections are useful: an accepted correction needs a pass of its own."""

    def __init__(
        self, queue: CorrectionQueue, validator: CorrectionValidator, log: LogContext
    ) -> None:
        self.ladder = queue.ladder
        self.rejections: dict[int, Rejections | None] = {}
        """By the offset of each validated correction, the corrections that are rejected together
        with it; None if any of them is accepted."""
        self.validator = validator
        self._log = log
        self._polled = {each.record.offset: each for each in queue.polled}
        self._waiting = {each.offset for each in queue.waiting} - self._polled.keys()
        self._batch: list[QueuedCorrection] = []  # Corrections that wait for `corrections-applied`.
        self._is_over = False
        """Whether a verdict needs rounds before those that are read. Then later verdicts do,
        too."""

    @property
    def offsets(self) -> set[int]:
        """The offsets of all records that must be passed to `reach`."""
        return self._waiting | self.validator.offsets | self._polled.keys()

    def remember(self, record: Record) -> None:
        """Read a correction that may be applied later."""
        self.validator.remember(record)
        if record.offset in self._waiting:
            self._batch.append(QueuedCorrection(record, self._log.correction(record)))

    def reach(self, record: Record) -> Steps[None]:
        """Read a correction, and validate it if it is in the queue."""
        if self._is_over:
            return
        self.remember(record)
        try:
            yield from self.validator.reach(record)
            if (polled := self._polled.get(record.offset)) is not None:
                yield from self._validate_polled(polled)
        except NeedsEarlierRounds:
            self._is_over = True

    def _validate_polled(self, polled: QueuedCorrection) -> Steps[None]:
        if (invalid := self._log.rejection(polled)) is not None:
            self.rejections[polled.record.offset] = [(polled.record, invalid)]
            return
        if polled.waits:
            self._batch.append(polled)
            return
        group = [polled]
        if isinstance(polled.correction, CorrectionsApplied):
            group, self._batch = self._batch, []
        rejected: Rejections = []
        for each in group:
            verdict = yield from self.validator.validate(each)
            if isinstance(verdict, Invalid):
                rejected.append((each.record, verdict))
        self.rejections[polled.record.offset] = self._rejections_of(group, rejected)

    def _rejections_of(
        self, validated: Sequence[QueuedCorrection], rejected: Rejections
    ) -> Rejections | None:
        return rejected if len(rejected) == len(validated) else None


MakeAhead = Callable[[CorrectionQueue, CorrectionValidator, LogContext], QueueLookahead]
"""A function that makes the validation of one queue."""


class Lookahead:
    """Validates the queues of several ladders in one pass."""

    def __init__(
        self, queues: Sequence[CorrectionQueue],
        validator_for: Callable[[CorrectionQueue], CorrectionValidator], log: LogContext,
        make: MakeAhead = QueueLookahead,
    ) -> None:  # fmt: skip
        self._ladders = {each.ladder: make(each, validator_for(each), log) for each in queues}
        self._by_offset = {at: each for each in self._ladders.values() for at in each.offsets}
        self.first = min(self._by_offset, default=0)
        """The offset of the first record that the pass needs."""
        self.end = max(self._by_offset, default=-1) + 1
        """The offset after the last record that the pass needs."""

    @property
    def rejections(self) -> dict[int, Rejections | None]:
        """The rejections that each QueueLookahead has found, for all ladders together."""
        return {at: why for each in self._ladders.values() for at, why in each.rejections.items()}

    def remember(self, record: Record) -> None:
        """Read a correction whose record is before the first round of the pass."""
        if (ahead := self._by_offset.get(record.offset)) is not None:
            ahead.remember(record)

    def read(self, each: LoggedRounds | Seed | Record) -> Steps[None]:
        """Read a batch of rounds, a seed, or one correction."""
        if isinstance(each, Record):
            if (ahead := self._by_offset.get(each.offset)) is not None:
                yield from ahead.reach(each)
        elif isinstance(each, Seed):
            if each.ladder in self._ladders:
                self._ladders[each.ladder].validator.ledger.add_seed(each)
        elif self._ladders:
            for ladder, places in indices_by(head.ladder for head in each.rounds.heads).items():
                if ladder in self._ladders:
                    self._ladders[ladder].validator.add(each.take(places))
