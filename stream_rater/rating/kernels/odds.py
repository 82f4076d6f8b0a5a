"""The log odds of a player at x against all opponents, at a cost that does not grow with their
number.

The opponents' terms are logistic, with s_j(x) = 1 / (1 + e^(-(x - mu_j) u_j)). P(x) is the sum of
u_j s_j(x), and Q(x) is the sum of u_j (1 - s_j(x)). Their log odds L = ln(P/Q) are nearly straight,
so they are tabulated once for a round (`rating.elo_mmr.sum_table`). P / (P + Q) = 1 / (1 + e^-L)
follows without loss of precision in either tail.
"""

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elementary import aligned, exp, log
from stream_rater.rating.elo_mmr.sum_table import INVERSE, LEVELS, WIDEST, look_up, room, tabulate

FEW = 32  # In rounds of up to this many entries, the sums are computed again for each entry.

CLOSER = 0.6
"""The distance between nodes is this fraction of that of Elo-MMR, which makes L 60 times as exact.
Between ratings that are far apart L is flat, so an error in L becomes a larger one in x."""


@kernel
def table_of(mu: Floats, u: Floats, low: float, high: float) -> tuple[Floats, float, float]:
    """A table of L on [low, high], its first node, and the distance between nodes.

    The table is empty where it would not pay: in small rounds, and where [low, high] is too many
    scales 1/u wide.
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
    """L and its slope at x, from the table c, or from every opponent if c is empty."""
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
    """P / (P + Q) for log odds L."""
    return 1.0 / (1.0 + exp(-value))
