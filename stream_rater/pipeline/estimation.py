"""A wave's rounds and priors in, parts out: the pure half of stage 1's state machine.

Rounds of several ladders share a wave; those of one configuration are estimated in one call. What a
round's evidence is does not depend on the rounds beside it, so that a predecessor's half-sent wave
and its successor's, cut otherwise, agree bit for bit.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate, compress

import msgspec
import numpy as np
import numpy.typing as npt

from stream_rater.columns import wave_of
from stream_rater.names import LaidOut, Names, lay_out, together
from stream_rater.pipeline import marks, parts
from stream_rater.pipeline.marks import Fingerprints, Flags
from stream_rater.pipeline.observer import Traced
from stream_rater.pipeline.parts import Part, RoundInPart
from stream_rater.pipeline.ports import Player, Priors, Record
from stream_rater.pipeline.roster import Ladders, Roster
from stream_rater.rating import record, systems
from stream_rater.rating.compiled import kernel
from stream_rater.rating.model import HEADER, Ints, Table
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.record import UnknownRecord
from stream_rater.rating.systems import Law
from stream_rater.standings import Standings
from stream_rater.trace import Trace, trace_of

OFFSET_BITS = 40
"""As records of beliefs have for it."""


class Pending(msgspec.Struct, frozen=True, gc=False):
    """A valid round that is not yet scattered."""

    partition: int
    offset: int
    standings: Standings
    rating: RatingConfig
    """By which it is to be rated."""
    names: Names
    """(P,) its players."""
    fingerprints: Fingerprints
    """(P,) each player's."""
    number: int
    """Partition and offset in one."""
    trace: Trace | None = None


def pending(rounds: Sequence[tuple[Record, Standings, RatingConfig]], shards: int) -> "Cohort":
    """Rounds as read. All their players' shards are found at once: most rounds are small."""
    told = [standings for _, standings, _ in rounds]
    sizes = [len(each.share) for each in told]
    names = together([each.names for each in told])
    found = marks.fingerprints(names, [each.ladder for each in told], sizes, shards)
    ends = accumulate(sizes)
    cohort = Cohort(
        [
            Pending(
                partition=record.partition,
                offset=record.offset,
                standings=standings,
                rating=rating,
                names=standings.names,
                fingerprints=found[end - size : end],
                number=record.partition << OFFSET_BITS | record.offset,
                trace=trace_of(record.headers),
            )
            for (record, standings, rating), size, end in zip(rounds, sizes, ends, strict=True)
        ]
    )
    cohort.fingerprints = found
    return cohort


class Cohort:
    """Rounds that go through the steps together, and all their players in a row, as columns."""

    def __init__(self, rounds: Sequence[Pending]) -> None:
        self.rounds = rounds
        self.sizes = np.array([len(each.fingerprints) for each in rounds], np.int64)

    @cached_property
    def fingerprints(self) -> Fingerprints:
        """(P,) of the players."""
        return np.concatenate([each.fingerprints for each in self.rounds])

    @cached_property
    def numbers(self) -> Ints:
        """(P,) the number of each player's round."""
        return self.per_player([each.number for each in self.rounds])

    @cached_property
    def by_shard(self) -> tuple[Ints, list[tuple[int, slice]]]:
        """An order of the players by shard, and each shard with where in that order they are."""
        return marks.by_shard(self.fingerprints)

    @cached_property
    def names(self) -> LaidOut:
        """(P,) of the players."""
        return together([each.names for each in self.rounds])

    def per_player(self, column: npt.ArrayLike) -> Ints:
        """(P,) what is told of each round."""
        told: Ints = np.repeat(np.asarray(column), self.sizes)
        return told

    def those(self, chosen: Flags) -> "Cohort":
        """Of the rounds only these."""
        return self if chosen.all() else Cohort(list(compress(self.rounds, chosen.tolist())))


def asked(cohort: Cohort) -> dict[int, Sequence[Player]]:
    """The cohort's players by shard, in its order."""
    order, cuts = cohort.by_shard
    ladders: dict[str, int] = {}
    numbers = [ladders.setdefault(each.standings.ladder, len(ladders)) for each in cohort.rounds]
    ladder, names = cohort.per_player(numbers)[order], cohort.names.rows(order)
    everybody = Roster(Ladders(lay_out(list(ladders))), ladder, names)
    return {shard: everybody[where] for shard, where in cuts}


def by_shard(cohort: Cohort) -> dict[int, Fingerprints]:
    """The same, as fingerprints."""
    order, cuts = cohort.by_shard
    players = cohort.fingerprints[order]
    return {shard: players[where] for shard, where in cuts}


def headers_of(cohort: Cohort, read: Mapping[int, Priors]) -> tuple[Table, dict[int, str]]:
    """(P,) headers of the cohort's players, from what each shard's were read; and why those of a
    shard cannot be understood: then they are zeros."""
    order, cuts = cohort.by_shard
    told = [read[shard].headers for shard, _ in cuts]
    sizes = [record.HEADER_SIZE * (where.stop - where.start) for _, where in cuts]
    if list(map(len, told)) == sizes:
        with suppress(UnknownRecord):
            return _as_they_were(record.read_headers(b"".join(told)), order), {}
    held, unreadable = np.zeros(len(order), HEADER), dict[int, str]()
    for (shard, where), each in zip(cuts, told, strict=True):
        try:
            held[where] = record.read_headers(each)
        except UnknownRecord as error:
            unreadable[shard] = str(error)
    return _as_they_were(held, order), unreadable


