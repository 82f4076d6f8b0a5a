"""A dimension of a search space: a hyperparameter that `tune` varies, and its range."""

from dataclasses import dataclass
from typing import Literal

DIGITS = 4  # The number of significant digits of a tuned value. More digits would only be noise.


def rounded(value: float) -> float:
    """The value with DIGITS significant digits."""
    return float(f"{value:.{DIGITS}g}")


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
    points: int = 0
    """The unit, as a power of rating points: 0 is without unit, 1 is points, 2 is points
    squared."""
    parameter: str = ""
    """The parameter that the dimension determines, if it has another name than the dimension."""

    def at(self, part: float) -> float:
        """The value at this fraction of the range, 0 to 1."""
        part = min(max(part, 0.0), 1.0)
        if self.scale == "log":
            value = self.low * (self.high / self.low) ** part
        elif self.scale == "square":
            value = self.low + (self.high - self.low) * part * part
        else:
            value = self.low + (self.high - self.low) * part
        return rounded(value)


def fraction_of(dimension: Dimension, value: float) -> float:
    """The fraction of the range, 0 to 1, that corresponds to a value. It is the inverse of
    `Dimension.at`."""
    if value <= dimension.low:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if dimension.at(middle) < value else (low, middle)
    return high


BETA = Dimension("beta", 30.0, 1500.0, 300.0, points=1)
"""The spread of performances, as several systems have it."""
DRIFT = Dimension("sigma_drift", 1.0, 200.0, 35.0, points=1)
"""The growth of sigma in a round, as several systems have it."""

NEWCOMERS, LEVEL_PART = Dimension("newcomer_offset", -400.0, 200.0, -150.0, "linear", points=1), 0.8
"""Two settings of the rating at which newcomers begin: the dimension of its offset from their
field, and the part of the level of that field that counts."""
