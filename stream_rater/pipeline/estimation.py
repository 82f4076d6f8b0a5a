"""A wave's rounds and priors in, parts out: the pure half of stage 1's state machine.

Rounds of several ladders share a wave; those of one configuration are estimated in one call. What a
round's evidence is does not depend on the rounds beside it, so that a predecessor's half-sent wave
and its successor's, cut otherwise, agree bit for bit.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from stream_rater.columns import player_map
from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.ranges import bounds, spread
from stream_rater.columns.strings import Names
from stream_rater.contract.record import Player, Record
from stream_rater.contract.tracecontext import Trace, trace_of
from stream_rater.parts import schema
from stream_rater.parts.schema import Part, RoundInPart
from stream_rater.pipeline.observer import Traced
from stream_rater.pipeline.ports import Priors
from stream_rater.rating import record, systems
from stream_rater.rating.model import HEADER, Table
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.record import UnknownRecord
from stream_rater.rating.systems import Law
from stream_rater.rounds import batch
from stream_rater.rounds.batch import Rounds
from stream_rater.rounds.decoder import Heard


def distinct(numbers: Ints) -> tuple[list[int], Ints]:
    """The different ones among small numbers, and which of these each is."""
    if len(numbers) and (numbers == numbers[0]).all():
        return [int(numbers[0])], np.zeros(len(numbers), np.int64)
    which = np.bincount(numbers) > 0
    return np.flatnonzero(which).tolist(), (np.cumsum(which) - 1)[numbers]


class Cohort:
    """R valid rounds that go through the steps together, and all their P players in a row."""

    def __init__(
        self, rounds: Rounds, law: Ints, partitions: Ints, offsets: Ints,
        traces: Sequence[Trace | None], fingerprints: Fingerprints, tickets: Ints,
    ) -> None:  # fmt: skip
        """(R,) by which of the intake's ratings each is rated, where it was read, what trace it
        carried; (P,) fingerprints; (R,) tickets by which they wait, once they do."""
        self.rounds = rounds
        self.law = law
        self.partitions = partitions
        self.offsets = offsets
        self.traces = traces
        self.fingerprints = fingerprints
        self.tickets = tickets

    def __len__(self) -> int:
        return len(self.rounds)

    @property
    def sizes(self) -> Ints:
        """(R,) how many players each has."""
        return self.rounds.sizes

    @property
    def count(self) -> int:
        """How many players all have."""
        return len(self.fingerprints)

    @cached_property
    def by_shard(self) -> tuple[Ints, list[tuple[int, slice]]]:
        """An order of the players by shard, and each shard with where in that order they are."""
        return player_map.by_shard(self.fingerprints)

    def per_player(self, column: npt.ArrayLike) -> Ints:
        """(P,) what is told of each round."""
        told: Ints = np.repeat(np.asarray(column), self.sizes)
        return told

    def players(self, places: Ints) -> Fingerprints:
        """Those of the rounds in these places."""
        return self.fingerprints[spread(bounds(self.sizes)[places], self.sizes[places])]

    def rows(self, places: Ints) -> "Cohort":
        """The rounds in these places, which rise."""
        if len(places) == len(self):
            return self
        if not len(places):
            return NO_ROUNDS
        return Cohort(
            self.rounds.rows(places), self.law[places], self.partitions[places],
            self.offsets[places], [self.traces[i] for i in places.tolist()],
            self.players(places), self.tickets[places],
        )  # fmt: skip

    def those(self, chosen: Flags) -> "Cohort":
        """Of the rounds only these."""
        return self if chosen.all() else self.rows(np.flatnonzero(chosen))

    def piece(self, first: int, last: int) -> "Cohort":
        """Some players of a single round, as if they were the round; its entries are left out."""
        some = slice(first, min(last, self.count))
        rounds = msgspec.structs.replace(
            self.rounds, sizes=np.array([some.stop - first]), names=self.rounds.names.some(some)
        )
        return Cohort(
            rounds, self.law, self.partitions, self.offsets, self.traces,
            self.fingerprints[some], self.tickets,
        )  # fmt: skip


def joined(some: Sequence[Cohort]) -> Cohort:
    """All of these, one after the other."""
    if len(some) == 1:
        return some[0]
    return Cohort(
        batch.joined([each.rounds for each in some]),
        np.concatenate([_NONE, *(each.law for each in some)]),
        np.concatenate([_NONE, *(each.partitions for each in some)]),
        np.concatenate([_NONE, *(each.offsets for each in some)]),
        [trace for each in some for trace in each.traces],
        np.concatenate([_NOBODY, *(each.fingerprints for each in some)]),
        np.concatenate([_NONE, *(each.tickets for each in some)]),
    )


def pending(records: Sequence[Record], heard: Heard, shards: int) -> Cohort:
    """Rounds as heard in records of which each has one; nobody has a ticket yet."""
    found, sizes = heard.rounds, heard.rounds.sizes
    ladders = [told.ladder for told in found.told]
    return Cohort(
        found,
        heard.law,
        np.array([each.partition for each in records], np.int64),
        np.array([each.offset for each in records], np.int64),
        [trace_of(each.headers) for each in records],
        player_map.fingerprints(found.names, ladders, sizes, shards),
        np.full(len(found), player_map.NOTHING),
    )


_NONE, _NOBODY = np.empty(0, np.int64), np.empty(0, np.uint64)
NO_ROUNDS = joined([])


def asked(cohort: Cohort) -> dict[int, Sequence[Player]]:
    """The cohort's players by shard, in its order."""
    order, cuts = cohort.by_shard
    everybody = cohort.rounds.players().rows(order)
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
    known, scattered = _classified(headers, accepted, cohort.offsets, cohort.sizes)
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


