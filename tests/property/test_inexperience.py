"""Experience: of two players with the same rating, the one with more rounds performs better."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from stream_rater.rating.model import Wave
from stream_rater.rating.parameters import TwoMoment
from stream_rater.rating.prediction.forecast import Believed, of_round
from stream_rater.rating.stages import estimate

PLAYED = st.integers(1, 400)
POINTS = st.floats(1.0, 600.0)
ROUNDS = st.floats(2.0, 100.0)


def duel(mu: list[float], played: list[int], *, draw: bool = False) -> Wave:
    """A duel that the first player wins, unless it is a draw."""
    return Wave(
        np.array([0, 2]), np.ones(1), np.full(1, np.inf), np.zeros(1, np.int64),
        np.array([1, 1 if draw else 2], np.int32), np.array([0, 1, 2]), np.ones(2),
        np.array(mu), np.full(2, 120.0), np.array(played), np.zeros(2, np.int64),
    )  # fmt: skip


def wins(config: TwoMoment, played: list[int]) -> float:
    """The probability that the first of two players wins, who have the same mu and sigma."""
    players = Believed(np.full(2, 1600.0), np.full(2, 120.0), np.array(played))
    return float(of_round(config, np.array([0, 1, 2]), np.ones(2), players).win[0])


@given(PLAYED, PLAYED, POINTS, ROUNDS)
def test_the_experienced_player_is_the_favourite(
    one: int, other: int, points: float, rounds: float
) -> None:
    """By the difference of the points that both lack; and equal experience is even."""
    config = TwoMoment(inexperience=points, inexperience_rounds=rounds)
    lead = points * (math.exp(-other / rounds) - math.exp(-one / rounds))
    spread = math.sqrt(2.0 * (120.0**2 + config.chances.noise))
    expected = 0.5 * math.erfc(-lead / spread / math.sqrt(2.0))
    assert wins(config, [one, other]) == pytest.approx(expected, abs=1e-9)
    assert wins(config, [one, one]) == pytest.approx(0.5, abs=1e-12)


@given(PLAYED, PLAYED, POINTS, ROUNDS)
def test_the_points_are_taken_off_for_the_round_only(
    one: int, other: int, points: float, rounds: float
) -> None:
    """The result is that of players whose mu is lower by the points, with the points back."""
    config = TwoMoment(inexperience=points, inexperience_rounds=rounds, newcomer_field=0.0)
    plain = structs.replace(config, inexperience=0.0)
    less = points * np.exp(-np.array([one, other]) / rounds)
    found = estimate(config, duel([1500.0, 1640.0], [one, other]))
    moved = estimate(plain, duel([1500.0 - less[0], 1640.0 - less[1]], [one, other]))
    np.testing.assert_allclose(found[:, 1], moved[:, 1] + less, atol=1e-8)
    np.testing.assert_allclose(found[:, 2], moved[:, 2], atol=1e-8)


@given(PLAYED, POINTS, ROUNDS)
def test_a_surprise_moves_more(played: int, points: float, rounds: float) -> None:
    """A player with fewer rounds who wins gains more than one with as many as the opponent; nobody
    loses points by a win."""
    config = TwoMoment(inexperience=points, inexperience_rounds=rounds)
    even = estimate(config, duel([1500.0, 1500.0], [played + 20, played + 20]))
    surprise = estimate(config, duel([1500.0, 1500.0], [played, played + 20]))
    assert surprise[0, 1] >= even[0, 1] - 1e-9
    assert surprise[0, 1] > 1500.0 > surprise[1, 1]


def test_without_it_experience_does_not_count() -> None:
    """To the bit."""
    config = TwoMoment(inexperience=0.0)
    few, many = (estimate(config, duel([1500.0, 1640.0], [n, 900])) for n in (3, 900))
    assert np.array_equal(few[:, :3], many[:, :3])
