"""The pure functions of stage 1's state machine, which make parts from a wave's rounds and priors.

A wave may have rounds of several ladders. Its rounds with the same configuration are estimated in
one call. The evidence of a round does not depend on the other rounds of the wave. So a successor
whose waves differ from those of its predecessor produces the same bits.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from msgspec import structs

from stream_rater.columns import player_map
from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.errors import UnratedRound
from stream_rater.contract.record import Record, Trace, trace_of
from stream_rater.pipeline.observer import Traced
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import Priors
from stream_rater.pipeline.updater import changes
from stream_rater.rating import record, stages
from stream_rater.rating.model import BEGAN, HEADER, Beliefs, Evidence, Table
from stream_rater.rating.parameters import RatingConfig, Season
from stream_rater.rating.record import UnknownRecord
from stream_rater.rating.seasons import draw_headers
from stream_rater.rating.stages import RatingRule
from stream_rater.rounds import batch
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.ragged import Ragged, rows_of

KERNEL_ERRORS = (ArithmeticError, ValueError, MemoryError)
"""What a kernel raises that cannot compute the evidence of a round."""

SeasonsOf = Callable[[str, int], tuple[Season, ...]]
"""A function of a ladder and an offset. It returns the seasons of the ladder that started before a
round at this offset, in order."""

RuleKey = tuple[int, tuple[Season, ...]]
"""What rounds must have in common to be estimated in one call: the number of their configuration,
and the seasons that have started."""


def no_seasons(_: str, __: int) -> tuple[Season, ...]:
    """The SeasonsOf where no season has started on any ladder."""
    return ()


def distinct(numbers: Ints) -> tuple[list[int], Ints]:
    """The distinct values of small numbers of at least 0, rising, and (n,) each number's index."""
    if len(numbers) and (numbers == numbers[0]).all():
        return [int(numbers[0])], np.zeros(len(numbers), np.int64)
    which = np.bincount(numbers) > 0
    return np.flatnonzero(which).tolist(), (np.cumsum(which) - 1)[numbers]


class PendingRounds(Ragged, gc=True, dict=True):
    """R valid rounds that pass through the steps together, with all their P players, round by
    round. Rounds are taken in rising order."""

    per_player: ClassVar = ("fingerprints",)

    rounds: RoundBatch
    partitions: Ints  # (R,) the partition that each round was read from.
    offsets: Ints  # (R,) the offset that each round was read at.
    arrived_s: Floats  # (R,) when the log received each round, Unix seconds.
    traces: Sequence[Trace | None]  # (R,) the trace context of each round.
    fingerprints: Fingerprints  # (P,) the fingerprints of the players.
    tickets: Ints  # (R,) each round's ticket in the backlog, once it has one.

    @property
    def sizes(self) -> Ints:
        """(R,) the number of players of each round."""
        return self.rounds.sizes

    @property
    def count(self) -> int:
        """The number of players of all rounds, P."""
        return len(self.fingerprints)

    @cached_property
    def by_shard(self) -> tuple[Ints, list[tuple[int, slice]]]:
        """An order of the players by shard, and the slice of each shard in that order."""
        return player_map.by_shard(self.fingerprints)

    def for_each_player(self, column: npt.ArrayLike) -> Ints:
        """(P,) a column with one value for each round, repeated for each of the round's players."""
        repeated: Ints = np.repeat(np.asarray(column), self.sizes)
        return repeated

    def players(self, places: Ints) -> Fingerprints:
        """The fingerprints of the players of the rounds at these places."""
        return self.fingerprints[rows_of(self.sizes, places)]

    def take(self, rounds: Ints) -> Self:
        """The rounds at these places, which must rise."""
        if len(rounds) == len(self):
            return self
        empty: Self = self.empty
        return super().take(rounds) if len(rounds) else empty

    def piece(self, first: int, last: int) -> "PendingRounds":
        """A single round reduced to the players [first, last), without entries. This object must
        have one round."""
        last = min(last, self.count)
        rounds = structs.replace(
            self.rounds, sizes=np.array([last - first]), names=self.rounds.names.slice(first, last)
        )
        return structs.replace(self, rounds=rounds, fingerprints=self.fingerprints[first:last])


def pending_rounds(records: Sequence[Record], rounds: RoundBatch, shards: int) -> PendingRounds:
    """Make pending rounds, without tickets, from decoded rounds and the record of each round."""
    ladders = [head.ladder for head in rounds.heads]
    return PendingRounds(
        rounds,
        np.array([each.partition for each in records], np.int64),
        np.array([each.offset for each in records], np.int64),
        np.array([each.received_s for each in records]),
        [trace_of(each.headers) for each in records],
        player_map.fingerprints(rounds.names, ladders, rounds.sizes, shards),
        np.full(len(rounds), player_map.NOTHING),
    )


