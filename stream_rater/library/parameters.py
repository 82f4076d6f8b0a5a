"""The parameters of a rating system as keyword arguments."""

import difflib
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import numpy as np

from stream_rater.config.files import with_systems
from stream_rater.config.ladders import BETTER_RATING, DEFAULT_RATING
from stream_rater.rating.parameters import (
    BadParameters,
    MinusSigma,
    RatingConfig,
    from_builtins,
)
from stream_rater.rating.systems.two_moment import BETTER


class Parameters(TypedDict, total=False):
    """The parameters of all systems. Each system has some of them: see
    `docs/reference/ladders.md`."""

    weight_limit: float
    sigma_limit: float
    beta: float
    gamma: float
    rho: float | Literal["inf"]
    ties: Literal["full", "split"]
    drift_per_day: float
    newcomer_weights: tuple[float, ...] | list[float]
    delta: float
    weight: float
    newcomer_weight: float
    sigma_drift: float
    kappa: float
    draw_margin: float
    tolerance: float
    volatility: float
    tau: float
    newcomer_offset: float
    newcomer_field: float
    inexperience: float
    inexperience_rounds: float
    score: Mapping[str, float | str] | None
    team_noise: float
    learning_rate: float | tuple[tuple[float, float], ...] | list[list[float]]
    scale: float
    anchor: float | None
    fixed: tuple[str, ...] | list[str]
    model: Literal["logistic", "gaussian"]
    pairs: Literal["sum", "average"]
    orientation: Literal["first", "last"]
    initial_mu: float
    initial_sigma: float
    history: int | Literal["full"]
    display: Literal["mu"] | MinusSigma | dict[str, float] | None
    floor: float | None
    provisional_rounds: int
    skip_all_tied: bool
    dnf: Literal["tied-last", "not-compared"]
    seats: Mapping[str, float]
    variance_factor: float
    draw_width: float
    upset: float


def rating_of(system: str | None, parameters: Mapping[str, Any]) -> RatingConfig:
    """The rating configuration of this system with these parameters.

    Without a system it is `BETTER_RATING`, with these parameters in place of its own. If that
    system lacks some of them, it is Elo-MMR with these parameters. Elo-MMR without parameters has
    those of a log without a ladders file.

    Raises BadParameters with the place of the mistake and the cure.
    """
    if system == "elo-mmr" and not parameters:
        return DEFAULT_RATING
    better: dict[str, Any] = {}
    if system is None and parameters.keys() <= {*BETTER_RATING.__struct_fields__}:
        system, better = "two-moment", dict(BETTER)
    plain = {name: _plain(value) for name, value in parameters.items()}
    try:
        return from_builtins({"system": system or "elo-mmr", **better, **plain})
    except BadParameters as error:
        raise BadParameters(f"Ladder: {_with_hint(str(error), parameters)}") from None


def _plain(value: Any) -> Any:
    """A value with NumPy scalars converted to Python numbers, also within a table."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _with_hint(mistake: str, parameters: Mapping[str, Any]) -> str:
    """The text of a mistake. If no system has the parameter, the most similar name is added."""
    known = list(Parameters.__annotations__)
    for name in parameters:
        if name not in known:
            (nearest,) = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            return f"{mistake}; the nearest is {nearest}"
    return with_systems(mistake)
