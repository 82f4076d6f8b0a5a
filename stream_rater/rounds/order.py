"""The entries of rounds in order of place."""

import numpy as np

from stream_rater.columns.arrays import Floats, Hashes, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.contract.events import MAX_RANK
from stream_rater.rating.model import DID_NOT_FINISH, Places

LAST = MAX_RANK + 1
"""Stands for the place of those that did not finish, to sort them behind all others."""


@kernel
def by_place(place: Places) -> Ints:
    """(E,) the entries of one round in order of place, as given where they tie."""
    keys = place.astype(np.int64)
    keys[keys == DID_NOT_FINISH] = LAST
    return np.argsort(keys, kind="mergesort")


@inlined
def _are_in_order(place: Places, first: int, last: int) -> bool:
    """Whether the entries from `first` to before `last` are."""
    for e in range(first + 1, last):
        here, before = place[e], place[e - 1]
        if here != DID_NOT_FINISH and (here < before or before == DID_NOT_FINISH):
            return False
    return True


@kernel
def _players_of(entries: Ints, members: Ints, players: int) -> Ints:
    """The players of these entries of a round, in turn; the round has so many."""
    starts = np.cumsum(members) - members
    found = np.empty(players, np.int64)
    p = 0
    for e in entries:
        for k in range(members[e]):
            found[p] = starts[e] + k
            p += 1
    return found


@kernel
def sort_entries(
    entries: Ints, sizes: Ints, place: Places, members: Ints, share: Floats,
    starts: Ints, ends: Ints, hashes: Hashes,
) -> None:  # fmt: skip
    """Put the entries of each round, and their players with them, in order of place.

    Each round has so many `entries`, and players (`sizes`). The other columns, by entry and by
    player, are changed.
    """
    e = p = 0
    for r in range(len(entries)):
        last_e, last_p = e + entries[r], p + sizes[r]
        if not _are_in_order(place, e, last_e):
            order = by_place(place[e:last_e])
            players = _players_of(order, members[e:last_e], sizes[r])
            place[e:last_e], members[e:last_e] = place[e + order], members[e + order]
            share[p:last_p] = share[p + players]
            starts[p:last_p], ends[p:last_p] = starts[p + players], ends[p + players]
            hashes[p:last_p] = hashes[p + players]
        e, p = last_e, last_p
