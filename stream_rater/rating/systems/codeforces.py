"""Codeforces, as the Elo-MMR paper evaluates it: no uncertainty, the same weight for everyone."""

from typing import TYPE_CHECKING, ClassVar

from stream_rater.rating.systems.common import Chances, Later, Ordering, Positive
from stream_rater.rating.systems.dimension import BETA, Dimension

if TYPE_CHECKING:
    from stream_rater.rating import memoryless
    from stream_rater.rating.kernels import codeforces
    from stream_rater.rating.model import Evidence, Wave
else:
    memoryless = Later("stream_rater.rating.memoryless")
    codeforces = Later("stream_rater.rating.kernels.codeforces")

RISE = 0.0255
"""The mean performance of a duel of equals is this many beta above their rating. The performance is
where the expected rank is the geometric mean of two ranks, which is below their arithmetic mean.
With logistic(z) = 1/(1 + exp(-C z)), expected rank 3/2 and the ranks 1 and 2, RISE is the mean of
ln(2/(G - 1/2) - 1)/C over G = sqrt(3/2) and sqrt(3)."""


class Codeforces(Ordering, frozen=True, forbid_unknown_fields=True, kw_only=True,
                 tag_field="system", tag="codeforces"):  # fmt: skip
    """Codeforces: no uncertainty, the same weight for everyone."""

    beta: Positive
    weight: Positive

    space: ClassVar[tuple[Dimension, ...]] = (BETA, Dimension("weight", 0.01, 2.0, 0.3))

    @classmethod
    def sample(cls) -> "Codeforces":
        return cls(beta=200.0, weight=0.2)

    def estimate(self, wave: "Wave") -> "Evidence":
        return memoryless.rate_each_round(
            wave, self.initial_mu,
            lambda r: codeforces.rate(r.place, r.mu, r.sigma, r.weight, self.beta, self.weight),
        )  # fmt: skip

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
