"""Decodes and validates the rounds in records of `round-completed`, many records at once.

`fastjson` reads rounds that are written as nearly all clients write them, and `fallback` reads the
others by msgspec. Both give the same columns. `validation` then checks the rules on these columns.

Records of corrections, seeds and resets stand among those of rounds. This module recognises them by
their headers, and `correction_records` decodes them.
"""

import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from stream_rater.columns import arrays, ranges
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.contract import corrections
from stream_rater.contract.record import Record, header, runs
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds import batch, fallback, fastjson, validation
from stream_rater.rounds.lines import Arrivals, PlainRecords
from stream_rater.rounds.validation import Invalid

SCAN_BYTES = 2**20  # The most bytes of the records that one call scans.
EMPTY = Invalid("malformed", "Input data was truncated")
"""Why an empty record is rejected: what the decoders say of it."""
NO_PLACES = np.empty(0, np.int64)

Rejections = list[Invalid | None]
"""For each record, why it is rejected; None if it contains the next of the valid rounds."""


class RoundDecoder:
    """Decodes the records of a topic with `partitions` partitions, which contain rounds of these
    ladders. If `partitions` is `ANYWHERE`, a round may be in any partition, as in a file."""

    def __init__(self, ladders: Ladders, partitions: int = ANYWHERE) -> None:
        self._limits, self._partitions = ladders.limits, partitions
        self._terms = validation.LadderTerms(ladders, partitions)
        self.ratings = self._terms.ratings
        """The configurations of rounds so far. `RoundBatch.config_index` has indices of these."""
        self._adopted: dict[RatingConfig, int] = {}
        self._seen: dict[int, arrays.Floats] = {}
        """By configuration: its rounds of more than two sides, and the `skew` of these rounds."""
        self._cautioned: set[int] = set()

    def adopt(self, rating: RatingConfig) -> int:
        """The index of an equal configuration among `ratings`. It is added if none was adopted."""
        number = self._adopted.setdefault(rating, len(self.ratings))
        if number == len(self.ratings):
            self.ratings.append(rating)
        return number

    def informative(self, rounds: batch.RoundBatch) -> arrays.Flags:
        """(R,) whether each round changes ratings by its rule. Warns by `caution_of_rounds`."""
        if len(self._cautioned) < len(self.ratings) and len(rounds) and rounds.entries.max() > 2:
            self._caution(rounds)
        skip = np.array([each.skip_all_tied for each in self.ratings], np.bool_)
        return rounds.informative(skip[rounds.config_index])

    def _caution(self, rounds: batch.RoundBatch) -> None:
        place, sizes = rounds.place, rounds.entries
        edges, part = ranges.bounds(sizes), np.clip(sizes // 10, 1, sizes - 1)
        first, end = edges[:-1], edges[1:]
        tied_last = place[end - 1] == place[end - 1 - part]
        tied_first = place[first] == place[first + part]
        for number in {*rounds.config_index.tolist()} - self._cautioned:
            own = (rounds.config_index == number) & (sizes > 2)
            seen = self._seen.setdefault(number, np.zeros(2))
            seen += own.sum(), (own & tied_last).sum() - (own & tied_first).sum()
            i = int(np.argmax(own * sizes))
            places = 1 + np.count_nonzero(np.diff(place[first[i] : end[i]]))
            if text := self.ratings[number].caution_of_rounds(*seen.tolist(), places):
                self._cautioned.add(number)
                warnings.warn(f"ladder {rounds.heads[i].ladder!r}: {text}", stacklevel=3)

    def read(self, record: Record) -> batch.OneRound:
        """Decode the round in one record. Raises Invalid."""
        rounds, (rejection,) = self.decode([record])
        if rejection is not None:
            raise rejection
        return batch.OneRound(rounds)

    def decode(self, records: Sequence[Record]) -> tuple[batch.RoundBatch, Rejections]:
        """Decode the rounds in these records. Returns the valid rounds in the order of the records,
        and the reasons why the other records are rejected."""
        values, arrivals = values_of(records), arrivals_of(records)
        rejections = self._oversized(records, values)
        if not all(values):  # a log that has lost records may have millions of empty ones
            both = zip(rejections, values, strict=True)
            rejections = [why if why or value else EMPTY for why, value in both]
        found, first = [], 0
        for texts in runs(values, SCAN_BYTES):
            run = range(first, first + len(texts))
            for indices, rounds in self._read_rounds(records, values, run, rejections):
                found.append(self._validated(records, arrivals, indices, rounds, rejections))
            first += len(run)
        if len(found) == 1:
            return found[0][1], rejections
        rounds = batch.RoundBatch.concat([each for _, each in found])
        order = np.argsort(np.concatenate([NO_PLACES, *(at for at, _ in found)]), kind="stable")
        in_order = (order == np.arange(len(order))).all()
        return (rounds if in_order else rounds.take(order)), rejections

    def _oversized(self, records: Sequence[Record], values: Sequence[bytes]) -> Rejections:
        """For each record, the reason why it is not decoded at all; None if it is decoded."""
        most = self._limits.max_bytes
        if isinstance(records, PlainRecords) and max(map(len, values), default=0) <= most:
            return [None] * len(values)
        return [too_large(each, value, most) for each, value in zip(records, values, strict=True)]

    def _read_rounds(
        self, records: Sequence[Record], values: Sequence[bytes], run: range, rejections: Rejections
    ) -> Iterator[tuple[arrays.Ints, batch.RoundBatch]]:
        """Yield, for each of the two readers, the places of the records that it read, and their
        rounds as reported. `run` are the places of the records to read."""
        left = [i for i in run if rejections[i] is None]
        packed = set[int]()
        if not isinstance(records, PlainRecords):
            packed = {i for i in left if records[i].headers and is_packed(records[i])}
        if len(left) > len(packed):
            usual = [i for i in left if i not in packed] if packed else left
            own = values if len(usual) == len(values) else [values[i] for i in usual]
            rounds, taken = fastjson.scan(own, self._limits.max_depth)
            if len(rounds):
                yield np.array(usual, np.int64)[taken], rounds
            others = [usual[i] for i in np.flatnonzero(~taken).tolist()]
            left = sorted([*others, *packed])
        decoded, indices = list[fallback.Decoded](), list[int]()
        for i in left:
            try:
                each = fallback.decode(values[i], self._limits.max_depth, packed=i in packed)
            except Invalid as invalid:
                rejections[i] = invalid
            else:
                decoded.append(each)
                indices.append(i)
        if decoded:
            yield np.array(indices, np.int64), fallback.columns_of(decoded)

    def _validated(
        self, records: Sequence[Record], arrivals: Arrivals, indices: arrays.Ints,
        rounds: batch.RoundBatch, rejections: Rejections,
    ) -> tuple[arrays.Ints, batch.RoundBatch]:  # fmt: skip
        """Validate rounds. Returns the indices of the valid ones' records, and the valid rounds."""
        own = arrivals if len(indices) == len(records) else arrivals.take(indices)
        rounds.config_index[:], limits = self._terms.of(rounds.heads, own.offset)
        batch.fill_from_heads(rounds)

        def mistake_in(what: str, i: int) -> str:
            record = records[indices[i]]
            return fallback.MISTAKES[what](record.value or b"", packed=is_packed(record))

        reasons = validation.check(validation.Candidates(
            rounds, limits, own.received_s, own.partition, self._partitions, mistake_in
        ))  # fmt: skip
        batch.forget_invalid(rounds)
        batch.sort_entries(rounds)
        if not any(reasons):
            return indices, rounds
        for i, rejection in zip(indices.tolist(), reasons, strict=True):
            rejections[i] = rejection
        valid = np.flatnonzero([rejection is None for rejection in reasons])
        return indices[valid], rounds.take(valid)


def too_large(record: Record, value: bytes, most: int) -> Invalid | None:
    """The reason why a record with this value is not decoded at all; None if it is decoded."""
    why = record.unreadable
    if not why and len(value) > most:
        why = f"{len(value)} bytes, over the limit of {most}"
    return Invalid("too-large", why) if why else None


def is_packed(record: Record) -> bool:
    """Whether a record is encoded in MessagePack."""
    return "msgpack" in header(record.headers, "content-type").lower()


def arrivals_of(records: Sequence[Record]) -> Arrivals:
    """The places and times of arrival of these records."""
    if isinstance(records, PlainRecords):
        return records.arrivals
    return Arrivals(
        np.array([each.partition for each in records], np.int64),
        np.array([each.offset for each in records], np.int64),
        np.array([each.received_s for each in records], np.float64),
    )


def values_of(records: Sequence[Record]) -> Sequence[bytes]:
    """The values of these records; empty for a record without one."""
    if isinstance(records, PlainRecords):
        return records.values
    return [each.value or b"" for each in records]


# --- records that hold no round ---


def kind_of(record: Record) -> str:
    """The kind of correction, seed or reset that a record's header names; empty for a round."""
    kind = header(record.headers, corrections.EVENT_TYPE) if record.headers else ""
    return "" if kind == corrections.ROUND else kind


def correction_indices(records: Sequence[Record]) -> list[int]:
    """The places of the records whose header says that they are corrections, seeds or resets."""
    if isinstance(records, PlainRecords):
        return []
    return [i for i, each in enumerate(records) if each.headers and kind_of(each)]


def split_at_corrections(
    records: Sequence[Record],
) -> Iterator[tuple[Sequence[Record], Record | None]]:
    """Yield, for each correction, seed and reset, the rounds before it together with its record. If
    there are rounds after the last one, yield them with None at the end."""
    first = 0
    for i in correction_indices(records):
        yield records[first:i], records[i]
        first = i + 1
    if first < len(records):
        yield records[first:] if first else records, None
