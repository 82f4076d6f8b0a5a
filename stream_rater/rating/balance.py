"""Divides a list of players into the most even teams.

The sizes of the teams differ by one player at most. A team's mean performance is the sum of its
players' deviations from the rating by which such a round is measured: the ladder's initial one, or
the level of these players if some team has one more (`wins`). The most even teams are those
whose sums have the least variance. Since the total of the sums is fixed, these are the teams with
the least sum of squares. If there are two teams, they also have the highest quality.

If there are at most MOST_DEALS ways to deal the players, all of them are tried. Otherwise the
players are dealt one after the other, the one with the largest deviation first, each to the team
that it helps most. Then two players of different teams are exchanged for as long as that makes the
teams more even. This is repeated from STARTS - 1 shuffled orders, and the most even teams are kept.

Friends who want to play together are one unit: they are dealt together, each start begins with the
groups in random teams that have room, and units are exchanged for units of the same size.

The result depends on the players, not on their order: players of equal deviation are ordered by id.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import giving, kernel

MOST_DEALS = 200_000
"""If there are at most this many deals, each one is tried: all deals of 20 players in two teams,
for instance, or of 12 in three."""
STARTS = 16  # The number of orders of dealing from which players are exchanged.
GROUPED_STARTS = 64  # The same if there are groups.
MOST_PLACINGS = 10_000  # The most ways to place groups that are tried to find one that fits.
MOST_CHANGES = 100_000
"""The most exchanges from one deal. Exchanges end by themselves, as each makes the teams more
even."""


class ImpossibleGroups(ValueError):
    """No teams keep the groups together. The text says why, in one line."""

    def __init__(self, text: str, group: int | None = None) -> None:
        super().__init__(text)
        self.place = "" if group is None else f"[{group}]"  # Of the group that is wrong by itself.


def even_teams(
    players: Sequence[str], deviation: Floats, teams: int, groups: Sequence[Sequence[str]] = ()
) -> list[list[int]]:
    """The most even teams, each as the indices of its players in rising order. The larger teams
    come first, and teams of the same size are in the order of their first players.

    `deviation` (P,) is that of each player (`wins.deviations`), in points. There must be at
    least one team, and at least as many players as teams. The players of each of `groups` are in
    the same team. Raises ImpossibleGroups.
    """
    assert 1 <= teams <= len(players) == len(deviation)
    sizes = _sizes(len(players), teams)
    units = _units(players, groups, int(sizes[0]))
    value = [math.fsum(deviation[unit]) for unit in units]
    order = sorted(
        range(len(units)), key=lambda u: (-abs(value[u]), min(players[i] for i in units[u]))
    )
    values, size = np.array(value)[order], np.array([len(units[u]) for u in order], np.int64)
    if min(deals(sizes), teams ** len(units)) <= MOST_DEALS:
        team = _best_of_all(values, size, sizes)
    else:
        team = _best_found(values, size, sizes)
    found: list[list[int]] = [[] for _ in range(teams)]
    for u, chosen in zip(order, team.tolist(), strict=True):
        found[chosen] += units[u]
    return sorted(map(sorted, found), key=lambda members: (-len(members), members))


def deals(sizes: Ints) -> int:
    """The number of ways to deal players into teams of these sizes. Teams of the same size are
    interchangeable."""
    count = math.factorial(int(sizes.sum()))
    for size in sizes.tolist():
        count //= math.factorial(size)
    for times in np.unique(sizes, return_counts=True)[1].tolist():
        count //= math.factorial(times)
    return count


def _units(players: Sequence[str], groups: Sequence[Sequence[str]], most: int) -> list[list[int]]:
    """The indices of the players of each unit: a group, or a player of no group. `most` is the size
    of the largest team. Raises ImpossibleGroups for a group that is wrong by itself."""
    index = {player: i for i, player in enumerate(players)}
    seen = set[str]()
    for g, group in enumerate(groups):
        if len(group) > most:
            raise ImpossibleGroups(
                f"{len(group)} players, and a team has {most}: divide it, or make fewer teams", g
            )
        for player in group:
            if player not in index:
                raise ImpossibleGroups(f"{player!r} is none of the players: add it to them", g)
            if player in seen:
                raise ImpossibleGroups(f"{player!r} stands in the groups twice: name it once", g)
            seen.add(player)
    alone = ([i] for player, i in index.items() if player not in seen)
    return [*([index[player] for player in group] for group in groups if group), *alone]


def _sizes(players: int, teams: int) -> Ints:
    """(T,) the sizes of the teams, the larger ones first."""
    edges = [players * t // teams for t in range(teams + 1)]
    return np.array(sorted((b - a for a, b in pairwise(edges)), reverse=True), np.int64)


def _best_of_all(values: Floats, size: Ints, sizes: Ints) -> Ints:
    """The most even teams. `size` has the number of players of each unit."""
    found: Ints = _search(values, size, sizes)
    if not len(found):
        raise ImpossibleGroups(NO_ROOM)
    return found


def _best_found(values: Floats, size: Ints, sizes: Ints) -> Ints:
    """The most even teams that exchanges find, from several orders of dealing."""
    rng, best, least = np.random.default_rng(1), np.empty(0, np.int64), math.inf
    grouped, tried = bool((size > 1).any()), set[tuple[int, ...]]()
    for start in range(GROUPED_STARTS if grouped else STARTS):
        order = np.arange(len(values)) if start == 0 else rng.permutation(len(values))
        team = _groups_placed(size, sizes, rng, tried) if grouped else np.full(len(values), -1)
        _deal(values, size, sizes, order, team)
        spread = _change_places(values, size, team, len(sizes))
        if spread < least:
            best, least = team, spread
    return best


NO_ROOM = "the groups do not fit into teams of these sizes: divide one, or make other teams"


def _groups_placed(
    size: Ints, sizes: Ints, rng: np.random.Generator, tried: set[tuple[int, ...]]
) -> Ints:
    """(U,) a random team for each unit of several players, so that all of them fit; -1 for single
    players. `tried` has, and gets, what is left for the smaller groups, sorted, where they do not
    fit. Raises ImpossibleGroups."""
    team, room = np.full(len(size), -1), sizes.copy()
    shuffled = rng.permutation(len(size))
    groups = shuffled[np.argsort(-size[shuffled], kind="stable")][: np.count_nonzero(size > 1)]

    def place(g: int) -> bool:
        if g == len(groups):
            return True
        state = (g, *sorted(room.tolist()))
        if state in tried or len(tried) == MOST_PLACINGS:
            return False
        own = size[groups[g]]
        for t in rng.permutation(len(sizes)):
            if room[t] >= own:
                room[t] -= own
                team[groups[g]] = t
                if place(g + 1):
                    return True
                room[t] += own
        tried.add(state)
        return False

    if not place(0):
        raise ImpossibleGroups(NO_ROOM)
    return team


@giving
def _sums(values: Floats, team: Ints, teams: int) -> Floats:
    found = np.zeros(teams)
    for i in range(len(values)):
        found[team[i]] += values[i]
    return found


@kernel
def _search(values: Floats, size: Ints, sizes: Ints) -> Ints:
    """(U,) the team of each unit, found by depth-first search; empty if they do not fit. Each unit
    is tried in each team that has room, but of the empty teams of the same size only in one."""
    players, teams = len(values), len(sizes)
    team, best = np.full(players, -1), np.zeros(players, np.int64)
    members, least, i = np.zeros(teams, np.int64), np.inf, 0
    while i >= 0:
        if i == players:
            spread = np.sum(_sums(values, team, teams) ** 2)
            if spread < least:
                least = spread
                best[:] = team
            i -= 1
            continue
        if team[i] >= 0:
            members[team[i]] -= size[i]
        chosen = team[i] + 1
        while chosen < teams and (
            members[chosen] + size[i] > sizes[chosen]
            or (chosen > 0 and members[chosen] == members[chosen - 1] == 0
                and sizes[chosen] == sizes[chosen - 1])
        ):  # fmt: skip
            chosen += 1
        if chosen == teams:
            team[i] = -1
            i -= 1
        else:
            team[i] = chosen
            members[chosen] += size[i]
            i += 1
    return best if least < np.inf else best[:0]


@kernel
def _deal(values: Floats, size: Ints, sizes: Ints, order: Ints, team: Ints) -> None:
    """Deal those units in this order whose team is -1, single players. A player above the initial
    rating goes to the weakest team with room, and any other player to the strongest."""
    members, sums = np.zeros(len(sizes), np.int64), np.zeros(len(sizes))
    for i in order:
        if team[i] >= 0:
            members[team[i]] += size[i]
            sums[team[i]] += values[i]
    for i in order:
        if team[i] >= 0:
            continue
        chosen = -1
        for t in range(len(sizes)):
            if members[t] < sizes[t] and (
                chosen < 0 or (sums[t] - sums[chosen]) * np.sign(values[i]) < 0.0
            ):
                chosen = t
        team[i] = chosen
        members[chosen] += 1
        sums[chosen] += values[i]


@kernel
def _change_places(values: Floats, size: Ints, team: Ints, teams: int) -> float:
    """Exchange the two units of the same size whose exchange makes the teams most even, in place,
    until no exchange helps. Returns the sum of squares of the teams' sums."""
    for _ in range(MOST_CHANGES):
        sums = _sums(values, team, teams)
        total = np.sum(sums**2)
        most, first, second = -1e-9 * total, -1, -1  # a smaller change is rounding
        for i in range(len(values)):
            for j in range(i):
                moved = values[i] - values[j]
                # (a - moved)^2 + (b + moved)^2 - a^2 - b^2
                change = 2.0 * moved * (moved - sums[team[i]] + sums[team[j]])
                if size[i] == size[j] and team[i] != team[j] and change < most:
                    most, first, second = change, i, j
        if first < 0:
            break
        team[first], team[second] = team[second], team[first]
    return float(np.sum(_sums(values, team, teams) ** 2))
