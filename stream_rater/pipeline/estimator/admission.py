"""Admits rounds: step 2 validates polled records, and returns the rounds to add to the backlog.
Step 3 leaves out the rounds of ladders on whose parameters the workers do not agree (`Agreement`).
A record that is not rated is finished only if they agree: another ladders file may accept it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress

import numpy as np

from stream_rater.columns.arrays import Flags
from stream_rater.columns.player_map import NOTHING
from stream_rater.columns.sharding import partition_of
from stream_rater.config.ladders import FILE_LIMITS, TEMPLATE, Ladders
from stream_rater.contract.events import Round
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.correction_validator import LogContext, QueuedCorrection
from stream_rater.pipeline.corrections.correction_work import PartOptions, QueuedSeed
from stream_rater.pipeline.corrections.corrections import Corrections, Queued
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.input_partition import InputPartition
from stream_rater.pipeline.ladder_history import History, allowed_before, objection
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import Agree, Step, ask
from stream_rater.rounds.correction_records import decode_seed, is_seed
from stream_rater.rounds.decoder import RoundDecoder, split_at_corrections
from stream_rater.rounds.validation import Invalid

BURST_S = 10.0  # A burst of this many seconds' worth of rejections is allowed.


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
        self._levels: dict[int, tuple[float, float]] = {}
        """By partition, the level of its bucket and the time of that level."""
        self.paused = frozenset[int]()
        """The paused partitions, as the last call of `update` computed them."""

    def rejected(self, partition: int, now_s: float) -> None:
        """Count one rejection."""
        if self._per_second:
            self._levels[partition] = (self._level(partition, now_s) + 1.0, now_s)

    def over_limit(self, now_s: float) -> frozenset[int]:
        """The partitions whose bucket is too full at `now_s`."""
        most = self._per_second * BURST_S
        return frozenset(p for p in self._levels if self._level(p, now_s) > most)

    def update(self, now_s: float, report: Callable[[frozenset[int]], None]) -> None:
        """Update `paused`, and report it by a call of `report` if it changed."""
        over_limit = self.over_limit(now_s)
        if over_limit != self.paused:
            self.paused = over_limit
            report(over_limit)

    def forget(self, partitions: Iterable[int]) -> None:
        """Empty the buckets of these partitions, which this worker lost or gained."""
        for partition in partitions:
            self._levels.pop(partition, None)

    def _level(self, partition: int, now_s: float) -> float:
        level, then_s = self._levels.get(partition, (0.0, now_s))
        return max(0.0, level - self._per_second * (now_s - then_s))


Unsettled = dict[str, list[tuple[int, int]]]
"""By ladder, the partitions and offsets of records that are not rated. They are finished once all
workers agree on the ladder there. Those of no ladder are under FILE_LIMITS."""
MakeCorrections = Callable[[LogContext, PartOptions], Corrections]


class Admission:
    """Validates the records of the owned partitions."""

    def __init__(
        self, log: LogContext, options: PartOptions, limiter: RejectionLimiter, observer: Observer,
        make_corrections: MakeCorrections = Corrections,
    ) -> None:  # fmt: skip
        self.decoder = RoundDecoder(log.ladders, log.partitions)
        self._log = log
        self._options = options
        self._limiter = limiter
        self._observer = observer
        self._make_corrections = make_corrections
        self.forget()

    def forget(self) -> None:
        """Forget all partitions and their corrections."""
        self.inputs: dict[int, InputPartition] = {}
        self.unsettled: Unsettled = {}
        self.corrections = self._make_corrections(self._log, self._options)

    def drop(self, partitions: frozenset[int]) -> None:
        """Drop partitions."""
        for partition in partitions:
            self.inputs.pop(partition, None)
        for places in self.unsettled.values():
            places[:] = [place for place in places if place[0] not in partitions]
        self.corrections.drop(partitions)

    def read(self, records: Sequence[Record], now_s: float) -> PendingRounds:
        """Validate records, in order. Returns the rounds to rate. Rounds that change no rating
        count as done, and rounds that wait for another record are deferred."""
        found = list[PendingRounds]()
        for batch, other in split_at_corrections(records):
            if batch:
                found.append(self._rounds(batch, now_s))
            if other is not None:
                self._enqueue(other, now_s)
        return PendingRounds.concat(found)

    def _rounds(self, records: Sequence[Record], now_s: float) -> PendingRounds:
        """Validate records of rounds."""
        rounds, rejections = self.decoder.decode(records)
        heads = iter(rounds.heads)
        found = [next(heads) if rejection is None else rejection for rejection in rejections]
        counts = [self._is_to_be_rated(*each, now_s) for each in zip(records, found, strict=True)]
        valid = [rejection is None for rejection in rejections]
        valid_records = list(compress(records, valid))
        pending = estimation.pending_rounds(valid_records, rounds, self._options.shards)
        pending = pending.take(np.flatnonzero(list(compress(counts, valid))))
        if unknown := int(np.count_nonzero(pending.rounds.unknown)):
            self._observer.unknown_fields(unknown)
        self._observer.rounds_accepted(list(compress(records, counts)), pending.rounds)
        return self.informative(*self.corrections.admit(pending))

    def informative(self, pending: PendingRounds, done: PendingRounds) -> PendingRounds:
        """Return the `pending` rounds that change ratings. Count the others and `done` as done."""
        informative = self.decoder.informative(pending.rounds)
        for silent in (done, pending.take(np.flatnonzero(~informative))):
            for head, partition, offset in zip(
                silent.rounds.heads, silent.partitions.tolist(), silent.offsets.tolist(),
                strict=True,
            ):  # fmt: skip
                self._await_agreement(head.ladder, partition, offset)
        return pending.take(np.flatnonzero(informative))

    def _is_to_be_rated(self, record: Record, found: Round | Invalid, now_s: float) -> bool:
        """Whether the round in a record is to be rated. The rejection of a record waits until all
        workers agree on its ladder. Offsets of another partition than the ladder's mean nothing to
        its history, so a record there is rejected at once."""
        source = self.inputs.get(record.partition)
        if source is None:
            return False
        verdict = source.validate(record, found)
        if isinstance(verdict, bool):
            return verdict
        rejection = source.reject(record, verdict, record.offset)
        self._limiter.rejected(record.partition, now_s)
        ladder, partitions = verdict.ladder, self._log.partitions
        if ladder and partitions and partition_of(ladder, partitions) != record.partition:
            source.finish([record.offset])
            self._observer.round_rejected(rejection)
        else:
            self._await_agreement(ladder or FILE_LIMITS, record.partition, record.offset)
        return False

    def _await_agreement(self, ladder: str, partition: int, offset: int) -> None:
        self.unsettled.setdefault(ladder, []).append((partition, offset))

    def settle(self, allowed_before: Callable[[str], float]) -> None:
        """Finish unsettled records on whose ladders all workers agree. Report the rejections."""
        unsettled, self.unsettled = self.unsettled, {}
        for ladder, places in unsettled.items():
            before = allowed_before(ladder)
            if left := [place for place in places if place[1] >= before]:
                self.unsettled[ladder] = left
            for partition, offset in places:
                for each in self.inputs[partition].settle(offset) if offset < before else ():
                    self._observer.round_rejected(each)

    def _enqueue(self, record: Record, now_s: float) -> None:
        """Validate a correction, seed or reset by its record alone, and enqueue it. The validation
        of a correction by the log follows later."""
        log, source = self._log, self.inputs.get(record.partition)
        queued: Queued
        try:
            if is_seed(record):
                seed = decode_seed(record, log.ladders, log.partitions)
                queued, counts = QueuedSeed(seed), self._is_to_be_rated(record, seed.head, now_s)
            else:
                queued = QueuedCorrection(record, log.correction(record))
                counts = source is not None and source.enqueue(record)
        except Invalid as invalid:
            self._is_to_be_rated(record, invalid, now_s)
            return
        if counts:
            self.corrections.enqueue(queued)

    def finish(self, queued: Queued, now_s: float) -> PendingRounds:
        """Finish a queued record whose work is done. Rejections of corrections that do not fit the
        log are committed with this record's offset. Returns the rounds that waited for it."""
        partition, source = queued.partition, self.inputs[queued.partition]
        for each, refused in self.corrections.finished(queued):
            for record, invalid in refused:
                self._limiter.rejected(partition, now_s)
                self._observer.round_rejected(source.reject(record, invalid, each.offset))
            place = each.ladder, partition, each.offset
            if isinstance(each, QueuedSeed):
                self._observer.seeded(*place, len(each.seed))
            else:
                self._observer.corrected(*place, len(refused))
            source.finish([each.offset])
        return self.informative(*self.corrections.finish(queued))


