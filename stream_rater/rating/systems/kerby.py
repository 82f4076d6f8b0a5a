"""Kerby's four systems: one number per player, which climbs the gradient of the result's
log-likelihood (B. Kerby, "Multiplayer generalizations of Elo rating system", 2025).

The four differ in the likelihood. `rating.kernels.climb` has what they have in common.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from msgspec import structs

from stream_rater.rating.systems.common import (
    NEWER,
    NOT_COMPARED,
    C,
    Chances,
    Common,
    Dimension,
    Finite,
    Later,
    NotNegative,
    Positive,
    Unfinished,
    rounded,
)

if TYPE_CHECKING:
    from stream_rater.rating.kernels import climb
    from stream_rater.rating.model import Evidence, Wave
else:
    climb = Later("stream_rater.rating.kernels.climb")


class Likelihood(NamedTuple):
    """The likelihood of a result, as kernels take it."""

    kind: Literal["pairs", "exponential", "gaussian", "choices"]
    """The likelihood of all pairs, or of the whole order by an exponential or a Gaussian model, or
    by choices: the exponential model in the usual orientation."""
    gaussian: bool
    """Whether performances, or the pairs' chances, are normal. Otherwise they are logistic."""
    average: bool = False
    """Whether the gradient is the mean over an entry's pairs instead of their sum."""


Rates = tuple[tuple[Finite, NotNegative], ...]
"""[[rating, rate], ...]: a learning rate that is linear between these ratings and constant
outside."""

FIRST_RATING = 1500.0
UNIT = 400.0 / math.log(10.0)
"""The number of points in a unit of Kerby's models, as in chess. `tune` fixes `scale` at this
value."""

KERBYS = (
    Dimension("initial_mu", 1000.0, 2000.0, FIRST_RATING, "linear", points=1),
    Dimension("anchor", 1000.0, 2200.0, 1000.0, "linear", points=1),
    Dimension("rate_above", 0.05, 2.0, 1.0),
    Dimension("rate_far_above", 0.05, 2.0, 1.0),
    Dimension("floor", 1000.0, 2000.0, 1000.0, "linear", points=1),
)
"""The additional dimensions of all of Kerby's systems, for the rounds of a file: the first rating,
the anchor, a table of learning rates, and the floor. Without these the systems perform worse than
in Kerby's note. At the low end of its range, the anchor or the floor is absent. The rates are
fractions of the learning rate, for one and for two units above FIRST_RATING. The note's table
begins at 0."""

SUMMED = Dimension("learning_rate", 0.1, 1000.0, 20.0, points=1)
"""The learning rate of systems that sum over all pairs of a round."""
AVERAGED = Dimension("learning_rate", 1.0, 5000.0, 200.0, points=1)
"""The learning rate of systems that average over each entry's pairs."""


