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
from stream_rater.rating.systems import RatingRule
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.decoder import DecodedRounds


def distinct(numbers: Ints) -> tuple[list[int], Ints]:
    """The different ones among small numbers, and which of these each is."""
    if len(numbers) and (numbers == numbers[0]).all():
        return [int(numbers[0])], np.zeros(len(numbers), np.int64)
    which = np.bincount(numbers) > 0
    return np.flatnonzero(which).tolist(), (np.cumsum(which) - 1)[numbers]


class PendingRounds:
    """R valid rounds that go through the steps together, and all their P players in a row."""

    def __init__(
        self, rounds: RoundBatch, rule: Ints, partitions: Ints, offsets: Ints,
        traces: Sequence[Trace | None], fingerprints: Fingerprints, tickets: Ints,
    ) -> None:  # fmt: skip
        """(R,) by which of the intake's ratings each is rated, where it was read, what trace it
        carried; (P,) fingerprints; (R,) tickets by which they wait, once they do."""
        self.rounds = rounds
        self.rule = rule
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
        """(P,) the value of each player's round."""
        values: Ints = np.repeat(np.asarray(column), self.sizes)
        return values

    def players(self, places: Ints) -> Fingerprints:
        """Those of the rounds in these places."""
        return self.fingerprints[spread(bounds(self.sizes)[places], self.sizes[places])]

    def take(self, places: Ints) -> "PendingRounds":
        """The rounds in these places, which rise."""
        if len(places) == len(self):
            return self
        if not len(places):
            return NO_ROUNDS
        return PendingRounds(
            self.rounds.take(places), self.rule[places], self.partitions[places],
            self.offsets[places], [self.traces[i] for i in places.tolist()],
            self.players(places), self.tickets[places],
        )  # fmt: skip

    def slice(self, first: int, last: int) -> "PendingRounds":
        """Of a single round the players from `first` to before `last`, as if they were the round;
        its entries are left out."""
        last = min(last, self.count)
        rounds = msgspec.structs.replace(
            self.rounds, sizes=np.array([last - first]), names=self.rounds.names.slice(first, last)
        )
        return PendingRounds(
            rounds, self.rule, self.partitions, self.offsets, self.traces,
            self.fingerprints[first:last], self.tickets,
        )  # fmt: skip

    @classmethod
    def concat(cls, some: Sequence["PendingRounds"]) -> "PendingRounds":
        """The rounds of all these in turn."""
        if len(some) == 1:
            return some[0]
        return cls(
            RoundBatch.concat([each.rounds for each in some]),
            np.concatenate([_NONE, *(each.rule for each in some)]),
            np.concatenate([_NONE, *(each.partitions for each in some)]),
            np.concatenate([_NONE, *(each.offsets for each in some)]),
            [trace for each in some for trace in each.traces],
            np.concatenate([_NOBODY, *(each.fingerprints for each in some)]),
            np.concatenate([_NONE, *(each.tickets for each in some)]),
        )


def pending_rounds(records: Sequence[Record], decoded: DecodedRounds, shards: int) -> PendingRounds:
    """The rounds that were decoded from these records, one from each; none has a ticket yet."""
    found, sizes = decoded.rounds, decoded.rounds.sizes
    ladders = [head.ladder for head in found.heads]
    return PendingRounds(
        found,
        decoded.rule,
        np.array([each.partition for each in records], np.int64),
        np.array([each.offset for each in records], np.int64),
        [trace_of(each.headers) for each in records],
        player_map.fingerprints(found.names, ladders, sizes, shards),
        np.full(len(found), player_map.NOTHING),
    )


_NONE, _NOBODY = np.empty(0, np.int64), np.empty(0, np.uint64)
NO_ROUNDS = PendingRounds.concat([])


def asked(pending: PendingRounds) -> dict[int, Sequence[Player]]:
    """The players of these rounds by shard, in the rounds' order."""
    order, cuts = pending.by_shard
    everybody = pending.rounds.players().take(order)
    return {shard: everybody[where] for shard, where in cuts}


