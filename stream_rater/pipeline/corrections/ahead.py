"""Validates queued corrections in advance, in the pass through the log for the first one of a
queue.

So one pass is enough for all rejected corrections of a queue. Each verdict depends only on the log
before its correction, so every pass gives the same verdict.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from stream_rater.contract.corrections import Correction, CorrectionsApplied
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.correction_judge import CorrectionJudge, Refusals, Steps
from stream_rater.pipeline.corrections.correction_ports import NotedCorrection
from stream_rater.pipeline.corrections.edits_in_force import correction_of
from stream_rater.pipeline.corrections.log_context import LogContext, QueuedCorrection
from stream_rater.replay.edited_log import LoggedRounds
from stream_rater.replay.edits import places_by
from stream_rater.replay.ledger import Earlier
from stream_rater.rounds.corrections import names_in
from stream_rater.rounds.validation import Invalid


class Queue(NamedTuple):
    """The corrections of a ladder that were polled and are not applied yet."""

    ladder: str
    polled: Sequence[QueuedCorrection]
    """The queued corrections, in the order of the log."""
    waiting: Sequence[NotedCorrection]
    """Earlier corrections that wait for `corrections-applied`."""
    accepted: Sequence[NotedCorrection]
    """Corrections that were applied before the queued ones."""

    @property
    def asked(self) -> list[Correction]:
        """All corrections that will be validated."""
        noted = [correction_of(each) for each in self.waiting]
        return noted + [each.correction for each in self.polled]

    @property
    def names(self) -> set[str]:
        """The players whom the queue and the corrections before it name."""
        before = [correction_of(each) for each in self.accepted]
        return {name for each in (*before, *self.asked) for name in names_in(each)}


class Ahead:
    """Validates the corrections of a queue, in a pass through the log that is made for one of them.

    Only rejections are useful: an accepted correction needs a pass of its own to be applied.
    """

    def __init__(self, queue: Queue, judge: CorrectionJudge, log: LogContext) -> None:
        self.ladder = queue.ladder
        self.refusals: dict[int, Refusals | None] = {}
        """By the offset of each validated correction, the corrections that are rejected together
        with it; None if any of them is accepted."""
        self._judge = judge
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
        return self._waiting | self._judge.offsets | self._polled.keys()

    def add(self, some: LoggedRounds) -> None:
        """Read accepted rounds of the ladder."""
        self._judge.add(some)

    def remember(self, record: Record) -> None:
        """Read a correction that may be applied later."""
        self._judge.remember(record)
        if record.offset in self._waiting:
            self._batch.append(QueuedCorrection(record, self._log.correction(record)))

    def reach(self, record: Record) -> Steps[None]:
        """Read a correction, and validate it if it is in the queue."""
        if self._is_over:
            return
        self.remember(record)
        try:
            yield from self._judge.reach(record)
            if (polled := self._polled.get(record.offset)) is not None:
                yield from self._judge_polled(polled)
        except Earlier:
            self._is_over = True

    def _judge_polled(self, polled: QueuedCorrection) -> Steps[None]:
        if (invalid := self._log.refusal(polled)) is not None:
            self.refusals[polled.record.offset] = [(polled.record, invalid)]
            return
        if polled.waits:
            self._batch.append(polled)
            return
        some = [polled]
        if isinstance(polled.correction, CorrectionsApplied):
            some, self._batch = self._batch, []
        refused: Refusals = []
        for each in some:
            verdict = yield from self._judge.judge(each)
            if isinstance(verdict, Invalid):
                refused.append((each.record, verdict))
        self.refusals[polled.record.offset] = self._found(some, refused)

    def _found(self, judged: Sequence[QueuedCorrection], refused: Refusals) -> Refusals | None:
        return refused if len(refused) == len(judged) else None


MakeAhead = Callable[[Queue, CorrectionJudge, LogContext], Ahead]
"""A function that makes the validation of one queue."""


class AllAhead:
    """Validates the queues of several ladders in one pass."""

    def __init__(
        self, queues: Sequence[Queue], judge_of: Callable[[Queue], CorrectionJudge],
        log: LogContext, make: MakeAhead = Ahead,
    ) -> None:  # fmt: skip
        self._ladders = {each.ladder: make(each, judge_of(each), log) for each in queues}
        self._by_offset = {at: each for each in self._ladders.values() for at in each.offsets}
        self.first = min(self._by_offset, default=0)
        """The offset of the first record that the pass needs."""
        self.end = max(self._by_offset, default=-1) + 1
        """The offset after the last record that the pass needs."""

    @property
    def refusals(self) -> dict[int, Refusals | None]:
        """The same as in Ahead, for all ladders together."""
        return {at: why for each in self._ladders.values() for at, why in each.refusals.items()}

    def remember(self, record: Record) -> None:
        """Read a correction whose record is before the first round of the pass."""
        if (ahead := self._by_offset.get(record.offset)) is not None:
            ahead.remember(record)

    def read(self, each: LoggedRounds | Record) -> Steps[None]:
        """Read a batch of rounds, or one correction."""
        if isinstance(each, Record):
            if (ahead := self._by_offset.get(each.offset)) is not None:
                yield from ahead.reach(each)
        elif self._ladders:
            for ladder, places in places_by(head.ladder for head in each.rounds.heads).items():
                if ladder in self._ladders:
                    self._ladders[ladder].add(each.take(places))
