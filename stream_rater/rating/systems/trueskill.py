"""TrueSkill in its St Petersburg variant (Nikolenko and Sirotkin)."""

import math
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from stream_rater.rating.systems.common import Later, PlacingNewcomers, Positive
from stream_rater.rating.systems.dimension import BETA, DRIFT, Dimension

if TYPE_CHECKING:
    from stream_rater.rating import memoryless
    from stream_rater.rating.kernels import trueskill
    from stream_rater.rating.model import Evidence, Wave
else:
    memoryless = Later("stream_rater.rating.memoryless")
    trueskill = Later("stream_rater.rating.kernels.trueskill")


class TrueSkill(PlacingNewcomers, frozen=True, forbid_unknown_fields=True, kw_only=True,
                tag_field="system", tag="trueskill"):  # fmt: skip
    """TrueSkill, the St Petersburg variant; draw_margin is its epsilon."""

    draw_margin: Positive
    tolerance: Annotated[float, Meta(ge=1e-12, le=1e-2)] = 1e-6

    space: ClassVar[tuple[Dimension, ...]] = (
        BETA,
        DRIFT,
        Dimension("draw_margin", 0.01, 100.0, 1.0, points=1),
    )

    @classmethod
    def sample(cls) -> "TrueSkill":
        return cls(beta=200.0, sigma_drift=35.0, draw_margin=1.0)

    def estimate(self, wave: "Wave") -> "Evidence":
        return memoryless.rate_each_round(
            wave, self.initial_mu,
            lambda r: trueskill.rate(
                r.place, r.mu, r.sigma, r.weight, self.beta, self.sigma_drift, self.draw_margin,
                self.tolerance,
            ),
        )  # fmt: skip

    def caution_of_rounds(self, rounds: float, skew: float, places: int) -> str:
        """The first place should lie within 3 standard deviations of a newcomer's performance."""
        most = 1.0 + 3.0 * math.hypot(self.initial_sigma, self.beta) / self.draw_margin
        if places <= most:
            return ""
        return (
            f"a round has {places} places, each 2 * draw_margin above the next: more than "
            f"{int(most)} leave the scale. Lower draw_margin, or choose another system"
        )

    @property
    def drawn_within(self) -> float:
        """Each performance of a draw lies within `draw_margin` of the place that both share, unless
        `draw_width` says otherwise for predictions."""
        return self.draw_width or 2.0 * self.draw_margin
