"""Lists all rating systems, and parses their parameters, which have the names of the configuration.

The systems are in `rating.systems`.
"""

import hashlib
from typing import Any, Final, cast, get_args

import msgspec

from stream_rater.rating.systems.common import (
    DEFAULT_KEPT,
    NOT_COMPARED,
    TIED_LAST,
    Common,
    MinusSigma,
    Ordering,
    PlacingNewcomers,
)
from stream_rater.rating.systems.elo_mmr import EloMMR, EloMMX, EloR, Evolving
from stream_rater.rating.systems.glicko2 import Glicko2
from stream_rater.rating.systems.historic import Bar, Codeforces, Glicko, Topcoder, TrueSkill
from stream_rater.rating.systems.kerby import (
    Climbing,
    Elo,
    Kerby,
    PairwiseElo,
    PlackettLuce,
    Thurstone,
)
from stream_rater.rating.systems.two_moment import TwoMoment

__all__ = [
    "DEFAULT_KEPT", "NOT_COMPARED", "SYSTEMS", "TIED_LAST", "BadParameters", "Bar", "Climbing",
    "Codeforces", "Common", "Elo", "EloMMR", "EloMMX", "EloR", "Evolving", "Glicko", "Glicko2",
    "Kerby", "MinusSigma", "Ordering", "PairwiseElo", "PlacingNewcomers", "PlackettLuce",
    "RatingConfig", "Season", "Thurstone", "Topcoder", "TrueSkill", "TwoMoment", "default_of",
    "fingerprint", "for_fingerprint", "from_builtins", "from_json",
]  # fmt: skip

RatingConfig = (
    EloMMR | EloR | EloMMX | Codeforces | Topcoder | Glicko | Bar | TrueSkill | TwoMoment | Kerby
    | Glicko2
)  # fmt: skip
"""The parameters of any system. A system is registered by its place in this list."""

SYSTEMS: Final[dict[str, type[RatingConfig]]] = {
    str(each.__struct_config__.tag): each for each in get_args(RatingConfig)
}
"""All systems by their name in configuration files, Elo-MMR first."""


class BadParameters(ValueError):
    """A rating configuration that is not valid. The text is one line."""


class Season(msgspec.Struct, frozen=True, array_like=True):
    """A season that has started on a ladder, and how it changes beliefs (see `seasons`)."""

    number: int
    """The number that the operator gave the season. It is only displayed."""
    keep: float
    """The fraction of mu's distance from the initial rating that is kept; 1 keeps mu."""
    sigma: float
    """The least sigma of a belief after the draw; 0 keeps sigma."""


def from_json(data: bytes) -> RatingConfig:
    """Parse a configuration from JSON. Raises BadParameters, which names the place of the
    mistake."""
    try:
        return cast(RatingConfig, msgspec.json.decode(data, type=RatingConfig))
    except (msgspec.DecodeError, ValueError) as error:
        raise BadParameters(str(error)) from None


def from_builtins(table: object) -> RatingConfig:
    """Parse a decoded TOML or JSON table. Raises BadParameters, which names the place of the
    mistake."""
    try:
        return cast(RatingConfig, msgspec.convert(table, RatingConfig))
    except (msgspec.ValidationError, ValueError) as error:
        raise BadParameters(str(error)) from None


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """A parameter's default; NODEFAULT if the parameter is required."""
    made = field.default_factory is not msgspec.NODEFAULT
    return field.default_factory() if made else field.default


def for_fingerprint(config: RatingConfig) -> dict[str, Any]:
    """The parameters that the fingerprint covers, by name.

    A parameter that is newer than the system's first release is omitted if it has its default, so
    that workers of older releases compute the same fingerprint. Parameters of predictions alone are
    always omitted, because ratings do not depend on them.
    """
    table: dict[str, Any] = msgspec.to_builtins(config, order="deterministic")
    for field in msgspec.structs.fields(config):
        if field.name in config.newer and table[field.name] == default_of(field):
            del table[field.name]
    for name in config.predictive:
        del table[name]
    return table


def fingerprint(config: RatingConfig) -> str:
    """A short hash of the whole configuration, equal on every machine."""
    return hashlib.sha256(msgspec.json.encode(for_fingerprint(config))).hexdigest()[:16]
