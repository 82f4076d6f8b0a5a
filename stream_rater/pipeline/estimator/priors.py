"""Reads the priors of rounds from the store, and decides which of them count (steps 4 and 5).

A player whose belief is cached (`BeliefCache`) is not read. If other rounds wait for many players
of a small wave, whole records are read, so that the beliefs after the wave can be cached. If a
belief in a shard cannot be read, the shard is refused for some seconds, and rounds with a player in
it wait.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_map import NOTHING, Fingerprints, PlayerMap, shards_in
from stream_rater.contract.record import Player
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.estimation import PendingRounds, posteriors
from stream_rater.pipeline.estimator.progress import Progress
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import NO_PLAYERS, Priors, ReadBeliefs, ReadPriors, Step, ask
from stream_rater.rating.model import HEADER, Table
from stream_rater.rating.record import HEADER_SIZE, UnknownRecord, read_headers

NO_HEADER = bytes(HEADER_SIZE)
NO_ROWS = np.empty(0, np.int64)

FEW_PLAYERS, MANY_WAIT = 2000, 0.25
"""The beliefs after a wave are cached if it has no more players than this, and another round waits
for at least this share of them. Reading and computing beliefs costs more than reading headers. A
larger wave shows that there is enough other work until the store has applied its parts."""

MOST_CACHED = 50_000
"""When more beliefs than this are cached, those that the store has are dropped."""


class PriorsRead(NamedTuple):
    """The priors of P players."""

    headers: Table
    """(P,) the headers of their beliefs."""
    usable: Flags
    """(P,) whether each player's prior counts."""
    records: Mapping[int, bytes | None] = {}
    """By row, the whole records of the players for whom another round waits; None where there is no
    belief yet."""

    def records_at(self, rows: Ints | slice) -> dict[int, bytes | None]:
        """The records of those players who are in `rows`, by their number among these rows."""
        if not self.records:
            return {}
        numbers = enumerate(np.arange(len(self.headers))[rows].tolist())
        return {i: self.records[row] for i, row in numbers if row in self.records}


class CachedBelief(NamedTuple):
    """A player's belief after the last round that was sent."""

    player: Player
    record: bytes


class BeliefCache:
    """Beliefs that the estimator computes itself, before the store has applied their last round. If
    players share a fingerprint, only the last of them is cached.

    All rounds of a ladder pass through one estimator, and a belief is rated nowhere else. So once
    all parts of a round are acknowledged, the estimator knows the records that the store will have:
    it computes stage 2 by the same kernels. A round whose players' beliefs are cached need not wait
    for the updaters.

    A player's belief is cached only if another round waits for the player. A cached belief is a
    record as the store will have it, with the player's ladder and id: a fingerprint only selects
    the entry, and ladder and id are compared.
    """

    def __init__(self) -> None:
        self._beliefs: dict[int, CachedBelief] = {}
        """The cached beliefs, by fingerprint."""
        self._fingerprints = PlayerMap()
        """The fingerprints of the cached beliefs, in a form that is fast to search."""

    def __len__(self) -> int:
        return len(self._beliefs)

    def may_contain(self, players: Fingerprints) -> Flags:
        """(P,) whether a belief is cached for a player with this fingerprint."""
        if not self._beliefs:
            return np.zeros(len(players), np.bool_)
        found: Flags = self._fingerprints.find(players) != NOTHING
        return found

    def records(self, players: Sequence[Player], fingerprints: Fingerprints) -> list[bytes | None]:
        """The record of each player's belief; None where it is not cached."""
        found = map(self._beliefs.get, fingerprints.tolist())
        each = zip(players, found, strict=True)
        return [
            cached.record if cached and cached.player == player else None for player, cached in each
        ]

    def sent(self, pending: PendingRounds, part: Part, records: Mapping[int, bytes | None]) -> None:
        """Cache beliefs after rounds that were sent. `records` has the records before these rounds
        of the players to cache, by their number among the rounds' players."""
        rows = np.array(list(records), np.int64)
        try:
            after = posteriors(part, pending, rows, list(records.values()))
        except UnknownRecord:  # the updater refuses the shard and reports the reason
            return
        players = pending.rounds.players().take(rows)
        self.put(list(players), pending.fingerprints[rows], after)

    def put(
        self, players: Sequence[Player], fingerprints: Fingerprints, records: Sequence[bytes]
    ) -> None:
        """Cache these beliefs."""
        beliefs = map(CachedBelief, players, records)
        self._beliefs.update(zip(fingerprints.tolist(), beliefs, strict=True))
        self._fingerprints.put(fingerprints, np.zeros(len(fingerprints), np.int64))

    def drop(self, players: Fingerprints) -> None:
        """Drop the beliefs of the players with these fingerprints."""
        cached = players[self.may_contain(players)]
        for fingerprint in cached.tolist():
            self._beliefs.pop(fingerprint, None)
        self._fingerprints.forget(cached, np.zeros(len(cached), np.int64))

    def trim(self, is_pending: Callable[[Fingerprints], Flags]) -> None:
        """If more than MOST beliefs are cached, drop those of players without pending parts: the
        store has them."""
        if len(self._beliefs) > MOST_CACHED:
            fingerprints = np.array(list(self._beliefs), np.uint64)
            self.drop(fingerprints[~is_pending(fingerprints)])


