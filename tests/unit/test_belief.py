"""Stage 2: diffusion, evidence and the new mode, by the facts the paper gives for them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from stream_rater.rating.elo_mmr import belief
from stream_rater.rating.factor import factors_of
from stream_rater.rating.model import Beliefs, Evidence, newcomers
from tests.rounds import logistic_weight

BETA2, GAMMA2 = 32_000.0, 1_600.0
RHOS = (0.0, 0.04, 1.0, 5.0, math.inf)
performances = st.lists(st.floats(0.0, 3000.0), min_size=1, max_size=12)
rhos = st.sampled_from(RHOS)


def rate(beliefs: Beliefs, evidence: Evidence, rho: float, kept: int = 0) -> None:
    """One round for each of `beliefs`, in place."""
    n = len(beliefs)
    belief.update(
        beliefs.header, beliefs.factors, np.arange(n), evidence, np.full(n, rho), np.full(n, kept)
    )


def row(p: float, gamma2: float = GAMMA2) -> Evidence:
    return np.array([[p, BETA2, gamma2]])


def rated(season: list[float], rho: float, kept: int = 0) -> Beliefs:
    """A player after a season of performances, of which so many factors are kept, or all."""
    beliefs = newcomers(1, len(season) + 2, 1500.0, 350.0, coded=kept > 0)
    for p in season:
        rate(beliefs, row(p), rho, kept)
    return beliefs


def test_all_and_no_momentum() -> None:
    """rho = inf keeps only the last factor; 0 moves nothing into the Gaussian; between them a part
    kappa^rho of each factor stays logistic."""
    beliefs = rated([1700.0, 1200.0, 1900.0], math.inf)
    assert beliefs.header["count"][0] == 1
    assert beliefs.factors[0, 0, 0] == 1900.0
    beliefs = rated([1700.0, 1200.0, 1900.0], 0.0)
    decay, variance = 1.0, 350.0**2
    for _ in range(3):
        decay *= variance / (variance + GAMMA2)
        variance = 1.0 / (1.0 / (variance + GAMMA2) + 1.0 / BETA2)
    assert beliefs.header["center"][0] == 1500.0
    assert decay / 350.0**2 == pytest.approx(float(beliefs.header["precision"][0]), rel=1e-14)
    for rho in RHOS:
        beliefs = rated([1700.0], 0.0)
        before = logistic_weight(beliefs)[0]
        variance = float(beliefs.header["sigma"][0]) ** 2
        rate(beliefs, row(5000.0, gamma2=variance / 3.0), rho)
        found = logistic_weight(beliefs)[0] / before if rho < math.inf else 0.0
        assert found == pytest.approx(0.75 ** (1.0 + rho), rel=1e-14), rho  # ulps of exp and log


def test_at_most_k_factors_are_kept() -> None:
    """kept = K holds the count at K, and the factors in order of performance."""
    beliefs = rated([1500.0 + 300.0 * math.sin(i) for i in range(40)], 0.0, kept=6)
    assert beliefs.header["count"][0] == 6
    terms = factors_of(beliefs)[0, :6, 0].tolist()
    assert terms == sorted(terms)


def test_what_changes() -> None:
    """mu and sigma from before the round are stored. No other field or row changes."""
    beliefs, fresh = newcomers(3, 2, 1500.0, 350.0), newcomers(3, 2, 1500.0, 350.0)
    who, no = np.array([1]), np.zeros(1, int)
    belief.update(beliefs.header, beliefs.factors, who, row(1900.0), np.ones(1), no)
    assert fresh.header[[0, 2]].tobytes() == beliefs.header[[0, 2]].tobytes()
    assert fresh.factors[[0, 2]].tobytes() == beliefs.factors[[0, 2]].tobytes()
    before, after = fresh.header[1], beliefs.header[1]
    assert (after["previous_mu"], after["previous_sigma"]) == (1500.0, 350.0)
    for untouched in ("version", "grid", "rounds", "last", "time", "previous_time"):
        assert before[untouched] == after[untouched]
    assert 1500.0 < after["mu"] < 1900.0


@given(performances, rhos, st.integers(1, 8))
def test_mu_is_the_mode_of_the_record(season: list[float], rho: float, kept: int) -> None:
    """Where factors are stored as codes, mu is the mode of the decoded factors, in float32."""
    beliefs = rated(season, rho, kept)
    header = beliefs.header[0]
    p, a, r = factors_of(beliefs)[0, : header["count"]].T

    def slope(x: float) -> float:
        pulls = header["scale"] * r * np.tanh((x - p) * a)
        return float(header["precision"] * (x - header["center"]) + pulls.sum())

    exact = brentq(slope, -1e4, 1e4, xtol=1e-9)
    # half a unit in the last place of a float32, and a small part of a step's fourth power: 3e-5
    assert abs(float(header["mu"]) - exact) <= 0.5 * float(np.spacing(np.float32(exact))) + 1e-5
