"""The most even teams: none is more even where all are looked at, good ones elsewhere."""

import itertools
import math

import numpy as np
import pytest

from stream_rater.columns.arrays import Floats
from stream_rater.rating.prediction import balance
from stream_rater.rating.prediction.balance import deals, even_teams


def names(count: int) -> list[str]:
    return [f"p{i:02}" for i in range(count)]


def skills(count: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(0.0, 300.0, count)


def spread(deviation: Floats, teams: list[list[int]]) -> float:
    """The variance of the teams' sums."""
    return float(np.var([deviation[members].sum() for members in teams]))


def every_deal(players: list[int], sizes: list[int]) -> list[list[list[int]]]:
    """All of them, those of equal teams more than once."""
    if not sizes:
        return [[]]
    found = []
    for members in itertools.combinations(players, sizes[0]):
        rest = [each for each in players if each not in members]
        found += [[list(members), *others] for others in every_deal(rest, sizes[1:])]
    return found


@pytest.mark.parametrize(("players", "teams"), [(2, 2), (5, 2), (8, 2), (7, 3), (8, 4), (6, 6)])
def test_no_teams_are_more_even(players: int, teams: int) -> None:
    """Every deal of a few players was looked at."""
    sizes = sorted(players * (t + 1) // teams - players * t // teams for t in range(teams))[::-1]
    for seed in range(20):
        deviation = skills(players, seed)
        least = min(spread(deviation, deal) for deal in every_deal(list(range(players)), sizes))
        found = even_teams(names(players), deviation, teams)
        assert [len(members) for members in found] == sizes
        assert sorted(itertools.chain(*found)) == list(range(players))
        assert spread(deviation, found) == pytest.approx(least, abs=1e-6)


@pytest.mark.parametrize("sizes", [[2, 2], [3, 2], [2, 2, 2], [3, 2, 2], [1, 1, 1], [4, 4]])
def test_deals_are_counted(sizes: list[int]) -> None:
    """As many as differ in who plays with whom."""
    every = every_deal(list(range(sum(sizes))), sizes)
    differing = {frozenset(map(frozenset, deal)) for deal in every}
    assert deals(np.array(sizes)) == len(differing)


@pytest.mark.parametrize(("players", "teams"), [(10, 2), (12, 3), (40, 2), (60, 5), (101, 10)])
def test_the_order_of_players_means_nothing(players: int, teams: int) -> None:
    """The same players give the same teams, also where some are equally good."""
    who, deviation = names(players), np.round(skills(players), -2)
    wanted = {frozenset(who[i] for i in t) for t in even_teams(who, deviation, teams)}
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(players)
        shuffled = [who[i] for i in order]
        found = even_teams(shuffled, deviation[order], teams)
        assert {frozenset(shuffled[i] for i in t) for t in found} == wanted


def test_what_is_found_is_nearly_as_even(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all deals can still be looked at: of 12 players in three teams and of 16 in two."""
    for players, teams in ((12, 3), (16, 2)):
        for seed in range(10):
            deviation = skills(players, seed)
            best = even_teams(names(players), deviation, teams)
            with monkeypatch.context() as patched:
                patched.setattr(balance, "MOST_DEALS", 0)
                found = even_teams(names(players), deviation, teams)
            gap = math.sqrt(spread(deviation, found)) - math.sqrt(spread(deviation, best))
            assert -1e-6 <= gap <= 15.0  # points, where one player deviates by 300


@pytest.mark.parametrize(("players", "teams"), [(60, 2), (60, 5), (500, 100)])
def test_many_players_are_dealt_evenly(players: int, teams: int) -> None:
    """To a hundredth of what chance would give."""
    deviation, rng = skills(players), np.random.default_rng(2)
    found = even_teams(names(players), deviation, teams)
    chance = spread(deviation, np.split(rng.permutation(players), teams))  # type: ignore[arg-type]
    assert spread(deviation, found) < 0.0001 * chance
