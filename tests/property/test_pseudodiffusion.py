"""The six properties that section 4.1 of the paper asks of a pseudodiffusion (Theorem 4.1), and the
bounds of what one round does (Theorem 5.7).

The properties hold for 0 < rho < infinity; where the paper says that an end of that range lacks
one, a test shows the lack, too. A round whose evidence is weightless leaves its diffusion alone.
"""

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.config.ladders import Ladder
from stream_rater.rating.model import Beliefs, newcomers
from stream_rater.rating.parameters import EloMMR
from stream_rater.replay.pool import Pool
from tests.rounds import logistic_weight, ranked, read, update_all
from tests.strategies import configs
from tests.strategies import weights as round_weights

WEIGHTLESS = 1e30
"""A variance beta^2 whose weight 1/beta^2 is lost beside that of any belief here."""

SCALES = (1.0, 1e-2, 1e-4)

inner_rhos = st.floats(0.01, 5.0)
any_rho = st.just(0.0) | inner_rhos | st.just(math.inf)
gammas2 = st.floats(1.0, 1e5)
evidence = st.tuples(st.floats(-3000.0, 3000.0), st.floats(6e3, 3e5), st.floats(10.0, 2e4))
seasons = st.lists(evidence, min_size=1, max_size=10)
Season = list[tuple[float, float, float]]
"""Performance less 1500, beta^2 and gamma^2 of each round."""


def rate(beliefs: Beliefs, p: float, beta2: float, gamma2: float, rho: float) -> None:
    """One round of the one player, in place, all factors kept."""
    update_all(beliefs, np.array([[p, beta2, gamma2]]), rho)


def rated(season: Season, rho: float, scale: float = 1.0) -> Beliefs:
    """A player after a season, all of it drawn in towards 1500 by `scale`."""
    beliefs = newcomers(1, len(season) + 4, 1500.0, 350.0 * scale)
    for p, beta2, gamma2 in season:
        rate(beliefs, 1500.0 + p * scale, beta2 * scale**2, gamma2 * scale**2, rho)
    return beliefs


def diffused(beliefs: Beliefs, gamma2: float, rho: float) -> Beliefs:
    """The same player after a round without information: only gamma^2 has an effect."""
    after = copy.deepcopy(beliefs)
    rate(after, float(after.header["mu"][0]), WEIGHTLESS, gamma2, rho)
    terms = after.factors[0, : after.header["count"][0]]
    heavy = terms[terms[:, 2] * after.header["scale"] > 2.0 / math.sqrt(WEIGHTLESS)]
    after.factors[0, : len(heavy)] = heavy
    after.header["count"] = len(heavy)
    return after


def factors(beliefs: Beliefs) -> Floats:
    """(count, 3): the stored logistic factors."""
    return beliefs.factors[0, : beliefs.header["count"][0]]


def weights(beliefs: Beliefs) -> tuple[float, Floats]:
    """w_0 of the Gaussian factor, and w_k of each logistic one."""
    return float(beliefs.header["precision"][0]), logistic_weight(beliefs)


def value(beliefs: Beliefs, name: str) -> float:
    return float(beliefs.header[name][0])


@given(seasons, seasons, gammas2, any_rho)
def test_incentive_compatibility(season: Season, other: Season, gamma2: float, rho: float) -> None:
    """What its proof needs: weights change alike whatever the performances, which stay, and the
    Gaussian moves towards mu, not beyond."""
    twin = [(p[0], *spread[1:]) for p, spread in zip(other, season, strict=False)]
    pair = [rated(each, rho) for each in (season[: len(twin)], twin)]
    after = [diffused(each, gamma2, rho) for each in pair]
    for before, found in zip(pair, after, strict=True):
        if rho < math.inf:
            assert factors(before)[:, :2].tobytes() == factors(found)[:, :2].tobytes()
        low, high = sorted((value(before, "center"), value(before, "mu")))
        assert low - 1e-9 <= value(found, "center") <= high + 1e-9  # a few roundings of 1e4
    (gaussian, logistic), (twins_gaussian, twins_logistic) = map(weights, after)
    # The same multiplications; but factors are in order of performance, so these are sorted.
    assert gaussian == pytest.approx(twins_gaussian, rel=1e-14)
    assert np.sort(logistic) == pytest.approx(np.sort(twins_logistic), rel=1e-14)


