"""Ratings are on an interval scale (section 4.2): its zero and its unit are a matter of taste.

Move all ratings by as much, or count in another unit, and a season comes out moved or in that unit.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.config.ladders import Ladder
from stream_rater.rating.model import PERFORMANCE
from stream_rater.rating.parameters import (
    Bar,
    Codeforces,
    EloMMR,
    EloMMX,
    Glicko,
    Glicko2,
    RatingConfig,
    Topcoder,
    TrueSkill,
    TwoMoment,
)
from stream_rater.replay.pool import Pool
from tests.rounds import day, ranked, read
from tests.strategies import days, weights

POINTS = 1e-6
"""What a search leaves open, in points: the tests of performances say why."""

SWEEPS = 1e-4
"""The same for TrueSkill: messages settle to 1e-9, but a tie of margin 1 is a thin slice of sigmas
of hundreds, so what is left of them is divided by little."""

COLUMNS = 1e-3
"""The same for the two-moment filter, which may have one column more in another unit: a millionth
of the deviations there are."""

ELO_MMR = EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=0.5, drift_per_day=3.0, history="full")
EVOLVING: list[Any] = [ELO_MMR, EloMMX(beta=200.0, gamma=40.0, ties="split", history="full")]
SYSTEMS: list[RatingConfig] = [
    *EVOLVING,
    Codeforces(beta=200.0, weight=0.5, history="full"),
    Glicko(beta=200.0, sigma_drift=35.0, history="full"),
    Bar(beta=200.0, sigma_drift=35.0, history="full"),
    TrueSkill(beta=200.0, sigma_drift=35.0, draw_margin=1.0, tolerance=1e-9, history="full"),
    Glicko2(drift_per_day=3.0, history="full"),
    TwoMoment(history="full"),
]
"""All but Topcoder, whose rule has constants in points; unrounded, as rounding has a unit."""

PLAYERS = [f"p{i}" for i in range(6)]
LENGTHS = ("initial_mu", "initial_sigma", "sigma_limit", "beta", "gamma", "sigma_drift",
           "draw_margin", "tolerance", "newcomer_offset", "inexperience", "scale")  # fmt: skip
"""Parameters in points; those in points^2 are AREAS."""
AREAS = ("drift_per_day",)


@st.composite
def rounds(draw: st.DrawFn) -> dict[str, Any]:
    """A round of some of the players."""
    names = draw(st.lists(st.sampled_from(PLAYERS), min_size=2, max_size=6, unique=True))
    places = draw(st.lists(st.integers(1, 6), min_size=len(names), max_size=len(names)))
    return {"standings": list(zip(names, places, strict=True)), "weight": draw(weights()),
            "ceiling": draw(st.none() | st.floats(0.0, 3000.0)), "day": draw(days())}  # fmt: skip


seasons = st.lists(rounds(), min_size=1, max_size=5)


def history(
    config: RatingConfig, season: list[dict[str, Any]], measure: Callable[[float], float]
) -> Iterator[Floats]:
    """(n, 3) by name after each round: performance, mu and sigma; ceilings go by `measure`."""
    pool = Pool(Ladder(rating=config))
    for offset, each in enumerate(season):
        names, places = zip(*each["standings"], strict=True)
        ceiling = None if each["ceiling"] is None else measure(each["ceiling"])
        standings = read(
            config,
            *ranked(places, names),
            weight=each["weight"],
            performance_ceiling=ceiling,
            completed_at=day(each["day"]),
        )
        rated = pool.rate(standings, offset)
        assert rated is not None
        found = dict(zip(standings.players, rated[1][:, PERFORMANCE].tolist(), strict=True))
        after = {name: (float(b["mu"]), float(b["sigma"])) for name, b in pool}
        yield np.array([(found[name], *after[name]) for name in sorted(found)])


@pytest.mark.parametrize("config", SYSTEMS, ids=lambda c: type(c).__name__)
@given(season=seasons, by=st.floats(-5000.0, 5000.0))
@settings(max_examples=40)
def test_moving_all_ratings(config: RatingConfig, season: Any, by: float) -> None:
    """Another initial rating moves every performance and mu by as much, and no sigma."""
    moved = msgspec.structs.replace(config, initial_mu=config.initial_mu + by)
    after = history(moved, season, lambda points: points + by)
    for expected, actual in zip(history(config, season, float), after, strict=True):
        there = expected + np.array([by, by, 0.0])
        assert there == pytest.approx(actual, rel=0, abs=left_open(config))


def left_open(config: RatingConfig) -> float:
    return {TrueSkill: SWEEPS, TwoMoment: COLUMNS}.get(type(config), POINTS)


def scaled(config: RatingConfig, unit: float) -> RatingConfig:
    """The same ladder with its parameters in points so many times as fine."""
    fields = {name: value for name, value in msgspec.structs.asdict(config).items() if value}
    lengths = {name: fields[name] * unit for name in LENGTHS if name in fields}
    areas = {name: fields[name] * unit**2 for name in AREAS if name in fields}
    return msgspec.structs.replace(config, **lengths, **areas)


@pytest.mark.parametrize("config", SYSTEMS, ids=lambda c: type(c).__name__)
@given(season=seasons, unit=st.floats(0.01, 100.0))
@settings(max_examples=40)
def test_another_unit(config: RatingConfig, season: Any, unit: float) -> None:
    """All parameters in another unit give performances, mu and sigma in that unit."""
    after = history(scaled(config, unit), season, lambda points: points * unit)
    for expected, actual in zip(history(config, season, float), after, strict=True):
        assert expected * unit == pytest.approx(actual, rel=0, abs=left_open(config) * unit)


def test_topcoder_is_not_invariant() -> None:
    """These tests can fail: Topcoder's caps and thresholds are in points."""
    season = [{"standings": [("p0", 1), ("p1", 2)], "weight": 1.0, "ceiling": None, "day": 0}]
    (plain,), (fine,) = (
        history(scaled(Topcoder(history="full"), unit), season, float) for unit in (1.0, 10.0)
    )
    assert abs(plain[0, 1] * 10.0 - fine[0, 1]) > 1.0


@pytest.mark.parametrize("config", [*EVOLVING, SYSTEMS[-1]], ids=lambda c: type(c).__name__)
@given(season=seasons, random=st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_the_list_does_not_matter(
    config: RatingConfig, season: Any, random: Any
) -> None:
    """A season whose lists are shuffled ends the same, but for sums in another order."""
    shuffled = [
        {**each, "standings": random.sample(each["standings"], len(each["standings"]))}
        for each in season
    ]
    after = history(config, shuffled, float)
    for expected, actual in zip(history(config, season, float), after, strict=True):
        assert expected == pytest.approx(actual, rel=0, abs=left_open(config))
