"""How all opponents together fare against a player at x, at a cost that does not grow with them.

Where opponents' terms are logistic, with s_j(x) = 1 / (1 + e^(-(x - mu_j) u_j)), P(x) is the sum of
u_j s_j(x) and Q(x) that of u_j (1 - s_j(x)). Their log odds L = ln(P/Q) are nearly straight, and
tabulated once for a round (`rating.table`); P / (P + Q) = 1 / (1 + e^-L) follows in either tail.
"""

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.sum_table import INVERSE, LEVELS, WIDEST, look_up, room, tabulate
from stream_rater.rating.vectors import aligned

FEW = 32
"""Up to so many entries every sum is taken anew."""

CLOSER = 0.6
"""Nodes lie so much closer than Elo-MMR's, which makes L 60 times as exact: between ratings that
lie far apart L is flat, and an error in L a larger one in x."""


@kernel
def table_of(mu: Floats, u: Floats, low: float, high: float) -> tuple[Floats, float, float]:
    """L on [low, high], where its nodes begin, and their distance; an empty one where none pays.

    That is in small rounds, and where [low, high] is too many scales 1/u wide.
    """
    narrow = CLOSER / np.max(u)
    if len(mu) <= FEW or high - low > WIDEST * narrow:
        return np.empty((0, 0)), low, 1.0
    scratch = aligned(room(high - low, narrow))
    nodes, wide, low, h = tabulate(mu, u, low, high, narrow, scratch)
    return scratch[LEVELS * wide : INVERSE * wide].reshape((4, wide))[:, :nodes], low, h


@kernel
def log_odds(
    x: float, mu: Floats, u: Floats, c: Floats, low: float, h: float
) -> tuple[float, float]:
    """L and its slope at x, from the table c or, where that is empty, from every opponent."""
    if len(c) > 0:
        value, rise, _ = look_up(c, low, h, x)
        return value, rise
    p = q = slope = 0.0
    for j in range(len(mu)):
        e = exp((mu[j] - x) * u[j])
        won = u[j] / (1.0 + e)
        p, q, slope = p + won, q + e * won, slope + e * won * won
    return log(p / q), slope * (1.0 / p + 1.0 / q)


@kernel
def chance(value: float) -> float:
    """P / (P + Q) at log odds L."""
    return 1.0 / (1.0 + exp(-value))
