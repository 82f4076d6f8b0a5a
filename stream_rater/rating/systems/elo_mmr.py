"""Elo-MMR(rho), sections 3 and 4 of the paper, the system that the service was made for; Elo-MMx,
its Gaussian variant; Elo-R, its predecessor, with one width for all performances.

The kernels are in `rating.elo_mmr` and `rating.kernels`. A belief of Elo-MMR or Elo-R keeps a
player's logistic factors, so stage 2 computes the whole posterior after each round.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta, structs

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.rating.systems.common import (
    DIFFUSES,
    WIDENS,
    Chances,
    Common,
    Dimension,
    Later,
    NotNegative,
    Positive,
    rounded,
)

if TYPE_CHECKING:
    from stream_rater.rating import model
    from stream_rater.rating.elo_mmr import belief, performance
    from stream_rater.rating.kernels import elo_mmx, elo_r
    from stream_rater.rating.model import Beliefs, Evidence, Variances, Wave
else:
    model = Later("stream_rater.rating.model")
    belief = Later("stream_rater.rating.elo_mmr.belief")
    performance = Later("stream_rater.rating.elo_mmr.performance")
    elo_mmx = Later("stream_rater.rating.kernels.elo_mmx")
    elo_r = Later("stream_rater.rating.kernels.elo_r")

GOOD_WEIGHT, GOOD_SIGMA = 0.1, 80.0
"""First guesses that are good for all games. They were chosen from a grid of both values. For each
pair of values, the worst game was the one whose predictions lose most against the values that suit
it best. The chosen pair has the smallest such loss. The games were those of cwl, formula-one,
map-rando and codeforces. More weight harms games of teams and races most, where a result is less
informative."""

NEWCOMER_ROUNDS = 12


def newcomer_weights(factor: float, fade: float) -> list[float]:
    """Weights that begin at `factor` and approach 1. After each round, the distance to 1 is
    multiplied by `fade`."""
    weights = (rounded(1.0 + (factor - 1.0) * fade**k) for k in range(NEWCOMER_ROUNDS))
    return [weight for weight in weights if weight != 1.0]


def evolving_space(*more: Dimension) -> tuple[Dimension, ...]:
    """The dimensions of `Evolving`, and those of one system."""
    return (
        Dimension("weight_limit", 0.01, 2.0, GOOD_WEIGHT),
        Dimension("sigma_limit", 10.0, 300.0, GOOD_SIGMA, points=1),
        *more,
        Dimension("drift_per_day", 0.0, 100.0, 0.0, "square", points=2),
        Dimension("newcomer_factor", 0.3, 6.0, 1.0, parameter="newcomer_weights"),
        Dimension("newcomer_fade", 0.2, 0.95, 0.7, "linear", parameter="newcomer_weights"),
    )


class Limited(Common, frozen=True, kw_only=True):
    """The systems whose uncertainty approaches a limit after many rounds."""

    follows_ties: ClassVar[bool] = True

    @property
    def limits(self) -> tuple[float, float]:
        """The limits (weight_limit, sigma_limit)."""
        raise NotImplementedError

    @property
    def sigma_offset(self) -> float:
        return self.limits[1]

    @property
    def chances(self) -> Chances:
        """The noise is beta^2 + gamma^2."""
        weight, sigma = self.limits
        return Chances(1.0, (1.0 + 1.0 / weight + weight) * sigma**2)


class Evolving(Limited, frozen=True, kw_only=True):
    """The parameters by which skills change and performances vary, in Elo-MMR and Elo-MMx.

    (weight_limit, sigma_limit) and (beta, gamma) are two forms of the same pair. After many rounds
    a player's uncertainty approaches sigma_limit, and each round then has weight_limit times the
    weight of all rounds before.
    """

    weight_limit: Positive | None = None
    sigma_limit: Positive | None = None
    beta: Positive | None = None
    gamma: Positive | None = None
    ties: Literal["full", "split"] = "full"
    drift_per_day: NotNegative = 0.0
    newcomer_weights: tuple[Annotated[float, Meta(ge=1e-6, le=1000)], ...] = ()

    replaced: ClassVar[tuple[str, ...]] = ("beta", "gamma")
    sampled: ClassVar[dict[str, Any]] = {"weight_limit": 0.2, "sigma_limit": 80.0}

    def __post_init__(self) -> None:
        super().__post_init__()
        by_limit = self.weight_limit is not None and self.sigma_limit is not None
        by_spread = self.beta is not None and self.gamma is not None
        given = sum(x is not None for x in (self.weight_limit, self.sigma_limit))
        spread = sum(x is not None for x in (self.beta, self.gamma))
        if by_limit == by_spread or given + spread != 2:
            raise ValueError("give either weight_limit and sigma_limit, or beta and gamma")

    @property
    def drift_in_beta(self) -> float:
        """The part of `drift_per_day` that is in beta^2 at weight 1. If the limits were given, it
        is the whole drift, so that weight_limit is the weight of a round even where rounds come
        daily. If beta itself was given, it is 0."""
        return self.drift_per_day if self.beta is None else 0.0

    @property
    def limits(self) -> tuple[float, float]:
        """(weight_limit, sigma_limit), from whichever form was given. gamma^2 = w s^2 and beta^2 =
        (1 + 1/w) s^2 give s^4 + gamma^2 s^2 = gamma^2 beta^2."""
        if self.weight_limit is not None and self.sigma_limit is not None:
            return self.weight_limit, self.sigma_limit
        assert self.beta is not None and self.gamma is not None
        drift = self.gamma**2
        root = math.sqrt(1.0 + 4.0 * self.beta**2 / drift)
        variance = 2.0 * self.beta**2 / (root + 1.0)  # drift (root - 1) / 2, without cancellation
        return drift / variance, math.sqrt(variance)

    @property
    def drifts_by_time(self) -> bool:
        return self.drift_per_day > 0.0

    @classmethod
    def from_dimensions(cls, values: Mapping[str, float]) -> dict[str, Any]:
        table: dict[str, Any] = dict(values)
        factor, fade = table.pop("newcomer_factor", 1.0), table.pop("newcomer_fade", 0.0)
        if factor != 1.0:
            table["newcomer_weights"] = newcomer_weights(factor, fade)
        return table

    def dimensions(self) -> dict[str, Any]:
        found = structs.asdict(self)
        found["weight_limit"], found["sigma_limit"] = self.limits
        first, *later = self.newcomer_weights or (1.0,)
        found["newcomer_factor"] = first
        if later and first != 1.0 and 0.0 <= (fade := (later[0] - 1.0) / (first - 1.0)) < 1.0:
            found["newcomer_fade"] = fade
        return found


@lru_cache(maxsize=1000)
def variances_of(config: Evolving) -> "Variances":
    """The values from which kernels compute beta^2 and gamma^2."""
    weights = np.array(config.newcomer_weights, dtype=np.float64)
    return model.Variances(*config.limits, config.drift_per_day, config.drift_in_beta, weights)


class EloMMR(Evolving, frozen=True, kw_only=True, tag="elo-mmr"):
    """Elo-MMR(rho), sections 3 and 4 of the paper."""

    rho: NotNegative | Literal["inf"] = 1.0

    space: ClassVar[tuple[Dimension, ...]] = evolving_space(Dimension("rho", 0.001, 10.0, 1.0))
    season_growth: ClassVar[int] = DIFFUSES

    @property
    def momentum(self) -> float:
        """rho as a float, infinite for "inf"."""
        return math.inf if self.rho == "inf" else self.rho

    @property
    def tie(self) -> float:
        """The part of a tie that counts on either side: 1.0 or 0.5 (see `performance`)."""
        return 1.0 if self.ties == "full" else 0.5

    def estimate(self, wave: "Wave") -> "Evidence":
        evidence: Evidence = np.empty((len(wave.mu), 3))
        performance.estimate(wave, variances_of(self), self.initial_mu, self.tie, evidence)
        return evidence

    @staticmethod
    def update(
        beliefs: "Beliefs", rows: Ints, evidence: "Evidence", rho: Floats, kept: Ints
    ) -> None:
        assert not kept.any() if beliefs.in_full else kept.all(), (
            "codes need a bounded history, and numbers a full one"
        )
        belief.update(beliefs.header, beliefs.factors, rows, evidence, rho, kept)

    def dimensions(self) -> dict[str, Any]:
        return {**super().dimensions(), "rho": self.momentum}


class EloMMX(Evolving, frozen=True, kw_only=True, tag="elo-mmx"):
    """Elo-MMx: Elo-MMR with a Gaussian performance model; memoryless."""

    space: ClassVar[tuple[Dimension, ...]] = evolving_space()

    def estimate(self, wave: "Wave") -> "Evidence":
        split = self.ties == "split"
        return elo_mmx.rate_rounds(wave, variances_of(self), self.initial_mu, split)


class EloR(Limited, frozen=True, kw_only=True, tag="elo-r"):
    """Elo-R: delta is the spread of a performance, and sigma_limit is the limit of the
    uncertainty."""

    delta: Positive = 250.0
    sigma_limit: Positive = 100.0
    ties: Literal["full", "split"] = "full"

    space: ClassVar[tuple[Dimension, ...]] = (
        Dimension("delta", 50.0, 2000.0, 250.0, points=1),
        Dimension("sigma_part", 0.05, 0.95, 0.4, "linear", parameter="sigma_limit"),
    )
    """`sigma_part` is sigma_limit as a fraction of delta, because it must be less than delta."""
    season_growth: ClassVar[int] = WIDENS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta <= self.sigma_limit:
            raise ValueError("delta must be more than sigma_limit")

    @property
    def limits(self) -> tuple[float, float]:
        """(weight_limit, sigma_limit) as in Elo-MMR: delta^2 = (1 + 1/w) s^2, eta^2 = w s^2."""
        s2 = self.sigma_limit**2
        return s2 / (self.delta**2 - s2), self.sigma_limit

    def estimate(self, wave: "Wave") -> "Evidence":
        return elo_r.rate_rounds(wave, _variances_of(self), self.initial_mu, self.ties == "split")

    @staticmethod
    def update(
        beliefs: "Beliefs", rows: Ints, evidence: "Evidence", rho: Floats, kept: Ints
    ) -> None:
        elo_r.update(beliefs.header, beliefs.factors, rows, evidence, kept)

    @classmethod
    def from_dimensions(cls, values: Mapping[str, float]) -> dict[str, Any]:
        table: dict[str, Any] = dict(values)
        if (part := table.pop("sigma_part", None)) is not None:
            table["sigma_limit"] = rounded(part * table["delta"])
        return table

    def dimensions(self) -> dict[str, Any]:
        return {**structs.asdict(self), "sigma_part": self.sigma_limit / self.delta}


@lru_cache(maxsize=1000)
def _variances_of(config: EloR) -> "Variances":
    """delta^2 and eta^2 as beta^2 and gamma^2, as kernels take them."""
    return model.Variances(*config.limits, 0.0, 0.0, np.empty(0))
