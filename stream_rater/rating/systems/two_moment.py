"""The two-moment filter: the mean and the variance of each skill, given the round.

The derivation is in docs/internals/mathematics.md ("The two-moment filter").
"""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from stream_rater.rating.systems.common import (
    NEWCOMERS,
    NEWER,
    Dimension,
    Finite,
    Inexperience,
    Later,
    NotNegative,
    PlacingNewcomers,
    Positive,
)

if TYPE_CHECKING:
    from stream_rater.rating.kernels import two_moment
    from stream_rater.rating.model import Evidence, Wave
else:
    two_moment = Later("stream_rater.rating.kernels.two_moment")


class Score(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How scores count in rounds of two sides. The margin is the difference of their scores, or of
    the logarithms of 1 + score (`by = "ratio"`), and is never more than `cap`. A margin of 1 stands
    for a difference of `scale` points between the performances."""

    scale: Positive
    cap: Positive
    by: Literal["difference", "ratio"] = "difference"


SCORE_NOISE = 1.0
"""The variance of what scores show of the difference of two performances, as a multiple of the
variance of both sides' noise."""
NO_SCORE = Score(scale=1.0, cap=1.0)
"""The score that kernels get if scores do not count. Then the wave has none."""


class TwoMoment(PlacingNewcomers, frozen=True, kw_only=True, tag="two-moment"):
    """The two-moment filter. `beta`, in points, is the spread of performances; a round adds
    sigma_drift^2 to sigma^2 and a day `drift_per_day`, both in points^2. A player who has played n
    rounds performs `inexperience` exp(-n / `inexperience_rounds`) points below the rating. On a
    side of three members or more, `beta` is multiplied by their number to the power `team_noise`.
    """

    beta: Positive = 250.0
    sigma_drift: NotNegative = 20.0
    drift_per_day: NotNegative = 16.0
    newcomer_offset: Finite = -150.0
    newcomer_field: Annotated[float, Meta(ge=0, le=1)] = 0.8
    inexperience: NotNegative = 150.0
    inexperience_rounds: Positive = 20.0
    score: Score | None = None
    team_noise: Annotated[float, Meta(ge=0, le=1)] = 0.0

    newer: ClassVar[tuple[str, ...]] = (
        *NEWER, "inexperience", "inexperience_rounds", "score", "team_noise",
    )  # fmt: skip
    sampled: ClassVar[dict[str, Any]] = {}
    follows_ties: ClassVar[bool] = True
    space: ClassVar[tuple[Dimension, ...]] = (
        Dimension("beta", 30.0, 3000.0, 250.0, points=1),
        Dimension("sigma_drift", 1.0, 300.0, 20.0, points=1),
        Dimension("drift_per_day", 0.0, 1600.0, 16.0, "square", points=2),
        NEWCOMERS,
        Dimension("inexperience", 0.0, 1200.0, 150.0, "square", points=1),
        Dimension("inexperience_rounds", 2.0, 200.0, 20.0),
    )

    def estimate(self, wave: "Wave") -> "Evidence":
        score = self.score or NO_SCORE
        model = two_moment.Model(
            self.initial_mu, self.initial_sigma, self.beta, self.sigma_drift**2, self.drift_per_day,
            score.scale, score.cap, score.by == "ratio", SCORE_NOISE,
            self.team_noise,
        )  # fmt: skip
        return two_moment.rate_rounds(wave, model)

    @property
    def inexperience_of_newcomers(self) -> Inexperience:
        return Inexperience(self.inexperience, self.inexperience_rounds)

    @property
    def drifts_by_time(self) -> bool:
        return self.drift_per_day > 0.0
