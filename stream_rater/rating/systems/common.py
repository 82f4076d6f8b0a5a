"""What all rating systems share: common parameters, and what a system says of itself.

A system is a struct of parameters, distinguished in configuration files by `system`, its tag.
Besides its fields it has these, which the type checker asks of every system in `rating.parameters`:

    estimate(wave)   stage 1: evidence (P, 3) for the players of a wave (see `rating.model`)
    chances          the distribution of the difference of two performances
    space            the dimensions that `tune` varies
    sample()         a configuration, for the check that all machines compute the same bits

`Common` has what a system may say otherwise: stage 2, what is displayed, cautions. Unknown names
and values out of range are refused with their place (msgspec names the field).
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, structs

from stream_rater.rating.systems.dimension import Dimension, rounded

if TYPE_CHECKING:
    from stream_rater.columns.arrays import Floats, Ints
    from stream_rater.rating.model import Beliefs, Evidence, Variances

DEFAULT_KEPT = 20
"""The number of logistic factors kept in a record, unless `history` says otherwise."""

Positive = Annotated[float, Meta(ge=1e-6, le=1e9)]
NotNegative = Annotated[float, Meta(ge=0, le=1e9)]
Fraction = Annotated[float, Meta(gt=0, lt=1)]
Finite = Annotated[float, Meta(ge=-1e9, le=1e9)]

TIED_LAST: Final = "tied-last"
NOT_COMPARED: Final = "not-compared"
Unfinished = Literal["tied-last", "not-compared"]
"""How entries that did not finish are compared with each other: they all tie for last, or they are
not compared. Either way they are worse than all entries that finished."""

C = math.pi / math.sqrt(3.0)
"""A logistic distribution with variance delta^2 has scale delta / C."""

USUAL_SIGMA = 350.0
"""A newcomer's sigma in the points for which the search spaces are made."""


class Chances(NamedTuple):
    """The distribution of the difference of two performances, by a system's own model.

    It is around the difference of the ratings, and its variance is the sum of `sigmas` sigma^2 +
    `noise` over the two entries. Weights of rounds and of newcomers and drift by time are left out.
    """

    gaussian: bool
    """Whether it is normal; else it is logistic."""
    sigmas: float
    noise: float
    """In points^2."""

    def times(self, variance_factor: float) -> "Chances":
        """With another variance: a factor of more than 1 makes predictions less sure. Ratings do
        not depend on it."""
        return Chances(self.gaussian, variance_factor * self.sigmas, variance_factor * self.noise)


