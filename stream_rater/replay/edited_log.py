"""The edited log: the rounds of a log in their order, after its corrections have edited them.

Every replay reads the log through this module. A record holds a round, a seed, a reset or a
correction. Whether it is accepted depends on the earlier records of its partition
(`RecordValidator`). Whether a correction is accepted may depend on the whole log before it. So
corrections are validated in separate passes (`ledger`), and a replay receives the outcome
(`Verdicts`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.contract.corrections import Correction
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import Season
from stream_rater.replay.edits import NO_EDITS, Edits, edited
from stream_rater.rounds import correction_records, decoder, ragged
from stream_rater.rounds.batch import NO_ROUNDS, RoundBatch
from stream_rater.rounds.correction_records import Seed
from stream_rater.rounds.lines import Arrivals, LineReader, PlainRecords, RecordBatches
from stream_rater.rounds.validation import DuplicateWindow, Invalid

BATCH_BYTES = 2**18  # The most bytes of records that are decoded together.


class MissingVerdicts(Exception):
    """The log has a correction, but the replay has no verdicts on corrections."""


class AppliedCorrection(NamedTuple):
    """A correction that was applied, or one that waits for `corrections-applied`."""

    offset: int  # The offset of its record.
    correction: Correction
    at: int  # The offset at which it was applied; -1 if it waits for `corrections-applied`.


class Verdicts(NamedTuple):
    """The outcome of all corrections of a log."""

    edits: Mapping[str, Edits]  # For each ladder, the edits that all accepted corrections make.
    rejections: Mapping[tuple[int, int], Invalid]
    """Why each rejected correction is rejected, by the correction's partition and offset."""

    starts: Mapping[tuple[int, int], tuple[str, Season]] = {}
    """The ladder and season of each accepted `season-started`, by its partition and offset."""
    applied: Mapping[str, Sequence[AppliedCorrection]] = {}
    """For each ladder, its corrections as workers write them to the topic `ladders-noted`, in that
    order. A correction that has waited is in the sequence twice."""

    @classmethod
    def of_ladder(cls, ladder: str, partition: int, edits: Edits) -> "Verdicts":
        """The verdicts on one ladder's corrections, whose records are in this partition."""
        seasons = {(partition, each.offset): (ladder, each.season) for each in edits.seasons}
        return cls({ladder: edits}, {}, seasons)

    def on(self, record: Record) -> Invalid | None:
        """The reason why the correction in a record is rejected; None if it is accepted."""
        return self.rejections.get((record.partition, record.offset))

    def of(self, ladder: str, _offset: int = 0) -> Edits:
        """The edits of a ladder's rounds. They are the same for all offsets."""
        return self.edits.get(ladder, NO_EDITS)

    @property
    def change_rounds(self) -> bool:
        """Whether any round differs from what was reported."""
        return any(each.change_rounds for each in self.edits.values())


NO_VERDICTS = Verdicts({}, {})  # The verdicts on a log without corrections.


class LoggedRounds(ragged.Ragged, gc=False):
    """R accepted rounds in the order of the log, and their places in the log."""

    rounds: RoundBatch
    partition: Ints  # (R,) the partition of each round.
    offset: Ints  # (R,) the offset of each round.

    @property
    def sizes(self) -> Ints:
        """(R,) the number of players of each round."""
        return self.rounds.sizes

    @classmethod
    def of(
        cls, records: Sequence[Record], rounds: RoundBatch, rejections: decoder.Rejections
    ) -> "LoggedRounds":
        """The rounds that were decoded from these records (`RoundDecoder.decode`)."""
        read = _arrivals_of_valid(records, rejections)
        return cls(rounds, read.partition, read.offset)

    def __len__(self) -> int:
        return len(self.offset)

    def take(self, rounds: Ints) -> "LoggedRounds":
        """The rounds at these indices, which must be in rising order."""
        return self if len(rounds) == len(self) else super().take(rounds)

    def of_ladder(self, ladder: str) -> "LoggedRounds":
        own = [i for i, head in enumerate(self.rounds.heads) if head.ladder == ladder]
        return self.take(np.array(own, np.int64))


