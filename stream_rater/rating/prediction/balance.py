"""The most even teams of a list of players.

Teams are as large as each other, or one player larger. A team's mean performance is the
sum of its players' deviations from the ladder's initial rating (`wins`). The most even teams are
those whose sums have the least variance, which is to say the least squares: their total is given.
Of two teams these are the ones with the highest quality.

Where there are at most MOST_DEALS ways to deal the players, all of them are looked at. Otherwise
they are dealt in turn, who deviates most first, each to the team that it helps most. Then two
players of two teams change places for as long as that makes the teams more even. This is done again
from STARTS - 1 shuffled orders, and the most even teams are kept.

The result depends on the players, not on their order: ids distinguish equal ones.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import giving, kernel

MOST_DEALS = 200_000
"""As many deals are looked at one by one: all of 20 players in two teams, or of 12 in three."""
STARTS = 16
"""Orders of dealing from which places are changed."""
MOST_CHANGES = 100_000
"""Changes of places from one deal. Each makes the teams more even, so they end by themselves."""


def even_teams(players: Sequence[str], deviation: Floats, teams: int) -> list[list[int]]:
    """The players of the most even teams, by their indices, which rise in a team; the teams in
    order of their first player, the larger ones first.

    `deviation` (P,) are those of the players' mu from the initial rating, in rating points. There
    are at least as many players as teams, and one team at least.
    """
    assert 1 <= teams <= len(players) == len(deviation)
    order = sorted(range(len(players)), key=lambda i: (-abs(deviation[i]), players[i]))
    sizes = _sizes(len(players), teams)
    values = deviation[order]
    team = _best_of_all(values, sizes) if deals(sizes) <= MOST_DEALS else _best_found(values, sizes)
    found: list[list[int]] = [[] for _ in range(teams)]
    for i, chosen in zip(order, team.tolist(), strict=True):
        found[chosen].append(i)
    return sorted(map(sorted, found), key=lambda members: (-len(members), members))


def deals(sizes: Ints) -> int:
    """In how many ways players can be dealt into teams of these sizes. Teams of the same size are
    interchangeable."""
    count = math.factorial(int(sizes.sum()))
    for size in sizes.tolist():
        count //= math.factorial(size)
    for times in np.unique(sizes, return_counts=True)[1].tolist():
        count //= math.factorial(times)
    return count


def _sizes(players: int, teams: int) -> Ints:
    """(T,) the larger ones first."""
    edges = [players * t // teams for t in range(teams + 1)]
    return np.array(sorted((b - a for a, b in pairwise(edges)), reverse=True), np.int64)


def _best_of_all(values: Floats, sizes: Ints) -> Ints:
    found: Ints = _search(values, sizes)
    return found


def _best_found(values: Floats, sizes: Ints) -> Ints:
    """The most even teams that changes of places find, from STARTS orders of dealing."""
    rng, best, least = np.random.default_rng(1), np.empty(0, np.int64), math.inf
    for start in range(STARTS):
        order = np.arange(len(values)) if start == 0 else rng.permutation(len(values))
        team = _dealt(values, sizes, order)
        spread = _change_places(values, team, len(sizes))
        if spread < least:
            best, least = team, spread
    return best


@giving
def _sums(values: Floats, team: Ints, teams: int) -> Floats:
    found = np.zeros(teams)
    for i in range(len(values)):
        found[team[i]] += values[i]
    return found


@kernel
def _search(values: Floats, sizes: Ints) -> Ints:
    """(P,) the team of each player, by depth-first search: each player goes to each team that has
    room, but to one only of those of the same size that are still empty."""
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
            members[team[i]] -= 1
        chosen = team[i] + 1
        while chosen < teams and (
            members[chosen] == sizes[chosen]
            or (chosen > 0 and members[chosen] == members[chosen - 1] == 0
                and sizes[chosen] == sizes[chosen - 1])
        ):  # fmt: skip
            chosen += 1
        if chosen == teams:
            team[i] = -1
            i -= 1
        else:
            team[i] = chosen
            members[chosen] += 1
            i += 1
    return best


@kernel
def _dealt(values: Floats, sizes: Ints, order: Ints) -> Ints:
    """(P,) the team of each player. In this order, each who deviates upward goes to the weakest
    team with room, and each other to the strongest."""
    team, members = np.zeros(len(values), np.int64), np.zeros(len(sizes), np.int64)
    sums = np.zeros(len(sizes))
    for i in order:
        chosen = -1
        for t in range(len(sizes)):
            if members[t] < sizes[t] and (
                chosen < 0 or (sums[t] - sums[chosen]) * np.sign(values[i]) < 0.0
            ):
                chosen = t
        team[i] = chosen
        members[chosen] += 1
        sums[chosen] += values[i]
    return team


@kernel
def _change_places(values: Floats, team: Ints, teams: int) -> float:
    """Change the two players whose change makes the teams most even, in place, until none does.
    Returns the sum of squares of the teams' sums."""
    for _ in range(MOST_CHANGES):
        sums = _sums(values, team, teams)
        total = np.sum(sums**2)
        most, first, second = -1e-9 * total, -1, -1  # less is rounding
        for i in range(len(values)):
            for j in range(i):
                moved = values[i] - values[j]
                # (a - moved)^2 + (b + moved)^2 - a^2 - b^2
                change = 2.0 * moved * (moved - sums[team[i]] + sums[team[j]])
                if team[i] != team[j] and change < most:
                    most, first, second = change, i, j
        if first < 0:
            break
        team[first], team[second] = team[second], team[first]
    return float(np.sum(_sums(values, team, teams) ** 2))
