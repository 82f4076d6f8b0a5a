"""The entries of rounds in order of place."""

import numpy as np

from stream_rater.columns.arrays import Floats, Hashes, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating.model import Places

FEW = 32
"""Up to so many entries are sorted by insertion."""


@inlined
def _key(place: int) -> np.uint32:
    """By which places are sorted: that of those that did not finish is the greatest."""
    return np.uint32(place - 1)


@kernel
def by_place(place: Places) -> Ints:
    """(E,) the entries of one round in order of place, as given where they tie."""
    keys = np.empty(len(place), np.uint32)
    for e in range(len(place)):
        keys[e] = _key(place[e])
    return np.argsort(keys, kind="mergesort")


@inlined
def _are_in_order(place: Places, first: int, last: int) -> bool:
    """Whether the entries from `first` to before `last` are."""
    e = first + 1
    while e < last and _key(place[e - 1]) <= _key(place[e]):
        e += 1
    return e >= last


@inlined
def _insert(
    first: int, last: int, p: int, place: Places, share: Floats, starts: Ints, ends: Ints,
    hashes: Hashes,
) -> None:  # fmt: skip
    """Sort the entries from `first` to before `last`, each a player; p is the first one."""
    for e in range(first + 1, last):
        to, i = e, p + e - first
        here, own, start, end, h = place[e], share[i], starts[i], ends[i], hashes[i]
        while to > first and _key(here) < _key(place[to - 1]):
            k = p + to - first
            place[to], share[k] = place[to - 1], share[k - 1]
            starts[k], ends[k], hashes[k] = starts[k - 1], ends[k - 1], hashes[k - 1]
            to -= 1
        k = p + to - first
        place[to], share[k], starts[k], ends[k], hashes[k] = here, own, start, end, h


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
        if _are_in_order(place, e, last_e):
            pass
        elif entries[r] == sizes[r] <= FEW:
            _insert(e, last_e, p, place, share, starts, ends, hashes)
        else:
            order = by_place(place[e:last_e])
            players = _players_of(order, members[e:last_e], sizes[r])
            place[e:last_e], members[e:last_e] = place[e + order], members[e + order]
            share[p:last_p] = share[p + players]
            starts[p:last_p], ends[p:last_p] = starts[p + players], ends[p + players]
            hashes[p:last_p] = hashes[p + players]
        e, p = last_e, last_p