NO_LOGGED = LoggedRounds(NO_ROUNDS, np.empty(0, np.int64), np.empty(0, np.int64))
LoggedRounds.empty = NO_LOGGED


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Consecutive records of a log, validated."""

    rounds: LoggedRounds  # The accepted rounds, as reported.
    rejected: Sequence[tuple[Record, Invalid]]
    """The rejected records in the order of the log, each with the reason."""
    corrections: Sequence[Record]  # The records of accepted corrections.
    seeds: Sequence[Seed] = ()
    """The accepted seeds and resets, as reported. They come before the rounds."""


def _arrivals_of_valid(records: Sequence[Record], rejections: decoder.Rejections) -> Arrivals:
    """Where and when those of the records arrived that are not rejected."""
    read = decoder.arrivals_of(records)
    if any(rejections):
        read = read.take(np.flatnonzero([why is None for why in rejections]))
    return read


Content = LoggedRounds | Seed | Record
"""Accepted rounds, an accepted seed or reset, or the record of a correction."""


@dataclass(frozen=True, slots=True)
class ValidRecords:
    """Consecutive records of a log, after the rounds, seeds and resets in them were validated."""

    count: int  # The number of records.
    content: Sequence[Content]
    """Their content in order: the accepted rounds before each other record in one batch, each
    accepted seed or reset, and each correction as its record, which is not validated."""
    rejected: Sequence[tuple[Record, Invalid]]
    """The rejected rounds, seeds and resets in order, each with the reason."""


class RecordValidator:
    """Validates the rounds, seeds and resets of a log, each by the earlier records of its
    partition. The log has `partitions` partitions."""

    def __init__(self, ladders: Ladders, window: int, partitions: int = ANYWHERE) -> None:
        self.arguments = ladders, window, partitions
        self.round_decoder = decoder.RoundDecoder(ladders, partitions)
        self._ladders, self._partitions, self._window = ladders, partitions, window
        self._duplicates: dict[int, DuplicateWindow] = {}
        """For each partition, the ids of its latest rounds."""

    def decode(self, records: Sequence[Record]) -> tuple[RoundBatch, decoder.Rejections]:
        """Decode the rounds in these records, none of which may be a correction. Returns the
        accepted rounds, and the reasons why the other records are rejected: by the decoder, or as
        duplicates."""
        rounds, rejections = self.round_decoder.decode(records)
        arrivals = _arrivals_of_valid(records, rejections)
        offsets, heads = arrivals.offset.tolist(), rounds.heads
        ladders, ids = [head.ladder for head in heads], [head.round_id for head in heads]
        cuts = (np.flatnonzero(np.diff(arrivals.partition)) + 1).tolist()
        duplicates = dict[int, Invalid]()
        for first, last in pairwise([0, *cuts, len(rounds)]) if len(rounds) else ():
            window = self._window_of(int(arrivals.partition[first]))
            own = slice(first, last)
            found = window.check_all(offsets[own], ladders[own], ids[own])
            duplicates |= {first + i: each for i, each in found.items()}
        if not duplicates:
            return rounds, rejections
        numbers = [number for number, why in enumerate(rejections) if why is None]
        for i, duplicate in duplicates.items():
            rejections[numbers[i]] = duplicate
        new = [i for i in range(len(rounds)) if i not in duplicates]
        return rounds.take(np.array(new, np.int64)), rejections

    def _window_of(self, partition: int) -> DuplicateWindow:
        if partition not in self._duplicates:
            self._duplicates[partition] = DuplicateWindow(self._window)
        return self._duplicates[partition]

    def seed(self, record: Record) -> Seed:
        """Decode the seed or reset in the next record. Raises Invalid."""
        found = correction_records.decode_seed(record, self._ladders, self._partitions)
        window = self._window_of(record.partition)
        window.check(record.offset, found.ladder, found.round_id)
        return found

    def validated(self, records: Sequence[Record]) -> ValidRecords:
        """Validate the rounds, seeds and resets in the next records."""
        content, rejected = list[Content](), list[tuple[Record, Invalid]]()
        for batch, other in decoder.split_at_corrections(records):
            if batch:
                rounds, rejections = self.decode(batch)
                content.append(LoggedRounds.of(batch, rounds, rejections))
                if any(rejections):
                    both = zip(batch, rejections, strict=True)
                    rejected += [(each, invalid) for each, invalid in both if invalid is not None]
            if other is not None and not correction_records.is_seed(other):
                content.append(other)
            elif other is not None:
                try:
                    content.append(self.seed(other))
                except Invalid as invalid:
                    rejected.append((other, invalid))
        return ValidRecords(len(records), content, rejected)

    def read(self, records: Sequence[Record]) -> Iterator[Content]:
        """Yield the content of these records in order, as in ValidRecords."""
        yield from self.validated(records).content


class EditedLog:
    """Reads a log, and edits its rounds by all of the log's corrections."""

    def __init__(
        self, ladders: Ladders, window: int, partitions: int = ANYWHERE,
        verdicts: Verdicts | None = None, validator: RecordValidator | None = None,
    ) -> None:  # fmt: skip
        """`verdicts` are the verdicts on the log's corrections (`ledger.verdicts_of_log`).
        Without them `read` raises MissingVerdicts at a correction. `validator` is a validator that
        several replays share when they read the log together."""
        self.validator = validator or RecordValidator(ladders, window, partitions)
        self._has_verdicts = verdicts is not None
        self.verdicts = verdicts or NO_VERDICTS
        self._edits_rounds = self.verdicts.change_rounds

    def read(self, records: Sequence[Record] | ValidRecords) -> LogBatch:
        """Validate the next records, unless they are. Raises MissingVerdicts at a correction."""
        rejected: list[tuple[Record, Invalid]] = []
        found = [*self.accepted(records, rejected)]
        rounds = LoggedRounds.concat([each for each in found if isinstance(each, LoggedRounds)])
        corrections = [each for each in found if isinstance(each, Record)]
        return LogBatch(rounds, rejected, corrections, [e for e in found if isinstance(e, Seed)])

    def accepted(
        self, records: Sequence[Record] | ValidRecords, rejected: list[tuple[Record, Invalid]]
    ) -> Iterator[Content]:
        """Yield what is accepted of the next records, in order. A correction is yielded as its
        record. The others, with the reasons, are added to `rejected`. Raises MissingVerdicts at a
        correction."""
        if not isinstance(records, ValidRecords):
            records = self.validator.validated(records)
        rejected += records.rejected
        before = len(rejected)
        for each in records.content:
            if not isinstance(each, Record):
                yield each
            elif not self._has_verdicts:
                raise MissingVerdicts
            elif (invalid := self.verdicts.on(each)) is not None:
                rejected.append((each, invalid))
            else:
                yield each
        if 0 < before < len(rejected):
            rejected.sort(key=lambda one: (one[0].partition, one[0].offset))

    def edited(self, logged: LoggedRounds) -> tuple[RoundBatch, Flags]:
        """The rounds after the corrections, and (R,) whether each still counts, which needs at
        least two entries. A round that does not count is returned as it was reported."""
        if not self._edits_rounds:
            return logged.rounds, np.ones(len(logged), np.bool_)
        return edited(logged.rounds, logged.offset, self.verdicts.of)

    def seed(self, seed: Seed) -> Seed | None:
        """A seed or a reset after the corrections; None if it changes no belief any more."""
        return self.verdicts.of(seed.ladder).seed(seed) if self._edits_rounds else seed

    def informative(self, logged: LoggedRounds) -> tuple[RoundBatch, Flags]:
        """The rounds after the corrections, and (R,) whether each of them changes ratings."""
        rounds, counts = self.edited(logged)
        return rounds, counts & self.validator.round_decoder.informative(rounds)


def records_of(lines: Iterable[bytes], first: int = 0) -> LineReader:
    """The lines that are not blank, as records. Their offsets are line numbers, from `first` on."""
    return LineReader(iter(lines), first)


def batches_of(
    records: Iterable[Record], most_bytes: int = BATCH_BYTES, *, mixed: bool = False
) -> Iterator[Sequence[Record]]:
    """Yield batches of consecutive records, each of at most `most_bytes` bytes or of one record. A
    record that holds no round begins a new batch, unless batches may be `mixed`."""
    if isinstance(records, LineReader | RecordBatches):
        for each in records.batches(most_bytes):
            if isinstance(each, PlainRecords):
                yield each
            else:
                yield from batches_of(each, most_bytes, mixed=mixed)
        return
    batch, size = list[Record](), 0
    for record in records:
        own = len(record.value or b"")
        begins = not mixed and record.headers and decoder.kind_of(record)
        if batch and (size + own > most_bytes or begins):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += own
    if batch:
        yield batch
