"""Which rounds may be rated now: those that share no player with an earlier one still waiting.

Rounds of one ladder form a partial order: a round comes after every earlier one with a player of
its own. Each player has a queue of rounds; a round whose players all stand first in their queues is
a candidate. Adding and finishing a round costs a few steps per player, whatever else waits.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence


class Waves:
    """Rounds in the order they came, as keys with their players."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[Hashable]] = {}
        self._players: dict[Hashable, Sequence[Hashable]] = {}
        self._behind: dict[Hashable, int] = {}
        """How many players of a round still have an earlier one before it."""
        self._free: dict[Hashable, None] = {}
        """Rounds that are behind none, in the order they became so."""

    def __len__(self) -> int:
        return len(self._players)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._players

    def add(self, key: Hashable, players: Sequence[Hashable]) -> None:
        """A round comes after all that were added before it and not finished."""
        behind = 0
        for player in players:
            queue = self._queues.get(player)
            if queue is None:
                self._queues[player] = queue = deque()
            behind += bool(queue)
            queue.append(key)
        self._players[key] = players
        if behind:
            self._behind[key] = behind
        else:
            self._free[key] = None

    def candidates(self) -> Iterator[Hashable]:
        """Rounds that no earlier one blocks; they share no player with each other."""
        return iter(self._free)

    def finish(self, keys: Iterable[Hashable]) -> None:
        """These candidates are done: whoever waited only for them is free."""
        for key in keys:
            assert key in self._free, "only a candidate can be finished"
            del self._free[key]
            for player in self._players.pop(key):
                self._advance(player)

    def _advance(self, player: Hashable) -> None:
        queue = self._queues[player]
        queue.popleft()
        if not queue:
            del self._queues[player]
            return
        follower = queue[0]
        self._behind[follower] -= 1
        if self._behind[follower] == 0:
            del self._behind[follower]
            self._free[follower] = None
