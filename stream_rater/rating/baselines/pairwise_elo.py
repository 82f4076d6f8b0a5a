"""Elo, and pairwise Elo: a round as a game between each pair (Kerby, sections 3.1 and 3.2.1).

The logistic model is the exponential one of section 3.1.1: P(i beats j) = 1 / (1 + exp(x_j - x_i)).
The Gaussian one of section 3.1.2 has P = Phi((x_i - x_j) / sqrt 2) and the rule of maximum
likelihood, whose steps have no bound. A tie is half a win and half a loss.
"""

import math

import numpy as np

from stream_rater.rating.compiled import kernel
from stream_rater.rating.elementary import exp
from stream_rater.rating.model import Floats, Ints
from stream_rater.rating.normal import hazard

INVERSE_SQRT_2 = 1.0 / math.sqrt(2.0)


@kernel
def _pull(difference: float, gaussian: bool) -> float:
    """d/d(difference) of ln P(win), by how far the winner stood above the loser."""
    if gaussian:
        return INVERSE_SQRT_2 * hazard(-INVERSE_SQRT_2 * difference)
    return 1.0 / (1.0 + exp(difference))


@kernel
def gradient(x: Floats, hi: Ints, ranked: int, gaussian: bool, average: bool) -> Floats:
    """d/dx (n,) of the sum over pairs of ln P(outcome), or each one's mean over own pairs.

    Entries in order of place, hi (n,) the last of each tie group; those from `ranked` on are not
    compared with each other. Zero-sum, if not averaged: what one wins, the other loses.
    """
    n = len(x)
    g = np.zeros(n)
    for i in range(ranked):
        for j in range(i + 1, n):
            pull = _pull(x[i] - x[j], gaussian)
            if j <= hi[i]:
                pull = 0.5 * (pull - _pull(x[j] - x[i], gaussian))
            g[i] += pull
            g[j] -= pull
    if average:
        for i in range(n):
            g[i] /= max(n - 1 if i < ranked else ranked, 1)
    return g
