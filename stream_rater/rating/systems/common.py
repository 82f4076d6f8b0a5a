"""The parts that all rating systems share: the common parameters, and the list of what each system
has besides them.

A system is a struct of parameters. Its tag is the `system` in configuration files. The type checker
asks for these members of every system that `rating.parameters` lists:

    estimate(wave)   stage 1: the evidence (P, 3) for the players of a wave (see `rating.model`)
    chances          the distribution of the difference between two performances
    space            the dimensions that `tune` varies
    sampled          the parameters of `sample` that have no default

`Common` has defaults for the rest: stage 2, what is displayed, cautions. msgspec rejects unknown
names and values out of range, and names the field.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self

import msgspec
from msgspec import Meta, structs

from stream_rater.rating.seats import MOST_CHARACTERS, is_seat


class Later:
    """A module that is imported when one of its names is first used. A process that only reads a
    configuration needs no kernel, and numba takes long to import. An import statement in a function
    would be executed for each wave."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        """Import the module and return the value of one of its names. Python calls this only once
        for each name, because the value is then stored as an attribute."""
        value = getattr(import_module(self._module), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    from stream_rater.columns.arrays import Floats, Ints
    from stream_rater.rating.elo_mmr import belief
    from stream_rater.rating.model import Beliefs, Evidence
else:
    belief = Later("stream_rater.rating.elo_mmr.belief")

DEFAULT_KEPT = 20
"""The number of logistic factors kept in a record, unless `history` says otherwise."""

Positive = Annotated[float, Meta(ge=1e-6, le=1e9)]
NotNegative = Annotated[float, Meta(ge=0, le=1e9)]
Fraction = Annotated[float, Meta(gt=0, lt=1)]
Finite = Annotated[float, Meta(ge=-1e9, le=1e9)]

TIED_LAST: Final = "tied-last"
NOT_COMPARED: Final = "not-compared"
Unfinished = Literal["tied-last", "not-compared"]
"""The comparisons of entries that did not finish with each other: they all tie for last, or they
are not compared. Either way they are worse than all entries that finished."""

NEWER = ("dnf", "seats")  # The parameters of all systems that are newer than the systems.

KEEPS, DIFFUSES, WIDENS = range(3)
"""The ways in which a season raises the sigma of a belief (see `seasons`): it changes sigma alone,
diffuses the factors as Elo-MMR does before a round, or widens them as Elo-R does."""

C = math.pi / math.sqrt(3.0)  # A logistic distribution with variance delta^2 has scale delta / C.

LEAST_ROUNDS, LEAST_SKEW = 100, 0.2
"""From so many rounds on, and this part of them, ties are said to move the level."""

USUAL_SIGMA = 350.0  # The sigma of a newcomer, in points, for which the search spaces are made.


class Inexperience(NamedTuple):
    """After n rounds, a player performs `points` exp(-n / `rounds`) points below the rating."""

    points: float  # In rating points; 0 if experience does not count.
    rounds: float


class Chances(NamedTuple):
    """The distribution of the difference between two performances in a match of two.

    It is normal for every system, so that all are scored, compared and shown by the same function
    (`rating.wins`). Its mean is the difference of the ratings. Its variance is that of
    the system's own model: the sum of `sigmas` sigma^2 + `noise` over the two entries. Where that
    model is logistic, the normal distribution has its variance. It ignores round weights,
    newcomers' weights and drift by time.
    """

    sigmas: float  # The factor by which each entry's sigma^2 counts.
    noise: float  # The variance of each entry that does not depend on its sigma, in points^2.

    def times(self, variance_factor: float) -> "Chances":
        """The distribution with its variance multiplied. A factor of more than 1 makes predictions
        less sure. Ratings do not depend on it."""
        return Chances(variance_factor * self.sigmas, variance_factor * self.noise)


# --- the dimensions of search spaces --------------------------------------------------------------

DIGITS = 4  # The number of significant digits of a tuned value. More digits would only be noise.


def rounded(value: float) -> float:
    """The value with DIGITS significant digits."""
    return float(f"{value:.{DIGITS}g}")


@dataclass(frozen=True, slots=True)
class Dimension:
    """A hyperparameter that `tune` varies: its range, first guess and scale."""

    name: str
    low: float
    high: float
    start: float
    scale: Literal["log", "linear", "square"] = "log"
    """`square`: points at equal distances have equal distances in the square root of the value
    above `low`. It suits a variance that may be 0."""
    points: int = 0
    """The unit, as a power of rating points: 0 means no unit, 2 means points squared."""
    parameter: str = ""
    """The parameter that the dimension determines, if it has another name than the dimension."""

    def at(self, part: float) -> float:
        """The value at this fraction of the range, 0 to 1."""
        part = min(max(part, 0.0), 1.0)
        if self.scale == "log":
            return rounded(self.low * (self.high / self.low) ** part)
        way = (self.high - self.low) * part
        return rounded(self.low + (way * part if self.scale == "square" else way))


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


# --- parameters -----------------------------------------------------------------------------------


class MinusSigma(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Display mu minus this many sigmas, a lower bound of the player's skill."""

    minus_sigma: NotNegative


