"""A wave's rounds and priors in, parts out: the pure half of stage 1's state machine.

Rounds of several ladders share a wave; those of one configuration are estimated in one call. What a
round's evidence is does not depend on the rounds beside it, so that a predecessor's half-sent wave
and its successor's, cut otherwise, agree bit for bit.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from stream_rater.config import Terms
from stream_rater.pipeline import marks, parts
from stream_rater.pipeline.marks import Fingerprints, Flags
from stream_rater.pipeline.observer import Traced
from stream_rater.pipeline.parts import Part, RoundInPart
from stream_rater.pipeline.ports import Player, Record
from stream_rater.rating import systems
from stream_rater.rating.model import NEVER, Evidence, Ints, Table, newcomers
from stream_rater.rating.systems import Law
from stream_rater.standings import Standings, wave_of
from stream_rater.trace import Trace, trace_of

Key = tuple[int, int]
"""A round, by (partition, offset)."""


class Pending(msgspec.Struct, frozen=True, gc=False):
    """A valid round that is not yet scattered."""

    key: Key
    standings: Standings
    players: list[Player]
    fingerprints: Fingerprints
    """(P,) each player's."""
    trace: Trace | None = None


def pending(rounds: Sequence[tuple[Record, Standings]], shards: int) -> Iterator[Pending]:
    """Rounds as read. All their players' shards are found at once: most rounds are small."""
    players = [(told.ladder, player) for _, told in rounds for player in told.players]
    found, start = marks.fingerprints(players, shards), 0
    for record, standings in rounds:
        end = start + len(standings.players)
        yield Pending(
            key=(record.partition, record.offset),
            standings=standings,
            players=players[start:end],
            fingerprints=found[start:end],
            trace=trace_of(record.headers),
        )
        start = end


def shards_of(rounds: Sequence[Pending]) -> Ints:
    """(P,) of all their players, round by round."""
    return marks.shards_in(np.concatenate([each.fingerprints for each in rounds]))


def classified(
    wave: Sequence[Pending], headers: Table, accepted: Flags
) -> tuple[list[Pending], list[Pending], Table]:
    """Step 5: rounds to scatter, rounds that were scattered, and the former's priors."""
    sizes = [len(pending.players) for pending in wave]
    starts = np.cumsum([0, *sizes[:-1]])
    offset = np.repeat([pending.key[1] for pending in wave], sizes)
    last = np.where(headers["version"] == 0, NEVER, headers["last"])

    known = np.logical_and.reduceat(accepted, starts)
    scattered = np.logical_or.reduceat(last > offset, starts)
    chosen = known & ~scattered
    rows = np.repeat(chosen, sizes)
    return (
        [each for each, yes in zip(wave, chosen, strict=True) if yes],
        [each for each, yes in zip(wave, known & scattered, strict=True) if yes],
        priors_of(headers[rows], (last == offset)[rows]),
    )


def priors_of(headers: Table, again: Flags) -> Table:
    """Step 5: the priors; where a belief already holds this very round, those before it."""
    priors = headers.copy()
    for now, before in (
        ("mu", "previous_mu"), ("sigma", "previous_sigma"), ("time", "previous_time"),
    ):  # fmt: skip
        priors[now] = np.where(again, headers[before], headers[now])
    priors["rounds"] -= again.astype(np.uint32)
    return priors


def estimate(
    rounds: Sequence[Pending], priors: Table, terms: Callable[[str, float], Terms]
) -> tuple[Part, Ints]:
    """All rows of a wave as one part, and each row's shard; `priors` in the order of the rows."""
    groups: dict[int, list[int]] = {}
    ratings = [terms(each.standings.ladder, each.key[1]).rating for each in rounds]
    for i, rating in enumerate(ratings):
        groups.setdefault(id(rating), []).append(i)
    starts = np.cumsum([0, *(len(each.players) for each in rounds)])
    evidence: list[Evidence] = []
    heads: list[RoundInPart] = []
    members: list[Pending] = []
    laws = [systems.law_of(ratings[indices[0]]) for indices in groups.values()]
    for law, indices in enumerate(groups.values()):
        rating = ratings[indices[0]]
        rows = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in indices])
        mine = [rounds[i] for i in indices]
        known = _with_newcomers(priors[rows], laws[law])
        evidence.append(systems.estimate(rating, wave_of([m.standings for m in mine], known)))
        heads += [_round_in_part(each, law) for each in mine]
        members += mine
    part = Part(
        laws=laws,
        rounds=heads,
        round_index=np.repeat(np.arange(len(members)), [len(m.players) for m in members]),
        place=np.concatenate([m.standings.player_places() for m in members]),
        evidence=np.concatenate(evidence),
        players=[player for m in members for player in m.standings.players],
    )
    return part, shards_of(members)


def _with_newcomers(priors: Table, law: Law) -> Table:
    """Priors with the initial rating where there is no belief yet."""
    fresh = newcomers(1, 0, law.initial_mu, law.initial_sigma)
    priors[priors["version"] == 0] = fresh.header
    return priors


def _round_in_part(pending: Pending, law: int) -> RoundInPart:
    standings = pending.standings
    return RoundInPart(
        offset=pending.key[1],
        law=law,
        time=standings.time,
        round_id=standings.round_id,
        ladder=standings.ladder,
        completed_at=standings.completed_at,
        trace=pending.trace,
    )


def messages(part: Part, shards: Ints, most_rows: int) -> Iterator[tuple[int, bytes]]:
    """The part's rows by shard, as (shard, message) of at most so many rows."""
    order = np.argsort(shards, kind="stable")
    bounds = np.flatnonzero(np.diff(shards[order])) + 1
    for rows in np.split(order, bounds):
        for start in range(0, len(rows), most_rows):
            chunk = rows[start : start + most_rows]
            yield int(shards[chunk[0]]), parts.encode(part.slice(chunk))


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
            yield Traced(each.trace, told.ladder, told.round_id, *each.key)


def by_shard(rounds: Sequence[Pending]) -> dict[int, Fingerprints]:
    """The rounds' players, by shard."""
    order, bounds = _grouped(shards_of(rounds))
    players = np.concatenate([each.fingerprints for each in rounds])[order]
    return {shard: players[start:end] for shard, start, end in bounds}


def grouped(rounds: Sequence[Pending]) -> tuple[dict[int, list[Player]], Ints]:
    """The rounds' players by shard, and the order that puts them so."""
    order, bounds = _grouped(shards_of(rounds))
    players = [player for each in rounds for player in each.players]
    ordered = [players[i] for i in order.tolist()]
    return {shard: ordered[start:end] for shard, start, end in bounds}, order


def _grouped(shards: Ints) -> tuple[Ints, list[tuple[int, int, int]]]:
    """An order by shard, and of each shard where it starts and ends in it."""
    order = np.argsort(shards, kind="stable")
    numbers, starts = np.unique(shards[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    return order, list(zip(numbers.tolist(), starts.tolist(), ends, strict=True))
