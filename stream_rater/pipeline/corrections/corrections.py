"""Steps 15 to 22 of the protocol: when corrections, seeds and resets are applied, and what waits.

The work on a correction at offset c begins once all records before c in its partition are finished.
So in every shard's log, its parts follow the parts of all earlier rounds, and a redelivered part of
an earlier round is not fresh any more. Until the correction is finished, later rounds of its ladder
are deferred. Rounds of other ladders are rated between the steps of the work.

1. Validate the correction, and rate the ladder's rounds again (`correction_job`): steps 17, 18.
2. Write the ladder events of the accepted corrections (`NoteCorrections`): step 19. All workers
   rate later rounds by them.
3. Send the new records of the players whose beliefs changed, as correction parts (20, 21). Once all
   are acknowledged, the correction is finished, and later rounds of the players wait until the
   parts are applied.
4. Rate the deferred rounds, edited by the corrections.

After a crash all steps are repeated with the same result, unless c was committed.

Seeds and resets wait in the same queue, begin under the same condition and defer the same rounds.
Of these steps they have only the third and the fourth (`SeedWork`).
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from msgspec import structs

from stream_rater.columns import player_map
from stream_rater.columns.player_map import Fingerprints
from stream_rater.pipeline.corrections.correction_validator import (
    CorrectionQueue,
    LogContext,
    QueuedCorrection,
    Rejections,
)
from stream_rater.pipeline.corrections.correction_work import (
    MOST_ROWS,
    TOGETHER_BYTES,
    PartOptions,
    QueuedSeed,
    SeedWork,
    Work,
)
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.input_partition import InputPartition
from stream_rater.pipeline.estimator.progress import InFlightWindow
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import CorrectionsByLadder, Step
from stream_rater.rating import stages
from stream_rater.replay.edits import NO_EDITS, Edits, edited

Queued = QueuedCorrection | QueuedSeed
"""A record of `round-completed` that is not a round, in a queue."""

Admitted = tuple[PendingRounds, PendingRounds]
"""Rounds that wait for no queued record, as corrections have edited them: those that still count,
and those that change no rating any more."""


class Corrections:
    """The corrections, seeds and resets of the owned partitions, and the rounds that wait."""

    def __init__(
        self, log: LogContext, options: PartOptions, make_work: Callable[..., Work] = Work,
        make_seed_work: Callable[..., SeedWork] = SeedWork,
    ) -> None:  # fmt: skip
        """`make_work` makes a Work from its positional arguments, `make_seed_work` a SeedWork."""
        self._log = log
        self._options = options
        self._make_work, self._make_seed_work = make_work, make_seed_work
        self._edits: dict[str, LadderEdits] = {}
        """By ladder, the corrections with a ladder event. Ladders without one are absent."""
        self._queues: dict[int, deque[Queued]] = {}
        """By partition, what is not applied yet, in order."""
        self._current_work: dict[int, Work | SeedWork] = {}
        """By partition, the work on the first of these records, once it has begun."""
        self._verdicts: dict[int, dict[int, Rejections | None]] = {}
        """By partition and offset, the verdicts on queued corrections (`QueueLookahead`)."""
        self._offsets: dict[str, deque[int]] = {}
        """By ladder, the offsets of its records in these queues."""
        self._deferred: dict[str, deque[PendingRounds]] = {}
        """By ladder, the deferred rounds, in order. No queued record of the ladder lies between the
        rounds of one element."""
        self._seeded_rows: Counter[int] = Counter()
        """By partition, the number of rows of the seeds and resets in its queue."""

    def load(self, recorded: CorrectionsByLadder) -> None:
        """Replace the known corrections by these ladder events of all ladders."""
        self._edits = {ladder: LadderEdits(group) for ladder, group in recorded.items()}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def drop(self, partitions: Collection[int]) -> None:
        """Forget the queues of these partitions, and the rounds that wait for them."""
        for partition in partitions:
            for queued in self._queues.pop(partition, ()):
                self._deferred.pop(queued.ladder, None)
                self._offsets.pop(queued.ladder, None)
            self._seeded_rows.pop(partition, None)
            self._current_work.pop(partition, None)
            self._verdicts.pop(partition, None)

    def enqueue(self, queued: Queued) -> None:
        """Add a correction, a seed or a reset that was polled."""
        self._queues.setdefault(queued.partition, deque()).append(queued)
        self._offsets.setdefault(queued.ladder, deque()).append(queued.offset)
        self._deferred.setdefault(queued.ladder, deque())
        if isinstance(queued, QueuedSeed):
            self._seeded_rows[queued.partition] += len(queued.seed)

    def with_many_seeds(self, most: int) -> frozenset[int]:
        """The partitions in whose queues the seeds and resets have more than `most` rows."""
        return frozenset(p for p, rows in self._seeded_rows.items() if rows > most)

    # --- rounds ---

    def admit(self, pending: PendingRounds) -> Admitted:
        """Defer the polled rounds that must wait for a queued record. Returns the others."""
        if self._deferred:
            waits, rest = dict[str, list[int]](), list[int]()
            for i, head in enumerate(pending.rounds.heads):
                group = waits.setdefault(head.ladder, []) if head.ladder in self._deferred else rest
                group.append(i)
            for ladder, own in waits.items():
                self._deferred[ladder].append(pending.take(np.array(own, np.int64)))
            pending = pending.take(np.array(rest, np.int64))
        return self._edited(pending) if self._edits else (pending, estimation.NO_ROUNDS)

    def _edited(self, pending: PendingRounds) -> Admitted:
        rounds, counts = edited(pending.rounds, pending.offsets, self.edits_of)
        if rounds is pending.rounds:
            return pending, estimation.NO_ROUNDS
        ladders = [head.ladder for head in rounds.heads]
        prints = player_map.fingerprints(rounds.names, ladders, rounds.sizes, self._options.shards)
        found = structs.replace(pending, rounds=rounds, fingerprints=prints)
        return found.take(np.flatnonzero(counts)), found.take(np.flatnonzero(~counts))

    def edits_of(self, ladder: str, offset: int) -> Edits:
        """The edits by which a round of the ladder at this offset is rated."""
        known = self._edits.get(ladder)
        return NO_EDITS if known is None else known.of(offset)

    @property
    def seasons(self) -> estimation.SeasonsOf:
        """A function that returns the seasons that started before a ladder's round at an offset."""
        if not any(each.has_seasons for each in self._edits.values()):
            return estimation.no_seasons
        return lambda ladder, offset: self.edits_of(ladder, offset).started

    # --- work ---

    def due(self, inputs: Mapping[int, InputPartition]) -> list[Queued]:
        """The queued records whose work may begin or continue now, at most one per partition. All
        records before each of them are finished."""
        first = [queue[0] for queue in self._queues.values() if queue]
        return [each for each in first if inputs[each.partition].all_finished_before(each.offset)]

    def begin(
        self, queued: Queued, inputs: Mapping[int, InputPartition],
        agreed_at: Callable[[str, int], Step[bool]],
    ) -> Step[bool]:  # fmt: skip
        """Begin the work on a queued record that is due, together with those behind it that need as
        little work. Returns whether the work has begun. It begins for all of these records if all
        workers agree on the ladder at the offset of the last one, and for the first record alone if
        they agree only there."""
        if queued.partition in self._current_work:
            return True
        source = inputs[queued.partition]
        group: Sequence[Queued]
        if isinstance(queued, QueuedSeed):
            group = self._adjacent_seeds(queued, source)
        else:
            group = self._alike(queued, source)
        for some in (group, group[:1]) if len(group) > 1 else (group,):
            if (yield from agreed_at(queued.ladder, some[-1].offset)):
                self._current_work[queued.partition] = self._new_work(some)
                return True
        return False

    def _new_work(self, group: Sequence[Queued]) -> Work | SeedWork:
        """The work on these records. They are either all corrections, or all seeds and resets."""
        if seeds := [each for each in group if isinstance(each, QueuedSeed)]:
            return self._new_seed_work(seeds)
        first, *followers = (each for each in group if isinstance(each, QueuedCorrection))
        rejections = self._known_rejections(first)
        queues = self._queues_to_validate(first) if not first.waits and rejections is None else ()
        edits = self._edits_on(first.ladder)
        return self._make_work(
            first, edits, self._log, self._options, queues, rejections, followers
        )

    def _adjacent_seeds(self, queued: QueuedSeed, source: InputPartition) -> list[QueuedSeed]:
        """A seed or a reset, and those directly behind it that can be in one part with it."""
        group, rows = list[QueuedSeed](), 0
        for each in self._queues[queued.partition]:
            if not isinstance(each, QueuedSeed) or not each.goes_with(queued):
                break
            rows += len(each.seed)
            if group and rows > MOST_ROWS:
                break
            group.append(each)
        return group[: source.finished_prefix([each.offset for each in group])]

    def _new_seed_work(self, group: Sequence[QueuedSeed]) -> SeedWork:
        seed = group[0].seed
        found = [self.edits_of(seed.ladder, each.offset).seed(each.seed) for each in group]
        rule = stages.rule_of(seed.rating, self.edits_of(seed.ladder, seed.offset).started)
        edited = [each for each in found if each is not None]
        return self._make_seed_work(group, edited, rule, self._options)

    def _alike(self, queued: QueuedCorrection, source: InputPartition) -> list[QueuedCorrection]:
        """A correction, and those directly behind it if they are treated as it is: they only wait
        for `corrections-applied`, or are rejected."""

        def kind(each: QueuedCorrection) -> tuple[str, bool, bool]:
            rejected = self._known_rejections(each) is not None
            return each.ladder, each.waits and not rejected, rejected

        ladder, waits, rejected = kind(queued)
        if not (waits or rejected):
            return [queued]
        group, size = list[QueuedCorrection](), 0
        for each in self._queues[queued.partition]:
            if isinstance(each, QueuedSeed):
                break
            size += len(each.record.value or b"")
            if kind(each) != (ladder, waits, rejected) or (size > TOGETHER_BYTES and group):
                break
            group.append(each)
        return group[: max(1, source.finished_prefix([each.offset for each in group]))]

    def work_on(
        self, queued: Queued, in_flight: InFlightWindow, now_s: float, observer: Observer
    ) -> Step[bool]:
        """Do the next step of the work on a queued record. Returns whether the work is done."""
        work = self._current_work[queued.partition]
        done = yield from work.step(
            lambda ends, players: in_flight.sent(ends, players, now_s), in_flight.epochs
        )
        if isinstance(work, Work):
            place = queued.ladder, queued.partition, queued.offset
            observer.correcting(*place, work.job.progress)
        return done

    def _known_rejections(self, queued: QueuedCorrection) -> Rejections | None:
        """The rejections that a correction causes, if they are known before its work begins: its
        ladder accepts no corrections, or the pass for another one has validated it. Else None."""
        if (invalid := self._log.rejection(queued)) is not None:
            return [(queued.record, invalid)]
        return self._verdicts.get(queued.partition, {}).get(queued.offset)

    def _queues_to_validate(self, first: QueuedCorrection) -> list[CorrectionQueue]:
        """The queued corrections of a partition, by ladder. Empty if only the first one must still
        be validated."""
        queue, known = self._queues[first.partition], self._verdicts.get(first.partition, {})
        queued = [each for each in queue if isinstance(each, QueuedCorrection)]
        if all(each.waits or each.offset in known for each in queued[1:]):
            return []
        polled: dict[str, list[QueuedCorrection]] = {}
        for each in queued:
            polled.setdefault(each.ladder, []).append(each)
        return [
            CorrectionQueue(ladder, group, edits.waiting(at), edits.accepted(at))
            for ladder, group in polled.items()
            for edits, at in [(self._edits_on(ladder), group[0].offset)]
        ]

    def _edits_on(self, ladder: str) -> LadderEdits:
        return self._edits.get(ladder) or LadderEdits()

    def changed(self, queued: Queued) -> Fingerprints | None:
        """The players whom the work on a queued record may have changed; None: perhaps any."""
        work = self._current_work[queued.partition]
        return work.players if isinstance(work, SeedWork) else None

    def finished(self, queued: Queued) -> Iterator[tuple[Queued, Rejections]]:
        """Yield each of the records that are finished together, with its rejections."""
        work = self._current_work[queued.partition]
        if isinstance(work, SeedWork):
            yield from ((each, []) for each in work.group)
            return
        yield queued, work.job.rejected
        for each in work.group[1:]:
            yield each, self._known_rejections(each) or []

    def finish(self, queued: Queued) -> Admitted:
        """Finish a queued record whose work is done. Returns the rounds that no other record
        defers."""
        partition, ladder = queued.partition, queued.ladder
        work, queue = self._current_work.pop(partition), self._queues[partition]
        verdicts = self._verdicts.setdefault(partition, {})
        if isinstance(work, Work):
            self._edits.setdefault(ladder, LadderEdits()).add(work.ladder_events())
            verdicts.update(work.job.ahead)
        offsets, deferred = self._offsets[ladder], self._deferred[ladder]
        free = list[PendingRounds]()
        for each in work.group:
            queue.popleft()
            offsets.popleft()
            if isinstance(each, QueuedSeed):
                self._seeded_rows[partition] -= len(each.seed)
            verdicts.pop(each.offset, None)
        while deferred:
            if offsets and len(deferred[0]) and deferred[0].offsets[0] > offsets[0]:
                break
            free.append(deferred.popleft())
        if not offsets:
            del self._offsets[ladder], self._deferred[ladder]
        rounds = PendingRounds.concat(free)
        return self._edited(rounds) if self._edits else (rounds, estimation.NO_ROUNDS)
