"""Which rounds may be rated now: those that share no player with an earlier one still waiting.

Rounds of one ladder form a partial order: a round comes after every earlier one with a player of
its own. It is enough to wait for the latest of each player's: those before it have waited for each
other. Adding and finishing a round costs a few steps per player, whatever else waits.
"""

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_map import NOTHING, Fingerprints, Marks

LAST = -1
"""Where no other link follows."""
TIDY = 1000
"""Rounds that are finished may be held for so long; or as many as those that are not."""

_NONE = np.empty(0, np.int64)


@kernel
def _hang(first: Ints, following: Ints, before: Ints, links: int) -> None:
    """Hang each link from `links` on before the others of the round that it starts from."""
    for link in range(links, len(before)):
        following[link] = first[before[link]]
        first[before[link]] = link


@kernel
def _advance(
    done: Ints, first: Ints, following: Ints, after: Ints, behind: Ints, finished: Flags
) -> None:
    for place in done:
        finished[place] = True
        link = first[place]
        while link != LAST:
            behind[after[link]] -= 1
            link = following[link]


class Waves:
    """Rounds by ticket: whoever comes later has a higher one. Their players come beside them, so
    many of each round, all in a row."""

    def __init__(self) -> None:
        self._tickets = _NONE
        """By place, rising; of some finished rounds, too."""
        self._finished: Flags = np.empty(0, np.bool_)
        """By place."""
        self._behind = _NONE
        """By place, how many of its players still have an earlier round before it."""
        self._latest = Marks()
        """By player the latest round that is not finished."""
        self._before, self._after = _NONE, _NONE
        """By link the places of a round and of one that waits for it: a link for each player who
        goes on from the one to the other."""
        self._first, self._following = _NONE, _NONE
        """By place one of the links from it; by link another of the same place; or LAST."""
        self._left = 0

    def __len__(self) -> int:
        """How many are not finished."""
        return self._left

    def _places(self, tickets: Ints) -> Ints:
        places: Ints = np.searchsorted(self._tickets, tickets)
        return places

    def add(self, tickets: Ints, sizes: Ints, players: Fingerprints) -> None:
        """Each round comes after all that were added before it and are not finished."""
        own = np.repeat(tickets, sizes)
        earlier = self._latest.note(players, own)
        waits = (earlier != NOTHING) & (earlier != own)
        self._tickets = np.append(self._tickets, tickets)
        self._finished = np.append(self._finished, np.zeros(len(tickets), np.bool_))
        self._behind = np.append(self._behind, np.zeros(len(tickets), np.int64))
        self._first = np.append(self._first, np.full(len(tickets), LAST))
        self._left += len(tickets)
        self._link(self._places(earlier[waits]), self._places(own[waits]))

    def _link(self, before: Ints, after: Ints) -> None:
        links = len(self._before)
        self._before = np.append(self._before, before)
        self._after = np.append(self._after, after)
        self._following = np.append(self._following, np.empty(len(before), np.int64))
        np.add.at(self._behind, after, 1)
        _hang(self._first, self._following, self._before, links)

    def candidates(self) -> Ints:
        """Rounds that no earlier one blocks, by ticket; they share no player with each other."""
        free: Ints = self._tickets[(self._behind == 0) & ~self._finished]
        return free

    def finish(self, tickets: Ints, sizes: Ints, players: Fingerprints) -> None:
        """These candidates are done: whoever waited only for them is free."""
        self._latest.forget(players, np.repeat(tickets, sizes))
        done = self._places(tickets)
        free = (self._behind[done] == 0) & ~self._finished[done]
        assert free.all(), "only a candidate can be finished"
        _advance(done, self._first, self._following, self._after, self._behind, self._finished)
        self._left -= len(done)
        if len(self._tickets) - self._left > max(TIDY, self._left):
            self._tidy()

    def have(self, tickets: Ints) -> Flags:
        """Which of these were added and are not finished."""
        left: Flags = np.isin(tickets, self._tickets[~self._finished])
        return left

    def _tidy(self) -> None:
        """Forget the finished. Whoever waits for one that is not, is not finished, either."""
        left = ~self._finished
        place, linked = np.cumsum(left) - 1, left[self._before]
        before, after = place[self._before[linked]], place[self._after[linked]]
        self._tickets, self._finished = self._tickets[left], self._finished[left]
        self._behind = np.zeros(self._left, np.int64)
        self._first = np.full(self._left, LAST)
        self._before = self._after = self._following = _NONE
        self._link(before, after)
