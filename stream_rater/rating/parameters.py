"""The parameters of each rating system, by their names in configuration files.

Each system has a struct of its own, distinguished by `system`; `Common` has what all share. Unknown
names and values out of range are refused with their place (msgspec names the field).
"""

import hashlib
import math
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

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


class BadParameters(ValueError):
    """A rating configuration that is not valid. The text is one line."""


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

    @property
    def kept(self) -> int:
        """The number of logistic factors kept; 0 means all."""
        return 0 if self.history == "full" else self.history


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

    def __post_init__(self) -> None:
        by_limit = self.weight_limit is not None and self.sigma_limit is not None
        by_spread = self.beta is not None and self.gamma is not None
        given = sum(x is not None for x in (self.weight_limit, self.sigma_limit))
        spread = sum(x is not None for x in (self.beta, self.gamma))
        if by_limit == by_spread or given + spread != 2:
            raise ValueError("give either weight_limit and sigma_limit, or beta and gamma")

    @property
    def drift_in_beta(self) -> float:
        """What of `drift_per_day` beta^2 holds, at weight 1: all of it, so that weight_limit is the
        weight of a round also where rounds come daily; nothing where beta itself was given."""
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


class EloMMR(Evolving, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="system",
             tag="elo-mmr"):  # fmt: skip
    """Elo-MMR(rho), sections 3 and 4 of the paper."""

    rho: NotNegative | Literal["inf"] = 1.0

    @property
    def momentum(self) -> float:
        """rho as a float, infinite for "inf"."""
        return math.inf if self.rho == "inf" else self.rho


class EloMMX(Evolving, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="system",
             tag="elo-mmx"):  # fmt: skip
    """Elo-MMx: Elo-MMR with a Gaussian performance model; memoryless."""


