"""BAR, the Bayesian approximation for rankings (Weng and Lin)."""

from typing import TYPE_CHECKING, ClassVar

from stream_rater.rating.systems.common import Fraction, Later, PlacingNewcomers
from stream_rater.rating.systems.dimension import DRIFT, Dimension

if TYPE_CHECKING:
    from stream_rater.rating import memoryless
    from stream_rater.rating.kernels import bar
    from stream_rater.rating.model import Evidence, Wave
else:
    memoryless = Later("stream_rater.rating.memoryless")
    bar = Later("stream_rater.rating.kernels.bar")


class Bar(PlacingNewcomers, frozen=True, forbid_unknown_fields=True, kw_only=True,
          tag_field="system", tag="bar"):  # fmt: skip
    """BAR: Bayesian approximation for rankings."""

    kappa: Fraction = 1e-4

    space: ClassVar[tuple[Dimension, ...]] = (
        Dimension("beta", 1.0, 1500.0, 300.0, points=1),
        DRIFT,
    )

    @classmethod
    def sample(cls) -> "Bar":
        return cls(beta=200.0, sigma_drift=35.0)

    def estimate(self, wave: "Wave") -> "Evidence":
        return memoryless.rate_each_round(
            wave, self.initial_mu,
            lambda r: bar.rate(
                r.place, r.mu, r.sigma, r.weight, self.beta, self.sigma_drift, self.kappa
            ),
        )  # fmt: skip
