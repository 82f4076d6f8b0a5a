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
MOST_CHANGES = 100_000
"""The most exchanges from one deal. Exchanges end by themselves, as each makes the teams more
even."""


def even_teams(players: Sequence[str], deviation: Floats, teams: int) -> list[list[int]]:
    """The most even teams, each as the indices of its players in rising order. The larger teams
    come first, and teams of the same size are in the order of their first players.

    `deviation` (P,) is that of each player (`wins.deviations`), in points. There must be at
    least one team, and at least as many players as teams.
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
    """The number of ways to deal players into teams of these sizes. Teams of the same size are
    interchangeable."""
    count = math.factorial(int(sizes.sum()))
    for size in sizes.tolist():
        count //= math.factorial(size)
    for times in np.unique(sizes, return_counts=True)[1].tolist():
        count //= math.factorial(times)
    return count


def _sizes(players: int, teams: int) -> Ints:
    """(T,) the sizes of the teams, the larger ones first."""
    edges = [players * t // teams for t in range(teams + 1)]
    return np.array(sorted((b - a for a, b in pairwise(edges)), reverse=True), np.int64)


def _best_of_all(values: Floats, sizes: Ints) -> Ints:
    found: Ints = _search(values, sizes)
    return found


def _best_found(values: Floats, sizes: Ints) -> Ints:
    """The most even teams that exchanges find, from STARTS orders of dealing."""
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
    """(P,) the team of each player, found by depth-first search. Each player is tried in each team
    that has room, but of the empty teams of the same size only in one."""
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
    """(P,) the team of each player, dealt in this order. A player above the initial rating goes to
    the weakest team with room, and any other player to the strongest."""
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
    """Exchange the two players whose exchange makes the teams most even, in place, until no
    exchange helps. Returns the sum of squares of the teams' sums."""
    for _ in range(MOST_CHANGES):
        sums = _sums(values, team, teams)
        total = np.sum(sums**2)
        most, first, second = -1e-9 * total, -1, -1  # a smaller change is rounding
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
