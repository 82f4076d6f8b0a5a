"""Step 2: validates polled records, and returns the rounds to add to the backlog."""

from collections.abc import Callable, Iterable, Sequence
from itertools import compress

import numpy as np

from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.correction_work import PartOptions
from stream_rater.pipeline.corrections.corrections import Corrections
from stream_rater.pipeline.corrections.log_context import LogContext, QueuedCorrection
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.input_partition import InputPartition, finish
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import Rejection
from stream_rater.rounds.batch import RoundHead
from stream_rater.rounds.corrections import split_at_corrections
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.rounds.validation import Invalid

BURST_S = 10.0
"""A burst of this many seconds' worth of rejections is allowed."""


class RejectionLimiter:
    """Counts the rejections of one worker, and names the partitions to pause because too many of
    their records are invalid. `per_second` 0 means no limit.

    Each partition has a leaky bucket. Each rejection adds one, and the bucket leaks `per_second`. A
    partition is not read while the level of its bucket is over BURST_S seconds' worth. So a faulty
    producer causes no more than that rate of rejections in the long run, and other partitions are
    not slowed.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._filled: dict[int, tuple[float, float]] = {}
        """By partition, the level of its bucket and the time of that level."""
        self.at_rest = frozenset[int]()
        """The paused partitions, as the last call of `rest` computed them."""

    def rejected(self, partition: int, now_s: float) -> None:
        """Count one rejection."""
        if self._per_second:
            self._filled[partition] = (self._level(partition, now_s) + 1.0, now_s)

    def resting(self, now_s: float) -> frozenset[int]:
        """The partitions whose bucket is too full at `now_s`."""
        most = self._per_second * BURST_S
        return frozenset(p for p in self._filled if self._level(p, now_s) > most)

    def rest(self, now_s: float, tell: Callable[[frozenset[int]], None]) -> None:
        """Update `at_rest`, and report it by a call of `tell` if it changed."""
        resting = self.resting(now_s)
        if resting != self.at_rest:
            self.at_rest = resting
            tell(resting)

    def forget(self, partitions: Iterable[int]) -> None:
        """Empty the buckets of these partitions, which this worker lost or gained."""
        for partition in partitions:
            self._filled.pop(partition, None)

    def _level(self, partition: int, now_s: float) -> float:
        level, then_s = self._filled.get(partition, (0.0, now_s))
        return max(0.0, level - self._per_second * (now_s - then_s))


class Admission:
    """Validates the records of the owned partitions."""

    def __init__(
        self, log: LogContext, options: PartOptions, limiter: RejectionLimiter, observer: Observer
    ) -> None:
        self.decoder = RoundDecoder(log.ladders, log.partitions)
        self._log = log
        self._options = options
        self._limiter = limiter
        self._observer = observer
        self.forget()

    def forget(self) -> None:
        """Forget all partitions and their corrections."""
        self.inputs: dict[int, InputPartition] = {}
        self.corrections = Corrections(self._log, self._options)

    def drop(self, partitions: frozenset[int]) -> None:
        """Drop partitions."""
        for partition in partitions:
            self.inputs.pop(partition, None)
        self.corrections.drop(partitions)

    def read(self, records: Sequence[Record], now_s: float) -> PendingRounds:
        """Validate records, in order. Returns the rounds to rate. Rounds that change no rating
        count as done, and rounds that wait for a correction are deferred."""
        found = list[PendingRounds]()
        for some, correction in split_at_corrections(records):
            if some:
                found.append(self._rounds(some, now_s))
            if correction is not None:
                self._enqueue(correction, now_s)
        return PendingRounds.concat(found)

    def _rounds(self, records: Sequence[Record], now_s: float) -> PendingRounds:
        """Validate records that are not corrections."""
        decoded = self.decoder.decode(records)
        heads = iter(decoded.rounds.heads)
        found = [next(heads) if refusal is None else refusal for refusal in decoded.refusals]
        counts = [self._counts(*each, now_s) for each in zip(records, found, strict=True)]
        valid = [refusal is None for refusal in decoded.refusals]
        own = list(compress(records, valid))
        pending = estimation.pending_rounds(own, decoded, self._options.shards)
        kept = np.flatnonzero(list(compress(counts, valid)))
        pending = pending.take(kept)
        if unknown := int(np.count_nonzero(decoded.unknown[kept])):
            self._observer.unknown_fields(unknown)
        self._observer.rounds_accepted(list(compress(records, counts)), pending.rounds.heads)
        return self.informative(*self.corrections.admit(pending))

    def informative(self, pending: PendingRounds, done: PendingRounds) -> PendingRounds:
        """Return the rounds in `pending` that change ratings. The others, and the rounds in `done`,
        count as done."""
        informative = self.decoder.informative(pending.rounds, pending.rule)
        finish(self.inputs, done)
        finish(self.inputs, pending.take(np.flatnonzero(~informative)))
        return pending.take(np.flatnonzero(informative))

    def _counts(self, record: Record, found: RoundHead | Invalid, now_s: float) -> bool:
        """Whether the round in a record is to be rated. Reports a rejection."""
        source = self.inputs.get(record.partition)
        verdict = source is not None and source.judge(record, found)
        if isinstance(verdict, Rejection):
            self._rejected(record.partition, verdict, now_s)
            return False
        return verdict

    def _rejected(self, partition: int, rejection: Rejection, now_s: float) -> None:
        self._limiter.rejected(partition, now_s)
        self._observer.round_rejected(rejection)

    def _enqueue(self, record: Record, now_s: float) -> None:
        """Validate a correction by its record alone, and enqueue it. The rest of its validation
        needs the log, and comes later."""
        try:
            correction = self._log.correction(record)
        except Invalid as invalid:
            self._counts(record, invalid, now_s)
            return
        source = self.inputs.get(record.partition)
        if source is not None and source.enqueue(record):
            self.corrections.enqueue(record, correction)

    def finish(self, queued: QueuedCorrection, now_s: float) -> PendingRounds:
        """Finish a correction whose work is done. Corrections that do not fit the log are rejected,
        and their rejections are committed with the offset of the finished correction. Returns the
        rounds that waited for it."""
        partition, source = queued.record.partition, self.inputs[queued.record.partition]
        for each, refused in self.corrections.finished(queued):
            offset = each.record.offset
            for record, invalid in refused:
                self._rejected(partition, source.reject(record, invalid, offset), now_s)
            self._observer.corrected(each.correction.ladder, partition, offset, len(refused))
            source.finish([offset])
        return self.informative(*self.corrections.finish(queued))
