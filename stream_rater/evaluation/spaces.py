"""The search spaces of `tune`: the hyperparameters of each system, their ranges and first guesses.

The name of a dimension is the name of a field of the configuration, or a name that `configuration`
translates. The weights of newcomers are computed from a factor and its fade. The sigma_limit of
Elo-R is computed from its share of delta, because it must be less than delta.

Most systems, Elo-MMR among them, depend on ratios only. The predictions stay the same if all
parameters in points are doubled (initial_sigma, sigma_limit, beta, drift), or if all ratings are
shifted. So initial_sigma is fixed while the others vary. initial_mu varies only where a system has
fixed levels of ratings (Topcoder reduces weights above 2000 and 2500). Kerby's systems have no
sigma: their `scale` is fixed as in chess, and the learning rate varies.

`WIDE` has more dimensions for Kerby's systems: the first rating, the anchor, a table of learning
rates, and the floor. Without these the systems perform worse than in his note. The table begins at
1500, where his begins at 0, and has a rate for one and for two units of `scale` above.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stream_rater.rating.parameters import RatingConfig, from_builtins

DIGITS = 4
"""The number of significant digits of a tuned value. More digits would only be noise."""

NEWCOMER_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Dimension:
    """A hyperparameter: its range, its first guess, and its scale over the range."""

    name: str
    low: float
    high: float
    start: float
    scale: Literal["log", "linear", "square"] = "log"
    """`square`: points at equal distances have equal distances in the square root of the value
    above `low`. It suits a variance that may be 0."""

    def at(self, part: float) -> float:
        """The value at this fraction of the range, 0 to 1."""
        part = min(max(part, 0.0), 1.0)
        if self.scale == "log":
            value = self.low * (self.high / self.low) ** part
        elif self.scale == "square":
            value = self.low + (self.high - self.low) * part * part
        else:
            value = self.low + (self.high - self.low) * part
        return float(f"{value:.{DIGITS}g}")


GOOD_WEIGHT, GOOD_SIGMA = 0.1, 80.0
"""First guesses that are good for all games. They were chosen from a grid of both values. For each
pair of values, the worst game was the one whose predictions lose most against the values that suit
it best. The chosen pair has the smallest such loss. The games were those of cwl, formula-one,
map-rando and codeforces. More weight harms games of teams and races most, where a result is less
informative."""


def _evolving(*more: Dimension) -> tuple[Dimension, ...]:
    return (
        Dimension("weight_limit", 0.01, 2.0, GOOD_WEIGHT),
        Dimension("sigma_limit", 10.0, 300.0, GOOD_SIGMA),
        *more,
        Dimension("drift_per_day", 0.0, 100.0, 0.0, "square"),
        Dimension("newcomer_factor", 0.3, 6.0, 1.0),
        Dimension("newcomer_fade", 0.2, 0.95, 0.7, "linear"),
    )


BETA = Dimension("beta", 30.0, 1500.0, 300.0)
DRIFT = Dimension("sigma_drift", 1.0, 200.0, 35.0)
NEWCOMERS, LEVEL_PART = Dimension("newcomer_offset", -400.0, 200.0, -150.0, "linear"), 0.8
"""The rating at which newcomers begin: its offset from their field, and the part of the field's
level that it takes over."""

CLIMBING = Dimension("learning_rate", 0.1, 1000.0, 20.0)
"""The learning rate of systems that sum over all pairs of a round. STEPPING is the learning rate of
systems that average over each entry's pairs."""
STEPPING = Dimension("learning_rate", 1.0, 5000.0, 200.0)

SPACES: dict[str, tuple[Dimension, ...]] = {
    "elo-mmr": _evolving(Dimension("rho", 0.001, 10.0, 1.0)),
    "elo-mmx": _evolving(),
    "codeforces": (BETA, Dimension("weight", 0.01, 2.0, 0.3)),
    "topcoder": (
        Dimension("newcomer_weight", 0.1, 0.99, 0.6, "linear"),
        Dimension("weight_limit", 0.02, 0.8, 0.18, "linear"),
        Dimension("initial_mu", 500.0, 2500.0, 1500.0, "linear"),
    ),
    "glicko": (BETA, DRIFT),
    "bar": (Dimension("beta", 1.0, 1500.0, 300.0), DRIFT),
    "trueskill": (BETA, DRIFT, Dimension("draw_margin", 0.01, 100.0, 1.0)),
    "two-moment": (
        Dimension("beta", 30.0, 3000.0, 250.0),
        Dimension("sigma_drift", 1.0, 300.0, 20.0),
        Dimension("drift_per_day", 0.0, 1600.0, 16.0, "square"),
        NEWCOMERS,
    ),
    "elo-r": (
        Dimension("delta", 50.0, 2000.0, 250.0),
        Dimension("sigma_part", 0.05, 0.95, 0.4, "linear"),
    ),
    "elo": (CLIMBING,),
    "pairwise-elo": (STEPPING,),
    "plackett-luce": (CLIMBING,),
    "thurstone": (CLIMBING,),
}
"""The dimensions of each system."""