class Ordering(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters that systems share which know no entries that are not compared."""

    def __post_init__(self) -> None:
        if self.dnf != TIED_LAST:
            system = self.__struct_config__.tag
            raise ValueError(f"dnf: {system} has {TIED_LAST!r} only")


class Codeforces(Ordering, frozen=True, forbid_unknown_fields=True, kw_only=True,
                 tag_field="system", tag="codeforces"):  # fmt: skip
    """Codeforces: no uncertainty, the same weight for everyone."""

    beta: Positive
    weight: Positive


class Topcoder(Ordering, frozen=True, forbid_unknown_fields=True, kw_only=True,
               tag_field="system", tag="topcoder"):  # fmt: skip
    """Topcoder: sigma is a volatility."""

    newcomer_weight: Fraction = 0.6
    weight_limit: Fraction = 0.18


class PlacingNewcomers(Ordering, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Newcomers begin at the level of the field that they play in, plus `newcomer_offset` points
    for all newcomers of a side together. `newcomer_field` is the part of that level that counts
    (see `newcomer_level`)."""

    newcomer_offset: Finite = 0.0
    newcomer_field: Annotated[float, Meta(ge=0, le=1)] = 0.0


class Glicko(PlacingNewcomers, frozen=True, forbid_unknown_fields=True, kw_only=True,
             tag_field="system", tag="glicko"):  # fmt: skip
    """Glicko for n players."""

    beta: Positive
    sigma_drift: NotNegative


class Bar(PlacingNewcomers, frozen=True, forbid_unknown_fields=True, kw_only=True,
          tag_field="system", tag="bar"):  # fmt: skip
    """BAR: Bayesian approximation for rankings."""

    beta: Positive
    sigma_drift: NotNegative
    kappa: Fraction = 1e-4


class TrueSkill(PlacingNewcomers, frozen=True, forbid_unknown_fields=True, kw_only=True,
                tag_field="system", tag="trueskill"):  # fmt: skip
    """TrueSkill, the St Petersburg variant; draw_margin is its epsilon."""

    beta: Positive
    sigma_drift: NotNegative
    draw_margin: Positive
    tolerance: Annotated[float, Meta(ge=1e-12, le=1e-2)] = 1e-6


class TwoMoment(PlacingNewcomers, frozen=True, forbid_unknown_fields=True, kw_only=True,
                tag_field="system", tag="two-moment"):  # fmt: skip
    """The two-moment filter. `beta`, in points, is the spread of performances; a round adds
    sigma_drift^2 to sigma^2 and a day `drift_per_day`, both in points^2."""

    beta: Positive = 250.0
    sigma_drift: NotNegative = 20.0
    drift_per_day: NotNegative = 16.0
    newcomer_offset: Finite = -150.0
    newcomer_field: Annotated[float, Meta(ge=0, le=1)] = 0.8


class EloR(Common, frozen=True, forbid_unknown_fields=True, kw_only=True,
           tag_field="system", tag="elo-r"):  # fmt: skip
    """Elo-R: delta is the spread of a performance, and sigma_limit is the limit of the
    uncertainty."""

    delta: Positive = 250.0
    sigma_limit: Positive = 100.0
    ties: Literal["full", "split"] = "full"

    def __post_init__(self) -> None:
        if self.delta <= self.sigma_limit:
            raise ValueError("delta must be more than sigma_limit")

    @property
    def limits(self) -> tuple[float, float]:
        """(weight_limit, sigma_limit) as in Elo-MMR: delta^2 = (1 + 1/w) s^2, eta^2 = w s^2."""
        s2 = self.sigma_limit**2
        return s2 / (self.delta**2 - s2), self.sigma_limit


Rates = tuple[tuple[Finite, NotNegative], ...]
"""[[rating, rate], ...]: a learning rate that is linear between these ratings and constant
outside."""


class Climbing(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
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

    def __post_init__(self) -> None:
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


class Elo(Climbing, frozen=True, forbid_unknown_fields=True, kw_only=True,
          tag_field="system", tag="elo"):  # fmt: skip
    """Elo for two players. A larger round is rated as all its pairs."""

    model: Literal["logistic", "gaussian"] = "logistic"


class PairwiseElo(Climbing, frozen=True, forbid_unknown_fields=True, kw_only=True,
                  tag_field="system", tag="pairwise-elo"):  # fmt: skip
    """Elo between all pairs of a round. `pairs`: their sum, or each player's mean."""

    model: Literal["logistic", "gaussian"] = "logistic"
    pairs: Literal["sum", "average"] = "sum"


class PlackettLuce(Climbing, frozen=True, forbid_unknown_fields=True, kw_only=True,
                   tag_field="system", tag="plackett-luce"):  # fmt: skip
    """Plackett-Luce: performances are exponential, and the last one eliminated wins."""


class Thurstone(Climbing, frozen=True, forbid_unknown_fields=True, kw_only=True,
                tag_field="system", tag="thurstone"):  # fmt: skip
    """Thurstone: performances are normal with variance 1."""


class Season(msgspec.Struct, frozen=True, array_like=True):
    """A season that has started on a ladder, and how beliefs are drawn by it (see `seasons`)."""

    number: int
    """The operator's; it is only told."""
    keep: float
    """What is kept of mu's distance from the initial rating; 1 keeps mu."""
    sigma: float
    """Sigma is at least this afterwards; 0 keeps sigma."""


Kerby = Elo | PairwiseElo | PlackettLuce | Thurstone
"""The systems of B. Kerby's note."""

Memoryless = EloMMX | Codeforces | Topcoder | Glicko | Bar | TrueSkill | TwoMoment | Kerby
"""Systems that keep mu and sigma and no history."""

RatingConfig = EloMMR | EloR | Memoryless
"""The parameters of any system."""


def fixed_players(config: RatingConfig) -> tuple[str, ...]:
    """The ids of the players whose ratings the configuration keeps as they are."""
    return config.fixed if isinstance(config, Climbing) else ()


def from_json(data: bytes) -> RatingConfig:
    """Parse a rating configuration from JSON. Raises BadParameters with the place of the
    mistake."""
    try:
        config: RatingConfig = msgspec.json.decode(data, type=RatingConfig)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadParameters(str(error)) from None
    return config


def from_builtins(table: object) -> RatingConfig:
    """Parse a rating configuration from a decoded TOML or JSON table. Raises BadParameters with the
    place of the mistake."""
    try:
        config: RatingConfig = msgspec.convert(table, RatingConfig)
    except (msgspec.ValidationError, ValueError) as error:
        raise BadParameters(str(error)) from None
    return config


def for_fingerprint(config: RatingConfig) -> dict[str, Any]:
    """All parameters but those that are newer than the first release and have their default, so
    that workers of older releases agree."""
    table: dict[str, Any] = msgspec.to_builtins(config, order="deterministic")
    if config.dnf == (NOT_COMPARED if isinstance(config, Climbing) else TIED_LAST):
        del table["dnf"]
    if isinstance(config, Glicko | Bar | TrueSkill):
        for name in ("newcomer_offset", "newcomer_field"):
            if table[name] == 0.0:
                del table[name]
    return table


def fingerprint(config: RatingConfig) -> str:
    """A short hash of the whole configuration, equal on every machine."""
    return hashlib.sha256(msgspec.json.encode(for_fingerprint(config))).hexdigest()[:16]
