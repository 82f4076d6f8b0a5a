"""Elo-R: Elo-MMR with one width for all performances; a belief keeps its logistic factors."""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import structs

from stream_rater.rating.systems.common import (
    WIDENS,
    Chances,
    Common,
    Later,
    Positive,
    chances_of_limits,
)
from stream_rater.rating.systems.dimension import Dimension, rounded

if TYPE_CHECKING:
    from stream_rater.columns.arrays import Floats, Ints
    from stream_rater.rating import model
    from stream_rater.rating.kernels import elo_r
    from stream_rater.rating.model import Beliefs, Evidence, Variances, Wave
else:
    model = Later("stream_rater.rating.model")
    elo_r = Later("stream_rater.rating.kernels.elo_r")


class EloR(Common, frozen=True, forbid_unknown_fields=True, kw_only=True,
           tag_field="system", tag="elo-r"):  # fmt: skip
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
    follows_ties: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta <= self.sigma_limit:
            raise ValueError("delta must be more than sigma_limit")

    @classmethod
    def sample(cls) -> "EloR":
        return cls()

    @property
    def limits(self) -> tuple[float, float]:
        """(weight_limit, sigma_limit) as in Elo-MMR: delta^2 = (1 + 1/w) s^2, eta^2 = w s^2."""
        s2 = self.sigma_limit**2
        return s2 / (self.delta**2 - s2), self.sigma_limit

    @property
    def sigma_offset(self) -> float:
        return self.sigma_limit

    def estimate(self, wave: "Wave") -> "Evidence":
        return elo_r.rate_rounds(wave, _variances_of(self), self.initial_mu, self.ties == "split")

    @staticmethod
    def update(
        beliefs: "Beliefs", rows: "Ints", evidence: "Evidence", rho: "Floats", kept: "Ints"
    ) -> None:
        elo_r.update(beliefs.header, beliefs.factors, rows, evidence, kept)

    @property
    def chances(self) -> Chances:
        return chances_of_limits(self.limits)

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
    return model.Variances(*config.limits, 0.0, 0.0, elo_r.NO_WEIGHTS)