class Common(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True,
             tag_field="system"):  # fmt: skip
    """The parameters that every system has."""

    initial_mu: Finite = 1500.0
    initial_sigma: Positive = 350.0
    history: Annotated[int, Meta(ge=1, le=64)] | Literal["full"] = DEFAULT_KEPT
    display: Literal["mu"] | MinusSigma | None = None
    floor: Finite | None = None
    provisional_rounds: Annotated[int, Meta(ge=0, le=1_000_000)] = 5
    skip_all_tied: bool = False
    dnf: Unfinished = TIED_LAST
    seats: dict[str, Finite] = {}
    variance_factor: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    draw_width: NotNegative = 0.0
    upset: Annotated[float, Meta(ge=0, le=0.2)] = 0.0

    more_space: ClassVar[tuple[Dimension, ...]] = ()
    """Dimensions that `tune` varies in addition to `space` for the rounds of a file."""
    presets: ClassVar[tuple[tuple[Mapping[str, float], ...], ...]] = ()
    """Values of dimensions that `tune` tries before it searches. Of each group it takes the best,
    or none of them, and goes on from there."""
    sampled: ClassVar[dict[str, Any]] = {}
    """The parameters of `sample`, as far as they are not the default ones."""
    replaced: ClassVar[tuple[str, ...]] = ()
    """Parameters that are another form of what `space` varies. They are None in a tuned system."""
    newer: ClassVar[tuple[str, ...]] = NEWER
    """Parameters that are newer than the system's first release. The fingerprint omits them where
    they have their defaults, so that it equals the one that workers of older releases compute."""
    predictive: ClassVar[tuple[str, ...]] = ("variance_factor", "draw_width", "upset")
    """Parameters of predictions alone. They change no rating, so the fingerprint has none of them,
    and they may be changed at any time (`evaluation.calibrating` fits them)."""
    season_growth: ClassVar[int] = KEEPS  # The way in which a season raises the sigma of a belief.
    takes_sigma: ClassVar[bool] = True
    """Whether the system learns a sigma. If not, every player keeps the initial one, also one who
    is seeded or reset."""
    limits_mu: ClassVar[bool] = False
    """Whether `floor` limits mu itself, and not only the displayed rating."""
    follows_ties: ClassVar[bool] = False
    """Whether the level of all ratings rises where more sides tie for last than for first."""
    performs_as_side: ClassVar[bool] = False
    """Whether the performance in the evidence is that of the player's side. If not, it is the
    player's own: the side's without the other members."""

    def __post_init__(self) -> None:
        for name in self.seats:
            if not is_seat(name):
                raise ValueError(
                    f"seats: {name!r} is no name of a seat: give it 1 to {MOST_CHARACTERS} "
                    "printable characters of ASCII"
                )

    def __hash__(self) -> int:
        """msgspec's own would hash the table of seats, which a dict does not allow."""
        return hash(msgspec.json.encode(self, order="deterministic"))

    @classmethod
    def sample(cls) -> Self:
        """A configuration that is used to check that all machines compute the same bits."""
        return cls(**cls.sampled)

    @property
    def kept(self) -> int:
        """The number of logistic factors kept; 0 means all."""
        return 0 if self.history == "full" else self.history

    @property
    def memoryless(self) -> bool:
        """Whether the evidence has the new mu and sigma. If not, it has a performance, which a
        stage 2 of the system's own adds to the belief."""
        return type(self).update is Common.update

    @property
    def momentum(self) -> float:
        """The inverse momentum that stage 2 needs (Elo-MMR's rho); may be infinite."""
        return 0.0

    @property
    def sigma_offset(self) -> float:
        """The sigma at which the displayed rating is mu, unless `display` says otherwise."""
        return 0.0

    @property
    def drifts_by_time(self) -> bool:
        """Whether sigma rises between rounds, by the days that pass. The rise is charged with the
        next round. If the displayed rating fell with sigma, a victory after a pause could lower it.
        So such systems display mu."""
        return False

    @property
    def displays_mu(self) -> bool:
        """Whether mu itself is displayed, unless `display` says otherwise."""
        return self.drifts_by_time

    @property
    def inexperience_of_newcomers(self) -> Inexperience:
        """The points by which players with few rounds perform below their ratings."""
        return Inexperience(0.0, 1.0)

    @property
    def team_noise(self) -> float:
        """On a side of n members, n >= LEAST_TEAM, the noise is multiplied by n^`team_noise`."""
        return 0.0

    @property
    def drawn_within(self) -> float:
        """The largest difference between two performances that is predicted to be a draw, in rating
        points; 0 if no draws are predicted. It changes no rating: of all systems, only TrueSkill
        has a margin for draws in its update."""
        return self.draw_width

    @property
    def fixed_players(self) -> tuple[str, ...]:
        """The ids of the players whose ratings never change."""
        return ()

    def cautions(self) -> list[str]:
        """Warnings about surprising effects of these parameters in the long run, a line each. They
        are shown once at the start of `run` and `rate`, and when a `Ladder` is made."""
        return []

    def caution_of_rounds(self, rounds: float, skew: float, places: int) -> str:
        """A warning about so many rounds of more than two sides, or nothing. In `skew` more of them
        over a tenth of the sides tie for last than for first. A large one has `places` places."""
        few = rounds < LEAST_ROUNDS or abs(skew) < LEAST_SKEW * rounds
        if few or not self.follows_ties or self.dnf != TIED_LAST:
            return ""
        end, way = ("last or do not finish", "rises") if skew > 0.0 else ("first", "falls")
        return f"many sides tie for {end}, so the level {way}. Compare no ratings of other years"

    @staticmethod
    def update(
        beliefs: "Beliefs", rows: "Ints", evidence: "Evidence", rho: "Floats", kept: "Ints"
    ) -> None:
        """Stage 2, in place, for the players in `rows` (P,): store the new mu and sigma of the
        evidence (P, 3 or 4). `rho` and `kept` (P,) are the momentum and `kept` of their rules."""
        belief.replace(beliefs.header, rows, evidence, kept)

    @classmethod
    def from_dimensions(cls, values: Mapping[str, float]) -> dict[str, Any]:
        """The parameters for these values of the dimensions, as a table."""
        return dict(values)

    def dimensions(self) -> dict[str, Any]:
        """The present value of each dimension that can express it, by name. It is the inverse of
        `from_dimensions`. The table may have other parameters, too."""
        return structs.asdict(self)

    @property
    def point(self) -> float:
        """The number of the ladder's rating points that equal one point of the search space."""
        return self.initial_sigma / USUAL_SIGMA