NO_ROUNDS = PendingRounds(
    batch.NO_ROUNDS, _NONE := np.empty(0, np.int64), _NONE, np.empty(0), [],
    np.empty(0, np.uint64), _NONE,
)  # fmt: skip
PendingRounds.empty = NO_ROUNDS


def fingerprints_by_shard(pending: PendingRounds) -> dict[int, Fingerprints]:
    """The fingerprints of the rounds' players by shard, in the order of the rounds."""
    order, cuts = pending.by_shard
    players = pending.fingerprints[order]
    return {shard: players[where] for shard, where in cuts}


def headers_of(pending: PendingRounds, read: Mapping[int, Priors]) -> tuple[Table, dict[int, str]]:
    """(P,) the headers of the rounds' players, decoded from those that were read from each shard;
    and, by shard, why its headers cannot be decoded. The headers of such a shard are zeros here."""
    order, cuts = pending.by_shard
    encoded = [read[shard].headers for shard, _ in cuts]
    sizes = [record.HEADER_SIZE * (where.stop - where.start) for _, where in cuts]
    if list(map(len, encoded)) == sizes:
        with suppress(UnknownRecord):
            return _to_round_order(record.read_headers(b"".join(encoded)), order), {}
    in_shard_order, unreadable = np.zeros(len(order), HEADER), dict[int, str]()
    for (shard, where), each in zip(cuts, encoded, strict=True):
        try:
            in_shard_order[where] = record.read_headers(each)
        except UnknownRecord as error:
            unreadable[shard] = str(error)
    return _to_round_order(in_shard_order, order), unreadable


@kernel
def _to_round_order(in_shard_order: Table, order: Ints) -> Table:
    """Move headers from the order by shard back to the order of the rounds."""
    headers = np.empty_like(in_shard_order)
    for i in range(len(order)):
        headers[order[i]] = in_shard_order[i]
    return headers


class Classified(NamedTuple):
    """The result of step 5. Rounds with a prior that does not count are in neither group."""

    ready: PendingRounds  # The rounds to send.
    rows: Ints | slice  # The rows of the players of `ready` among the players of all rounds.
    already_sent: PendingRounds  # The rounds that were sent before.


def classified(pending: PendingRounds, headers: Table, usable: Flags) -> Classified:
    """Step 5: split rounds into those to send and those that were sent before. Where a belief
    already includes its round, the header is overwritten by the prior that the belief remembers."""
    all_usable, already_sent = _classified(headers, usable, pending.offsets, pending.sizes)
    chosen = all_usable & ~already_sent
    ready = pending.take(np.flatnonzero(chosen))
    rows = slice(None) if ready is pending else np.flatnonzero(pending.for_each_player(chosen))
    return Classified(ready, rows, pending.take(np.flatnonzero(all_usable & already_sent)))


@kernel
def _classified(headers: Table, usable: Flags, offsets: Ints, sizes: Ints) -> tuple[Flags, Flags]:
    """(R,) whether all priors of a round count, and (R,) whether a belief shows that the round was
    sent. Where a belief already includes this very round, its header is overwritten by the
    remembered prior."""
    all_usable, already_sent = np.ones(len(sizes), np.bool_), np.zeros(len(sizes), np.bool_)
    i = 0
    for r in range(len(sizes)):
        for _ in range(sizes[r]):
            belief = headers[i]
            all_usable[r] &= usable[i]
            if belief.version != 0:
                already_sent[r] |= belief.last > offsets[r]
                if belief.last == offsets[r]:
                    belief.mu, belief.sigma = belief.previous_mu, belief.previous_sigma
                    belief.time, belief.season = belief.previous_time, belief.previous_season
                    belief.rounds -= 1
            i += 1
    return all_usable, already_sent


def estimate(
    pending: PendingRounds, priors: Table, ratings: Sequence[RatingConfig], shards: int,
    seasons: SeasonsOf = no_seasons,
) -> Part:  # fmt: skip
    """Estimate the rounds. Returns all rows as one part, to be cut for `shards` shards. `priors`
    (P,) in the order of the rows are overwritten by those that stage 1 sees. `ratings` is indexed
    by the number of a configuration. Raises UnratedRound."""
    rule_keys, rule = _rule_keys(pending, seasons)
    rules: list[RatingRule] = []
    place = np.empty(len(priors), np.int32)
    # The columns before BEGAN. A system that has BEGAN adds it below.
    evidence = np.empty((len(priors), BEGAN))
    for number, (of, started) in enumerate(rule_keys):
        rating, chosen = ratings[of], rule == number
        mine = pending.take(np.flatnonzero(chosen))
        rows = slice(None) if mine is pending else pending.for_each_player(chosen)
        own = priors[rows]
        rules.append(stages.rule_of(rating, started))
        _set_initial_ratings(own, rules[number].initial_mu, rules[number].initial_sigma)
        draw_headers(rules[number], own)
        place[rows] = np.repeat(mine.rounds.place, mine.rounds.members)
        found = _evidence(rating, mine, own)
        if found.shape[1] > evidence.shape[1]:
            evidence = np.column_stack((evidence, np.full(len(priors), np.nan)))
        evidence[rows, : found.shape[1]] = found
    heads = pending.rounds.heads
    return Part(
        rules=rules,
        offset=pending.offsets,
        rule=rule,
        time=pending.rounds.time,
        round_id=[each.round_id for each in heads],
        ladder=[each.ladder for each in heads],
        completed_at=[each.completed_at for each in heads],
        trace=pending.traces,
        round_index=pending.for_each_player(np.arange(len(pending))),
        place=place,
        evidence=evidence,
        names=pending.rounds.names,
        shards=shards,
        arrived_s=float(pending.arrived_s.min()),
    )


