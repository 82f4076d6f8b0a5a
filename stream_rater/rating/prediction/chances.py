"""The probability that one entry is placed better than another, by each rating system's own model.

The difference of two performances is normal or logistic around the difference of the ratings. Its
variance is the sum of `sigmas` sigma^2 + `noise` over the two entries:

| system | distribution | sigmas | noise |
|---|---|---|---|
| Elo-MMR | logistic | 1 | beta^2 + gamma^2 |
| Elo-MMx | normal | 1 | beta^2 + gamma^2 |
| Codeforces | logistic | 0 | beta^2 / 2 |
| Topcoder | normal | 1 (the volatility) | 0 |
| Glicko | logistic | 1 | beta^2 / 2 + drift^2 |
| BAR | logistic | 1 | beta^2 + drift^2 |
| TrueSkill | normal | 1 | beta^2 + drift^2 |
| Two-moment filter | logistic | 1 | beta^2 + drift^2 |
| Elo-R | logistic | 1 | delta^2 + eta^2 |
| Elo, pairwise Elo, logistic | logistic | 0 | (C scale)^2 / 2 |
| Elo, pairwise Elo, Gaussian | normal | 0 | scale^2 |
| Plackett-Luce | logistic | 0 | (C scale)^2 / 2 |
| Thurstone | normal | 0 | scale^2 |

This is each system's own model of a match of two, but for the two-moment filter's, whose noise is
skewed, and whose members of a team drift less. For Glicko it is Glickman's, with both
uncertainties. C = pi / sqrt 3 makes a difference of one `scale` mean odds of e. Round weights,
newcomers' weights and drift by time are left out.

A variance factor multiplies both parts of the variance: more than 1 makes predictions less sure.
Ratings do not depend on it.
"""

from typing import NamedTuple

from stream_rater.rating.elo_mmr.performance import C
from stream_rater.rating.parameters import (
    Bar,
    Climbing,
    Codeforces,
    Elo,
    EloMMX,
    EloR,
    Evolving,
    Glicko,
    PairwiseElo,
    RatingConfig,
    Thurstone,
    Topcoder,
    TrueSkill,
    TwoMoment,
)


class Chances(NamedTuple):
    """The distribution of the difference of two performances, as in the module's table."""

    gaussian: bool
    sigmas: float
    noise: float
    """In points^2."""


def chances_of(config: RatingConfig, variance_factor: float = 1.0) -> Chances:
    """The model of a match of two by this configuration."""
    gaussian, sigmas, noise = _of_one(config)
    return Chances(gaussian, variance_factor * sigmas, variance_factor * noise)


def draw_margin_of(config: RatingConfig) -> float:
    """By how much performances of a draw may differ, in rating points; 0 where the system has no
    draws. In TrueSkill each lies within `draw_margin` of the place that they share."""
    return 2.0 * config.draw_margin if isinstance(config, TrueSkill) else 0.0


def _of_one(config: RatingConfig) -> Chances:
    """With a variance factor of 1."""
    match config:
        case Evolving() | EloR():
            weight, sigma = config.limits
            noise = (1.0 + 1.0 / weight + weight) * sigma**2
            return Chances(isinstance(config, EloMMX), 1.0, noise)
        case Codeforces():
            return Chances(False, 0.0, 0.5 * config.beta**2)
        case Topcoder():
            return Chances(True, 1.0, 0.0)
        case Glicko():
            return Chances(False, 1.0, 0.5 * config.beta**2 + config.sigma_drift**2)
        case Bar() | TrueSkill() | TwoMoment():
            gaussian = isinstance(config, TrueSkill)
            return Chances(gaussian, 1.0, config.beta**2 + config.sigma_drift**2)
        case Climbing():
            gaussian = isinstance(config, Thurstone)
            if isinstance(config, Elo | PairwiseElo):
                gaussian = config.model == "gaussian"
            return Chances(gaussian, 0.0, config.scale**2 * (1.0 if gaussian else 0.5 * C**2))
        case _:
            raise AssertionError(f"{config} has no model of a match of two")