def estimate(cohort: Cohort, priors: Table, ratings: Sequence[RatingConfig], shards: int) -> Part:
    """All rows as one part, to be cut for so many shards; `priors` in the order of the rows,
    `ratings` by the number of a law."""
    numbers, law = distinct(cohort.law)
    laws: list[Law] = []
    place = np.empty(len(priors), np.int32)
    evidence = np.empty((len(priors), schema.EVIDENCE_COLUMNS))
    for number, rating in enumerate([ratings[i] for i in numbers]):
        chosen = law == number
        mine = cohort.those(chosen)
        rows = slice(None) if mine is cohort else cohort.per_player(chosen)
        own = priors[rows]
        laws.append(systems.law_of(rating))
        _rate_newcomers(own, laws[number].initial_mu, laws[number].initial_sigma)
        place[rows] = np.repeat(mine.rounds.place, mine.rounds.members)
        evidence[rows] = systems.estimate(rating, mine.rounds.wave(own))
    return Part(
        laws=laws,
        rounds=_rounds_in_part(cohort, law),
        round_index=cohort.per_player(np.arange(len(cohort))),
        place=place,
        evidence=evidence,
        names=Names(cohort.rounds.names),
        shards=shards,
    )


@kernel
def _rate_newcomers(priors: Table, mu: float, sigma: float) -> None:
    """The initial rating where there is no belief yet: what else stage 1 looks at is zero there."""
    for i in range(len(priors)):
        if priors[i].version == 0:
            priors[i].mu, priors[i].sigma = mu, sigma


def _rounds_in_part(cohort: Cohort, law: Ints) -> list[RoundInPart]:
    columns = cohort.offsets.tolist(), law.tolist(), cohort.rounds.time.tolist()
    return [
        RoundInPart(offset, law, time, told.round_id, told.ladder, told.completed_at, trace)
        for told, trace, offset, law, time in zip(
            cohort.rounds.told, cohort.traces, *columns, strict=True
        )
    ]


def messages(part: Part, cohort: Cohort, most_rows: int) -> list[tuple[int, bytes]]:
    """The part's rows, the cohort's, by shard, as (shard, message) of at most so many rows."""
    order, by_shard = cohort.by_shard
    shards, cuts = list[int](), list[int]()
    for shard, where in by_shard:
        ends = [*range(where.start + most_rows, where.stop, most_rows), where.stop]
        shards += [shard] * len(ends)
        cuts += ends
    return list(zip(shards, schema.encode_pieces(part, order, cuts), strict=True))


def part_ends(messages: Sequence[tuple[int, bytes]], offsets: Sequence[int]) -> dict[int, int]:
    """By shard the offset after the last of its messages, which were sent and have these."""
    ends: dict[int, int] = {}
    for (shard, _), offset in zip(messages, offsets, strict=True):
        ends[shard] = max(ends.get(shard, 0), offset + 1)
    return ends


def traced(cohort: Cohort) -> Iterator[Traced]:
    """The rounds that carry a trace."""
    places = zip(cohort.partitions.tolist(), cohort.offsets.tolist(), strict=True)
    for told, trace, place in zip(cohort.rounds.told, cohort.traces, places, strict=True):
        if trace is not None:
            yield Traced(trace, told.ladder, told.round_id, *place)
