"""Corrections in the estimator: when they are applied, and which rounds wait for them.

The work on a correction at offset c begins once all records before c in its partition are finished.
So in every shard's log, its parts follow the parts of all earlier rounds, and a redelivered part of
an earlier round is not fresh any more. Until the correction is finished, later rounds of its ladder
are deferred. Rounds of other ladders are rated between the steps of the work.

1. Validate the correction, and rate the ladder's rounds again (`correction_job`).
2. Write the ladder events of the accepted corrections (`correction_ports`). All workers rate later
   rounds by them.
3. Send the new records of the players whose beliefs changed, as correction parts. Once all parts
   are acknowledged, the correction is finished, and later rounds of the players wait until the
   parts are applied.
4. Rate the deferred rounds, edited by the corrections.

After a crash all steps are repeated with the same result, unless c was committed.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from stream_rater.columns import player_map
from stream_rater.contract.corrections import Correction
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.correction_ports import CorrectionsByLadder
from stream_rater.pipeline.corrections.correction_validator import Rejections
from stream_rater.pipeline.corrections.correction_work import TOGETHER_BYTES, PartOptions, Work
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.corrections.log_context import LogContext, QueuedCorrection
from stream_rater.pipeline.corrections.lookahead import CorrectionQueue
from stream_rater.pipeline.estimator.estimation import (
    NO_ROUNDS,
    PendingRounds,
    SeasonsOf,
    no_seasons,
)
from stream_rater.pipeline.estimator.input_partition import InputPartition
from stream_rater.pipeline.estimator.progress import InFlightWindow
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import Step
from stream_rater.replay.edits import NO_EDITS, Edits, edited


class Corrections:
    """The corrections of the owned partitions, and the rounds that wait for them."""

    def __init__(
        self, log: LogContext, options: PartOptions, make_work: Callable[..., Work] = Work
    ) -> None:
        """`make_work` makes a Work from its positional arguments."""
        self._log = log
        self._options = options
        self._make_work = make_work
        self._edits: dict[str, LadderEdits] = {}
        """By ladder, the corrections with a ladder event. Ladders without one are absent."""
        self._queues: dict[int, deque[QueuedCorrection]] = {}
        """By partition, the corrections that are not applied yet, in order."""
        self._current_work: dict[int, Work] = {}
        """By partition, the work on the first of these corrections, once it has begun."""
        self._verdicts: dict[int, dict[int, Rejections | None]] = {}
        """By partition and offset, the verdicts on queued corrections (`lookahead`)."""
        self._offsets: dict[str, deque[int]] = {}
        """By ladder, the offsets of its corrections that are not applied yet."""
        self._deferred: dict[str, deque[PendingRounds]] = {}
        """By ladder, the deferred rounds, in order. No correction of the ladder lies between the
        rounds of one element."""

    def load(self, recorded: CorrectionsByLadder) -> None:
        """Replace the known corrections by these ladder events of all ladders."""
        self._edits = {ladder: LadderEdits(group) for ladder, group in recorded.items()}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def drop(self, partitions: Collection[int]) -> None:
        """Forget the corrections of these partitions, and the rounds that wait for them."""
        for partition in partitions:
            for queued in self._queues.pop(partition, ()):
                self._deferred.pop(queued.correction.ladder, None)
                self._offsets.pop(queued.correction.ladder, None)
            self._current_work.pop(partition, None)
            self._verdicts.pop(partition, None)

    def enqueue(self, record: Record, correction: Correction) -> None:
        """Add a correction that was polled."""
        queued = QueuedCorrection(record, correction)
        self._queues.setdefault(record.partition, deque()).append(queued)
        self._offsets.setdefault(correction.ladder, deque()).append(record.offset)
        self._deferred.setdefault(correction.ladder, deque())

    # --- rounds ---

    def admit(self, pending: PendingRounds) -> tuple[PendingRounds, PendingRounds]:
        """Defer the polled rounds that must wait for a correction. Returns two groups of the other
        rounds, edited by the corrections: those that still count, and those that change no rating
        any more."""
        if self._deferred:
            waits, rest = dict[str, list[int]](), list[int]()
            for i, head in enumerate(pending.rounds.heads):
                group = waits.setdefault(head.ladder, []) if head.ladder in self._deferred else rest
                group.append(i)
            for ladder, own in waits.items():
                self._deferred[ladder].append(pending.take(np.array(own, np.int64)))
            pending = pending.take(np.array(rest, np.int64))
        return self._edited(pending) if self._edits else (pending, NO_ROUNDS)

    def _edited(self, pending: PendingRounds) -> tuple[PendingRounds, PendingRounds]:
        """Edit rounds by the corrections before each of them. Returns the rounds that still count,
        and those that change no rating any more."""
        rounds, counts = edited(pending.rounds, pending.offsets, self.edits_of)
        if rounds is pending.rounds:
            return pending, NO_ROUNDS
        ladders = [head.ladder for head in rounds.heads]
        prints = player_map.fingerprints(rounds.names, ladders, rounds.sizes, self._options.shards)
        found = PendingRounds(
            rounds, pending.partitions, pending.offsets, pending.traces, prints,
            pending.tickets,
        )  # fmt: skip
        return found.take(np.flatnonzero(counts)), found.take(np.flatnonzero(~counts))

    def edits_of(self, ladder: str, offset: int) -> Edits:
        """The edits by which a round of the ladder at this offset is rated."""
        known = self._edits.get(ladder)
        return NO_EDITS if known is None else known.of(offset)

    @property
    def seasons(self) -> SeasonsOf:
        """A function that returns the seasons that have started before a ladder's round at an
        offset."""
        if not any(each.has_seasons for each in self._edits.values()):
            return no_seasons
        return lambda ladder, offset: self.edits_of(ladder, offset).started

    # --- work ---

    def due(self, inputs: Mapping[int, InputPartition]) -> list[QueuedCorrection]:
        """The corrections whose work may begin or continue now, at most one per partition. All
        records before each of them are finished."""
        first = [queue[0] for queue in self._queues.values() if queue]
        return [
            each
            for each in first
            if inputs[each.record.partition].all_finished_before(each.record.offset)
        ]

    def begin(
        self, queued: QueuedCorrection, inputs: Mapping[int, InputPartition],
        agreed_at: Callable[[str, int], Step[bool]],
    ) -> Step[bool]:  # fmt: skip
        """Begin the work on a correction that is due, together with the corrections behind it that
        need as little work. Returns whether the work has begun. It begins only once all workers
        agree on the ladder at the correction's offset."""
        partition = queued.record.partition
        if partition in self._current_work:
            return True
        followers = self._followers(queued, inputs[partition])
        for group in (followers, []) if followers else ([],):
            if (yield from agreed_at(*[queued, *group][-1].place)):
                self._current_work[partition] = self._new_work(queued, group)
                return True
        return False

    def _followers(
        self, queued: QueuedCorrection, source: InputPartition
    ) -> list[QueuedCorrection]:
        """The corrections directly behind a correction that, like it, only wait or are rejected."""

        def kind(each: QueuedCorrection) -> tuple[str, bool, bool]:
            rejected = self._known_rejections(each) is not None
            return each.correction.ladder, each.waits and not rejected, rejected

        ladder, waits, rejected = kind(queued)
        if not (waits or rejected):
            return []
        group, size = list[QueuedCorrection](), 0
        for each in self._queues[queued.record.partition]:
            size += len(each.record.value or b"")
            if kind(each) != (ladder, waits, rejected) or (size > TOGETHER_BYTES and group):
                break
            group.append(each)
        return group[1 : source.finished_prefix([each.record.offset for each in group])]

    def work_on(
        self, queued: QueuedCorrection, in_flight: InFlightWindow, now_s: float, observer: Observer
    ) -> Step[bool]:
        """Do the next step of the work on a correction that is due. Returns whether the work is
        done."""
        partition, ladder = queued.record.partition, queued.correction.ladder
        work = self._current_work[partition]
        done = yield from work.step(lambda ends, players: in_flight.sent(ends, players, now_s))
        observer.correcting(ladder, partition, queued.record.offset, work.job.progress)
        return done

    def _new_work(self, queued: QueuedCorrection, followers: Sequence[QueuedCorrection]) -> Work:
        edits, partition = self._edits_on(queued.correction.ladder), queued.record.partition
        rejections = self._known_rejections(queued)
        validated = queued.waits or rejections is not None
        queues = (
            ()
            if validated
            else self._queues_to_validate(partition, self._verdicts.get(partition, {}))
        )
        return self._make_work(
            queued, edits, self._log, self._options, queues, rejections, followers
        )

    def _known_rejections(self, queued: QueuedCorrection) -> Rejections | None:
        """The rejections that a correction causes, if they are known before its work begins: its
        ladder accepts no corrections, or it was validated in the pass for another correction. None
        if they are unknown."""
        if (invalid := self._log.rejection(queued)) is not None:
            return [(queued.record, invalid)]
        return self._verdicts.get(queued.record.partition, {}).get(queued.record.offset)

    def _queues_to_validate(self, partition: int, known: Collection[int]) -> list[CorrectionQueue]:
        """The queued corrections of a partition, by ladder. Empty if only the first one must still
        be validated."""
        first, *others = self._queues[partition]
        if all(each.waits or each.record.offset in known for each in others):
            return []
        polled: dict[str, list[QueuedCorrection]] = {}
        for each in (first, *others):
            polled.setdefault(each.correction.ladder, []).append(each)
        return [
            CorrectionQueue(ladder, group, edits.waiting(at), edits.accepted(at))
            for ladder, group in polled.items()
            for edits, at in [(self._edits_on(ladder), group[0].record.offset)]
        ]

    def _edits_on(self, ladder: str) -> LadderEdits:
        return self._edits.get(ladder) or LadderEdits()

    def finished(self, queued: QueuedCorrection) -> Iterator[tuple[QueuedCorrection, Rejections]]:
        """Yield each of the corrections that are finished together, with its rejections."""
        work = self._current_work[queued.record.partition]
        yield queued, work.job.rejected
        for each in work.group[1:]:
            yield each, self._known_rejections(each) or []

    def finish_correction(self, queued: QueuedCorrection) -> tuple[PendingRounds, PendingRounds]:
        """Finish a correction whose work is done. Returns the rounds that no other correction
        defers any more, in two groups as `admit` does."""
        partition, ladder = queued.record.partition, queued.correction.ladder
        work, queue = self._current_work.pop(partition), self._queues[partition]
        self._edits.setdefault(ladder, LadderEdits()).add(work.ladder_events())
        self._verdicts.setdefault(partition, {}).update(work.job.ahead)
        offsets, deferred = self._offsets[ladder], self._deferred[ladder]
        free = list[PendingRounds]()
        for each in work.group:
            queue.popleft()
            offsets.popleft()
            self._verdicts[partition].pop(each.record.offset, None)
        while deferred:
            if offsets and len(deferred[0]) and deferred[0].offsets[0] > offsets[0]:
                break
            free.append(deferred.popleft())
        if not offsets:
            del self._offsets[ladder], self._deferred[ladder]
        return self._edited(PendingRounds.concat(free))
