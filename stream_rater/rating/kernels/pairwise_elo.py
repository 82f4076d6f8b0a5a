"""Elo and pairwise Elo: a round as a game between each pair of entries (Kerby, sections 3.1 and
3.2.1).

The logistic model is the exponential one of section 3.1.1: P(i beats j) = 1 / (1 + exp(x_j - x_i)).
Its gradient is the score of an entry minus its expected score. The expected score at any x follows
from the log odds there, without a look at every pair (`odds`).

The Gaussian model of section 3.1.2 has P = Phi((x_i - x_j) / sqrt 2) and follows the maximum
likelihood rule, whose steps have no bound. A tie is half a win and half a loss.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.kernels.odds import chance, log_odds, table_of
from stream_rater.rating.normal import hazard

INVERSE_SQRT_2 = 1.0 / math.sqrt(2.0)


@kernel
def _pull(difference: float) -> float:
    """The derivative of ln P(win) in the Gaussian model by `difference`, the winner's rating minus
    the loser's."""
    return INVERSE_SQRT_2 * hazard(-INVERSE_SQRT_2 * difference)


@kernel
def _gaussian(x: Floats, hi: Ints, ranked: int, g: Floats) -> None:
    for i in range(ranked):
        for j in range(i + 1, len(x)):
            pull = _pull(x[i] - x[j])
            if j <= hi[i]:
                pull = 0.5 * (pull - _pull(x[j] - x[i]))
            g[i] += pull
            g[j] -= pull


@kernel
def _logistic(x: Floats, hi: Ints, ranked: int, g: Floats) -> None:
    """Write the gradient of the logistic model into `g`. An entry counts as its own opponent: it
    scores half against itself, and its expected score is half, too."""
    n, first = len(x), 0
    for i in range(ranked):
        first = i if hi[first] < i else first
        g[i] = (n - 1 - hi[i]) + 0.5 * (hi[i] - first + 1)
    _less_expected(x, x[:ranked], g[:ranked])
    _less_expected(x[:ranked], x[ranked:], g[ranked:])


@kernel
def _less_expected(x: Floats, at: Floats, g: Floats) -> None:
    """Subtract from each g (k,) the expected score at `at` (k,) against all of x."""
    if len(x) == 0 or len(at) == 0:
        return
    u = np.ones(len(x))
    c, low, h = table_of(x, u, min(np.min(x), np.min(at)), max(np.max(x), np.max(at)))
    for i in range(len(at)):
        value, _ = log_odds(at[i], x, u, c, low, h)
        g[i] -= len(x) * chance(value)


@kernel
def gradient(x: Floats, hi: Ints, ranked: int, gaussian: bool, average: bool) -> Floats:
    """(n,) d/dx of the sum over pairs of ln P(outcome), or of the mean over each entry's own pairs.

    Entries are in order of place; hi (n,) is the last position of each tie group. Entries from
    `ranked` on are not compared with each other. Unless averaged, the gradients add up to zero:
    what one entry gains, another loses.
    """
    n = len(x)
    g = np.zeros(n)
    if gaussian:
        _gaussian(x, hi, ranked, g)
    else:
        _logistic(x, hi, ranked, g)
    if average:
        for i in range(n):
            g[i] /= max(n - 1 if i < ranked else ranked, 1)
    return g
