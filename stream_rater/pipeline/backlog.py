"""Rounds that are read and not yet scattered, as columns, and which of them may go."""

from collections.abc import Callable, Collection, Iterator
from itertools import pairwise

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_map import Fingerprints
from stream_rater.pipeline.estimation import PendingRounds
from stream_rater.pipeline.waves import Waves

BLOCK = 2000
"""Players that are held together: what comes is added to fewer, and begins another block
otherwise, so that nobody is moved often."""
LOOKED_AT = 1000
"""Rounds whose players are looked up in one call."""

NO_SIZES, NOBODY = np.empty(0, np.int64), np.empty(0, np.uint64)


class Backlog:
    """Of one estimator, whose waves have at most so many players."""

    def __init__(self, wave_players: int) -> None:
        self._wave_players = wave_players
        self._waves = Waves()
        self._blocks: list[PendingRounds] = []
        """In order of their tickets."""
        self._dead = 0
        """Players in them whose rounds are finished."""
        self._issued = 0
        """Tickets."""
        self.waiting = 0
        """Players of all rounds; of one larger than a wave as many as are in hand at a time."""
        self.oversize = 0
        """How many rounds are larger than a wave."""

    def __len__(self) -> int:
        return len(self._waves)

    def add(self, pending: PendingRounds) -> None:
        """Rounds that come after all that are there."""
        if not len(pending):
            return
        pending.tickets = np.arange(self._issued, self._issued + len(pending))
        self._issued += len(pending)
        self._enter(pending)

    def _enter(self, pending: PendingRounds) -> None:
        self._waves.add(pending.tickets, pending.sizes, pending.fingerprints)
        self._count(pending, 1)
        self._hold(pending)

    def _hold(self, pending: PendingRounds) -> None:
        if self._blocks and self._blocks[-1].count + pending.count <= BLOCK:
            pending = PendingRounds.concat([self._blocks.pop(), pending])
        self._blocks.append(pending)

    def _count(self, pending: PendingRounds, more: int) -> None:
        self.waiting += more * int(np.minimum(pending.sizes, self._wave_players).sum())
        self.oversize += more * int(np.count_nonzero(pending.sizes > self._wave_players))

    def wave(
        self, fitting: Callable[[Ints], Ints], ready: Callable[[Fingerprints, Ints], Flags]
    ) -> PendingRounds:
        """Rounds that no earlier one blocks, in the order they came, up to a wave's players: of
        tickets the fitting ones, and of these whose players, so many of each, are ready."""
        candidates, chosen, room = self._waves.candidates(), [NO_SIZES], self._wave_players
        for first in range(0, len(candidates), LOOKED_AT):
            some = fitting(candidates[first : first + LOOKED_AT])
            sizes = self.sizes(some)
            can = ready(self.players(some), sizes)
            some, ends = some[can], np.cumsum(sizes[can])
            count = int(np.searchsorted(ends, room, "right"))
            chosen.append(some[:count])
            if count < len(some):
                break
            room -= int(ends[-1]) if count else 0
        return self.take(np.concatenate(chosen))

    def _found(self, tickets: Ints) -> Iterator[tuple[PendingRounds, Ints]]:
        """Blocks, and the places in them, of rounds whose tickets rise."""
        ends = np.searchsorted(tickets, [each.tickets[-1] for each in self._blocks], "right")
        for block, (first, last) in zip(self._blocks, pairwise([0, *ends.tolist()]), strict=True):
            if last > first:
                yield block, np.searchsorted(block.tickets, tickets[first:last])

    def sizes(self, tickets: Ints) -> Ints:
        """How many players each has; of rounds whose tickets rise, as below."""
        found = [block.sizes[places] for block, places in self._found(tickets)]
        return np.concatenate([NO_SIZES, *found])

    def players(self, tickets: Ints) -> Fingerprints:
        """(P,) theirs, in a row."""
        found = [block.players(places) for block, places in self._found(tickets)]
        return np.concatenate([NOBODY, *found])

    def take(self, tickets: Ints) -> PendingRounds:
        """The rounds with these tickets, which rise."""
        return PendingRounds.concat([block.take(at) for block, at in self._found(tickets)])

    def have(self, tickets: Ints) -> Flags:
        """Which of these are not finished."""
        return self._waves.have(tickets)

    def finish(self, pending: PendingRounds) -> None:
        """These candidates are done."""
        self._waves.finish(pending.tickets, pending.sizes, pending.fingerprints)
        self._count(pending, -1)
        self._dead += pending.count
        held = sum(each.count for each in self._blocks)
        if self._dead == held:
            self._blocks, self._dead = [], 0
        elif self._dead > max(BLOCK, held // 2):
            self._tidy()

    def _tidy(self) -> None:
        """Forget the players of rounds that are finished."""
        blocks, self._blocks, self._dead = self._blocks, [], 0
        for block in blocks:
            left = block.take(np.flatnonzero(self.have(block.tickets)))
            if len(left):
                self._hold(left)

    def drop(self, partitions: Collection[int]) -> None:
        """Forget the rounds of these; the others keep their tickets."""
        self._tidy()
        blocks, self._blocks = self._blocks, []
        self._waves, self.waiting, self.oversize = Waves(), 0, 0
        for block in blocks:
            kept = block.take(np.flatnonzero(~np.isin(block.partitions, list(partitions))))
            if len(kept):
                self._enter(kept)
