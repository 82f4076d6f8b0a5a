"""How likely each side is to win a round, and which rank to expect of it.

The performance of a side is normal. Its mean and variance are those of a team in the rating rule
(section 3.3 of the paper): the members' deviations from the ladder's initial rating add up, each by
the member's share, and their variances by the shares' squares. A member's variance is `sigmas`
sigma^2 + `noise` of `chances`. Performances are independent, and no two are equal: there are no
draws. Side i wins with probability

    p_i = integral over x of phi_i(x) prod over j != i of Phi_j(x)

where phi_i and Phi_i are the density and the distribution function of its performance. One rule of
Gauss and Legendre on panels that are narrow where a side's density is serves all sides. The
integrands add up to the derivative of the product of all Phi_j, so the p_i add up to 1.

Where a system's own performances are logistic, the normal ones have the same variance. Of two sides
the probability then differs by 0.023 at most from the logistic one that `evaluate` scores.
"""

from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.predictions.chances import chances_of
from stream_rater.rating.normal import below, density
from stream_rater.rating.parameters import RatingConfig

REACH = 9.0
"""Standard deviations from the mean beyond which a performance is neglected: 1e-19 of all."""
STEP = 2.0
"""The width of a panel in standard deviations of the side that asks for it."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
"""Those of one panel, from -1 to 1."""


class Performances(NamedTuple):
    """The distributions of the performances of S sides."""

    mu: Floats
    """(S,) means, in rating points."""
    sigma: Floats
    """(S,) standard deviations, in rating points."""


def performances_of(
    config: RatingConfig, starts: Ints, share: Floats, mu: Floats, sigma: Floats
) -> Performances:
    """The performances of S sides with P players in all, by a ladder's parameters.

    `starts` (S+1,) has the first player of each side, and P. `share`, `mu` and `sigma` (P,) are the
    players' parts of the round and their ratings before it.
    """
    chances, initial_mu = chances_of(config), config.initial_mu
    deviation = np.add.reduceat(share * (mu - initial_mu), starts[:-1])
    variance = share**2 * (chances.sigmas * sigma**2 + chances.noise)
    return Performances(initial_mu + deviation, np.sqrt(np.add.reduceat(variance, starts[:-1])))


def win_probabilities(sides: Performances) -> Floats:
    """(S,) the probability that each side performs better than all others; they add up to 1."""
    found: Floats = _win_probabilities(*sides, _edges(*sides), NODES, WEIGHTS)
    return found


def _edges(mu: Floats, sigma: Floats) -> Floats:
    """The edges of the panels, in rising order. Below the first one some side is always better, and
    beyond the last one nobody is."""
    low, high = np.max(mu - REACH * sigma), np.max(mu + REACH * sigma)
    steps = np.arange(-REACH, REACH + STEP, STEP)
    wanted = np.sort((mu[:, np.newaxis] + sigma[:, np.newaxis] * steps).ravel())
    edges, apart = [low], 0.5 * np.min(sigma)
    for edge in wanted[(wanted > low) & (wanted < high)]:
        if edge - edges[-1] >= apart:  # many sides ask for edges that nearly meet
            edges.append(edge)
    return np.array([*edges, high])


@kernel
def _win_probabilities(
    mu: Floats, sigma: Floats, edges: Floats, nodes: Floats, weights: Floats
) -> Floats:
    """(S,) the integrals. The product over all others is that over those before a side times that
    over those after it, since a factor may be 0."""
    sides = len(mu)
    found, before, own = np.zeros(sides), np.empty(sides), np.empty(sides)
    for k in range(len(edges) - 1):
        middle, half = 0.5 * (edges[k] + edges[k + 1]), 0.5 * (edges[k + 1] - edges[k])
        for q in range(len(nodes)):
            x, product = middle + half * nodes[q], 1.0
            for i in range(sides):
                before[i], own[i] = product, below((x - mu[i]) / sigma[i])
                product *= own[i]
            product = half * weights[q]
            for i in range(sides - 1, -1, -1):
                found[i] += before[i] * product * density((x - mu[i]) / sigma[i]) / sigma[i]
                product *= own[i]
    return found


@kernel
def expected_ranks(mu: Floats, sigma: Floats) -> Floats:
    """(S,) the mean rank of each side, from 1, the best: 1 and the probability of each other side
    to perform better than it. They add up to S (S + 1) / 2."""
    found = np.ones(len(mu))
    for i in range(len(mu)):
        for j in range(i):
            spread = np.sqrt(sigma[i] * sigma[i] + sigma[j] * sigma[j])
            better = below((mu[i] - mu[j]) / spread)
            found[j] += better
            found[i] += 1.0 - better
    return found
