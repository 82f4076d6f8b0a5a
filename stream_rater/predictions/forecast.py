"""All that is foretold of one round."""

from typing import NamedTuple

from stream_rater.columns.arrays import Floats
from stream_rater.predictions.wins import (
    Performances,
    evenness,
    expected_ranks,
    pairwise,
    win_probabilities,
)


class Forecast(NamedTuple):
    """What to expect of a round with S sides."""

    win: Floats
    """(S,) the probability of each side to be better than all others."""
    draw: float
    """The probability that nobody is; 0 on ladders without draws. With `win` it adds up to 1."""
    expected_rank: Floats
    """(S,) the mean rank of each side, from 1."""
    pairwise: Floats
    """(S, S) the probability that the side of the row is better than that of the column; 0 on the
    diagonal."""
    quality: float
    """How even the round is: 1 where all sides are equally likely to win, 0 where the winner is
    certain."""


def forecast(sides: Performances) -> Forecast:
    """What to expect of a round of two sides or more."""
    win = win_probabilities(sides)
    draw = 1.0 - float(win.sum()) if sides.margin > 0.0 else 0.0
    return Forecast(win, max(draw, 0.0), expected_ranks(sides), pairwise(sides), evenness(win))
