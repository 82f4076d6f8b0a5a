"""The rounds that were read and not yet sent, as columns. This module also chooses the next wave.

A round may be rated now if it shares no player with an earlier unfinished round.

The rounds of a ladder form a partial order: a round comes after every earlier round that has one of
its players. It is enough for a round to wait for the latest earlier round of each of its players,
because that earlier round has waited for the rounds before it. Adding or finishing a round takes a
few steps for each player, no matter how many rounds wait.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_map import NOTHING, Fingerprints, PlayerMap
from stream_rater.pipeline.estimator.estimation import PendingRounds, distinct

BLOCK = 2000
"""The most players in a block. New rounds are merged into the last block while it stays within this
size; otherwise they begin another block. So no row is copied often."""
CANDIDATES_AT_ONCE = 1000  # The number of candidate rounds that are examined in one call.

LAST = -1  # Marks the end of a list of links.
COMPACT_AFTER = 1000
"""Finished rounds are dropped once they are more than this many, and more than the others."""

NO_SIZES, NO_FINGERPRINTS = np.empty(0, np.int64), np.empty(0, np.uint64)


class Backlog:
    """The backlog of one estimator, whose waves have at most `wave_players` players."""

    def __init__(self, wave_players: int) -> None:
        self._wave_players = wave_players
        self._graph = RoundGraph()
        self._blocks: list[PendingRounds] = []  # Pending rounds in blocks, by rising ticket.
        self._finished_players = 0
        """The number of players in the blocks that belong to finished rounds."""
        self.issued = 0  # The number of tickets that were issued.
        self.waiting = 0
        """The number of players in all unfinished rounds. An oversize round counts as
        `wave_players`, the number of its players that are in memory at a time."""
        self._waiting_of: Counter[int] = Counter()  # The number of these players by partition.
        self.oversize = 0  # The number of unfinished rounds that are larger than a wave.

    def __len__(self) -> int:
        return len(self._graph)

    def add(self, pending: PendingRounds) -> None:
        """Append rounds, and give them the next tickets."""
        if not len(pending):
            return
        pending.tickets = np.arange(self.issued, self.issued + len(pending))
        self.issued += len(pending)
        self._insert(pending)

    def _insert(self, pending: PendingRounds) -> None:
        self._graph.add(pending.tickets, pending.sizes, pending.fingerprints)
        self._count(pending, 1)
        self._append(pending)

    def _append(self, pending: PendingRounds) -> None:
        if self._blocks and self._blocks[-1].count + pending.count <= BLOCK:
            pending = PendingRounds.concat([self._blocks.pop(), pending])
        self._blocks.append(pending)

    def _count(self, pending: PendingRounds, sign: int) -> None:
        players = np.minimum(pending.sizes, self._wave_players)
        self.waiting += sign * int(players.sum())
        partitions, which = distinct(pending.partitions)
        for number, partition in enumerate(partitions):
            self._waiting_of[partition] += sign * int(players[which == number].sum())
        self.oversize += sign * int(np.count_nonzero(pending.sizes > self._wave_players))

    def wave(
        self, eligible: Callable[[Ints], Ints], ready: Callable[[Fingerprints, Ints], Flags]
    ) -> PendingRounds:
        """Choose the next wave: candidates in order of their tickets, up to `wave_players` players
        in all. `eligible` returns those of the given tickets that may be in a wave. `ready` takes
        players and the number of players of each round, and returns for each round whether all its
        players are ready."""
        candidates, chosen, room = self._graph.candidates(), [NO_SIZES], self._wave_players
        for first in range(0, len(candidates), CANDIDATES_AT_ONCE):
            batch = eligible(candidates[first : first + CANDIDATES_AT_ONCE])
            sizes = self.sizes(batch)
            is_ready = ready(self.players(batch), sizes)
            batch, ends = batch[is_ready], np.cumsum(sizes[is_ready])
            count = int(np.searchsorted(ends, room, "right"))
            chosen.append(batch[:count])
            if count < len(batch):
                break
            room -= int(ends[-1]) if count else 0
        return self.take(np.concatenate(chosen))

    def _blocks_with(self, tickets: Ints) -> Iterator[tuple[PendingRounds, Ints]]:
        """Yield the blocks that contain rounds with these tickets, each with the places of these
        rounds in it. The tickets must rise."""
        ends = np.searchsorted(tickets, [each.tickets[-1] for each in self._blocks], "right")
        for block, (first, last) in zip(self._blocks, pairwise([0, *ends.tolist()]), strict=True):
            if last > first:
                yield block, np.searchsorted(block.tickets, tickets[first:last])

    def sizes(self, tickets: Ints) -> Ints:
        """(R,) the number of players of each round. The tickets must rise."""
        found = [block.sizes[places] for block, places in self._blocks_with(tickets)]
        return np.concatenate([NO_SIZES, *found])

    def players(self, tickets: Ints) -> Fingerprints:
        """(P,) the players of the rounds with these tickets, which must rise, round by round."""
        found = [block.players(places) for block, places in self._blocks_with(tickets)]
        return np.concatenate([NO_FINGERPRINTS, *found])

    def take(self, tickets: Ints) -> PendingRounds:
        """The rounds with these tickets. The tickets must rise."""
        return PendingRounds.concat([block.take(at) for block, at in self._blocks_with(tickets)])

    def with_at_least(self, players: int) -> frozenset[int]:
        """The partitions in whose unfinished rounds at least so many players wait, and not none."""
        return frozenset(p for p, count in self._waiting_of.items() if count >= max(players, 1))

    def contains(self, tickets: Ints) -> Flags:
        """(R,) whether each of these rounds is in the backlog and unfinished."""
        return self._graph.contains(tickets)

    def finish(self, pending: PendingRounds) -> None:
        """Remove these rounds because nothing is left to do for them. They must be candidates."""
        self._graph.finish(pending.tickets, pending.sizes, pending.fingerprints)
        self._count(pending, -1)
        self._finished_players += pending.count
        stored = sum(each.count for each in self._blocks)
        if self._finished_players == stored:
            self._blocks, self._finished_players = [], 0
        elif self._finished_players > max(BLOCK, stored // 2):
            self._compact()

    def _compact(self) -> None:
        """Drop the rows of finished rounds."""
        blocks, self._blocks, self._finished_players = self._blocks, [], 0
        for block in blocks:
            left = block.take(np.flatnonzero(self.contains(block.tickets)))
            if len(left):
                self._append(left)

    def drop(self, partitions: Collection[int]) -> None:
        """Drop the rounds of these partitions. The other rounds keep their tickets."""
        self._compact()
        blocks, self._blocks = self._blocks, []
        self._graph, self.waiting, self.oversize = RoundGraph(), 0, 0
        self._waiting_of.clear()
        for block in blocks:
            kept = block.take(np.flatnonzero(~np.isin(block.partitions, list(partitions))))
            if len(kept):
                self._insert(kept)


class RoundGraph:
    """The waiting rounds, by ticket: a later round has a higher ticket. Methods take the players of
    rounds as one column, round by round."""

    def __init__(self) -> None:
        self._tickets = NO_SIZES
        """(place,) the tickets, in rising order. Some finished rounds are still among them."""
        self._finished: Flags = np.empty(0, np.bool_)  # (place,) whether the round is finished.
        self._blockers = NO_SIZES
        """(place,) the number of the round's players with an unfinished earlier round."""
        self._latest = PlayerMap()  # The latest unfinished round of each player.
        self._before, self._after = NO_SIZES, NO_SIZES
        """(link,) the places of a round and of a later round that waits for it. There is one link
        for each player whom the two rounds share and who is in no round between them."""
        self._first, self._following = NO_SIZES, NO_SIZES
        """(place,) the first link that starts from the round, and (link,) the next link with the
        same start. LAST stands at the end of a list."""
        self._unfinished = 0

    def __len__(self) -> int:
        """The number of unfinished rounds."""
        return self._unfinished

    def add(self, tickets: Ints, sizes: Ints, players: Fingerprints) -> None:
        """Add rounds, each after all unfinished rounds that were added before it."""
        own_tickets = np.repeat(tickets, sizes)
        earlier = self._latest.put(players, own_tickets)
        waits = (earlier != NOTHING) & (earlier != own_tickets)
        self._tickets = np.append(self._tickets, tickets)
        self._finished = np.append(self._finished, np.zeros(len(tickets), np.bool_))
        self._blockers = np.append(self._blockers, np.zeros(len(tickets), np.int64))
        self._first = np.append(self._first, np.full(len(tickets), LAST))
        self._unfinished += len(tickets)
        before = np.searchsorted(self._tickets, earlier[waits])
        self._link(before, np.searchsorted(self._tickets, own_tickets[waits]))

    def _link(self, before: Ints, after: Ints) -> None:
        links = len(self._before)
        self._before = np.append(self._before, before)
        self._after = np.append(self._after, after)
        self._following = np.append(self._following, np.empty(len(before), np.int64))
        np.add.at(self._blockers, after, 1)
        _append_links(self._first, self._following, self._before, links)

    def candidates(self) -> Ints:
        """The tickets of the rounds that wait for no other round. No two of them share a player."""
        free: Ints = self._tickets[(self._blockers == 0) & ~self._finished]
        return free

    def finish(self, tickets: Ints, sizes: Ints, players: Fingerprints) -> None:
        """Mark candidates as finished. Rounds that waited only for them become candidates."""
        self._latest.forget(players, np.repeat(tickets, sizes))
        done = np.searchsorted(self._tickets, tickets)
        free = (self._blockers[done] == 0) & ~self._finished[done]
        assert free.all(), "only a candidate can be finished"
        _advance(done, self._first, self._following, self._after, self._blockers, self._finished)
        self._unfinished -= len(done)
        if len(self._tickets) - self._unfinished > max(COMPACT_AFTER, self._unfinished):
            self._compact()

    def contains(self, tickets: Ints) -> Flags:
        """(R,) whether each of these rounds was added and is unfinished."""
        left: Flags = np.isin(tickets, self._tickets[~self._finished])
        return left

    def _compact(self) -> None:
        """Drop finished rounds and their links. A round that waits for an unfinished one is
        unfinished, too."""
        left = ~self._finished
        place, linked = np.cumsum(left) - 1, left[self._before]
        before, after = place[self._before[linked]], place[self._after[linked]]
        self._tickets, self._finished = self._tickets[left], self._finished[left]
        self._blockers = np.zeros(self._unfinished, np.int64)
        self._first = np.full(self._unfinished, LAST)
        self._before = self._after = self._following = NO_SIZES
        self._link(before, after)


@kernel
def _append_links(first: Ints, following: Ints, before: Ints, links: int) -> None:
    """Insert each link from `links` on into the list of the round that it starts from."""
    for link in range(links, len(before)):
        following[link] = first[before[link]]
        first[before[link]] = link


@kernel
def _advance(
    done: Ints, first: Ints, following: Ints, after: Ints, blockers: Ints, finished: Flags
) -> None:
    for place in done:
        finished[place] = True
        link = first[place]
        while link != LAST:
            blockers[after[link]] -= 1
            link = following[link]
