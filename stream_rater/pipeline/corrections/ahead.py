"""Judges corrections that wait, in a pass through the log that is made for the one before them.

So the refused ones of a queue take one pass together. Each verdict is that of the log before its
correction, and no later record has a part in it: it does not matter who judges it, and when.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.contract.corrections import Batched, Correction, CorrectionsApplied
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.correction_ports import NotedCorrection
from stream_rater.pipeline.corrections.edits_in_force import correction_of
from stream_rater.pipeline.corrections.hearing import Course, Hearing, Refusals
from stream_rater.pipeline.corrections.judged_log import Judged, Proposed
from stream_rater.replay.ledger import Earlier
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.corrections import names_in
from stream_rater.rounds.decoder import DecodedRounds
from stream_rater.rounds.validation import Invalid


class Queue(NamedTuple):
    """The corrections of a ladder that were polled and not worked in."""

    ladder: str
    polled: Sequence[Proposed]
    """In order."""
    waiting: Sequence[NotedCorrection]
    """Those before them that wait for `corrections-applied`."""
    accepted: Sequence[NotedCorrection]
    """Those that were worked in before them."""

    @property
    def asked(self) -> list[Correction]:
        """All that will be judged."""
        noted = [correction_of(each) for each in self.waiting]
        return noted + [each.correction for each in self.polled]

    @property
    def names(self) -> set[str]:
        """Of all players whom the queue and the corrections before it name."""
        before = [correction_of(each) for each in self.accepted]
        return {name for each in (*before, *self.asked) for name in names_in(each)}


class Ahead:
    """Judges the corrections of a queue, in a pass through the log that is made for one of them.

    The verdict on each is that of the log before it, so it is the same whenever it is given.
    Only refusals are of use: what is accepted must be worked in, by a pass of its own.
    """

    def __init__(self, queue: Queue, hearing: Hearing, log: Judged) -> None:
        self.ladder = queue.ladder
        self.refusals: dict[int, Refusals | None] = {}
        """By the offset of each correction that was judged, those that are refused with it. None:
        something is accepted."""
        self._hearing = hearing
        self._log = log
        self._polled = {each.record.offset: each for each in queue.polled}
        self._waiting = {each.offset for each in queue.waiting} - self._polled.keys()
        self._batch: list[Proposed] = []
        """Those that wait for `corrections-applied`."""
        self._is_over = False
        """Whether a verdict needs rounds before those that are read: so do all later ones."""

    @property
    def offsets(self) -> set[int]:
        """Of all records that `meet` has to get."""
        return self._waiting | self._hearing.offsets | self._polled.keys()

    def add(self, rounds: RoundBatch, records: Sequence[Record]) -> None:
        """As in Hearing."""
        self._hearing.add(rounds, records)

    def remember(self, record: Record) -> None:
        """As in Hearing."""
        self._hearing.remember(record)
        if record.offset in self._waiting:
            self._batch.append(Proposed(record, self._log.correction(record)))

    def meet(self, record: Record) -> Course[None]:
        """Read a correction, and judge it if it is in the queue."""
        if self._is_over:
            return
        self.remember(record)
        try:
            yield from self._hearing.meet(record)
            if (polled := self._polled.get(record.offset)) is not None:
                yield from self._judge(polled)
        except Earlier:
            self._is_over = True

    def _judge(self, polled: Proposed) -> Course[None]:
        if (invalid := self._log.refusal(polled)) is not None:
            self.refusals[polled.record.offset] = [(polled.record, invalid)]
            return
        if isinstance(polled.correction, Batched) and polled.correction.batched:
            self._batch.append(polled)
            return
        some = [polled]
        if isinstance(polled.correction, CorrectionsApplied):
            some, self._batch = self._batch, []
        refused: Refusals = []
        for each in some:
            verdict = yield from self._hearing.judge(each)
            if isinstance(verdict, Invalid):
                refused.append((each.record, verdict))
        self.refusals[polled.record.offset] = self._found(some, refused)

    def _found(self, judged: Sequence[Proposed], refused: Refusals) -> Refusals | None:
        return refused if len(refused) == len(judged) else None


class AllAhead:
    """The queues of several ladders, in one pass."""

    kind = Ahead

    def __init__(
        self, queues: Sequence[Queue], hearing: Callable[[Queue], Hearing], log: Judged
    ) -> None:
        self._ladders = {each.ladder: self.kind(each, hearing(each), log) for each in queues}
        self._whose = {at: each for each in self._ladders.values() for at in each.offsets}
        self.first = min(self._whose, default=0)
        """From where on records are needed."""
        self.end = max(self._whose, default=-1) + 1
        """And up to before which offset."""

    @property
    def refusals(self) -> dict[int, Refusals | None]:
        """As in Ahead."""
        return {at: why for each in self._ladders.values() for at, why in each.refusals.items()}

    def remember(self, record: Record) -> None:
        """Read a correction before the rounds that are read."""
        if (ahead := self._whose.get(record.offset)) is not None:
            ahead.remember(record)

    def read(self, records: Sequence[Record], decoded: DecodedRounds | None) -> Course[None]:
        """Read some rounds, or one correction."""
        if decoded is not None:
            self._add(records, decoded)
        elif (ahead := self._whose.get(records[0].offset)) is not None:
            yield from ahead.meet(records[0])

    def _add(self, records: Sequence[Record], decoded: DecodedRounds) -> None:
        chosen: dict[str, list[int]] = {}
        for i, head in enumerate(decoded.rounds.heads if self._ladders else ()):
            if head.ladder in self._ladders:
                chosen.setdefault(head.ladder, []).append(i)
        valid = decoded.valid(records) if chosen else []
        for ladder, own in chosen.items():
            rounds = decoded.rounds.take(np.array(own, np.int64))
            self._ladders[ladder].add(rounds, [valid[i] for i in own])