@kernel
def _as_they_were(held: Table, order: Ints) -> Table:
    """Headers that come in this order of the players, in the players' own."""
    headers = np.empty_like(held)
    for i in range(len(order)):
        headers[order[i]] = held[i]
    return headers


def classified(cohort: Cohort, headers: Table, accepted: Flags) -> tuple[Cohort, Cohort, Table]:
    """Step 5: rounds to scatter, rounds that were scattered, and the former's priors, for which
    `headers` are overwritten."""
    offsets = np.array([each.offset for each in cohort.rounds], np.int64)
    known, scattered = _classified(headers, accepted, offsets, cohort.sizes)
    chosen = known & ~scattered
    ready = cohort.those(chosen)
    priors = headers if ready is cohort else headers[cohort.per_player(chosen)]
    return ready, cohort.those(known & scattered), priors


@kernel
def _classified(headers: Table, accepted: Flags, offsets: Ints, sizes: Ints) -> tuple[Flags, Flags]:
    """By round whether all its priors count, and whether a belief tells that it was scattered.

    What a belief holds of this very round is replaced by what it remembers from before it.
    """
    known, scattered = np.ones(len(sizes), np.bool_), np.zeros(len(sizes), np.bool_)
    i = 0
    for r in range(len(sizes)):
        for _ in range(sizes[r]):
            belief = headers[i]
            known[r] &= accepted[i]
            if belief.version != 0:
                scattered[r] |= belief.last > offsets[r]
                if belief.last == offsets[r]:
                    belief.mu, belief.sigma = belief.previous_mu, belief.previous_sigma
                    belief.time = belief.previous_time
                    belief.rounds -= 1
            i += 1
    return known, scattered


def estimate(cohort: Cohort, priors: Table) -> Part:
    """All rows as one part; `priors` in the order of the rows."""
    numbers: dict[int, int] = {}
    law = [numbers.setdefault(id(each.rating), len(numbers)) for each in cohort.rounds]
    laws: list[Law] = []
    place = np.empty(len(priors), np.int32)
    evidence = np.empty((len(priors), parts.EVIDENCE_COLUMNS))
    for number in numbers.values():
        chosen = np.array(law) == number
        mine = cohort.those(chosen)
        rows = slice(None) if mine is cohort else cohort.per_player(chosen)
        rating, own = mine.rounds[0].rating, priors[rows]
        laws.append(systems.law_of(rating))
        _rate_newcomers(own, laws[number].initial_mu, laws[number].initial_sigma)
        wave = wave_of([each.standings for each in mine.rounds], own)
        place[rows] = np.repeat(wave.place, np.diff(wave.entry_starts))
        evidence[rows] = systems.estimate(rating, wave)
    return Part(
        laws=laws,
        rounds=list(map(_round_in_part, cohort.rounds, law)),
        round_index=cohort.per_player(np.arange(len(cohort.rounds))),
        place=place,
        evidence=evidence,
        names=Names(cohort.names),
    )


@kernel
def _rate_newcomers(priors: Table, mu: float, sigma: float) -> None:
    """The initial rating where there is no belief yet: what else stage 1 looks at is zero there."""
    for i in range(len(priors)):
        if priors[i].version == 0:
            priors[i].mu, priors[i].sigma = mu, sigma


def _round_in_part(pending: Pending, law: int) -> RoundInPart:
    standings = pending.standings
    return RoundInPart(
        offset=pending.offset,
        law=law,
        time=standings.time,
        round_id=standings.round_id,
        ladder=standings.ladder,
        completed_at=standings.completed_at,
        trace=pending.trace,
    )


def messages(part: Part, cohort: Cohort, most_rows: int) -> list[tuple[int, bytes]]:
    """The part's rows, the cohort's, by shard, as (shard, message) of at most so many rows."""
    order, by_shard = cohort.by_shard
    shards, cuts = list[int](), list[int]()
    for shard, where in by_shard:
        ends = [*range(where.start + most_rows, where.stop, most_rows), where.stop]
        shards += [shard] * len(ends)
        cuts += ends
    return list(zip(shards, parts.encode_pieces(part, order, cuts), strict=True))


def part_ends(messages: Sequence[tuple[int, bytes]], offsets: Sequence[int]) -> dict[int, int]:
    """By shard the offset after the last of its messages, which were sent and have these."""
    ends: dict[int, int] = {}
    for (shard, _), offset in zip(messages, offsets, strict=True):
        ends[shard] = max(ends.get(shard, 0), offset + 1)
    return ends


def traced(rounds: Sequence[Pending]) -> Iterator[Traced]:
    """Those that carry a trace."""
    for each in rounds:
        if each.trace is not None:
            told = each.standings
            yield Traced(each.trace, told.ladder, told.round_id, each.partition, each.offset)