FIRST_RATING = 1500.0
UNIT = 400.0 / math.log(10.0)
"""Points in a unit of Kerby's models, as in chess."""

KERBYS = (
    Dimension("initial_mu", 1000.0, 2000.0, FIRST_RATING, "linear"),
    Dimension("anchor", 1000.0, 2200.0, 1000.0, "linear"),
    Dimension("rate_above", 0.05, 2.0, 1.0),
    Dimension("rate_far_above", 0.05, 2.0, 1.0),
    Dimension("floor", 1000.0, 2000.0, 1000.0, "linear"),
)
"""The additional dimensions of all of Kerby's systems. At the low end of its range, the anchor or
the floor is absent. The rates are fractions of the learning rate, for one and for two units above
FIRST_RATING."""

WIDE = {
    system: (*space, *KERBYS) if space in ((CLIMBING,), (STEPPING,)) else space
    for system, space in SPACES.items()
}
"""The dimensions that `tune` searches for the rounds of a file."""

CHESS = {"scale": UNIT}

FIXED: dict[str, dict[str, Any]] = {
    "elo": CHESS,
    "pairwise-elo": {"pairs": "average", "dnf": "tied-last", **CHESS},
    "plackett-luce": CHESS,
    "thurstone": CHESS,
}
"""Fixed values of a system's configuration."""


def configuration(system: str, values: Mapping[str, float]) -> RatingConfig:
    """The configuration of a system with these values of its dimensions."""
    table: dict[str, Any] = {"system": system, **FIXED.get(system, {}), **values}
    factor, fade = table.pop("newcomer_factor", 1.0), table.pop("newcomer_fade", 0.0)
    if factor != 1.0:
        table["newcomer_weights"] = newcomer_weights(factor, fade)
    if (part := table.pop("sigma_part", None)) is not None:
        table["sigma_limit"] = float(f"{part * table['delta']:.{DIGITS}g}")
    return from_builtins(_climbing(table))


def _climbing(table: dict[str, Any]) -> dict[str, Any]:
    """The table with Kerby's dimensions replaced by the parameters of his systems. `table` itself
    is changed."""
    for each in KERBYS:
        if each.name in ("anchor", "floor") and table.get(each.name) == each.low:
            del table[each.name]
    if (floor := table.get("floor")) is not None:
        table["floor"] = min(floor, table.get("initial_mu", FIRST_RATING))
    above, far = table.pop("rate_above", 1.0), table.pop("rate_far_above", 1.0)
    if (above, far) != (1.0, 1.0):
        rate = table["learning_rate"]
        table["learning_rate"] = [
            [float(f"{FIRST_RATING + k * UNIT:.{DIGITS}g}"), float(f"{rate * part:.{DIGITS}g}")]
            for k, part in enumerate((1.0, above, far))
        ]
    return table


def newcomer_weights(factor: float, fade: float) -> list[float]:
    """Weights that begin at `factor` and approach 1. After each round, the distance to 1 is
    multiplied by `fade`."""
    weights = (1.0 + (factor - 1.0) * fade**k for k in range(NEWCOMER_ROUNDS))
    rounded = (float(f"{weight:.{DIGITS}g}") for weight in weights)
    return [weight for weight in rounded if weight != 1.0]


def start(space: Sequence[Dimension]) -> dict[str, float]:
    """The first guess of each dimension."""
    return {each.name: each.start for each in space}


def place(dimension: Dimension, value: float) -> float:
    """The fraction of the range, 0 to 1, that corresponds to a value. It is the inverse of
    `Dimension.at`."""
    if value <= dimension.low:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if dimension.at(middle) < value else (low, middle)
    return high
