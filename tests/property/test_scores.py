"""Scores in the two-moment filter: the margin of a victory counts, within bounds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.rating import stages
from stream_rater.rating.parameters import TwoMoment, fingerprint
from stream_rater.rating.systems.two_moment import SCORE_NOISE, Score
from tests.property.test_two_moment import wave
from tests.two_moment_oracle import KINDS

PLAIN = TwoMoment(sigma_drift=0.0, inexperience=0.0)
BY_DIFFERENCE = TwoMoment(sigma_drift=0.0, inexperience=0.0, score=Score(scale=150.0, cap=3.0))
BY_RATIO = TwoMoment(
    sigma_drift=0.0, inexperience=0.0, score=Score(scale=300.0, cap=1.0, by="ratio")
)
BOTH = pytest.mark.parametrize("config", [BY_DIFFERENCE, BY_RATIO], ids=["difference", "ratio"])

ROUNDING = 1e-6
"""Points."""

ratings = st.floats(500.0, 2500.0)
sigmas = st.floats(20.0, 350.0)
scores = st.floats(0.0, 1e6)


def rated(
    config: TwoMoment, mu: tuple[float, float], sigma: tuple[float, float],
    score: tuple[float, float] | None, place: tuple[int, int] = (1, 2),
) -> Floats:  # fmt: skip
    """The evidence of two players, the winner first."""
    one = wave(place, np.array(mu), np.array(sigma))
    if score is not None:
        one = one._replace(score=np.array(score))
    return stages.estimate(config, one)


@BOTH
@given(mu=st.tuples(ratings, ratings), sigma=st.tuples(sigmas, sigmas), more=scores, less=scores)
@settings(max_examples=200, deadline=None)
def test_a_larger_margin_never_gives_less(
    config: TwoMoment, mu: tuple[float, float], sigma: tuple[float, float], more: float, less: float
) -> None:
    """And no victory costs the winner anything, nor does a defeat help the loser."""
    low, high = sorted((more + 1.0, less + 1.0))
    narrow, wide = rated(config, mu, sigma, (low, 0.0)), rated(config, mu, sigma, (high, 0.0))
    assert narrow[0, 1] >= mu[0] - ROUNDING and narrow[1, 1] <= mu[1] + ROUNDING
    assert wide[0, 1] >= narrow[0, 1] - ROUNDING and wide[1, 1] <= narrow[1, 1] + ROUNDING


@BOTH
@given(mu=st.tuples(ratings, ratings), sigma=st.tuples(sigmas, sigmas), score=scores)
@settings(max_examples=200, deadline=None)
def test_no_score_makes_anybody_less_known(
    config: TwoMoment, mu: tuple[float, float], sigma: tuple[float, float], score: float
) -> None:
    after = rated(config, mu, sigma, (score, 0.0))[:, 2]
    assert (after <= np.array(sigma) * (1.0 + 1e-12)).all() and (after > 0.0).all()


@BOTH
def test_running_up_a_score_gains_nothing_beyond_the_cap(config: TwoMoment) -> None:
    """A billion goals are worth as much as a million."""
    equals, known = (1500.0, 1500.0), (100.0, 100.0)
    gains = [rated(config, equals, known, (each, 0.0))[0, 1] - 1500.0 for each in (1e6, 1e9)]
    assert config.score is not None
    assert gains[0] == pytest.approx(gains[1], abs=ROUNDING)
    assert 0.0 < gains[1] < config.score.scale * config.score.cap


@BOTH
@pytest.mark.parametrize(
    "score", [(math.nan, 1.0), (2.0, math.nan), (1.0, 4.0), (2.0, 2.0)],
    ids=["the winner's is absent", "the loser's is absent", "it contradicts", "it is even"],
)  # fmt: skip
def test_a_score_that_does_not_agree_with_the_places_is_not_used(
    config: TwoMoment, score: tuple[float, float]
) -> None:
    """The rank decides."""
    found = rated(config, (1600.0, 1400.0), (90.0, 200.0), score)
    assert found.tobytes() == rated(PLAIN, (1600.0, 1400.0), (90.0, 200.0), None).tobytes()


@BOTH
def test_a_tie_is_a_tie_whatever_the_scores(config: TwoMoment) -> None:
    tie = rated(config, (1600.0, 1400.0), (90.0, 200.0), (3.0, 1.0), (1, 1))
    assert tie.tobytes() == rated(PLAIN, (1600.0, 1400.0), (90.0, 200.0), None, (1, 1)).tobytes()


def by_integrals(
    mu: tuple[float, float], sigma: tuple[float, float], beta: float, seen: float
) -> tuple[float, float]:
    """The winner's gain in mu, and the new sigma, by integrals over the difference D of the
    performances on each pair of days."""
    d = np.linspace(0.0, 6000.0, 600_001)
    parts = []
    for pi_0, shift_0, part_0 in KINDS:
        for pi_1, shift_1, part_1 in KINDS:
            whole = sigma[0] ** 2 + sigma[1] ** 2 + (part_0 + part_1) * beta**2
            mean = mu[0] - mu[1] + (shift_0 - shift_1) * beta
            likely = np.exp(
                -0.5 * (d - mean) ** 2 / whole
                - 0.5 * (seen - d) ** 2 / (SCORE_NOISE * 2.0 * beta**2)
            )
            likely[0] *= 0.5  # the trapezoid rule
            mass = likely.sum()
            lift = float((likely * d).sum() / mass) - mean
            spread = float((likely * (d - mean - lift) ** 2).sum() / mass)
            k = sigma[0] ** 2 / whole
            left = sigma[0] ** 2 - sigma[0] ** 4 / whole + k * k * spread
            parts.append((pi_0 * pi_1 * float(mass), k * lift, left))
    weight, gain, left = np.array(parts).T
    weight = weight / weight.sum()
    mean = float(weight @ gain)
    return mean, math.sqrt(float(weight @ (left + (gain - mean) ** 2)))


@pytest.mark.parametrize("apart", [-800.0, -200.0, 0.0, 150.0])
@pytest.mark.parametrize("score", [1.0, 4.0])
def test_gains_equal_those_of_integrals(apart: float, score: float) -> None:
    """Where they are not negative. To a ten-thousandth of a point."""
    mu, sigma = (1500.0 + apart, 1500.0), (120.0, 60.0)
    seen = 150.0 * 3.0 * math.tanh(score / 3.0)
    gain, left = by_integrals(mu, sigma, BY_DIFFERENCE.beta, seen)
    found = rated(BY_DIFFERENCE, mu, sigma, (score, 0.0))
    assert found[0, 1] - mu[0] == pytest.approx(max(gain, 0.0), abs=1e-4)
    assert found[0, 2] == pytest.approx(left, abs=1e-4)


def test_surprising_scores_give_numbers() -> None:
    for apart in (-1e9, -1e5, -5e3, 5e3, 1e5, 1e9):
        for beta in (1e-3, 250.0, 1e7):
            config = TwoMoment(beta=beta, score=Score(scale=1e3, cap=1e3))
            found = rated(config, (1500.0 + apart, 1500.0), (100.0, 1e-3), (1e6, 0.0))
            assert np.isfinite(found[:, :3]).all() and (found[:, 2] > 0.0).all()


def test_ladders_without_scores_keep_their_fingerprint() -> None:
    assert fingerprint(TwoMoment(score=None)) == fingerprint(TwoMoment())
    assert fingerprint(BY_DIFFERENCE) != fingerprint(PLAIN)