# --- step 3 --------------------------------------------------------------------------------------

NONE_UNSETTLED: Unsettled = {}
NOT_ANNOUNCED = "the ladders file has a change that was not announced: start this worker again"


class Agreement:
    """The ladders file of one estimator, and the ladders for which it disagrees with the ladder
    events. It makes all estimators rate a ladder by the same parameters, whatever their files say.

    Kafka stores the history of each ladder as ladder events: the parameters that rate it, and the
    offset from which on they hold (`ladder_history`). After an estimator has polled a round, and
    before it sends any part of the round, it reads these events to their end. It rates the round
    only if its own ladders file agrees with them. So an estimator with an old file sees a change
    before it can rate by the old parameters, even if it is a zombie.
    """

    def __init__(self, ladders: Ladders) -> None:
        self._ladders = ladders
        self._file_histories: Callable[[str], History] = ladders.by_table(ladders.history)
        """The history of a ladder, according to the file."""
        self._disagreements: dict[str, float] = {}
        self._until_s = 0.0
        self._issued = 0  # The number of tickets that the polled rounds have.
        self._agreed_up_to: dict[str, int] = {}
        """By ladder whose events agreed when they were last read, the number of tickets then. All
        rounds with these tickets had been polled, so their events need not be read again."""

    def forget(self) -> None:
        """Forget which rounds had been polled when events were read: tickets begin at 0 again."""
        self._issued, self._agreed_up_to = 0, {}

    def polled(self, issued: int) -> None:
        """Record that rounds were polled, and now have this many tickets in all."""
        self._issued = issued

    def compare(self, in_force: Mapping[str, History], until_s: float) -> dict[str, float]:
        """Compare the file with the histories in the ladder events. Returns the offset from which
        on they disagree, by ladder. Ladders that agree are left out. Remembered until `until_s`."""
        found = {
            ladder: allowed_before(self._file_histories(ladder), history)
            for ladder, history in in_force.items()
        }
        disagreements = {ladder: offset for ladder, offset in found.items() if offset < math.inf}
        for ladder in found.keys() - disagreements.keys():
            self._disagreements.pop(ladder, None)
        for ladder in disagreements:
            self._agreed_up_to.pop(ladder, None)
        if disagreements:
            self._disagreements |= disagreements
            self._until_s = until_s
        return disagreements

    def agreed(
        self, wave: PendingRounds, until_s: float, observer: Observer,
        unsettled: Mapping[str, Sequence[tuple[int, int]]] = NONE_UNSETTLED,
    ) -> Step[PendingRounds]:  # fmt: skip
        """Compare the file with the ladder events, and keep the rounds of a wave that may be rated.
        The events are read unless that was done after all these rounds were polled. Those of the
        ladders in `unsettled` are always read, where records may be finished."""
        ladders = {
            head.ladder
            for head, ticket in zip(wave.rounds.heads, wave.tickets.tolist(), strict=True)
            if ticket >= self._agreed_up_to.get(head.ladder, NOTHING)
        }
        finishing = {
            ladder
            for ladder, places in unsettled.items()
            if any(offset < self.allowed_before(ladder) for _, offset in places)
        } - ladders
        if ladders or finishing:
            yield from self._read(ladders, until_s, observer, finishing)
            agreed = ladders - self._disagreements.keys()
            self._agreed_up_to |= dict.fromkeys(agreed, self._issued)
        return wave.take(np.flatnonzero(self.allowed(wave)))

    def agreed_at(self, ladder: str, offset: int, until_s: float, observer: Observer) -> Step[bool]:
        """Whether a ladder's record at this offset may be rated. Reads the ladder events first,
        unless a remembered disagreement forbids it."""
        if offset < self.allowed_before(ladder):
            yield from self._read({ladder}, until_s, observer)
        return offset < self.allowed_before(ladder)

    def allowed_before(self, ladder: str) -> float:
        """The offset before which the ladder's records may be rated, or finished without it,
        according to the remembered disagreements."""
        return min(self._disagreements.get(each, math.inf) for each in (ladder, FILE_LIMITS))

    def _read(
        self, ladders: set[str], until_s: float, observer: Observer, finishing: Iterable[str] = ()
    ) -> Step[None]:
        """Read the events of the ladders that are to be rated, and of those with records to finish.
        Of the latter, only those about which the file itself says something get a first event."""
        every = {each: self._file_histories(each) for each in (*ladders, *finishing, FILE_LIMITS)}
        recorded = {*ladders, *filter(self._is_recorded, finishing)}
        in_force = yield from ask(Agree(every, every.keys() - recorded))
        disagreements = self.compare(in_force, until_s)
        for ladder, offset in disagreements.items():
            why = objection(ladder, self._file_histories(ladder), in_force[ladder]) or NOT_ANNOUNCED
            observer.ladder_refused(ladder, offset, why)
        observer.ladders_agreed({*ladders, *finishing} - disagreements.keys())

    def _is_recorded(self, ladder: str) -> bool:
        """Whether the first record that is finished without being rated gets its ladder an event.
        It does not where the template stands for the ladder: producers may send any name."""
        names = self._ladders.ladders
        return ladder == FILE_LIMITS or ladder in names or TEMPLATE not in names

    def retry(self, now_s: float) -> bool:
        """Forget the remembered disagreements if they have expired, because the ladder events or
        the store may have been repaired. Returns whether they had expired."""
        due = bool(self._disagreements) and now_s >= self._until_s
        if due:
            self._disagreements = {}
        return due

    @property
    def is_full(self) -> bool:
        """Whether no disagreement is remembered, that is, whether all rounds may be rated."""
        return not self._disagreements

    def allowed(self, pending: PendingRounds) -> Flags:
        """(R,) whether each round may be rated, according to the remembered disagreements."""
        if self.is_full:
            return np.ones(len(pending), np.bool_)
        ends = [self.allowed_before(head.ladder) for head in pending.rounds.heads]
        allowed: Flags = pending.offsets < np.array(ends)
        return allowed
