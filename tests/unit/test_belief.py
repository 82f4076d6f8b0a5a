"""Stage 2: diffusion, evidence and the new mode, by the facts the paper gives for them."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from stream_rater.rating.elo_mmr import belief
from stream_rater.rating.factor import factors_of
from stream_rater.rating.model import Beliefs, Evidence, newcomers

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
