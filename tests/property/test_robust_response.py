"""One round moves a rating by no more, and in the limit no less, than Theorem 5.7 says."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.config.ladders import Ladder
from stream_rater.rating.model import Beliefs, newcomers
from stream_rater.rating.parameters import EloMMR
from stream_rater.replay.pool import Pool
from tests.rounds import logistic_weight, ranked, read, update_all
from tests.strategies import configs, weights

C = math.pi / math.sqrt(3.0)

ABSURD = 1e9
"""A performance so far away that its tanh is 1 to the last bit: the limit of the theorem."""

ROUNDING = 1e-9
"""Of sigma at most: the mode's tolerance, whose square is the error of the last step."""

rounds = st.tuples(st.floats(-1500.0, 4500.0), st.floats(6e3, 3e5), st.floats(10.0, 2e4))
all_rhos = st.just(0.0) | st.floats(0.01, 5.0) | st.just(math.inf)


def rate(beliefs: Beliefs, p: float, beta2: float, gamma2: float, rho: float) -> None:
    """One round of the one player, in place, all factors kept."""
    update_all(beliefs, np.array([[p, beta2, gamma2]]), rho)


def bounds(beliefs: Beliefs, beta2: float) -> tuple[float, float]:
    """Those of the theorem, from the belief as it is after the absurd performance.

    Its history is all factors but that one, diffused as they were when it came.
    """
    terms = beliefs.factors[0, : beliefs.header["count"][0]]
    history = logistic_weight(beliefs)[np.abs(terms[:, 0]) < ABSURD].sum()
    gaussian, pull = float(beliefs.header["precision"][0]), C / math.sqrt(beta2)
    return pull / (gaussian + math.pi**2 / 6.0 * float(history)), pull / gaussian


@given(st.lists(rounds, max_size=12), rounds, all_rhos, st.sampled_from((ABSURD, -ABSURD)))
def test_the_response_to_an_absurd_performance(
    season: list[tuple[float, float, float]],
    last: tuple[float, float, float],
    rho: float,
    absurd: float,
) -> None:
    """Delta lies between C / beta / (w_0 + pi^2/6 sum w_k) and C / beta / w_0."""
    beliefs = newcomers(1, len(season) + 2, 1500.0, 350.0)
    for each in season:
        rate(beliefs, *each, rho)
    before = float(beliefs.header["mu"][0])
    rate(beliefs, absurd, *last[1:], rho)
    delta = math.copysign(1.0, absurd) * (float(beliefs.header["mu"][0]) - before)
    least, most = bounds(beliefs, last[1])
    slack = ROUNDING * 350.0 + 1e-12 * most  # 1e-12: mu itself is rounded, and w_0 a product
    assert least - slack <= delta <= most + slack


@given(st.lists(rounds, max_size=12), rounds, all_rhos)
def test_no_performance_is_answered_by_more_than_the_bound(
    season: list[tuple[float, float, float]], last: tuple[float, float, float], rho: float
) -> None:
    """mu grows with the performance, so the limits bound what any performance does."""
    found = []
    for p in (-ABSURD, last[0], ABSURD):
        beliefs = newcomers(1, len(season) + 2, 1500.0, 350.0)
        for each in season:
            rate(beliefs, *each, rho)
        rate(beliefs, p, *last[1:], rho)
        found.append(float(beliefs.header["mu"][0]))
    slack = ROUNDING * 350.0
    assert found[0] - slack <= found[1] <= found[2] + slack


@given(
    configs(st.just("inf")),
    st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=6),
    weights(),
)
def test_no_round_moves_a_rating_further(
    config: EloMMR, season: list[list[int]], weight: float
) -> None:
    """In whole rounds without momentum, all weight is in w_0: the bound is C (s^2 + g^2) / beta."""
    pool = Pool(Ladder(rating=config))
    for offset, places in enumerate(season):
        before = {name: (float(b["mu"]), float(b["sigma"])) for name, b in pool}
        standings = read(config, *ranked([places[0] or 1, *places[1:]]), weight=weight)
        rated = pool.rate(standings, offset)
        assert rated is not None
        spread = dict(zip(standings.players, rated[1][:, 1:].tolist(), strict=True))
        for name, header in pool:
            beta2, gamma2 = spread[name]
            mu, sigma = before.get(name, (config.initial_mu, config.initial_sigma))
            most = C / math.sqrt(beta2) * (sigma**2 + gamma2)
            assert abs(float(header["mu"]) - mu) <= most * (1.0 + 1e-12) + ROUNDING * sigma
