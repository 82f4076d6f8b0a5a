"""The parameters of the systems that the Elo-MMR paper compares with. Their kernels are loaded when
a ladder that names one of them rates a round."""

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from stream_rater.rating.systems.common import (
    BETA,
    DRIFT,
    Chances,
    Dimension,
    Fraction,
    Later,
    Ordering,
    PlacingNewcomers,
    Positive,
)

if TYPE_CHECKING:
    from stream_rater.rating.kernels import historic, trueskill
    from stream_rater.rating.model import Evidence, Wave
else:
    historic = Later("stream_rater.rating.kernels.historic")
    trueskill = Later("stream_rater.rating.kernels.trueskill")

RISE = 0.0255
"""The mean performance of a duel of equals is this many beta above their rating. The performance is
where the expected rank is the geometric mean of two ranks, which is below their arithmetic mean.
With logistic(z) = 1/(1 + exp(-C z)), expected rank 3/2 and the ranks 1 and 2, RISE is the mean of
ln(2/(G - 1/2) - 1)/C over G = sqrt(3/2) and sqrt(3)."""


class Bar(PlacingNewcomers, frozen=True, kw_only=True, tag="bar"):
    """BAR, the Bayesian approximation for rankings (Weng and Lin)."""

    kappa: Fraction = 1e-4

    space: ClassVar = (Dimension("beta", 1.0, 1500.0, 300.0, points=1), DRIFT)

    def estimate(self, wave: "Wave") -> "Evidence":
        return historic.rate_each_round(
            wave, self.initial_mu, historic.bar, self.beta, self.sigma_drift, self.kappa
        )


class Codeforces(Ordering, frozen=True, kw_only=True, tag="codeforces"):
    """Codeforces, as the Elo-MMR paper evaluates it: no uncertainty, one weight for everyone."""

    beta: Positive
    weight: Positive

    space: ClassVar[tuple[Dimension, ...]] = (BETA, Dimension("weight", 0.01, 2.0, 0.3))

    sampled: ClassVar[dict[str, Any]] = {"beta": 200.0, "weight": 0.2}

    def estimate(self, wave: "Wave") -> "Evidence":
        return historic.rate_each_round(
            wave, self.initial_mu, historic.codeforces, self.beta, self.weight
        )

    @property
    def chances(self) -> Chances:
        return Chances(0.0, 0.5 * self.beta**2)

    @property
    def displays_mu(self) -> bool:
        return True

    def cautions(self) -> list[str]:
        rise = RISE * self.beta * self.weight / (1.0 + self.weight)
        return [
            f"system codeforces: all ratings rise, by {rise:.2g} points a player in each even duel "
            "with these parameters, and by more in larger rounds. Compare ranks, not ratings of "
            "different years"
        ]


class Glicko(PlacingNewcomers, frozen=True, kw_only=True, tag="glicko"):
    """Glicko for n players."""

    space: ClassVar[tuple[Dimension, ...]] = (BETA, DRIFT)

    def estimate(self, wave: "Wave") -> "Evidence":
        return historic.rate_each_round(
            wave, self.initial_mu, historic.glicko, self.beta, self.sigma_drift
        )

    @property
    def chances(self) -> Chances:
        """Glickman's variance, which includes the uncertainties of both players."""
        return Chances(1.0, 0.5 * self.beta**2 + self.sigma_drift**2)


class Topcoder(Ordering, frozen=True, kw_only=True, tag="topcoder"):
    """Topcoder: sigma is a volatility, which players can exploit (section 5.1 of the paper)."""

    newcomer_weight: Fraction = 0.6
    weight_limit: Fraction = 0.18

    space: ClassVar[tuple[Dimension, ...]] = (
        Dimension("newcomer_weight", 0.1, 0.99, 0.6, "linear"),
        Dimension("weight_limit", 0.02, 0.8, 0.18, "linear"),
        Dimension("initial_mu", 500.0, 2500.0, 1500.0, "linear", points=1),
    )
    """`initial_mu` varies, because Topcoder weighs results less above 2000 and 2500 points."""

    def estimate(self, wave: "Wave") -> "Evidence":
        return historic.rate_each_round(
            wave, self.initial_mu, historic.topcoder, self.newcomer_weight, self.weight_limit
        )

    @property
    def chances(self) -> Chances:
        """Performances vary by the volatility alone."""
        return Chances(1.0, 0.0)

    def cautions(self) -> list[str]:
        return [
            "system topcoder: where results are even, the volatility falls by 6 % with each "
            "duel, and by less in larger rounds; after some hundred rounds ratings no longer "
            "move. Choose another system, at least for small rounds"
        ]


class TrueSkill(PlacingNewcomers, frozen=True, kw_only=True, tag="trueskill"):
    """TrueSkill, the St Petersburg variant (Nikolenko and Sirotkin); draw_margin is its epsilon."""

    draw_margin: Positive
    tolerance: Annotated[float, Meta(ge=1e-12, le=1e-2)] = 1e-6

    space: ClassVar = (BETA, DRIFT, Dimension("draw_margin", 0.01, 100.0, 1.0, points=1))

    sampled: ClassVar = {**PlacingNewcomers.sampled, "draw_margin": 1.0}

    def estimate(self, wave: "Wave") -> "Evidence":
        return historic.rate_each_round(
            wave, self.initial_mu, trueskill.rate, self.beta, self.sigma_drift, self.draw_margin,
            self.tolerance,
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
