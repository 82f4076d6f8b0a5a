"""Which rounds may be rated now: those that share no player with an earlier one still waiting.

Rounds of one ladder form a partial order: a round comes after every earlier one with a player of
its own. It is enough to wait for the latest of each player's: those before it have waited for each
other. Adding and finishing a round costs a few steps per player, whatever else waits.
"""

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np

from stream_rater.pipeline.marks import NOTHING, Fingerprints, Marks


class Waves:
    """Rounds in the order they came, as keys with their players."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self._numbers: dict[Hashable, int] = {}
        """Of the rounds that are not finished, rising as they came."""
        self._keys: dict[int, Hashable] = {}
        self._players: dict[int, Fingerprints] = {}
        self._latest = Marks()
        """By player the latest round that is not finished."""
        self._followers: dict[int, list[int]] = {}
        """By round those that wait for it, once for each player who goes on to them."""
        self._behind: dict[int, int] = {}
        """How many players of a round still have an earlier one before it."""
        self._free: dict[int, None] = {}
        """Rounds that are behind none, in the order they became so."""

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._numbers

    def add(self, keys: Sequence[Hashable], players: Sequence[Fingerprints]) -> None:
        """Each round comes after all that were added before it and are not finished."""
        if not keys:
            return
        numbers = list(itertools.islice(self._count, len(keys)))
        self._numbers.update(zip(keys, numbers, strict=True))
        self._keys.update(zip(numbers, keys, strict=True))
        self._players.update(zip(numbers, players, strict=True))
        self._free.update(dict.fromkeys(numbers))
        each, before = self._take_turns(numbers, players)
        for number, earlier in zip(each, before, strict=True):
            self._free.pop(number, None)
            self._followers.setdefault(earlier, []).append(number)
            self._behind[number] = self._behind.get(number, 0) + 1

    def _take_turns(
        self, numbers: Sequence[int], players: Sequence[Fingerprints]
    ) -> tuple[list[int], list[int]]:
        """Each round that has one before it, once a player, and that one."""
        rows = np.repeat(numbers, [len(each) for each in players])
        before = self._latest.note(np.concatenate(players), rows)
        waits = (before != NOTHING) & (before != rows)
        return rows[waits].tolist(), before[waits].tolist()

    def candidates(self) -> Iterator[Hashable]:
        """Rounds that no earlier one blocks; they share no player with each other."""
        return map(self._keys.__getitem__, self._free)

    def finish(self, keys: Iterable[Hashable]) -> None:
        """These candidates are done: whoever waited only for them is free."""
        numbers = [self._numbers.pop(key) for key in keys]
        if not numbers:
            return
        assert self._free.keys() >= set(numbers), "only a candidate can be finished"
        players = [self._players.pop(number) for number in numbers]
        rows = np.repeat(numbers, [len(each) for each in players])
        self._latest.forget(np.concatenate(players), rows)
        for number in numbers:
            del self._free[number], self._keys[number]
            for follower in self._followers.pop(number, ()):
                self._advance(follower)

    def _advance(self, follower: int) -> None:
        self._behind[follower] -= 1
        if self._behind[follower] == 0:
            del self._behind[follower]
            self._free[follower] = None
