"""Topcoder, whose volatility players can exploit, as the Elo-MMR paper shows (section 5.1)."""

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.kernels.hazards import chance_below
from stream_rater.rating.kernels.places import tie_bounds
from stream_rater.rating.model import Places
from stream_rater.rating.normal import quantile


@kernel
def _chances(
    own_mu: float, own_sigma: float, mu: Floats, sigma: Floats, root: float, chance: Floats
) -> None:
    """Compute the probability that each opponent is better. The loop is simple, so that a processor
    can run it for several opponents at once."""
    for j in range(len(mu)):
        spread = np.sqrt(own_sigma * own_sigma + sigma[j] * sigma[j])
        chance[j] = chance_below(root * (mu[j] - own_mu) / spread)


@kernel
def rate(
    place: Places, mu: Floats, sigma: Floats, rounds: Ints, weight: float, ceiling: float,
    moved: Floats, newcomer_weight: float, weight_limit: float,
) -> Floats:  # fmt: skip
    """(n, 3) evidence of one round. `sigma` is the volatility; `rounds` (n,) is the number of
    rounds that each player played before. `moved` (n,) is by how much `mu` is above the rating,
    by which results are weighed."""
    n = len(mu)
    mean = np.mean(mu)
    c = np.sqrt(np.mean(sigma * sigma) + np.sum((mu - mean) ** 2) / (n - 1))
    lo, hi = tie_bounds(place)
    root = np.sqrt(weight)
    out, chance = np.empty((n, 3)), np.empty(n)
    for i in range(n):
        _chances(mu[i], sigma[i], mu, sigma, root, chance)
        expected = 0.0
        for j in range(n):
            expected += chance[j]
        actual = 0.5 * (1.0 + lo[i] + hi[i])
        performance = mu[i] + c * (quantile(expected / n) - quantile(actual / n))
        performance = min(performance, ceiling)
        k = rounds[i] + 1.0
        u = weight_limit + (newcomer_weight - weight_limit) / k
        cap = (150.0 + 1500.0 / (k + 1.0)) * root * u / (0.18 + 0.42 / k)
        v = u * weight / (1.0 - u)
        rating = mu[i] - moved[i]
        if rating >= 2500.0:
            v *= 0.8
        elif rating >= 2000.0:
            v *= 0.9
        target = (mu[i] + v * performance) / (1.0 + v)
        out[i, 0] = performance
        out[i, 1] = min(max(target, mu[i] - cap), mu[i] + cap)
        out[i, 2] = np.sqrt((target - mu[i]) ** 2 / v + sigma[i] ** 2 / (1.0 + v))
    return out
