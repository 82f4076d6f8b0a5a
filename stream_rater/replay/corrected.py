"""Validates the corrections of a whole log in two passes, before a third pass rates the log.

The first pass collects the corrections. The second pass checks whether the rounds and players that
they name are in the log.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.contract.corrections import (
    Batched,
    Correction,
    CorrectionsApplied,
    SeasonStarted,
)
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import Season
from stream_rater.replay.edited_log import (
    LoggedRounds,
    RecordValidator,
    Unjudged,
    Verdicts,
    WorkedIn,
    batches_of,
)
from stream_rater.replay.edits import places_by
from stream_rater.replay.ledger import Ledger
from stream_rater.rounds.corrections import decode
from stream_rater.rounds.decoder import kind_of
from stream_rater.rounds.validation import Invalid

Place = tuple[int, int]
"""The place of a record: its partition and offset."""

T = TypeVar("T")


def with_verdicts(
    run: Callable[[Verdicts | None], T], again: Callable[[], Iterable[Record]], ladders: Ladders,
    window: int, partitions: int = ANYWHERE,
) -> T:  # fmt: skip
    """Return the result of `run`. The first call passes None, which is enough for a log without
    corrections. If it raises Unjudged, `run` is called again with the verdicts on the corrections.
    `again` yields the records of the log from the first one, each time it is called."""
    try:
        return run(None)
    except Unjudged:
        verdicts = judged(again, ladders, window, partitions)
    return run(verdicts)


def judged(
    again: Callable[[], Iterable[Record]], ladders: Ladders, window: int,
    partitions: int = ANYWHERE,
) -> Verdicts:  # fmt: skip
    """The verdicts on all corrections in the records of `round-completed`. `again` yields these
    records from the first one, each time it is called."""
    found: dict[Place, Correction] = {}
    refusals: dict[Place, Invalid] = {}
    for record in again():
        if record.headers and kind_of(record):
            place = record.partition, record.offset
            try:
                found[place] = decode(record, ladders, partitions)
            except Invalid as invalid:
                refusals[place] = invalid
    if not found:
        return Verdicts({}, refusals)
    second = _SecondPass(found, refusals, RecordValidator(ladders, window, partitions))
    for records in batches_of(again(), mixed=True):
        for each in second.validator.read(records):
            second.read(each)
    return second.verdicts()


class _SecondPass:
    """Validates the corrections in the order of the log, each by the log before it."""

    def __init__(
        self, found: dict[Place, Correction], refusals: dict[Place, Invalid],
        validator: RecordValidator,
    ) -> None:  # fmt: skip
        self.validator = validator
        self._found = found
        self._refusals = refusals
        self._starts: dict[Place, tuple[str, Season]] = {}
        by_ladder: dict[str, list[Correction]] = {}
        for correction in found.values():
            by_ladder.setdefault(correction.ladder, []).append(correction)
        read = validator.round_decoder.read
        self._ledgers = {ladder: Ledger(some, read) for ladder, some in by_ladder.items()}
        self._batched: dict[str, list[tuple[Record, Correction]]] = {}
        """By ladder, the corrections that wait for `corrections-applied`, and their records."""
        self._worked_in: dict[str, list[WorkedIn]] = {}

    def read(self, each: LoggedRounds | Record) -> None:
        """Read a batch of rounds, or one correction."""
        if isinstance(each, LoggedRounds):
            self._read_rounds(each)
        elif (found := self._found.get((each.partition, each.offset))) is not None:
            self._read_correction(each, found)

    def _read_rounds(self, some: LoggedRounds) -> None:
        ladders = (head.ladder for head in some.rounds.heads)
        keys = zip(ladders, some.partition.tolist(), strict=True)
        for (ladder, partition), places in places_by(keys).items():
            if ladder in self._ledgers:
                own = some.take(places)
                self._ledgers[ladder].add(own.rounds, own.offset, partition)

    def _read_correction(self, record: Record, correction: Correction) -> None:
        waiting = self._batched.setdefault(correction.ladder, [])
        if isinstance(correction, Batched) and correction.batched:
            waiting.append((record, correction))
            self._note(record, correction, -1)
        elif isinstance(correction, CorrectionsApplied):
            for each in waiting:
                self._judge(*each, record.offset)
            waiting.clear()
            self._note(record, correction, record.offset)
        else:
            self._judge(record, correction, record.offset)

    def _note(self, record: Record, correction: Correction, at: int) -> None:
        noted = WorkedIn(record.offset, correction, at)
        self._worked_in.setdefault(correction.ladder, []).append(noted)

    def _judge(self, record: Record, correction: Correction, at: int) -> None:
        ledger, place = self._ledgers[correction.ladder], (record.partition, record.offset)
        try:
            ledger.judge(correction, record.received_s, record.offset)
            if isinstance(correction, SeasonStarted):
                self._starts[place] = correction.ladder, ledger.last_season
            self._note(record, correction, at)
        except Invalid as invalid:
            invalid.tell(correction.ladder, getattr(correction, "round_id", ""))
            self._refusals[place] = invalid

    def verdicts(self) -> Verdicts:
        """The outcome of all corrections."""
        edits = {ladder: ledger.edits for ladder, ledger in self._ledgers.items()}
        return Verdicts(edits, self._refusals, self._starts, self._worked_in)
