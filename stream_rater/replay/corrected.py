"""Validates the corrections of a whole log in two passes, before a third pass rates the log.

The first pass collects the corrections. The second pass checks whether the rounds and players that
they name are in the log.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.contract import corrections
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import Season
from stream_rater.replay import edited_log
from stream_rater.replay.edits import indices_by
from stream_rater.replay.ledger import Ledger
from stream_rater.rounds.correction_records import decode
from stream_rater.rounds.decoder import kind_of
from stream_rater.rounds.seed_records import Seed, is_seed
from stream_rater.rounds.validation import Invalid

RecordPlace = tuple[int, int]
"""The place of a record: its partition and offset."""

T = TypeVar("T")


def with_verdicts(
    run: Callable[[edited_log.Verdicts | None], T], read_log: Callable[[], Iterable[Record]],
    ladders: Ladders,
    window: int, partitions: int = ANYWHERE,
) -> T:  # fmt: skip
    """Return the result of `run`. The first call passes None, which is enough for a log without
    corrections. If it raises MissingVerdicts, `run` is called again with the verdicts on the
    corrections. `read_log` yields the records of the log from the first one, each time it is
    called."""
    try:
        return run(None)
    except edited_log.MissingVerdicts:
        verdicts = verdicts_of_log(read_log, ladders, window, partitions)
    return run(verdicts)


def verdicts_of_log(
    read_log: Callable[[], Iterable[Record]], ladders: Ladders, window: int,
    partitions: int = ANYWHERE,
) -> edited_log.Verdicts:  # fmt: skip
    """The verdicts on all corrections in the records of `round-completed`. `read_log` yields these
    records from the first one, each time it is called."""
    found: dict[RecordPlace, corrections.Correction] = {}
    rejections: dict[RecordPlace, Invalid] = {}
    for record in read_log():
        if record.headers and kind_of(record) and not is_seed(record):
            place = record.partition, record.offset
            try:
                found[place] = decode(record, ladders, partitions)
            except Invalid as invalid:
                rejections[place] = invalid
    if not found:
        return edited_log.Verdicts({}, rejections)
    second = _SecondPass(found, rejections, edited_log.RecordValidator(ladders, window, partitions))
    for records in edited_log.batches_of(read_log(), mixed=True):
        for each in second.validator.read(records):
            second.read(each)
    return second.verdicts()


class _SecondPass:
    """Validates the corrections in the order of the log. The verdict on each depends only on the
    log before it."""

    def __init__(
        self, found: dict[RecordPlace, corrections.Correction], rejections: dict[RecordPlace,
        Invalid],
        validator: edited_log.RecordValidator,
    ) -> None:  # fmt: skip
        self.validator = validator
        self._found = found
        self._rejections = rejections
        self._starts: dict[RecordPlace, tuple[str, Season]] = {}
        by_ladder: dict[str, list[corrections.Correction]] = {}
        for correction in found.values():
            by_ladder.setdefault(correction.ladder, []).append(correction)
        read = validator.round_decoder.read
        self._ledgers = {ladder: Ledger(group, read) for ladder, group in by_ladder.items()}
        self._batched: dict[str, list[tuple[Record, corrections.Correction]]] = {}
        """For each ladder, the corrections that wait for `corrections-applied`, and their
        records."""
        self._applied: dict[str, list[edited_log.AppliedCorrection]] = {}

    def read(self, each: edited_log.LoggedRounds | Seed | Record) -> None:
        """Read a batch of rounds, a seed, or a correction."""
        if isinstance(each, edited_log.LoggedRounds):
            self._read_rounds(each)
        elif isinstance(each, Seed):
            if each.ladder in self._ledgers:
                self._ledgers[each.ladder].add_seed(each)
        elif (found := self._found.get((each.partition, each.offset))) is not None:
            self._read_correction(each, found)

    def _read_rounds(self, group: edited_log.LoggedRounds) -> None:
        ladders = (head.ladder for head in group.rounds.heads)
        keys = zip(ladders, group.partition.tolist(), strict=True)
        for (ladder, partition), places in indices_by(keys).items():
            if ladder in self._ledgers:
                own = group.take(places)
                self._ledgers[ladder].add(own.rounds, own.offset, partition)

    def _read_correction(self, record: Record, correction: corrections.Correction) -> None:
        deferred = self._batched.setdefault(correction.ladder, [])
        if isinstance(correction, corrections.Batched) and correction.batched:
            deferred.append((record, correction))
            self._record_outcome(record, correction, -1)
        elif isinstance(correction, corrections.CorrectionsApplied):
            for each in deferred:
                self._validate(*each, record.offset)
            deferred.clear()
            self._record_outcome(record, correction, record.offset)
        else:
            self._validate(record, correction, record.offset)

    def _record_outcome(self, record: Record, correction: corrections.Correction, at: int) -> None:
        outcome = edited_log.AppliedCorrection(record.offset, correction, at)
        self._applied.setdefault(correction.ladder, []).append(outcome)

    def _validate(self, record: Record, correction: corrections.Correction, at: int) -> None:
        ledger, place = self._ledgers[correction.ladder], (record.partition, record.offset)
        try:
            ledger.validate(correction, record.received_s, record.offset)
            if isinstance(correction, corrections.SeasonStarted):
                self._starts[place] = correction.ladder, ledger.last_season
            self._record_outcome(record, correction, at)
        except Invalid as invalid:
            invalid.set_round(correction.ladder, getattr(correction, "round_id", ""))
            self._rejections[place] = invalid

    def verdicts(self) -> edited_log.Verdicts:
        """The verdicts on all corrections that were read."""
        edits = {ladder: ledger.edits for ladder, ledger in self._ledgers.items()}
        return edited_log.Verdicts(edits, self._rejections, self._starts, self._applied)