class Ordering(Common, frozen=True, kw_only=True):
    """The parameters of systems in which entries that did not finish always tie for last. Their
    evidence has the performance of the side."""

    performs_as_side: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dnf != TIED_LAST:
            system = self.__struct_config__.tag
            raise ValueError(f"dnf: {system} has {TIED_LAST!r} only")


class PlacingNewcomers(Ordering, frozen=True, kw_only=True):
    """Newcomers begin at the level of the field that they play in, plus `newcomer_offset` points
    for all newcomers of a side together. `newcomer_field` is the part of that level that counts
    (see `levels`). `beta` is the spread of performances, and sigma grows by `sigma_drift`
    in a round."""

    newcomer_offset: Finite = 0.0
    newcomer_field: Annotated[float, Meta(ge=0, le=1)] = 0.0
    beta: Positive
    sigma_drift: NotNegative

    newer: ClassVar[tuple[str, ...]] = (*NEWER, "newcomer_offset", "newcomer_field")
    sampled: ClassVar[dict[str, Any]] = {"beta": 200.0, "sigma_drift": 35.0}

    @property
    def chances(self) -> Chances:
        """The variance of a performance is beta^2, and a round adds sigma_drift^2."""
        return Chances(1.0, self.beta**2 + self.sigma_drift**2)

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
