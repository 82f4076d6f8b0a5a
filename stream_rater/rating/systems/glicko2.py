"""Glicko-2, with a rating period of one round of the player."""

import math
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from msgspec import Meta

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.rating.systems.common import (
    Chances,
    Dimension,
    Later,
    NotNegative,
    Ordering,
    Positive,
)

if TYPE_CHECKING:
    from stream_rater.rating.kernels import glicko2
    from stream_rater.rating.model import Beliefs, Evidence, Wave
else:
    glicko2 = Later("stream_rater.rating.kernels.glicko2")

DAY_S = 86_400.0


class Glicko2(Ordering, frozen=True, kw_only=True, tag="glicko2"):
    """Glicko-2. The odds grow tenfold in `scale` points. Each player has a volatility, which begins
    at `volatility`; `tau` bounds how fast it changes."""

    scale: Positive = 400.0
    volatility: Annotated[float, Meta(ge=0, le=10)] = 0.06
    tau: Annotated[float, Meta(ge=1e-3, le=100)] = 0.5
    drift_per_day: NotNegative = 0.0

    space: ClassVar[tuple[Dimension, ...]] = (
        Dimension("scale", 50.0, 4000.0, 400.0, points=1),
        Dimension("volatility", 0.002, 0.6, 0.06),
        Dimension("tau", 0.05, 3.0, 0.5),
        Dimension("drift_per_day", 0.0, 1600.0, 0.0, "square", points=2),
    )
    memoryless: ClassVar[bool] = False
    performs_as_side: ClassVar[bool] = False

    def estimate(self, wave: "Wave") -> "Evidence":
        return glicko2.rate_rounds(
            wave, self.initial_mu, self._points_of_odds, self._diffusion(wave)
        )

    def _diffusion(self, wave: "Wave") -> Floats:
        """(P,) the variance that a period and the days since the last round add to each player, at
        the initial volatility. Days raise no sigma beyond the initial one."""
        players = np.diff(wave.entry_starts[wave.round_starts])
        away_s = np.repeat(wave.time, players) - wave.last_time
        days = np.where(wave.rounds > 0, np.maximum(away_s, 0) / DAY_S, 0.0)
        period = (self.volatility * self._points_of_odds) ** 2
        room = np.maximum(self.initial_sigma**2 - wave.sigma**2, 0.0)
        found: Floats = period + np.minimum(self.drift_per_day * days, room)
        return found

    @property
    def _points_of_odds(self) -> float:
        return self.scale / math.log(10.0)

    @staticmethod
    def update(
        beliefs: "Beliefs", rows: Ints, evidence: "Evidence", rho: Floats, kept: Ints
    ) -> None:
        glicko2.update(beliefs.header, rows, evidence, rho, kept)

    @property
    def momentum(self) -> float:
        """Stage 2 receives tau in the place of an inverse momentum."""
        return self.tau

    @property
    def drifts_by_time(self) -> bool:
        return self.drift_per_day > 0.0

    @property
    def displays_mu(self) -> bool:
        """A victory that surprises can raise sigma, so a bound below mu could fall with it."""
        return True

    @property
    def chances(self) -> Chances:
        """The logistic distribution of Elo, with the uncertainties of both players."""
        return Chances(1.0, 0.5 * (math.pi * self._points_of_odds) ** 2 / 3.0)

    def cautions(self) -> list[str]:
        if self.volatility > 0.0 or self.drifts_by_time:
            return []
        return [
            "volatility: 0 lets sigma only fall, so ratings come to rest. Give some, or "
            "drift_per_day, if skills change"
        ]
