"""A wave's rounds and priors in, parts out: the pure half of stage 1's state machine.

Rounds of several ladders share a wave; those of one configuration are estimated in one call. What a
round's evidence is does not depend on the rounds beside it, so that a predecessor's half-sent wave
and its successor's, cut otherwise, agree bit for bit.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, compress

import msgspec
import numpy as np
import numpy.typing as npt

from stream_rater.columns import wave_of
from stream_rater.names import LaidOut, Names, spread, together
from stream_rater.pipeline import marks, parts
from stream_rater.pipeline.marks import Fingerprints, Flags
from stream_rater.pipeline.observer import Traced
from stream_rater.pipeline.parts import Part, RoundInPart
from stream_rater.pipeline.ports import Player, Record
from stream_rater.pipeline.roster import Roster
from stream_rater.rating import systems
from stream_rater.rating.compiled import kernel
from stream_rater.rating.model import Ints, Table, newcomers
from stream_rater.rating.parameters import RatingConfig
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
        self.starts = np.cumsum(self.sizes) - self.sizes

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
        told: Ints = np.repeat(column, self.sizes)
        return told

    def rows(self, indices: Sequence[int]) -> Ints:
        """The rows of the players of these rounds, which are given in order."""
        return spread(self.starts[indices], self.sizes[indices])

    def those(self, chosen: Flags) -> "Cohort":
        """Of the rounds only these."""
        return self if chosen.all() else Cohort(list(compress(self.rounds, chosen.tolist())))


def asked(cohort: Cohort) -> dict[int, Sequence[Player]]:
    """The cohort's players by shard, in its order."""
    order, cuts = cohort.by_shard
    ladders: dict[str, int] = {}
    numbers = [ladders.setdefault(each.standings.ladder, len(ladders)) for each in cohort.rounds]
    everybody = Roster(list(ladders), cohort.per_player(numbers)[order], cohort.names.rows(order))
    return {shard: everybody[where] for shard, where in cuts}


def by_shard(cohort: Cohort) -> dict[int, Fingerprints]:
    """The same, as fingerprints."""
    order, cuts = cohort.by_shard
    players = cohort.fingerprints[order]
    return {shard: players[where] for shard, where in cuts}


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
    groups: dict[int, list[int]] = {}
    for i, each in enumerate(cohort.rounds):
        groups.setdefault(id(each.rating), []).append(i)
    law = np.empty(len(cohort.rounds), np.int64)
    laws: list[Law] = []
    evidence = np.empty((len(priors), parts.EVIDENCE_COLUMNS))
    for number, indices in enumerate(groups.values()):
        law[indices] = number
        mine, rows = [cohort.rounds[i] for i in indices], cohort.rows(indices)
        laws.append(systems.law_of(mine[0].rating))
        own = priors if len(groups) == 1 else priors[rows]
        known = _with_newcomers(own, laws[number])
        wave = wave_of([each.standings for each in mine], known)
        evidence[rows] = systems.estimate(mine[0].rating, wave)
    return Part(
        laws=laws,
        rounds=list(map(_round_in_part, cohort.rounds, law.tolist())),
        round_index=cohort.per_player(np.arange(len(cohort.rounds))),
        place=np.concatenate([each.standings.player_places() for each in cohort.rounds]),
        evidence=evidence,
        names=Names(cohort.names),
    )


def _with_newcomers(priors: Table, law: Law) -> Table:
    """Priors with the initial rating where there is no belief yet."""
    fresh = newcomers(1, 0, law.initial_mu, law.initial_sigma)
    priors[priors["version"] == 0] = fresh.header
    return priors


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


def messages(part: Part, cohort: Cohort, most_rows: int) -> Iterator[tuple[int, bytes]]:
    """The part's rows, the cohort's, by shard, as (shard, message) of at most so many rows."""
    order, cuts = cohort.by_shard
    index, place, evidence = part.round_index[order], part.place[order], part.evidence[order]
    names = part.names.rows(order)
    for shard, where in cuts:
        for start in range(where.start, where.stop, most_rows):
            rows = slice(start, min(start + most_rows, where.stop))
            numbers, round_index = _counted(index[rows])
            chunk = Part(
                laws=part.laws,
                rounds=[part.rounds[i] for i in numbers.tolist()],
                round_index=round_index,
                place=place[rows],
                evidence=evidence[rows],
                names=names.some(rows.start, rows.stop),
            )
            yield shard, parts.encode(chunk)


@kernel
def _counted(index: Ints) -> tuple[Ints, Ints]:
    """The different ones among numbers that never fall, and of each number which of those it is."""
    different, which = np.empty(len(index), np.int64), np.empty(len(index), np.int64)
    count = 0
    for i in range(len(index)):
        if i == 0 or index[i] != index[i - 1]:
            different[count] = index[i]
            count += 1
        which[i] = count - 1
    return different[:count], which


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
