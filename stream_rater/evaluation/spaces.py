"""The search spaces of `tune`: the hyperparameters of each system, their ranges and first guesses.

Each system has its own in `rating.systems`. The name of a dimension is the name of a field of the
configuration, or a name that the system's `from_dimensions` translates.

Most systems, Elo-MMR among them, depend on ratios only. The predictions stay the same if all
parameters in points are doubled (initial_sigma, sigma_limit, beta, drift), or if all ratings are
shifted. So initial_sigma is fixed while the others vary. initial_mu varies only where a system has
fixed levels of ratings. Kerby's systems have no sigma: their `scale` is fixed as in chess, and the
learning rate varies.
"""

from collections.abc import Mapping, Sequence

from stream_rater.rating.parameters import SYSTEMS, RatingConfig, from_builtins
from stream_rater.rating.systems.dimension import Dimension

SPACES: dict[str, tuple[Dimension, ...]] = {name: each.space for name, each in SYSTEMS.items()}
"""The dimensions of each system."""

WIDE = {name: (*each.space, *each.more_space) for name, each in SYSTEMS.items()}
"""The dimensions that `tune` searches for the rounds of a file."""


def configuration(system: str, values: Mapping[str, float]) -> RatingConfig:
    """The configuration of a system with these values of its dimensions."""
    return from_builtins({"system": system, **SYSTEMS[system].from_dimensions(values)})


def start(space: Sequence[Dimension]) -> dict[str, float]:
    """The first guess of each dimension."""
    return {each.name: each.start for each in space}