@given(seasons, gammas2, any_rho)
def test_rating_preservation_and_correct_magnitude(
    season: Season, gamma2: float, rho: float
) -> None:
    """The argmax of the belief stays where it was. sigma^2 grows by gamma^2, and the weights sum to
    its inverse (Equation 8)."""
    before = rated(season, rho)
    after = diffused(before, gamma2, rho)
    # Both are roots, found to 1e-9 of sigma with an error that the last step squares.
    assert value(before, "mu") == pytest.approx(value(after, "mu"), rel=0, abs=1e-8)
    expected = value(before, "sigma") ** 2 + gamma2
    assert expected == pytest.approx(value(after, "sigma") ** 2, rel=1e-14)  # a few roundings
    gaussian, logistic = weights(after)
    assert 1.0 / expected == pytest.approx(gaussian + logistic.sum(), rel=1e-12)  # 10 rounds' own


@given(seasons, gammas2, gammas2, any_rho)
def test_composability(season: Season, first: float, second: float, rho: float) -> None:
    """Diffusing by two sizes, one after the other, is diffusing by their sum: of every factor."""
    before = rated(season, rho)
    twice = diffused(diffused(before, first, rho), second, rho)
    once = diffused(before, first + second, rho)
    assert len(factors(once)) == len(factors(twice))
    (gaussian, logistic), (expected, expected_logistic) = weights(twice), weights(once)
    # kappa^rho is a product of two powers here and one there, each good to some 1e-15 * rho.
    assert expected_logistic == pytest.approx(logistic, rel=1e-12)
    assert expected == pytest.approx(gaussian, rel=1e-12)
    # Twice it blends towards mu, which is a root: the error of rating preservation.
    assert value(once, "center") == pytest.approx(value(twice, "center"), rel=0, abs=1e-8)


@given(seasons, st.just(0.0) | inner_rhos)
def test_zero_diffusion(season: Season, rho: float) -> None:
    """As gamma goes to 0, so does what diffusion does: in proportion to gamma^2 / sigma^2."""
    before = rated(season, rho)
    for gamma2 in (1e-2, 1e-5, 0.0):
        after = diffused(before, gamma2, rho)
        # 1 - kappa^(1 + rho) <= (1 + rho) gamma^2 / sigma^2, and the rounding of a few products.
        change = (1.0 + rho) * gamma2 / value(before, "sigma") ** 2 + 1e-14
        (gaussian, logistic), (expected, expected_logistic) = weights(after), weights(before)
        total = expected + float(expected_logistic.sum())
        assert (np.abs(logistic - expected_logistic) <= change * expected_logistic).all()
        assert abs(gaussian - expected) <= change * total


@given(seasons, inner_rhos, st.sampled_from(SCALES))
def test_zero_uncertainty(season: Season, rho: float, scale: float) -> None:
    """As sigma goes to 0, a Gaussian at mu of variance gamma^2 is left: like kappa^rho."""
    gamma2, before = 1e4, rated(season, rho, scale)
    mu, variance = value(before, "mu"), value(before, "sigma") ** 2
    after = diffused(before, gamma2, rho)
    stays = (variance / (variance + gamma2)) ** rho
    gaussian, logistic = weights(after)
    # Each weight is a handful of products; kappa^rho is good to 1e-15 rho ln(1/kappa).
    assert float(logistic.sum()) <= stays / gamma2 * (1.0 + 1e-12)
    assert gaussian >= (1.0 - stays) / (variance + gamma2) * (1.0 - 1e-12)
    assert gaussian <= 1.0 / gamma2
    # 2e-12: some ulps of numbers near 1500
    assert abs(value(after, "center") - mu) <= stays * abs(value(before, "center") - mu) + 2e-12


