"""Validates queued corrections in advance, in the pass through the log for the first one of a
queue.

So one pass is enough for all rejected corrections of a queue. Each verdict depends only on the log
before its correction, so every pass gives the same verdict.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from stream_rater.contract.corrections import Correction, CorrectionsApplied
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.correction_validator import (
    CorrectionValidator,
    Rejections,
    Steps,
)
from stream_rater.pipeline.corrections.edits_in_force import correction_of
from stream_rater.pipeline.corrections.log_context import LogContext, QueuedCorrection
from stream_rater.pipeline.ports import RecordedCorrection
from stream_rater.replay.edited_log import LoggedRounds
from stream_rater.replay.edits import indices_by
from stream_rater.replay.ledger import NeedsEarlierRounds
from stream_rater.rounds.correction_records import names_in
from stream_rater.rounds.seed_records import Seed
from stream_rater.rounds.validation import Invalid


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

    Only rejections are useful: an accepted correction needs a pass of its own to be applied.
    """

    def __init__(
        self, queue: CorrectionQueue, validator: CorrectionValidator, log: LogContext
    ) -> None:
        self.ladder = queue.ladder
        self.rejections: dict[int, Rejections | None] = {}
        """By the offset of each validated correction, the corrections that are rejected together
        with it; None if any of them is accepted."""
        self._validator = validator
        self._log = log
        self._polled = {each.record.offset: each for each in queue.polled}
        self._waiting = {each.offset for each in queue.waiting} - self._polled.keys()
        self._batch: list[QueuedCorrection] = []
        """Corrections that wait for `corrections-applied`."""
        self._is_over = False
        """Whether a verdict needs rounds before those that are read. Then all later verdicts need
        them, too."""

    @property
    def offsets(self) -> set[int]:
        """The offsets of all records that must be passed to `reach`."""
        return self._waiting | self._validator.offsets | self._polled.keys()

    def add(self, group: LoggedRounds) -> None:
        """Read accepted rounds of the ladder."""
        self._validator.add(group)

    def add_seed(self, seed: Seed) -> None:
        """Read an accepted seed or reset of the ladder."""
        self._validator.add_seed(seed)

    def remember(self, record: Record) -> None:
        """Read a correction that may be applied later."""
        self._validator.remember(record)
        if record.offset in self._waiting:
            self._batch.append(QueuedCorrection(record, self._log.correction(record)))

    def reach(self, record: Record) -> Steps[None]:
        """Read a correction, and validate it if it is in the queue."""
        if self._is_over:
            return
        self.remember(record)
        try:
            yield from self._validator.reach(record)
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
            verdict = yield from self._validator.validate(each)
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
        self, queues: Sequence[CorrectionQueue], validator_for: Callable[[CorrectionQueue],
        CorrectionValidator],
        log: LogContext, make: MakeAhead = QueueLookahead,
    ) -> None:  # fmt: skip
        self._ladders = {each.ladder: make(each, validator_for(each), log) for each in queues}
        self._by_offset = {at: each for each in self._ladders.values() for at in each.offsets}
        self.first = min(self._by_offset, default=0)
        """The offset of the first record that the pass needs."""
        self.end = max(self._by_offset, default=-1) + 1
        """The offset after the last record that the pass needs."""

    @property
    def rejections(self) -> dict[int, Rejections | None]:
        """The same as in Ahead, for all ladders together."""
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
                self._ladders[each.ladder].add_seed(each)
        elif self._ladders:
            for ladder, places in indices_by(head.ladder for head in each.rounds.heads).items():
                if ladder in self._ladders:
                    self._ladders[ladder].add(each.take(places))
