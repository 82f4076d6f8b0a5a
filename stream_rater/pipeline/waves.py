"""Which rounds may be rated now: those that share no player with an earlier one still waiting.

Rounds of one ladder form a partial order: a round comes after every earlier one with a player of
its own. It is enough to wait for the latest of each player's: those before it have waited for each
other. Adding and finishing a round costs a few steps per player, whatever else waits.
"""

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from stream_rater.pipeline.marks import NOTHING, Fingerprints, Marks
from stream_rater.rating.model import Ints


class Numbered(Protocol):
    """A round, by its number: which none has had before it, whatever the order."""

    @property
    def number(self) -> int:
        """Not below 0."""


R = TypeVar("R", bound=Numbered)


class Waves(Generic[R]):
    """Rounds in the order they came. Their players come beside them, all in a row: (P,) each
    player, and (P,) the number of the player's round.
    """

    def __init__(self) -> None:
        self._rounds: dict[int, R] = {}
        """Those that are not finished."""
        self._latest = Marks()
        """By player the latest round that is not finished."""
        self._followers: dict[int, list[int]] = {}
        """By round those that wait for it, once for each player who goes on to them."""
        self._behind: dict[int, int] = {}
        """How many players of a round still have an earlier one before it."""
        self._free: dict[int, R] = {}
        """Rounds that are behind none, in the order they became so."""

    def __len__(self) -> int:
        return len(self._rounds)

    def __iter__(self) -> Iterator[R]:
        """In the order they came."""
        return iter(self._rounds.values())

    def __contains__(self, number: int) -> bool:
        return number in self._rounds

    def add(self, rounds: Sequence[R], players: Fingerprints, numbers: Ints) -> None:
        """Each round comes after all that were added before it and are not finished."""
        added = {each.number: each for each in rounds}
        self._rounds.update(added)
        self._free.update(added)
        before = self._latest.note(players, numbers)
        waits = (before != NOTHING) & (before != numbers)
        for number, earlier in zip(numbers[waits].tolist(), before[waits].tolist(), strict=True):
            self._free.pop(number, None)
            self._followers.setdefault(earlier, []).append(number)
            self._behind[number] = self._behind.get(number, 0) + 1

    def candidates(self) -> Iterator[R]:
        """Rounds that no earlier one blocks; they share no player with each other."""
        return iter(self._free.values())

    def finish(self, rounds: Sequence[R], players: Fingerprints, numbers: Ints) -> None:
        """These candidates are done: whoever waited only for them is free."""
        self._latest.forget(players, numbers)
        for each in rounds:
            number = each.number
            assert number in self._free, "only a candidate can be finished"
            del self._free[number], self._rounds[number]
            for follower in self._followers.pop(number, ()):
                self._advance(follower)

    def _advance(self, follower: int) -> None:
        self._behind[follower] -= 1
        if self._behind[follower] == 0:
            del self._behind[follower]
            self._free[follower] = self._rounds[follower]
