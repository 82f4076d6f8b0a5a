"""A dimension of a search space: a hyperparameter that `tune` varies, and its range."""

from dataclasses import dataclass
from typing import Literal

DIGITS = 4
"""Significant digits of a tuned value. More would only be noise."""


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
    """`square`: even in the square root, for a variance that may be 0."""
    points: int = 0
    """The power of rating points that the parameter is measured in."""
    parameter: str = ""
    """The parameter that it decides, if that has another name."""

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


def place(dimension: Dimension, value: float) -> float:
    """The fraction of the range, 0 to 1, at which a value lies: the inverse of `at`."""
    if value <= dimension.low:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if dimension.at(middle) < value else (low, middle)
    return high


BETA = Dimension("beta", 30.0, 1500.0, 300.0, points=1)
DRIFT = Dimension("sigma_drift", 1.0, 200.0, 35.0, points=1)
"""The spread of performances, and the growth of sigma in a round, of several systems."""

NEWCOMERS = Dimension("newcomer_offset", -400.0, 200.0, -150.0, "linear", points=1)
LEVEL_PART = 0.8
"""Where newcomers begin: how far off their field, and how much of its level they have."""