class PriorReader:
    """Reads priors for one estimator. It reports shards that are refused, and shards that are
    readable again."""

    def __init__(self, shards: int, observer: Observer) -> None:
        self._shards = shards
        self._observer = observer
        self._refused: set[int] = set()
        """The shards whose beliefs could not be read the last time."""

    def read(
        self, pending: PendingRounds, progress: Progress, refused_until_s: float
    ) -> Step[PriorsRead]:
        """Read all priors of the rounds' players from the store.

        A shard whose headers cannot be read is refused until `refused_until_s`.
        """
        order, cuts = pending.by_shard
        players = pending.rounds.players().take(order)
        read = yield from ask(ReadPriors({shard: players[where] for shard, where in cuts}))
        usable = _accept(read, progress)
        headers, unreadable = estimation.headers_of(pending, read)
        self._report_unreadable(read, unreadable, progress, refused_until_s)
        counts = np.zeros(self._shards, np.bool_)
        counts[list(usable - unreadable.keys())] = True
        return PriorsRead(headers, counts[shards_in(pending.fingerprints)])

    def read_with_cache(
        self, pending: PendingRounds, cache: BeliefCache, cache_rows: Ints, progress: Progress,
        refused_until_s: float,
    ) -> Step[PriorsRead]:  # fmt: skip
        """Read all priors of the rounds' players, from the cache where they are in it, and else
        from the store.

        `cache_rows` has the rows of the players whose whole records are returned, too.
        """
        may_contain = cache.may_contain(pending.fingerprints)
        if not (may_contain.any() or len(cache_rows)):
            return (yield from self.read(pending, progress, refused_until_s))
        players, found = pending.rounds.players(), _FoundPriors(pending)
        at = np.flatnonzero(may_contain)
        found.take_cached(at, cache.records(players.take(at), pending.fingerprints[at]))
        # A round gets into the wave despite a player's pending part only if fingerprints collide.
        has_pending_part = progress.has_pending_part(pending.fingerprints) & ~found.is_cached
        rows = found.not_cached()
        to_read = dict.fromkeys(progress.shards_to_read(), NO_PLAYERS)
        to_read |= {shard: players.take(own) for shard, own in rows.items()}
        if to_read:
            beliefs = yield from ask(ReadBeliefs(to_read))
            applied = {shard: each.position.applied for shard, each in beliefs.items()}
            found.refuse([s for s, at in applied.items() if not progress.accept(s, at)])
            for shard, own in rows.items():
                found.take(shard, own, beliefs[shard].records)
        self._report_unreadable(to_read, found.unreadable, progress, refused_until_s)
        found.refuse(progress.closed_shards())
        records = {row: found.records[row] for row in cache_rows.tolist()}
        return PriorsRead(found.headers, found.usable & ~has_pending_part, records)

    def _report_unreadable(
        self, read_shards: Collection[int], unreadable: Mapping[int, str], progress: Progress,
        until_s: float,
    ) -> None:  # fmt: skip
        for shard, reason in unreadable.items():
            progress.refuse(shard, until_s)
            self._refused.add(shard)
            self._observer.shard_refused(shard, reason)
        for shard in self._refused.intersection(read_shards) - unreadable.keys():
            self._refused.remove(shard)
            self._observer.shard_opened(shard)


class _FoundPriors:
    """The priors of P players that were found so far."""

    def __init__(self, pending: PendingRounds) -> None:
        count = pending.count
        self._pending = pending
        self.headers: Table = np.zeros(count, HEADER)
        self.records: list[bytes | None] = [None] * count
        self.is_cached: Flags = np.zeros(count, np.bool_)
        """(P,) whether the belief is cached."""
        self.usable: Flags = np.ones(count, np.bool_)
        self.unreadable: dict[int, str] = {}
        """By shard, why a belief in it cannot be read."""

    def take_cached(self, rows: Ints, records: Sequence[bytes | None]) -> None:
        """Add the cached records of the players in these rows; None stands for a record that is not
        cached."""
        known = [record for record in records if record is not None]
        cached = rows[np.array([record is not None for record in records], np.bool_)]
        self.is_cached[cached] = True
        self.headers[cached] = read_headers(_headers(known))
        for row, record in zip(cached.tolist(), known, strict=True):
            self.records[row] = record

    def not_cached(self) -> dict[int, Ints]:
        """By shard, the rows of the players whose beliefs are not cached."""
        order, cuts = self._pending.by_shard
        chosen = {shard: order[where][~self.is_cached[order[where]]] for shard, where in cuts}
        return {shard: own for shard, own in chosen.items() if len(own)}

    def take(self, shard: int, rows: Ints, records: Sequence[bytes | None]) -> None:
        """Add the records that the store has of the players in these rows, all of one shard."""
        try:
            self.headers[rows] = read_headers(_headers(records))
        except UnknownRecord as error:
            self.unreadable[shard] = str(error)
        for row, record in zip(rows.tolist(), records, strict=True):
            self.records[row] = record

    def refuse(self, shards: Collection[int]) -> None:
        """Accept no prior of these shards."""
        if shards:
            self.usable &= ~np.isin(shards_in(self._pending.fingerprints), list(shards))


def _headers(records: Sequence[bytes | None]) -> bytes:
    return b"".join([NO_HEADER if each is None else each[:HEADER_SIZE] for each in records])


def read_positions(progress: Progress) -> Step[None]:
    """Read `applied`, and no priors, of the shards where it may have moved."""
    if shards_to_read := progress.shards_to_read():
        _accept((yield from ask(ReadPriors(dict.fromkeys(shards_to_read, NO_PLAYERS)))), progress)


def _accept(read: Mapping[int, Priors], progress: Progress) -> set[int]:
    """Step 4: the shards whose `applied` is not below their floor."""
    return {s for s, priors in read.items() if progress.accept(s, priors.applied)}