class MinusSigma(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Display mu minus this many sigmas, a lower bound of the player's skill."""

    minus_sigma: NotNegative


class Common(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters that every system has."""

    initial_mu: Finite = 1500.0
    initial_sigma: Positive = 350.0
    history: Annotated[int, Meta(ge=1, le=64)] | Literal["full"] = DEFAULT_KEPT
    display: Literal["mu"] | MinusSigma | None = None
    floor: Finite | None = None
    provisional_rounds: Annotated[int, Meta(ge=0, le=1_000_000)] = 5
    skip_all_tied: bool = False
    dnf: Unfinished = TIED_LAST

    more_space: ClassVar[tuple[Dimension, ...]] = ()
    """The dimensions that `tune` varies besides, for a file of rounds."""
    replaced: ClassVar[tuple[str, ...]] = ()
    """Parameters that the dimensions stand in for. They become None when a system is tuned."""
    newer: ClassVar[tuple[str, ...]] = ("dnf",)
    """Parameters that are newer than the first release of the system. The fingerprint leaves them
    out where they have their default, so that workers of older releases agree."""

    @property
    def kept(self) -> int:
        """The number of logistic factors kept; 0 means all."""
        return 0 if self.history == "full" else self.history

    @property
    def momentum(self) -> float:
        """The inverse momentum that stage 2 needs (Elo-MMR's rho), may be infinite."""
        return 0.0

    @property
    def sigma_offset(self) -> float:
        """The sigma at which the displayed rating is mu, unless `display` says otherwise."""
        return 0.0

    @property
    def drifts_by_time(self) -> bool:
        """Whether sigma rises between rounds, by the days that pass.

        The rise is charged with the next round. If the displayed rating fell with sigma, a victory
        after a pause could lower it. So such systems display mu.
        """
        return False

    @property
    def displays_mu(self) -> bool:
        """Whether mu itself is displayed, unless `display` says otherwise."""
        return self.drifts_by_time

    @property
    def draw_width(self) -> float:
        """The largest difference of two performances that is a draw, in rating points; 0 where the
        system has no draws."""
        return 0.0

    def cautions(self) -> list[str]:
        """What these parameters do to ratings in the long run, where that may surprise: a line
        each. It is shown once at the start of `run` and `rate`, and when a `Ladder` is made."""
        return []

    @staticmethod
    def update(
        beliefs: "Beliefs", rows: "Ints", evidence: "Evidence", rho: "Floats", kept: "Ints"
    ) -> None:
        """Stage 2, in place, for the players in `rows` (P,): store the new mu and sigma of the
        evidence (P, 3 or 4). `rho` and `kept` (P,) are the momentum and `kept` of their rules."""
        from stream_rater.rating.elo_mmr import belief

        belief.replace(beliefs.header, rows, evidence, kept)

    @classmethod
    def from_dimensions(cls, values: Mapping[str, float]) -> dict[str, Any]:
        """The parameters with these values of the dimensions, as a table."""
        return dict(values)

    def dimensions(self) -> dict[str, Any]:
        """The values of the dimensions by name, as far as they can be expressed: the inverse of
        `from_dimensions`. There are other parameters among them."""
        return structs.asdict(self)

    @property
    def point(self) -> float:
        """How many of this configuration's rating points are one of those of the search space."""
        return self.initial_sigma / USUAL_SIGMA


NEWCOMER_ROUNDS = 12


def newcomer_weights(factor: float, fade: float) -> list[float]:
    """Weights that begin at `factor` and approach 1; each round leaves `fade` of the distance."""
    weights = (rounded(1.0 + (factor - 1.0) * fade**k) for k in range(NEWCOMER_ROUNDS))
    return [weight for weight in weights if weight != 1.0]


def match_of_limits(limits: tuple[float, float], *, gaussian: bool) -> Chances:
    """A match of two by (weight_limit, sigma_limit): the noise is beta^2 + gamma^2."""
    weight, sigma = limits
    return Chances(gaussian, 1.0, (1.0 + 1.0 / weight + weight) * sigma**2)


class Evolving(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How skills change and performances scatter, in Elo-MMR and Elo-MMx.

    (weight_limit, sigma_limit) and (beta, gamma) are two forms of the same pair. After many rounds
    a player's uncertainty approaches sigma_limit, and each round then has weight_limit times the
    weight of all rounds before.
    """

    weight_limit: Positive | None = None
    sigma_limit: Positive | None = None
    beta: Positive | None = None
    gamma: Positive | None = None
    ties: Literal["full", "split"] = "full"
    drift_per_day: NotNegative = 0.0
    newcomer_weights: tuple[Annotated[float, Meta(ge=1e-6, le=1000)], ...] = ()

    replaced: ClassVar[tuple[str, ...]] = ("beta", "gamma")

    def __post_init__(self) -> None:
        by_limit = self.weight_limit is not None and self.sigma_limit is not None
        by_spread = self.beta is not None and self.gamma is not None
        given = sum(x is not None for x in (self.weight_limit, self.sigma_limit))
        spread = sum(x is not None for x in (self.beta, self.gamma))
        if by_limit == by_spread or given + spread != 2:
            raise ValueError("give either weight_limit and sigma_limit, or beta and gamma")

    @property
    def drift_in_beta(self) -> float:
        """The part of `drift_per_day` that is in beta^2 at weight 1.

        It is all of it, so that weight_limit is the weight of a round also where rounds come daily.
        It is none where beta itself was given.
        """
        return self.drift_per_day if self.beta is None else 0.0

    @property
    def limits(self) -> tuple[float, float]:
        """(weight_limit, sigma_limit), from whichever form was given.

        gamma^2 = w s^2 and beta^2 = (1 + 1/w) s^2 give s^4 + gamma^2 s^2 = gamma^2 beta^2.
        """
        if self.weight_limit is not None and self.sigma_limit is not None:
            return self.weight_limit, self.sigma_limit
        assert self.beta is not None and self.gamma is not None
        drift = self.gamma**2
        root = math.sqrt(1.0 + 4.0 * self.beta**2 / drift)
        variance = 2.0 * self.beta**2 / (root + 1.0)  # drift (root - 1) / 2, without cancellation
        return drift / variance, math.sqrt(variance)

    @property
    def variances(self) -> "Variances":
        """What beta^2 and gamma^2 are computed from, as kernels take it."""
        import numpy as np

        from stream_rater.rating.model import Variances

        weights = np.array(self.newcomer_weights, dtype=np.float64)
        return Variances(*self.limits, self.drift_per_day, self.drift_in_beta, weights)

    @property
    def sigma_offset(self) -> float:
        return self.limits[1]

    @property
    def drifts_by_time(self) -> bool:
        return self.drift_per_day > 0.0

    @classmethod
    def from_dimensions(cls, values: Mapping[str, float]) -> dict[str, Any]:
        table: dict[str, Any] = dict(values)
        factor, fade = table.pop("newcomer_factor", 1.0), table.pop("newcomer_fade", 0.0)
        if factor != 1.0:
            table["newcomer_weights"] = newcomer_weights(factor, fade)
        return table

    def dimensions(self) -> dict[str, Any]:
        found = structs.asdict(self)
        found["weight_limit"], found["sigma_limit"] = self.limits
        first, *later = self.newcomer_weights or (1.0,)
        found["newcomer_factor"] = first
        if later and first != 1.0 and 0.0 <= (fade := (later[0] - 1.0) / (first - 1.0)) < 1.0:
            found["newcomer_fade"] = fade
        return found


GOOD_WEIGHT, GOOD_SIGMA = 0.1, 80.0
"""First guesses that are good everywhere.

Each pair of a grid was judged by the game that it predicts worst, compared with what suits that
game. This pair was best. The games were those of cwl, formula-one, map-rando and codeforces. Games
of teams and races suffer most from more weight, because a result says less there."""


def evolving_space(*more: Dimension) -> tuple[Dimension, ...]:
    """The dimensions of `Evolving`, with a system's own."""
    return (
        Dimension("weight_limit", 0.01, 2.0, GOOD_WEIGHT),
        Dimension("sigma_limit", 10.0, 300.0, GOOD_SIGMA, points=1),
        *more,
        Dimension("drift_per_day", 0.0, 100.0, 0.0, "square", points=2),
        Dimension("newcomer_factor", 0.3, 6.0, 1.0, parameter="newcomer_weights"),
        Dimension("newcomer_fade", 0.2, 0.95, 0.7, "linear", parameter="newcomer_weights"),
    )


class Ordering(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters that systems share in which entries that did not finish tie for last."""

    def __post_init__(self) -> None:
        if self.dnf != TIED_LAST:
            system = self.__struct_config__.tag
            raise ValueError(f"dnf: {system} has {TIED_LAST!r} only")


class PlacingNewcomers(Ordering, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Newcomers begin at the level of the field that they play in, plus `newcomer_offset` points
    for all newcomers of a side together. `newcomer_field` is the part of that level that counts
    (see `newcomer_level`). `beta` is the spread of performances, and sigma grows by `sigma_drift`
    in a round."""

    newcomer_offset: Finite = 0.0
    newcomer_field: Annotated[float, Meta(ge=0, le=1)] = 0.0
    beta: Positive
    sigma_drift: NotNegative

    newer: ClassVar[tuple[str, ...]] = ("dnf", "newcomer_offset", "newcomer_field")

    @property
    def chances(self) -> Chances:
        return Chances(False, 1.0, self.beta**2 + self.sigma_drift**2)

    @property
    def places_newcomers(self) -> bool:
        """Whether newcomers begin elsewhere than at the initial rating."""
        return self.newcomer_offset != 0.0 or self.newcomer_field != 0.0

    def cautions(self) -> list[str]:
        if self.sigma_drift > 0.0 or self.drifts_by_time:
            return []
        return [
            "sigma_drift: 0 lets sigma only fall, so ratings come to rest. Give it some points if "
            "skills change"
        ]
