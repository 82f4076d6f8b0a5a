"""The two-moment filter: the mean and the variance of each skill, given the round.

The derivation is in docs/internals/mathematics.md ("The two-moment filter").
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from stream_rater.rating.systems.common import (
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

BETTER = {
    "beta": 300.0, "sigma_drift": 15.0, "drift_per_day": 24.0, "newcomer_offset": -175.0,
    "newcomer_field": 1.0, "inexperience": 225.0, "inexperience_rounds": 20.0, "team_noise": 0.25,
}  # fmt: skip
"""The parameters that predict better than the struct's defaults on most games. The defaults stay,
because ladders that were made with them must not change. Searches begin here."""
DRIFTING = ((0.5, 4.0), (0.7, 1.0), (1.0, 0.25), (1.0, 4.0), (2.0, 0.0625), (2.0, 1.0), (2.0, 4.0))
"""Presets: multiples of `beta`, and of the variances that rounds and days add."""


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
        Dimension("beta", 30.0, 3000.0, BETTER["beta"], points=1),
        Dimension("sigma_drift", 1.0, 300.0, BETTER["sigma_drift"], points=1),
        Dimension("drift_per_day", 0.0, 1600.0, BETTER["drift_per_day"], "square", points=2),
        Dimension("newcomer_offset", -400.0, 200.0, BETTER["newcomer_offset"], "linear", points=1),
        Dimension("newcomer_field", 0.0, 1.0, BETTER["newcomer_field"], "linear"),
        Dimension("inexperience", 0.0, 1200.0, BETTER["inexperience"], "square", points=1),
        Dimension("inexperience_rounds", 2.0, 200.0, BETTER["inexperience_rounds"]),
    )
    presets: ClassVar[tuple[tuple[Mapping[str, float], ...], ...]] = (
        tuple(
            {"beta": BETTER["beta"] * wide, "sigma_drift": BETTER["sigma_drift"] * fast**0.5,
             "drift_per_day": BETTER["drift_per_day"] * fast}
            for wide, fast in DRIFTING
        ),
        ({"newcomer_offset": -50.0, "newcomer_field": 0.5, "inexperience": 75.0},
         {"newcomer_offset": -250.0, "newcomer_field": 1.0, "inexperience": 350.0}),
    )  # fmt: skip

    @classmethod
    def from_dimensions(cls, values: Mapping[str, float]) -> dict[str, Any]:
        return {"team_noise": BETTER["team_noise"], **values}

    @property
    def for_kernels(self) -> "two_moment.Model":
        score = self.score or NO_SCORE
        return two_moment.Model(
            self.initial_mu, self.initial_sigma, self.beta, self.sigma_drift**2, self.drift_per_day,
            score.scale, score.cap, score.by == "ratio", SCORE_NOISE,
            self.team_noise,
        )  # fmt: skip

    def estimate(self, wave: "Wave") -> "Evidence":
        return two_moment.rate_rounds(wave, self.for_kernels)

    @property
    def inexperience_of_newcomers(self) -> Inexperience:
        return Inexperience(self.inexperience, self.inexperience_rounds)

    @property
    def drifts_by_time(self) -> bool:
        return self.drift_per_day > 0.0
