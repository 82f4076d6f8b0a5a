"""How far the store has come, as an estimator sees it: which priors it may use (steps 1, 4 to 6).

A prior must hold every earlier round of its player. Positions alone say whether it does: the store
is the fold of a shard's parts before `applied`, so what matters is where the parts end.

- floor[s]: no prior of shard s counts while `applied` is below. It begins at the end of the parts
  at take-over, which covers whatever predecessors sent, and rises with every `applied` that
  counted, so that a store that went back is not believed until it has caught up again.
- await[player]: where the part of the player's last round ends. Once `applied` is that far, and
  counts, the await is forgotten: the floor has risen past it.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_map import NOTHING, Fingerprints, Marks, shards_in


class Progress:
    """Floors of all shards, and the awaits of players with parts in flight."""

    def __init__(self, shards: int) -> None:
        self._floor = [0] * shards
        self._awaits = Marks()
        self._in_flight: list[deque[tuple[int, Fingerprints]]] = [deque() for _ in range(shards)]
        """By shard, where parts end that were not seen applied, rising, and who is in them."""
        self._behind: set[int] = set()
        """Shards last seen below their floor."""
        self._refused: dict[int, float] = {}
        """Shards whose beliefs cannot be read, and until when not to try again."""
        self.moved = True
        """Whether players may be ready who were not; to be set back by who has looked."""

    def __len__(self) -> int:
        """How many players have a part in flight."""
        return len(self._awaits)

    def take_over(self, ends: Sequence[int]) -> None:
        """Step 1: nothing counts before all parts that there are now have been applied."""
        for shard, end in enumerate(ends):
            if end > self._floor[shard]:
                self._floor[shard] = end
                self._behind.add(shard)

    def accept(self, shard: int, applied: int) -> bool:
        """Step 4: whether what was read together with this `applied` counts."""
        if applied < self._floor[shard]:
            self._behind.add(shard)
            return False
        self._floor[shard] = applied
        self.moved = self.moved or shard in self._behind
        self._behind.discard(shard)
        self._forget_awaits(shard, applied)
        return shard not in self._refused

    def _forget_awaits(self, shard: int, applied: int) -> None:
        in_flight = self._in_flight[shard]
        while in_flight and in_flight[0][0] <= applied:
            end, players = in_flight.popleft()
            self.moved = True
            self._awaits.forget(players, np.full(len(players), end))  # unless a later round's

    def sent(self, ends: Mapping[int, int], players: Mapping[int, Fingerprints]) -> None:
        """Step 6: these players' parts, before these ends, are in the log; all of it by shard."""
        for shard, sent in players.items():
            self._in_flight[shard].append((ends[shard], sent))
        together = np.concatenate(list(players.values()))
        sizes = [len(sent) for sent in players.values()]
        until = np.array([ends[shard] for shard in players])
        self._awaits.note(together, np.repeat(until, sizes))

    def has_reached(self, ends: Mapping[int, int]) -> bool:
        """Whether the store was seen to be so far, in each of these shards."""
        return all(
            self._floor[shard] >= end and shard not in self._behind for shard, end in ends.items()
        )

    def ready(self, players: Fingerprints, sizes: Ints) -> Flags:
        """(R,) whether the priors of the players of each round, so many of each, would count, as
        far as we have seen."""
        if not len(sizes):
            return np.empty(0, np.bool_)
        not_yet = self._awaits.find(players) != NOTHING
        if closed := self._behind | self._refused.keys():
            not_yet |= np.isin(shards_in(players), list(closed))
        ready: Flags = ~np.logical_or.reduceat(not_yet, np.cumsum(sizes) - sizes)
        return ready

    def waiting(self) -> list[int]:
        """Shards whose `applied` would tell news."""
        return [s for s, parts in enumerate(self._in_flight) if parts or s in self._behind]

    def refuse(self, shard: int, until_s: float) -> None:
        """A belief in this shard cannot be read: count none of them for a while."""
        self._refused[shard] = until_s

    def retry(self, now_s: float) -> None:
        """Shards that were refused long enough may be read again."""
        due = [shard for shard, until_s in self._refused.items() if until_s <= now_s]
        for shard in due:
            del self._refused[shard]
        self.moved = self.moved or bool(due)


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent at once."""

    ends: Mapping[int, int]
    """Where its parts end, by shard."""
    players: int
    sent_s: float


class Ahead:
    """What is in the log and was not seen wholly applied, in order; each piece counts for so long
    at most, or the updater of one shard would hold up what the others have to do."""

    def __init__(self, progress: Progress, longest_s: float = math.inf) -> None:
        self._progress = progress
        self._longest_s = longest_s
        self._pieces: deque[Sent] = deque()

    def sent(
        self, ends: Mapping[int, int], players: Mapping[int, Fingerprints], now_s: float
    ) -> None:
        """One more, of which the progress is to know, too."""
        self._progress.sent(ends, players)
        own = {shard: ends[shard] for shard in players}
        self._pieces.append(Sent(own, sum(map(len, players.values())), now_s))

    def has(self, pieces: int, players: int, now_s: float) -> bool:
        """Whether so many count, with so many players in all."""
        while self._pieces and self._is_over(self._pieces[0], now_s):
            self._pieces.popleft()
        waiting = sum(each.players for each in self._pieces)
        return len(self._pieces) >= pieces and waiting >= players

    def _is_over(self, piece: Sent, now_s: float) -> bool:
        late = now_s - piece.sent_s > self._longest_s
        return late or self._progress.has_reached(piece.ends)
