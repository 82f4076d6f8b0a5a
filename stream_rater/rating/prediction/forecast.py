"""The forecast of one round: win probabilities, expected ranks and quality."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.rating import levels, newcomer_level
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.prediction.wins import (
    Performances,
    evenness,
    expected_ranks,
    pairwise,
    performances_of,
    win_probabilities,
)
from stream_rater.rating.seats import codes_of, shifts_of


class Believed(NamedTuple):
    """The beliefs about P players before a round."""

    mu: Floats  # (P,) in rating points; the initial rating for newcomers.
    sigma: Floats  # (P,) in rating points.
    rounds: Ints  # (P,) the number of rounds that each player has played; 0 for a newcomer.


class Forecast(NamedTuple):
    """The prediction for a round with S sides."""

    win: Floats  # (S,) the probability that each side is better than all others.
    draw: float
    """The probability that no side is better than all others; 0 on ladders without draws. `win` and
    `draw` add up to 1."""
    expected_rank: Floats  # (S,) the mean rank of each side, from 1.
    pairwise: Floats
    """(S, S) the probability that the side of the row is better than that of the column; 0 on the
    diagonal."""
    quality: float
    """The evenness of the round: 1 if all sides are equally likely to win, 0 if the winner is
    certain."""


def of_round(
    config: RatingConfig, starts: Ints, share: Floats, players: Believed,
    variance_factor: float = 1.0, shift: Floats | None = None,
) -> Forecast:  # fmt: skip
    """The forecast of a round of S sides with P players in all, by a ladder's parameters.

    `starts` (S+1,) contains the index of the first player of each side, and P. `share` (P,) is each
    player's part of the round, in (0, 1]. A variance factor of more than 1 makes the forecast less
    sure. `shift` (S,) has the points of each side's seat (`seats.shifts_of`); None: no seats.
    """
    began = newcomer_level.of_one_round(config, starts, share, *players)
    mu = levels.of_one_round(config, starts, share, began, players.rounds, shift)
    return forecast(performances_of(config, starts, share, mu, players.sigma, variance_factor))


def deviations(config: RatingConfig, players: Believed, teams: int) -> Floats:
    """(P,) by how many points each player is above the rating from which a round of this many teams
    is measured: the initial rating, or the level of these players if some team has one player more
    (`levels`). It is assumed that the newcomers are dealt evenly among the teams."""
    share = np.full(len(players.mu), 1.0 / teams)
    together = np.array([0, len(share)])  # so the newcomers' shares add up to those of one team
    began = newcomer_level.of_one_round(config, together, share, *players)
    # Beside a side of nobody, the players are measured as in a round of unequal sides.
    starts = together if len(share) % teams == 0 else np.array([0, 0, len(share)])
    return levels.of_one_round(config, starts, share, began, players.rounds) - config.initial_mu


def forecast(sides: Performances) -> Forecast:
    """The forecast of a round of two sides or more."""
    win = win_probabilities(sides)
    draw = 1.0 - float(win.sum()) if sides.margin > 0.0 else 0.0
    return Forecast(win, max(draw, 0.0), expected_ranks(sides), pairwise(sides), evenness(win))


def shift_of_sides(config: RatingConfig, seats: Sequence[str | None]) -> Floats | None:
    """(S,) the points of the seats of S sides, None for a side without one. None if the ladder has
    no points for seats."""
    return shifts_of(config.seats, codes_of(seats)) if config.seats else None