class Climbing(Common, frozen=True, kw_only=True):
    """The parameters of Kerby's systems: ratings climb the gradient of the result's log-likelihood.

    `scale` is the number of rating points in the model's unit (1 in the paper, 400 / ln 10 in
    chess). A learning rate is in points. Unlike in other systems, `floor` limits the rating itself,
    not only the displayed one.
    """

    learning_rate: Positive | Rates
    scale: Positive = 1.0
    anchor: Finite | None = None
    fixed: tuple[str, ...] = ()
    dnf: Unfinished = NOT_COMPARED

    takes_sigma: ClassVar[bool] = False
    limits_mu: ClassVar[bool] = True
    space: ClassVar[tuple[Dimension, ...]] = (SUMMED,)
    more_space: ClassVar[tuple[Dimension, ...]] = KERBYS
    sampled: ClassVar[dict[str, Any]] = {"learning_rate": 32.0, "scale": 174.0}
    tuned: ClassVar[dict[str, Any]] = {"scale": UNIT}
    """Parameters that `tune` fixes at these values."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ratings = [rating for rating, _ in self.rates]
        if not ratings or any(a >= b for a, b in pairwise(ratings)):
            raise ValueError("learning_rate: its ratings must rise from pair to pair")
        if self.floor is not None and self.initial_mu < self.floor:
            raise ValueError("initial_mu is below the floor")

    @property
    def rates(self) -> Rates:
        """The learning rate as a table, from whichever form was given."""
        given = self.learning_rate
        return given if isinstance(given, tuple) else ((self.initial_mu, given),)

    @property
    def likelihood(self) -> Likelihood:
        raise NotImplementedError

    def estimate(self, wave: "Wave") -> "Evidence":
        return climb.estimate(
            wave, self.rates, self.scale, self.initial_mu, self.anchor, self.floor, self.likelihood
        )  # fmt: skip

    @property
    def chances(self) -> Chances:
        """A difference of one `scale` means odds of e in a logistic model. The variance of such a
        difference is scale^2 C^2."""
        gaussian = self.likelihood.gaussian
        return Chances(0.0, self.scale**2 * (1.0 if gaussian else 0.5 * C**2))

    @property
    def displays_mu(self) -> bool:
        return True

    @property
    def fixed_players(self) -> tuple[str, ...]:
        return self.fixed

    @classmethod
    def from_dimensions(cls, values: Mapping[str, float]) -> dict[str, Any]:
        table: dict[str, Any] = {**cls.tuned, **values}
        for each in KERBYS:
            if each.name in ("anchor", "floor") and table.get(each.name) == each.low:
                del table[each.name]
        if (floor := table.get("floor")) is not None:
            table["floor"] = min(floor, table.get("initial_mu", FIRST_RATING))
        above, far = table.pop("rate_above", 1.0), table.pop("rate_far_above", 1.0)
        if (above, far) != (1.0, 1.0):
            rate = table["learning_rate"]
            table["learning_rate"] = [
                [rounded(FIRST_RATING + k * UNIT), rounded(rate * part)]
                for k, part in enumerate((1.0, above, far))
            ]
        return table

    def dimensions(self) -> dict[str, Any]:
        ratings, rates = zip(*self.rates, strict=True)
        rate = float(np.interp(self.initial_mu, ratings, rates))
        found = structs.asdict(self)
        found["learning_rate"] = rate if len(rates) == 1 else rounded(rate)
        return found

    @property
    def point(self) -> float:
        return self.scale / UNIT


class Elo(Climbing, frozen=True, kw_only=True, tag="elo"):
    """Elo for two players. A larger round is rated as all its pairs."""

    model: Literal["logistic", "gaussian"] = "logistic"

    @property
    def likelihood(self) -> Likelihood:
        return Likelihood("pairs", self.model == "gaussian")


class PairwiseElo(Climbing, frozen=True, kw_only=True, tag="pairwise-elo"):
    """Elo between all pairs of a round. `pairs` selects the sum over a player's pairs or their
    mean."""

    model: Literal["logistic", "gaussian"] = "logistic"
    pairs: Literal["sum", "average"] = "sum"

    space: ClassVar[tuple[Dimension, ...]] = (AVERAGED,)
    tuned: ClassVar[dict[str, Any]] = {"pairs": "average", "dnf": "tied-last", "scale": UNIT}

    @property
    def likelihood(self) -> Likelihood:
        return Likelihood("pairs", self.model == "gaussian", self.pairs == "average")


class PlackettLuce(Climbing, frozen=True, kw_only=True, tag="plackett-luce"):
    """Plackett-Luce. `orientation` says which place is decided first: with `"last"` entries are
    eliminated, and who is left wins; with `"first"`, the usual form, the winner is chosen first."""

    orientation: Literal["first", "last"] = "last"

    newer: ClassVar[tuple[str, ...]] = (*NEWER, "orientation")

    @property
    def likelihood(self) -> Likelihood:
        return Likelihood("choices" if self.orientation == "first" else "exponential", False)


class Thurstone(Climbing, frozen=True, kw_only=True, tag="thurstone"):
    """Thurstone: performances are normal with variance 1."""

    @property
    def likelihood(self) -> Likelihood:
        return Likelihood("gaussian", True)


Kerby = Elo | PairwiseElo | PlackettLuce | Thurstone  # The systems of B. Kerby's note.