def by_shard(pending: PendingRounds) -> dict[int, Fingerprints]:
    """The same, as fingerprints."""
    order, cuts = pending.by_shard
    players = pending.fingerprints[order]
    return {shard: players[where] for shard, where in cuts}


def headers_of(pending: PendingRounds, read: Mapping[int, Priors]) -> tuple[Table, dict[int, str]]:
    """(P,) headers of the rounds' players, from what each shard's were read; and why those of a
    shard cannot be understood: then they are zeros."""
    order, cuts = pending.by_shard
    found = [read[shard].headers for shard, _ in cuts]
    sizes = [record.HEADER_SIZE * (where.stop - where.start) for _, where in cuts]
    if list(map(len, found)) == sizes:
        with suppress(UnknownRecord):
            return _as_they_were(record.read_headers(b"".join(found)), order), {}
    held, unreadable = np.zeros(len(order), HEADER), dict[int, str]()
    for (shard, where), each in zip(cuts, found, strict=True):
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


def classified(
    pending: PendingRounds, headers: Table, accepted: Flags
) -> tuple[PendingRounds, PendingRounds, Table]:
    """Step 5: rounds to scatter, rounds that were scattered, and the former's priors, for which
    `headers` are overwritten."""
    known, scattered = _classified(headers, accepted, pending.offsets, pending.sizes)
    chosen = known & ~scattered
    ready = pending.take(np.flatnonzero(chosen))
    priors = headers if ready is pending else headers[pending.per_player(chosen)]
    return ready, pending.take(np.flatnonzero(known & scattered)), priors


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


def estimate(
    pending: PendingRounds, priors: Table, ratings: Sequence[RatingConfig], shards: int
) -> Part:
    """All rows as one part, to be cut for so many shards; `priors` in the order of the rows,
    `ratings` by the number of a rule."""
    numbers, rule = distinct(pending.rule)
    rules: list[RatingRule] = []
    place = np.empty(len(priors), np.int32)
    evidence = np.empty((len(priors), schema.EVIDENCE_COLUMNS))
    for number, rating in enumerate([ratings[i] for i in numbers]):
        chosen = rule == number
        mine = pending.take(np.flatnonzero(chosen))
        rows = slice(None) if mine is pending else pending.per_player(chosen)
        own = priors[rows]
        rules.append(systems.rule_of(rating))
        _rate_newcomers(own, rules[number].initial_mu, rules[number].initial_sigma)
        place[rows] = np.repeat(mine.rounds.place, mine.rounds.members)
        evidence[rows] = systems.estimate(rating, mine.rounds.wave(own))
    return Part(
        rules=rules,
        rounds=_rounds_in_part(pending, rule),
        round_index=pending.per_player(np.arange(len(pending))),
        place=place,
        evidence=evidence,
        names=pending.rounds.names,
        shards=shards,
    )


@kernel
def _rate_newcomers(priors: Table, mu: float, sigma: float) -> None:
    """The initial rating where there is no belief yet: what else stage 1 looks at is zero there."""
    for i in range(len(priors)):
        if priors[i].version == 0:
            priors[i].mu, priors[i].sigma = mu, sigma


def _rounds_in_part(pending: PendingRounds, rule: Ints) -> list[RoundInPart]:
    columns = pending.offsets.tolist(), rule.tolist(), pending.rounds.time.tolist()
    return [
        RoundInPart(offset, rule, time, head.round_id, head.ladder, head.completed_at, trace)
        for head, trace, offset, rule, time in zip(
            pending.rounds.heads, pending.traces, *columns, strict=True
        )
    ]


def messages(part: Part, pending: PendingRounds, most_rows: int) -> list[tuple[int, bytes]]:
    """The part's rows by shard, as (shard, message) of at most so many rows."""
    order, by_shard = pending.by_shard
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


def traced(pending: PendingRounds) -> Iterator[Traced]:
    """The rounds that carry a trace."""
    places = zip(pending.partitions.tolist(), pending.offsets.tolist(), strict=True)
    for head, trace, place in zip(pending.rounds.heads, pending.traces, places, strict=True):
        if trace is not None:
            yield Traced(trace, head.ladder, head.round_id, *place)