def _evidence(rating: RatingConfig, pending: PendingRounds, priors: Table) -> Evidence:
    """The evidence of rounds with one configuration. Raises UnratedRound if a kernel fails."""

    def of(rounds: RoundBatch, own: Table) -> Evidence:
        return stages.estimate(rating, rounds.wave(own, config=rating))

    try:
        return of(pending.rounds, priors)
    except KERNEL_ERRORS as error:
        ends = np.cumsum(pending.sizes)
        for number, (end, size) in enumerate(zip(ends, pending.sizes, strict=True)):
            one = pending.take(np.array([number]))
            try:
                of(one.rounds, priors[end - size : end])
            except KERNEL_ERRORS as own_error:
                raise _unrated(rating, one, own_error) from own_error
        raise _unrated(rating, pending, error) from error


def _unrated(rating: RatingConfig, pending: PendingRounds, error: Exception) -> UnratedRound:
    """The error that names the first of these rounds."""
    head, place = pending.rounds.heads[0], (int(pending.partitions[0]), int(pending.offsets[0]))
    system = str(rating.__struct_config__.tag)
    return UnratedRound(head.ladder, head.round_id, place, system, repr(error))


def _rule_keys(pending: PendingRounds, seasons: SeasonsOf) -> tuple[list[RuleKey], Ints]:
    """The kinds of these rounds, and (R,) the index of each round's kind. A call estimates one
    kind."""
    if seasons is no_seasons:
        numbers, rule = distinct(pending.rounds.config_index)
        return [(number, ()) for number in numbers], rule
    places = zip(pending.rounds.heads, pending.offsets.tolist(), strict=True)
    started = [seasons(head.ladder, offset) for head, offset in places]
    rule_keys = dict[RuleKey, int]()
    keys = zip(pending.rounds.config_index.tolist(), started, strict=True)
    rule = np.array([rule_keys.setdefault(key, len(rule_keys)) for key in keys], np.int64)
    return list(rule_keys), rule


@kernel
def _set_initial_ratings(priors: Table, mu: float, sigma: float) -> None:
    """Set the initial rating where there is no belief, or a belief without rounds. Stage 1 reads no
    other field of such a prior."""
    for i in range(len(priors)):
        if priors[i].rounds == 0:
            priors[i].mu, priors[i].sigma = mu, sigma


def posteriors(part: Part, pending: PendingRounds, beliefs: Beliefs) -> StringColumn:
    """(P,) the belief records that the store will have for the rounds' players, once it has applied
    the part. `beliefs` (P,) are those before the part, and are overwritten; a belief that already
    includes its round stays as it is. Raises Unrecordable."""
    rule = pending.for_each_player(part.rule)
    offset = pending.for_each_player(pending.offsets)
    time = pending.for_each_player(pending.rounds.time)
    changes.set_initial(beliefs, part.rules, rule)
    new = np.flatnonzero(beliefs.header["last"] < offset)
    changes.update(beliefs, new, part.rules, rule[new], part.evidence[new], offset[new], time[new])
    data, starts = record.encode_all(beliefs)
    return StringColumn(data, starts[:-1], starts[1:])


def part_ends(messages: Sequence[tuple[int, bytes]], offsets: Sequence[int]) -> dict[int, int]:
    """By shard, the offset after its last message. `offsets` are those of the sent messages."""
    ends: dict[int, int] = {}
    for (shard, _), offset in zip(messages, offsets, strict=True):
        ends[shard] = max(ends.get(shard, 0), offset + 1)
    return ends


def traced(pending: PendingRounds) -> Iterator[Traced]:
    """Yield the rounds that carry a trace context."""
    places = zip(pending.partitions.tolist(), pending.offsets.tolist(), strict=True)
    for head, trace, place in zip(pending.rounds.heads, pending.traces, places, strict=True):
        if trace is not None:
            yield Traced(trace, head.ladder, head.round_id, *place)
