"""Corrections in the estimator: when they are worked in, and which rounds wait for them.

A correction at offset c begins once all records before c in its partition are finished. So its
parts follow those of all earlier rounds in every shard's log, and a redelivered part of an earlier
round is not fresh any more. Meanwhile the later rounds of its ladder are put aside. Other ladders'
rounds are rated between the pieces of the work.

1. Judge the correction, and rate the ladder's rounds anew (`correction_job`).
2. Note what was accepted (`correction_ports`): later rounds are rated by it, whoever rates them.
3. Send the new records of those whose beliefs changed, as correction parts. Once all parts are
   acknowledged, the correction is finished, and the players await the ends of the parts.
4. Rate the rounds that were put aside, as the corrections make them.

After a crash all of it is done again, with the same result, unless c was committed.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from stream_rater.contract.corrections import Correction
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.ahead import Queue
from stream_rater.pipeline.corrections.correction_ports import Noted
from stream_rater.pipeline.corrections.correction_work import TOGETHER_BYTES, How, Met, Work
from stream_rater.pipeline.corrections.edited_rounds import edited
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.corrections.hearing import Refusals
from stream_rater.pipeline.corrections.judged_log import Judged, Proposed
from stream_rater.pipeline.estimator.estimation import NO_ROUNDS, PendingRounds, SeasonsOf, never
from stream_rater.pipeline.estimator.input_partition import InputPartition
from stream_rater.pipeline.estimator.progress import InFlightWindow
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import Step
from stream_rater.replay.edits import NO_EDITS, Edits


class Corrections:
    """The corrections of the owned partitions, and the rounds that wait for them."""

    work_kind = Work

    def __init__(self, log: Judged, how: How) -> None:
        self._log = log
        self._how = how
        self._edits: dict[str, LadderEdits] = {}
        """By ladder, where any correction was noted."""
        self._queues: dict[int, deque[Met]] = {}
        """By partition, those that were not worked in, in order."""
        self._works: dict[int, Work] = {}
        """By partition, the first of them, once it has begun."""
        self._ahead: dict[int, dict[int, Refusals | None]] = {}
        """By partition, of corrections that wait, by offset, what was found of them (`ahead`)."""
        self._offsets: dict[str, deque[int]] = {}
        """By ladder, the offsets of its corrections in the queue."""
        self._aside: dict[str, deque[PendingRounds]] = {}
        """By ladder, the rounds that wait, in order. No correction of the ladder comes between
        those of one element."""

    def noted(self, noted: Noted) -> None:
        """Take over what is noted of all ladders."""
        self._edits = {ladder: LadderEdits(some) for ladder, some in noted.items()}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def drop(self, partitions: Collection[int]) -> None:
        """Forget the corrections of these partitions, and the rounds that wait for them."""
        for partition in partitions:
            for met in self._queues.pop(partition, ()):
                self._aside.pop(met.correction.ladder, None)
                self._offsets.pop(met.correction.ladder, None)
            self._works.pop(partition, None)
            self._ahead.pop(partition, None)

    def meet(self, record: Record, correction: Correction) -> None:
        """A correction was polled."""
        self._queues.setdefault(record.partition, deque()).append(Met(record, correction))
        self._offsets.setdefault(correction.ladder, deque()).append(record.offset)
        self._aside.setdefault(correction.ladder, deque())

    # --- rounds ---

    def admit(self, pending: PendingRounds) -> tuple[PendingRounds, PendingRounds]:
        """Of rounds that were polled those that may be rated now, as corrections make them, and
        those that teach nothing any more. The others are put aside."""
        if self._aside:
            waits, rest = dict[str, list[int]](), list[int]()
            for i, head in enumerate(pending.rounds.heads):
                to = waits.setdefault(head.ladder, []) if head.ladder in self._aside else rest
                to.append(i)
            for ladder, own in waits.items():
                self._aside[ladder].append(pending.take(np.array(own, np.int64)))
            pending = pending.take(np.array(rest, np.int64))
        return (
            edited(pending, self.edits_of, self._how.shards)
            if self._edits
            else (pending, NO_ROUNDS)
        )

    def edits_of(self, ladder: str, offset: int) -> Edits:
        """The edits that a round of the ladder at this offset is rated by."""
        known = self._edits.get(ladder)
        return NO_EDITS if known is None else known.of(offset)

    @property
    def seasons(self) -> SeasonsOf:
        """Which seasons have started before a round of a ladder at an offset."""
        if not any(each.has_seasons for each in self._edits.values()):
            return never
        return lambda ladder, offset: self.edits_of(ladder, offset).started

    # --- work ---

    def due(self, inputs: Mapping[int, InputPartition]) -> list[Met]:
        """The corrections that may be worked on now, one a partition at most: all records before
        each are finished."""
        first = [queue[0] for queue in self._queues.values() if queue]
        return [each for each in first if inputs[each.record.partition].reached(each.record.offset)]

    def begin(
        self, met: Met, inputs: Mapping[int, InputPartition],
        agreed_at: Callable[[str, int], Step[bool]],
    ) -> Step[bool]:  # fmt: skip
        """Begin the work on a correction that is due, with those behind it that are done as fast.
        Returns whether it has begun: all workers agree on the ladder at its place."""
        partition = met.record.partition
        if partition in self._works:
            return True
        behind = self._behind(met, inputs[partition])
        for some in (behind, []) if behind else ([],):
            if (yield from agreed_at(*[met, *some][-1].place)):
                self._works[partition] = self._work(met, some)
                return True
        return False

    def _behind(self, met: Met, source: InputPartition) -> list[Met]:
        """The corrections right behind one which are only noted, or refused, as it is."""

        def kind(each: Met) -> tuple[str, bool, bool]:
            refused = self._refusals_of(each) is not None
            return each.correction.ladder, each.waits and not refused, refused

        ladder, waits, refused = kind(met)
        if not (waits or refused):
            return []
        run, size = list[Met](), 0
        for each in self._queues[met.record.partition]:
            size += len(each.record.value or b"")
            if kind(each) != (ladder, waits, refused) or (size > TOGETHER_BYTES and run):
                break
            run.append(each)
        return run[1 : source.reached_by([each.record.offset for each in run])]

    def work_on(
        self, met: Met, in_flight: InFlightWindow, now_s: float, observer: Observer
    ) -> Step[bool]:
        """Do the next piece of the work on a correction that is due. Returns whether it is done."""
        partition, ladder = met.record.partition, met.correction.ladder
        work = self._works[partition]
        done = yield from work.step(lambda ends, players: in_flight.sent(ends, players, now_s))
        observer.correcting(ladder, partition, met.record.offset, work.job.progress)
        return done

    def _work(self, met: Met, behind: Sequence[Met]) -> Work:
        edits, known = self._edits_on(met.correction.ladder), self._ahead.get(met.record.partition)
        refusals = self._refusals_of(met)
        judged = met.waits or refusals is not None
        queues = () if judged else self._queued(met.record.partition, known or {})
        return self.work_kind(met, edits, self._log, self._how, queues, refusals, behind)

    def _refusals_of(self, met: Met) -> Refusals | None:
        """What is refused with a correction, if that is known before it is worked in: its ladder
        takes none, or it was judged in the pass of another one."""
        if (invalid := self._log.refusal(Proposed(*met))) is not None:
            return [(met.record, invalid)]
        return self._ahead.get(met.record.partition, {}).get(met.record.offset)

    def _queued(self, partition: int, known: Collection[int]) -> list[Queue]:
        """The corrections that wait in a partition, by ladder, if more than the first one has yet
        to be judged."""
        first, *others = self._queues[partition]
        if all(each.waits or each.record.offset in known for each in others):
            return []
        polled: dict[str, list[Proposed]] = {}
        for each in (first, *others):
            polled.setdefault(each.correction.ladder, []).append(Proposed(*each))
        return [
            Queue(ladder, some, edits.waiting(at), edits.accepted(at))
            for ladder, some in polled.items()
            for edits, at in [(self._edits_on(ladder), some[0].record.offset)]
        ]

    def _edits_on(self, ladder: str) -> LadderEdits:
        return self._edits.get(ladder) or LadderEdits()

    def finished(self, met: Met) -> Iterator[tuple[Met, Refusals]]:
        """The corrections that are finished together, and what is refused with each."""
        work = self._works[met.record.partition]
        yield met, work.job.refused
        for each in work.run[1:]:
            yield each, self._refusals_of(each) or []

    def finish(self, met: Met) -> tuple[PendingRounds, PendingRounds]:
        """The work on a correction is done. Returns the rounds that waited for it alone, as
        `admit` does."""
        partition, ladder = met.record.partition, met.correction.ladder
        work, queue = self._works.pop(partition), self._queues[partition]
        self._edits.setdefault(ladder, LadderEdits()).add(work.notes())
        self._ahead.setdefault(partition, {}).update(work.job.ahead)
        offsets, aside, free = self._offsets[ladder], self._aside[ladder], list[PendingRounds]()
        for each in work.run:
            queue.popleft()
            offsets.popleft()
            self._ahead[partition].pop(each.record.offset, None)
        while aside and not (offsets and len(aside[0]) and aside[0].offsets[0] > offsets[0]):
            free.append(aside.popleft())
        if not offsets:
            del self._offsets[ladder], self._aside[ladder]
        return edited(PendingRounds.concat(free), self.edits_of, self._how.shards)
