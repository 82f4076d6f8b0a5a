"""Ranks on a page of the leaderboard: who has the same rating has the same rank."""

from collections.abc import Sequence
from typing import NamedTuple


class RankedRow(NamedTuple):
    """A listed player."""

    rank: int
    """1 is the best: 1 and how many have a greater rating."""
    player: str
    rating: float


def ranked(rows: Sequence[tuple[str, float]], index: int, better: int) -> list[RankedRow]:
    """The rows of a page with their ranks: (player, rating) in order. `index` is how many stand
    before the first row, `better` how many of these have a greater rating than it."""
    found: list[RankedRow] = []
    for i, (player, rating) in enumerate(rows):
        if found and rating == found[-1].rating:
            rank = found[-1].rank
        else:
            rank = 1 + (better if i == 0 else index + i)
        found.append(RankedRow(rank, player, rating))
    return found