def test_the_ends_of_the_range_lack_a_property() -> None:
    """Elo-MMR(infinity) simplifies the belief even when nothing diffuses: no zero diffusion.
    Elo-MMR(0) keeps the history's part of the weight, however certain the rating was."""
    before = rated([(300.0, 32e3, 1600.0), (-500.0, 32e3, 1600.0)], math.inf)
    assert len(factors(before)) == 1
    assert len(factors(diffused(before, 0.0, math.inf))) == 0
    parts = []
    for scale in SCALES:
        before = rated([(300.0, 32e3, 1600.0), (-500.0, 32e3, 1600.0)], 0.0, scale)
        gaussian, logistic = weights(diffused(before, 1e4, 0.0))
        parts.append(float(logistic.sum() / (gaussian + logistic.sum())))
    # the same numbers but for the scale; a few roundings
    assert [parts[0]] * len(parts) == pytest.approx(parts, rel=1e-10)
    assert parts[0] > 0.5


@given(st.floats(0.05, 5.0), st.floats(1e3, 1e4))
@settings(max_examples=10)
def test_the_gaussian_part_in_the_long_run(rho: float, gamma2: float) -> None:
    """w_0 / W settles at (kappa - kappa^(1 + rho)) / (1 - kappa^(1 + rho)) (section 5.2)."""
    beliefs = newcomers(1, 304, 1500.0, 350.0)
    for number in range(300):
        rate(beliefs, 1500.0 + 100.0 * math.sin(number), 40_000.0, gamma2, rho)
    variance = value(beliefs, "sigma") ** 2
    kappa = variance / (variance + gamma2)
    expected = (kappa - kappa ** (1.0 + rho)) / (1.0 - kappa ** (1.0 + rho))
    gaussian, logistic = weights(beliefs)
    # What is left of the start shrinks by kappa < 0.87 a round; 300 roundings of some 1e-16 each.
    assert expected == pytest.approx(gaussian / (gaussian + float(logistic.sum())), rel=1e-12)


# --- one round moves a rating by no more, and in the limit no less, than Theorem 5.7 says ---------

C = math.pi / math.sqrt(3.0)

ABSURD = 1e9
"""A performance so far away that its tanh is 1 to the last bit: the limit of the theorem."""

ROUNDING = 1e-9
"""Of sigma at most: the mode's tolerance, whose square is the error of the last step."""

rounds = st.tuples(st.floats(-1500.0, 4500.0), st.floats(6e3, 3e5), st.floats(10.0, 2e4))


def bounds(beliefs: Beliefs, beta2: float) -> tuple[float, float]:
    """Those of the theorem, from the belief as it is after the absurd performance.

    Its history is all factors but that one, diffused as they were when it came.
    """
    terms = beliefs.factors[0, : beliefs.header["count"][0]]
    history = logistic_weight(beliefs)[np.abs(terms[:, 0]) < ABSURD].sum()
    gaussian, pull = float(beliefs.header["precision"][0]), C / math.sqrt(beta2)
    return pull / (gaussian + math.pi**2 / 6.0 * float(history)), pull / gaussian


@given(st.lists(rounds, max_size=12), rounds, any_rho)
def test_the_response_to_an_absurd_performance(
    season: Season, last: tuple[float, float, float], rho: float
) -> None:
    """Delta lies between C / beta / (w_0 + pi^2/6 sum w_k) and C / beta / w_0. mu grows with the
    performance, so this bounds what any performance does."""
    found = []
    for p in (-ABSURD, last[0], ABSURD):
        beliefs = newcomers(1, len(season) + 2, 1500.0, 350.0)
        for each in season:
            rate(beliefs, *each, rho)
        before = value(beliefs, "mu")
        rate(beliefs, p, *last[1:], rho)
        found.append(value(beliefs, "mu"))
        if abs(p) == ABSURD:
            least, most = bounds(beliefs, last[1])
            slack = ROUNDING * 350.0 + 1e-12 * most  # 1e-12: mu itself is rounded, w_0 a product
            assert least - slack <= math.copysign(1.0, p) * (found[-1] - before) <= most + slack
    assert found[0] - ROUNDING * 350.0 <= found[1] <= found[2] + ROUNDING * 350.0


@given(
    configs(st.just("inf")),
    st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=6),
    round_weights(),
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
