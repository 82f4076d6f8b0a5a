"""Predictions of a round: the integrals beside a simulation, and what must matter."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stream_rater import Ladder
from stream_rater.columns.arrays import Floats
from stream_rater.rating.parameters import EloMMR, TrueSkill
from stream_rater.rating.prediction.wins import (
    Performances,
    expected_ranks,
    performances_of,
    win_probabilities,
)
from stream_rater.runtime.selfcheck import SYSTEMS

DRAWS = 400_000
CONFIG = EloMMR(beta=200.0, gamma=50.0)
NOISE = 200.0**2 + 50.0**2


def sides(mu: Sequence[float] | Floats, sigma: Sequence[float] | Floats) -> Performances:
    return Performances(np.array(mu, np.float64), np.array(sigma, np.float64))


@pytest.mark.parametrize(
    "some",
    [
        sides([1500.0, 1600.0, 1400.0], [200.0, 300.0, 100.0]),
        sides([1500.0] * 12, [250.0] * 12),
        sides([0.0, 10.0, 20.0, 500.0], [1.0, 5.0, 300.0, 2.0]),
        sides(range(1000, 2000, 50), range(50, 450, 20)),
    ],
    ids=lambda some: len(some.mu),
)
def test_as_often_as_in_a_simulation(some: Performances) -> None:
    """Wins and ranks of as many rounds as make five standard errors small."""
    rng = np.random.default_rng(1)
    played = rng.normal(some.mu, some.sigma, (DRAWS, len(some.mu)))
    wins = np.bincount(played.argmax(axis=1), minlength=len(some.mu)) / DRAWS
    ranks = 1.0 + (-played).argsort(axis=1).argsort(axis=1).mean(axis=0)
    error = 5.0 / math.sqrt(DRAWS)
    assert win_probabilities(some) == pytest.approx(wins, abs=0.5 * error)
    assert expected_ranks(some) == pytest.approx(ranks, abs=error * len(some.mu) / 2.0)


@pytest.mark.parametrize("count", [2, 3, 30, 300])
@pytest.mark.parametrize("spread", [0.0, 100.0, 10_000.0])
def test_probabilities_add_up_to_one(count: int, spread: float) -> None:
    """Also of many sides, of sides far apart, and of spreads from 1e-3 to 1e4."""
    rng = np.random.default_rng(count)
    some = sides(rng.normal(0.0, spread, count), 10.0 ** rng.uniform(-3.0, 4.0, count))
    found, ranks = win_probabilities(some), expected_ranks(some)
    assert found.sum() == pytest.approx(1.0, abs=1e-9)
    assert found.min() >= 0.0 and found.max() <= 1.0
    assert ranks.sum() == pytest.approx(count * (count + 1) / 2.0)
    assert ranks.min() >= 1.0 and ranks.max() <= count


@pytest.mark.parametrize("lead", [0.0, 3.0, 250.0, -4000.0])
def test_two_sides(lead: float) -> None:
    """The normal distribution of the difference; the rank follows from it."""
    some = sides([1500.0 + lead, 1500.0], [300.0, 400.0])
    wanted = 0.5 * math.erfc(-lead / 500.0 / math.sqrt(2.0))
    assert win_probabilities(some) == pytest.approx([wanted, 1.0 - wanted], abs=1e-11)
    assert expected_ranks(some) == pytest.approx([2.0 - wanted, 1.0 + wanted], abs=1e-11)


@pytest.mark.parametrize("count", [9, 2000])
def test_equal_sides_are_even(count: int) -> None:
    """However many there are."""
    found = win_probabilities(sides([7.0] * count, [3.0] * count))
    assert found == pytest.approx([1.0 / count] * count, abs=1e-9)


def test_a_sides_performance_is_a_teams() -> None:
    """Deviations and variances add up by shares, beta with them (section 3.3)."""
    found = performances_of(
        CONFIG, np.array([0, 1, 3]), np.array([1.0, 1.0, 0.5]), np.array([1600.0, 1700.0, 1300.0]),
        np.array([90.0, 80.0, 70.0]),
    )  # fmt: skip
    assert found.mu == pytest.approx([1600.0, 1500.0 + 200.0 - 100.0])
    variances = [90.0**2 + NOISE, 80.0**2 + NOISE + 0.25 * (70.0**2 + NOISE)]
    assert found.sigma**2 == pytest.approx(variances)


# --- of a ladder ---------------------------------------------------------------------------------


def played(**parameters: Any) -> Ladder:
    """A ladder on which ann is good, bob is weak, and cy and dee are between."""
    ladder = Ladder(**parameters)
    for _ in range(4):
        ladder.rate(["ann", "cy", "dee", "bob"], [1, 2, 2, 3])
    return ladder


LIMITS = {"weight_limit": 0.2, "sigma_limit": 80.0}


def win(ladder: Ladder, *given: Any, **more: Any) -> float:
    """The first side's probability."""
    return float(ladder.predict(given, **more).win[0])


def test_each_player_matters() -> None:
    """Who joins a side changes its chances: a good one, a weak one, and by the share; also where
    the sides are uneven."""
    ladder = played(**LIMITS)
    alone = win(ladder, ["cy"], ["dee"])
    assert alone == pytest.approx(0.5)
    assert win(ladder, ["cy", "bob"], ["dee"]) < alone < win(ladder, ["cy", "ann"], ["dee"])
    half = win(ladder, ["cy", "ann"], ["dee"], shares=[[1, 0.5], None])
    assert alone < half < win(ladder, ["cy", "ann"], ["dee"])


def test_beta_matters() -> None:
    """The more performances vary, the more even is a round."""
    steady, wild = (played(beta=beta, gamma=40.0) for beta in (100.0, 800.0))
    assert 0.5 < win(wild, "ann", "bob") < win(steady, "ann", "bob") < 1.0


def test_newcomers_are_as_believed() -> None:
    """Nobody need have played; nobody plays by being asked for."""
    ladder = Ladder(initial_mu=1000.0, **LIMITS)  # type: ignore[arg-type]
    found = ladder.predict(["x", ("y", "z"), "w"])
    assert found.win[1] > found.win[0]  # a team's performance varies more
    assert found.win[0] == pytest.approx(found.win[2], abs=1e-12)
    assert found.expected_rank == pytest.approx([2.0, 2.0, 2.0])
    assert len(ladder) == 0


@pytest.mark.parametrize("rating", SYSTEMS, ids=lambda rating: rating.__struct_config__.tag)
def test_every_system_predicts(rating: Any) -> None:
    """A player who has won is likelier to win."""
    given = {name: getattr(rating, name) for name in type(rating).__struct_fields__}
    own = {n: v for n, v in given.items() if v is not None}
    ladder = played(system=rating.__struct_config__.tag, **own)
    found = ladder.predict(["bob", "ann", ("cy", "newcomer")])
    assert found.win[1] > found.win[0]
    if isinstance(rating, TrueSkill):
        assert 0.99 < found.win.sum() < 1.0
    else:
        assert found.win.sum() == pytest.approx(1.0)
    assert found.expected_rank[1] < found.expected_rank[0]


def test_a_prediction_is_a_table() -> None:
    """With the sides as they were given."""
    found = played(**LIMITS).predict(["ann", ("bob", "cy")])
    first, second = found.to_dicts()
    assert first["players"] == ("ann",) and second["players"] == ("bob", "cy")
    assert first["win"] + second["win"] == pytest.approx(1.0)
    assert f"bob, cy  {second['win']:.3f}" in repr(found)
