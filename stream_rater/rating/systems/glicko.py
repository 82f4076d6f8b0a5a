"""Glicko for n players."""

from typing import TYPE_CHECKING, ClassVar

from stream_rater.rating.systems.common import Chances, Later, PlacingNewcomers
from stream_rater.rating.systems.dimension import BETA, DRIFT, Dimension

if TYPE_CHECKING:
    from stream_rater.rating import memoryless
    from stream_rater.rating.kernels import glicko
    from stream_rater.rating.model import Evidence, Wave
else:
    memoryless = Later("stream_rater.rating.memoryless")
    glicko = Later("stream_rater.rating.kernels.glicko")


class Glicko(PlacingNewcomers, frozen=True, forbid_unknown_fields=True, kw_only=True,
             tag_field="system", tag="glicko"):  # fmt: skip
    """Glicko for n players."""

    space: ClassVar[tuple[Dimension, ...]] = (BETA, DRIFT)

    @classmethod
    def sample(cls) -> "Glicko":
        return cls(beta=200.0, sigma_drift=35.0)

    def estimate(self, wave: "Wave") -> "Evidence":
        return memoryless.rate_each_round(
            wave, self.initial_mu,
            lambda r: glicko.rate(r.place, r.mu, r.sigma, r.weight, self.beta, self.sigma_drift),
        )  # fmt: skip

    @property
    def chances(self) -> Chances:
        """Glickman's variance, which includes the uncertainties of both players."""
        return Chances(1.0, 0.5 * self.beta**2 + self.sigma_drift**2)
