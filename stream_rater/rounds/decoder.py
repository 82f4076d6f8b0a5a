"""The one way from records of `round-completed` to checked rounds, for many records at once.

`fastjson` reads what is written as nearly all clients write it; `fallback` reads the rest, by
msgspec. Both give the same columns. On these `validation` checks the rules, each once, whatever
road a round came by.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple, cast

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.ranges import bounds, spread
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.contract.events import Round, header
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds import fallback, fastjson
from stream_rater.rounds.batch import RoundBatch, Standings
from stream_rater.rounds.order import sort_entries
from stream_rater.rounds.reported import Candidates, Reported, ceilings_of, times_of
from stream_rater.rounds.terms import LadderTerms
from stream_rater.rounds.validation import Invalid, check

TOGETHER_BYTES = 2**20
"""Records are scanned in one call while they have no more bytes together."""

NO_RULE, NOT_KNOWN = np.empty(0, np.int64), np.empty(0, np.bool_)


class DecodedRounds(NamedTuple):
    """What records that were decoded together hold."""

    rounds: RoundBatch
    """The R valid rounds, in the order of their records."""
    rule: Ints
    """(R,) index of the rating configuration of each round, among the decoder's `ratings`."""
    unknown: Flags
    """(R,) whether each round has fields that we do not know, or a rank beside `dnf`."""
    refusals: list[Invalid | None]
    """By record why it is refused; None where it holds the next of the rounds."""

    def valid(self, records: Sequence[Record]) -> list[Record]:
        """(R,) the record of each round."""
        return [each for each, why in zip(records, self.refusals, strict=True) if why is None]


class RoundDecoder:
    """Decodes the records of a topic with so many partitions, which hold rounds of these ladders.

    `ANYWHERE`: rounds may lie in any partition, as in a file.
    """

    def __init__(self, ladders: Ladders, partitions: int = ANYWHERE) -> None:
        self._limits = ladders.limits
        self._partitions = partitions
        self._terms = LadderTerms(ladders, partitions)

    @property
    def ratings(self) -> list[RatingConfig]:
        """The rating configurations met so far; `DecodedRounds.rule` has their indices."""
        return self._terms.ratings

    def rates(self, rounds: RoundBatch, rule: Ints) -> Flags:
        """(R,) whether anything can be learnt from each round, which is rated by this rule."""
        skip = np.array([each.skip_all_tied for each in self.ratings], np.bool_)
        return rounds.rates(skip[rule])

    def read(self, record: Record) -> Standings:
        """The round in one record; raises Invalid."""
        decoded = self.decode([record])
        if (refusal := decoded.refusals[0]) is not None:
            raise refusal
        return Standings(decoded.rounds)

    def decode(self, records: Sequence[Record]) -> DecodedRounds:
        """The rounds in these records, and why the others are refused."""
        left = iter(records)
        decoded = [
            self._decode(list(islice(left, len(some))), some)
            for some in fastjson.runs([each.value or b"" for each in records], TOGETHER_BYTES)
        ]
        if len(decoded) == 1:
            return decoded[0]
        return DecodedRounds(
            RoundBatch.concat([each.rounds for each in decoded]),
            np.concatenate([NO_RULE, *(each.rule for each in decoded)]),
            np.concatenate([NOT_KNOWN, *(each.unknown for each in decoded)]),
            [refusal for each in decoded for refusal in each.refusals],
        )

    def _decode(self, records: Sequence[Record], values: Sequence[bytes]) -> DecodedRounds:
        """The rounds in some records, with these values, which are scanned in one call."""
        refusals: list[Invalid | None] = [None] * len(records)
        checked = [
            self._checked(records, places, reported, refusals)
            for places, reported in self._reported(records, values, refusals)
        ]
        if len(checked) == 1:
            _, rounds, rule, unknown = checked[0]
            return DecodedRounds(rounds, rule, unknown, refusals)
        order = np.argsort(np.concatenate([NO_RULE, *(each[0] for each in checked)]))
        return DecodedRounds(
            RoundBatch.concat([each[1] for each in checked]).take(order),
            np.concatenate([NO_RULE, *(each[2] for each in checked)])[order],
            np.concatenate([NOT_KNOWN, *(each[3] for each in checked)])[order],
            refusals,
        )

    def _reported(
        self, records: Sequence[Record], values: Sequence[bytes], refusals: list[Invalid | None]
    ) -> Iterator[tuple[Ints, Reported]]:
        """The rounds in these records, by each road, and the places of their records."""
        self._refuse_unread(records, values, refusals)
        packed = {i for i, each in enumerate(records) if each.headers and _is_packed(each)}
        left = [i for i, refusal in enumerate(refusals) if refusal is None]
        if len(left) > len(packed):
            usual = [i for i in left if i not in packed] if packed else left
            scan = fastjson.scan([values[i] for i in usual], self._limits.max_depth)
            if scan.taken.any():
                yield np.array(usual, np.int64)[scan.taken], _scanned(scan)
            others = [usual[i] for i in np.flatnonzero(~scan.taken).tolist()]
            left = sorted([*others, *packed.intersection(left)])
        decoded: list[fallback.Decoded] = []
        places: list[int] = []
        for i in left:
            try:
                each = fallback.decode(values[i], self._limits.max_depth, packed=i in packed)
            except Invalid as invalid:
                refusals[i] = invalid
            else:
                decoded.append(each)
                places.append(i)
        if decoded:
            yield np.array(places, np.int64), fallback.columns_of(decoded)

    def _refuse_unread(
        self, records: Sequence[Record], values: Sequence[bytes], refusals: list[Invalid | None]
    ) -> None:
        """Refuse records that are not read at all."""
        most = self._limits.max_bytes
        for i, each in enumerate(records):
            if each.unreadable:
                refusals[i] = Invalid("too-large", each.unreadable)
            elif len(values[i]) > most:
                text = f"{len(values[i])} bytes, over the limit of {most}"
                refusals[i] = Invalid("too-large", text)

    def _checked(
        self, records: Sequence[Record], places: Ints, reported: Reported,
        refusals: list[Invalid | None],
    ) -> tuple[Ints, RoundBatch, Ints, Flags]:  # fmt: skip
        """Of rounds as reported, whose records are in these `places`, the valid ones: the places of
        their records, the rounds, their rules, and whether they have unknown fields."""
        all_ = len(places) == len(records)
        own = records if all_ else [records[i] for i in places.tolist()]
        rule, bounds_ = self._terms.of(reported.heads, [each.offset for each in own])
        candidates = Candidates(
            reported=reported,
            time=times_of(reported.heads),
            weight=np.array([head.weight for head in reported.heads], np.float64),
            ceiling=ceilings_of(reported.heads),
            bounds=bounds_,
            received_s=np.array([each.received_s for each in own], np.float64),
            partition=np.array([each.partition for each in own], np.int64),
            partitions=self._partitions,
            unknown_field=lambda i: _unknown_field(own[i]),
        )
        found = check(candidates)
        rounds = _in_order(candidates)
        if not any(found):
            return places, rounds, rule, reported.unknown
        for i, refusal in zip(places.tolist(), found, strict=True):
            refusals[i] = refusal
        valid = np.flatnonzero([refusal is None for refusal in found])
        return places[valid], rounds.take(valid), rule[valid], reported.unknown[valid]


