"""Which rounds may be rated now: those that share no player with an earlier one still waiting.

Rounds of one ladder form a partial order: a round comes after every earlier one with a player of
its own. It is enough to wait for the latest of each player's: those before it have waited for each
other. Adding and finishing a round costs a few steps per player, whatever else waits.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence


class Waves:
    """Rounds in the order they came, as keys with their players."""

    def __init__(self) -> None:
        self._latest: dict[Hashable, Hashable] = {}
        """By player the latest round that is not finished."""
        self._players: dict[Hashable, Sequence[Hashable]] = {}
        self._followers: dict[Hashable, list[Hashable]] = {}
        """By round those that wait for it, once for each player who goes on to them."""
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
        latest = self._latest
        before = [latest[player] for player in players if player in latest]
        latest.update(dict.fromkeys(players, key))
        self._players[key] = players
        for each in before:
            self._followers.setdefault(each, []).append(key)
        if before:
            self._behind[key] = len(before)
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
            latest = self._latest
            for player in self._players.pop(key):
                if latest[player] == key:
                    del latest[player]
            for follower in self._followers.pop(key, ()):
                self._advance(follower)

    def _advance(self, follower: Hashable) -> None:
        self._behind[follower] -= 1
        if self._behind[follower] == 0:
            del self._behind[follower]
            self._free[follower] = None
