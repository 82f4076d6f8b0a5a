"""Elo-MMR(rho), sections 3 and 4 of the paper: the system that the service was made for.

Its kernels are in `rating.elo_mmr`. A belief keeps a player's logistic factors, so stage 2 computes
the posterior anew after each round.
"""

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from stream_rater.rating.systems.common import (
    Chances,
    Evolving,
    NotNegative,
    evolving_space,
    match_of_limits,
)
from stream_rater.rating.systems.dimension import Dimension

if TYPE_CHECKING:
    from stream_rater.columns.arrays import Floats, Ints
    from stream_rater.rating.model import Beliefs, Evidence, Wave


class EloMMR(Evolving, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="system",
             tag="elo-mmr"):  # fmt: skip
    """Elo-MMR(rho), sections 3 and 4 of the paper."""

    rho: NotNegative | Literal["inf"] = 1.0

    space: ClassVar[tuple[Dimension, ...]] = evolving_space(Dimension("rho", 0.001, 10.0, 1.0))

    @classmethod
    def sample(cls) -> "EloMMR":
        return cls(weight_limit=0.2, sigma_limit=80.0)

    @property
    def momentum(self) -> float:
        """rho as a float, infinite for "inf"."""
        return math.inf if self.rho == "inf" else self.rho

    @property
    def tie(self) -> float:
        """How much of a tie counts on either side: 1.0 or 0.5 (see `performance`)."""
        return 1.0 if self.ties == "full" else 0.5

    def estimate(self, wave: "Wave") -> "Evidence":
        import numpy as np

        from stream_rater.rating.elo_mmr import performance

        evidence: Evidence = np.empty((len(wave.mu), 3))
        performance.estimate(wave, self.variances, self.initial_mu, self.tie, evidence)
        return evidence

    @staticmethod
    def update(
        beliefs: "Beliefs", rows: "Ints", evidence: "Evidence", rho: "Floats", kept: "Ints"
    ) -> None:
        from stream_rater.rating.elo_mmr import belief

        assert not kept.any() if beliefs.in_full else kept.all(), (
            "codes need a bounded history, and numbers a full one"
        )
        belief.update(beliefs.header, beliefs.factors, rows, evidence, rho, kept)

    @property
    def chances(self) -> Chances:
        return match_of_limits(self.limits, gaussian=False)

    def dimensions(self) -> dict[str, Any]:
        return {**super().dimensions(), "rho": self.momentum}