def _is_packed(record: Record) -> bool:
    """Whether a record is in MessagePack."""
    return "msgpack" in header(record.headers, "content-type").lower()


def _unknown_field(record: Record) -> str:
    """The unknown field of a round in a record that has one."""
    return fallback.unknown_field(record.value or b"", packed=_is_packed(record))


def _scanned(scan: fastjson.Scan) -> Reported:
    """The rounds of the messages that were taken."""
    entries, sizes = scan.entries, scan.sizes
    if scan.taken.all():
        return Reported(
            cast(list[Round], scan.heads), entries, sizes, scan.place, scan.members, scan.members,
            scan.share, scan.names, scan.unknown,
        )  # fmt: skip
    taken = np.flatnonzero(scan.taken)
    heads = [head for head in scan.heads if head is not None]
    of_entries = spread(bounds(entries)[taken], entries[taken])
    of_players = spread(bounds(sizes)[taken], sizes[taken])
    members = scan.members[of_entries]
    return Reported(
        heads, entries[taken], sizes[taken], scan.place[of_entries], members, members,
        scan.share[of_players], scan.names.take(of_players), scan.unknown[taken],
    )  # fmt: skip


def _in_order(candidates: Candidates) -> RoundBatch:
    """The rounds, with the entries of each in order of place."""
    reported = candidates.reported
    names = reported.names
    sort_entries(
        reported.entries, reported.sizes, reported.place, reported.members, reported.share,
        names.starts, names.ends, names.hashes,
    )  # fmt: skip
    return RoundBatch(
        heads=reported.heads,
        time=candidates.time,
        weight=candidates.weight,
        ceiling=candidates.ceiling,
        entries=reported.entries,
        sizes=reported.sizes,
        place=reported.place,
        members=reported.members,
        share=reported.share,
        names=names,
    )
