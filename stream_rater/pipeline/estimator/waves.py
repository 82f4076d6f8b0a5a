"""Finds the rounds that may be rated now: those that share no player with an earlier unfinished
round.

The rounds of a ladder form a partial order: a round comes after every earlier round that has one of
its players. It is enough for a round to wait for the latest earlier round of each of its players,
because that one has waited for the rounds before it. Adding or finishing a round takes a few steps
for each player, however many rounds wait.
"""

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_map import NOTHING, Fingerprints, PlayerMap

LAST = -1
"""The end of a list of links."""
TIDY = 1000
"""Finished rounds are dropped once there are more than this many, and more than unfinished ones."""

_NONE = np.empty(0, np.int64)


@kernel
def _hang(first: Ints, following: Ints, before: Ints, links: int) -> None:
    """Insert each link from `links` on into the list of the round that it starts from."""
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
    """The waiting rounds, by ticket: a later round has a higher ticket. Players come beside them as
    one column, round by round."""

    def __init__(self) -> None:
        self._tickets = _NONE
        """(place,) rising tickets. Some finished rounds are still in it."""
        self._finished: Flags = np.empty(0, np.bool_)
        """(place,) whether the round is finished."""
        self._behind = _NONE
        """(place,) the number of the round's players that still have an unfinished earlier
        round."""
        self._latest = PlayerMap()
        """The latest unfinished round of each player."""
        self._before, self._after = _NONE, _NONE
        """(link,) the places of a round and of a later one that waits for it. There is a link for
        each player that the two share with no round between."""
        self._first, self._following = _NONE, _NONE
        """(place,) the first link that starts from the round; (link,) the next link with the same
        start; LAST at the end."""
        self._left = 0

    def __len__(self) -> int:
        """The number of unfinished rounds."""
        return self._left

    def _places(self, tickets: Ints) -> Ints:
        places: Ints = np.searchsorted(self._tickets, tickets)
        return places

    def add(self, tickets: Ints, sizes: Ints, players: Fingerprints) -> None:
        """Add rounds, each after all unfinished rounds that were added before it."""
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
        """The tickets of the rounds that wait for no other round. No two of them share a player."""
        free: Ints = self._tickets[(self._behind == 0) & ~self._finished]
        return free

    def finish(self, tickets: Ints, sizes: Ints, players: Fingerprints) -> None:
        """Mark candidates as finished; rounds that waited only for them become candidates."""
        self._latest.forget(players, np.repeat(tickets, sizes))
        done = self._places(tickets)
        free = (self._behind[done] == 0) & ~self._finished[done]
        assert free.all(), "only a candidate can be finished"
        _advance(done, self._first, self._following, self._after, self._behind, self._finished)
        self._left -= len(done)
        if len(self._tickets) - self._left > max(TIDY, self._left):
            self._tidy()

    def has_later(self, tickets: Ints, sizes: Ints, players: Fingerprints) -> Flags:
        """(P,) whether a later round than this one waits for each player of these rounds."""
        later: Flags = self._latest.find(players) != np.repeat(tickets, sizes)
        return later

    def have(self, tickets: Ints) -> Flags:
        """(R,) whether each of these rounds was added and is unfinished."""
        left: Flags = np.isin(tickets, self._tickets[~self._finished])
        return left

    def _tidy(self) -> None:
        """Drop finished rounds and their links. A round that waits for an unfinished one is
        unfinished, too."""
        left = ~self._finished
        place, linked = np.cumsum(left) - 1, left[self._before]
        before, after = place[self._before[linked]], place[self._after[linked]]
        self._tickets, self._finished = self._tickets[left], self._finished[left]
        self._behind = np.zeros(self._left, np.int64)
        self._first = np.full(self._left, LAST)
        self._before = self._after = self._following = _NONE
        self._link(before, after)
