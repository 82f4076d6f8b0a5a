"""Topcoder: sigma is a volatility, which players can exploit (section 5.1 of the paper)."""

from typing import TYPE_CHECKING, ClassVar

from stream_rater.rating.systems.common import Chances, Fraction, Later, Ordering
from stream_rater.rating.systems.dimension import Dimension

if TYPE_CHECKING:
    from stream_rater.rating import memoryless
    from stream_rater.rating.kernels import topcoder
    from stream_rater.rating.model import Evidence, Wave
else:
    memoryless = Later("stream_rater.rating.memoryless")
    topcoder = Later("stream_rater.rating.kernels.topcoder")


class Topcoder(Ordering, frozen=True, forbid_unknown_fields=True, kw_only=True,
               tag_field="system", tag="topcoder"):  # fmt: skip
    """Topcoder: sigma is a volatility."""

    newcomer_weight: Fraction = 0.6
    weight_limit: Fraction = 0.18

    space: ClassVar[tuple[Dimension, ...]] = (
        Dimension("newcomer_weight", 0.1, 0.99, 0.6, "linear"),
        Dimension("weight_limit", 0.02, 0.8, 0.18, "linear"),
        Dimension("initial_mu", 500.0, 2500.0, 1500.0, "linear", points=1),
    )
    """`initial_mu` varies, because Topcoder weighs results less above 2000 and 2500 points."""

    @classmethod
    def sample(cls) -> "Topcoder":
        return cls()

    def estimate(self, wave: "Wave") -> "Evidence":
        return memoryless.rate_each_round(
            wave, self.initial_mu,
            lambda r: topcoder.rate(
                r.place, r.mu, r.sigma, r.rounds, r.weight, r.ceiling, r.moved,
                self.newcomer_weight, self.weight_limit,
            ),
        )  # fmt: skip

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
