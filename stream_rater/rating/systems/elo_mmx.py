"""Elo-MMx: Elo-MMR with a Gaussian performance model; memoryless."""

from typing import TYPE_CHECKING, ClassVar

from stream_rater.rating.systems.common import Chances, Later, chances_of_limits
from stream_rater.rating.systems.dimension import Dimension
from stream_rater.rating.systems.elo_mmr import Evolving, evolving_space, variances_of

if TYPE_CHECKING:
    from stream_rater.rating.kernels import elo_mmx
    from stream_rater.rating.model import Evidence, Wave
else:
    elo_mmx = Later("stream_rater.rating.kernels.elo_mmx")


class EloMMX(Evolving, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="system",
             tag="elo-mmx"):  # fmt: skip
    """Elo-MMx: Elo-MMR with a Gaussian performance model; memoryless."""

    space: ClassVar[tuple[Dimension, ...]] = evolving_space()

    @classmethod
    def sample(cls) -> "EloMMX":
        return cls(weight_limit=0.2, sigma_limit=80.0)

    def estimate(self, wave: "Wave") -> "Evidence":
        split = self.ties == "split"
        return elo_mmx.rate_rounds(wave, variances_of(self), self.initial_mu, split)

    @property
    def chances(self) -> Chances:
        return chances_of_limits(self.limits)
