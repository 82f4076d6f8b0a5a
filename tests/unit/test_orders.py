"""Plackett-Luce and Thurstone against SciPy: the probability of an order, and its gradient."""

import math
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.stats import norm

from stream_rater.columns.arrays import Floats
from stream_rater.rating.kernels import plackett_luce, thurstone
from stream_rater.rating.kernels.climb import EXPONENTIAL, GAUSSIAN, order_gradient


class Exponential:
    """Of mean exp(x)."""

    def __init__(self, x: float) -> None:
        self.rate = math.exp(-x)
        self.range = 0.0, 39.0 / self.rate

    def density(self, t: float) -> float:
        return self.rate * math.exp(-self.rate * t)

    def below(self, t: float) -> float:
        return -math.expm1(-self.rate * t)


class Normal:
    """Of mean x and variance 1."""

    def __init__(self, x: float) -> None:
        self.x = x
        self.range = x - 8.5, x + 8.5

    def density(self, t: float) -> float:
        return math.exp(-0.5 * (t - self.x) ** 2) / math.sqrt(2.0 * math.pi)

    def below(self, t: float) -> float:
        return 0.5 * math.erfc((self.x - t) / math.sqrt(2.0))


MODELS: dict[str, tuple[Any, type[Exponential] | type[Normal]]] = {
    "plackett-luce": (plackett_luce, Exponential),
    "thurstone": (thurstone, Normal),
}
DIFFERENCE = 1e-4
PRECISION = 1e-7
"""Of the reference: 1e-11 of the quadrature over DIFFERENCE, and DIFFERENCE squared. Thurstone's
grid is right to 1e-7 as well."""


def ln_probability(model: str, x: Floats, ranked: int) -> float:
    """ln P(max of those from `ranked` on < ranked[-1] < ... < ranked[0]), by quadrature.

    The nested integrals of section 3.2.3 are a chain of ordinary differential equations: each
    entry's F' is its density times the next worse one's F.
    """
    each = [MODELS[model][1](rating) for rating in x]
    last, others = each[ranked:] or each[-1:], each[: min(ranked, len(x) - 1)][::-1]

    def derivatives(t: float, f: Floats) -> Floats:
        below = math.prod(d.below(t) for d in last)
        return np.array([d.density(t) * g for d, g in zip(others, [below, *f[:-1]], strict=True)])

    low, high = min(d.range[0] for d in each), max(d.range[1] for d in each)
    solved = solve_ivp(
        derivatives, (low, high), np.zeros(len(others)), method="DOP853", rtol=1e-11, atol=1e-16,
        max_step=0.5,
    )  # fmt: skip
    return math.log(solved.y[-1, -1])


def differences(of: Callable[[Floats], float], x: Floats) -> list[float]:
    """The gradient of a function by central differences."""
    found = []
    for i in range(len(x)):
        step = np.zeros(len(x))
        step[i] = DIFFERENCE
        found.append((of(x + step) - of(x - step)) / (2.0 * DIFFERENCE))
    return found


CASES = [
    ([0.3, -0.2], 2), ([0.3, -0.2], 1), ([1.5, -1.0, 0.2], 3), ([-1.0, 0.4, 1.1], 1),
    ([0.1, 0.2, -0.5, 0.9], 2), ([0.0, 0.0, 0.0, 0.0, 0.0], 5), ([0.5, -0.7, 1.2, 0.1, -0.3], 5),
    ([-0.5, 1.0, 0.3, 0.8, -1.0], 3), ([0.4, 0.6, -0.2, 1.0, 0.0], 1),
]  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("x", "ranked"), CASES)
def test_probability_and_gradient(model: str, x: list[float], ranked: int) -> None:
    """Of up to five players, the order of some at the end not observed."""
    g, ratings = np.empty(len(x)), np.array(x)
    logarithm = MODELS[model][0].gradient(ratings, ranked, g)
    assert logarithm == pytest.approx(ln_probability(model, ratings, ranked), abs=PRECISION)
    expected = differences(lambda at: ln_probability(model, at, ranked), ratings)
    assert g.tolist() == pytest.approx(expected, abs=PRECISION)
    assert sum(g) == pytest.approx(0.0, abs=PRECISION)


@pytest.mark.parametrize("model", MODELS)
def test_all_orders_together_are_certain(model: str) -> None:
    """The probabilities of the 24 orders of four sum to one, and of any three last as well."""
    x, g = np.array([0.7, -0.4, 0.1, 1.3]), np.empty(4)
    gradient = MODELS[model][0].gradient
    total = sum(math.exp(gradient(x[list(order)], 4, g)) for order in permutations(range(4)))
    assert total == pytest.approx(1.0, abs=PRECISION)
    first = sum(
        math.exp(gradient(x[[i, *(j for j in range(4) if j != i)]], 1, g)) for i in range(4)
    )
    assert first == pytest.approx(1.0, abs=PRECISION)


def test_three_exponential_ones() -> None:
    """The note's formula for X_1 < X_2 < X_3 (section 3.2.2), and its update rule."""
    r = np.array([0.4, -0.3, 0.9])  # worst first, as the note counts
    lam = np.exp(-r)
    tails = [lam.sum(), lam[1:].sum(), lam[2]]
    g = np.empty(3)
    logarithm = plackett_luce.gradient(r[::-1].copy(), 3, g)
    assert math.exp(logarithm) == pytest.approx(
        lam[1] / (lam[1] + lam[2]) * lam[0] / lam.sum(), rel=1e-14
    )
    rule = [-1.0 + sum(lam[k] / tails[i] for i in range(k + 1)) for k in range(3)]
    assert g[::-1].tolist() == pytest.approx(rule, abs=1e-14)


@pytest.mark.parametrize("log_c", [[-30.0] * 3, [25.0, -25.0], [3.0] * 40, [0.0] * 1000])
def test_the_integral_of_the_unobserved(log_c: list[float]) -> None:
    """Rates e^25 apart, or a thousand of them: as SciPy integrates v from 0 to 1 (v = e^-t)."""
    pull = np.empty(len(log_c))
    found = plackett_luce.unobserved(np.array(log_c), pull)

    def integrand(v: float) -> float:
        return math.exp(sum(math.log(-math.expm1(math.exp(c) * math.log(v))) for c in log_c))

    expected, _ = quad(integrand, 0.0, 1.0, epsabs=0.0, epsrel=1e-9, limit=400)
    assert math.exp(found) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("ranked", [1500, 700])
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_thousands_do_not_underflow(model: str, ranked: int, spread: float) -> None:
    """P is far below the least float64; ln P and the gradient are finite and sum to zero."""
    x = np.random.default_rng(3).normal(0.0, spread, 1500)
    g = np.empty(len(x))
    logarithm = MODELS[model][0].gradient(x, ranked, g)
    assert logarithm < -1000.0
    assert np.all(np.isfinite(g))
    # 1e-9 of the largest, for rounding; where ratings lie 100 apart the grid is the limit
    assert abs(g.sum()) < 1e-9 * np.abs(g).sum() + (1e-3 if spread > 10.0 else 0.0)


@pytest.mark.parametrize("apart", [1e6, 1e20, 1e38])
@pytest.mark.parametrize("ranked", [2, 5, 7])
def test_ratings_far_apart_give_the_most_likely_performances(apart: float, ranked: int) -> None:
    """No grid has room for them. The constraints are taken one at a time, by Dykstra's method."""
    x = apart * np.array([-0.3, 0.9, -1.0, 0.5, 0.25, -0.75, 1.0])
    g = np.empty(7)
    thurstone.gradient(x, ranked, g)
    pairs = [(k, k + 1) for k in range(ranked - 1)] + [(ranked - 1, j) for j in range(ranked, 7)]
    t, corrections = x.copy(), np.zeros((len(pairs), 7))
    for _ in range(5000):
        for number, (better, worse) in enumerate(pairs):
            y = t - corrections[number]
            t = y.copy()
            if y[better] < y[worse]:
                t[[better, worse]] = 0.5 * (y[better] + y[worse])
            corrections[number] = t - y
    assert (x + g).tolist() == pytest.approx(t.tolist(), abs=1e-9 * apart)


def test_equal_thousands() -> None:
    """All orders of equals are equally likely: P = 1/n!, and so ln P to the last but few digits."""
    n = 1000
    for module in (plackett_luce, thurstone):
        logarithm = module.gradient(np.zeros(n), n, np.empty(n))
        assert logarithm == pytest.approx(-math.lgamma(n + 1), abs=1e-6)


def test_expected_order_statistics() -> None:
    """For equals, Thurstone's gradient is the mean of the k-th best of n normal values."""
    n, g = 9, np.empty(9)
    thurstone.gradient(np.zeros(n), n, g)

    def density(t: float, k: int) -> float:
        above, below = norm.sf(t) ** k, norm.cdf(t) ** (n - 1 - k)
        return float(t * n * math.comb(n - 1, k) * norm.pdf(t) * above * below)

    expected = [quad(density, -9, 9, args=(k,), epsabs=1e-11)[0] for k in range(n)]
    assert g.tolist() == pytest.approx(expected, abs=PRECISION)


@pytest.mark.parametrize(("likelihood", "model"), [(EXPONENTIAL, "plackett-luce"),
                                                   (GAUSSIAN, "thurstone")])  # fmt: skip
def test_a_tie_is_half_of_two_orders(likelihood: int, model: str) -> None:
    """Those who tie stand by rating, once falling and once rising; equals share alike."""
    x = np.array([1.0, 0.2, 0.7, 0.7, -0.5])
    lo, hi = np.array([0, 1, 1, 1, 4]), np.array([0, 3, 3, 3, 4])
    found = order_gradient(x, lo, hi, 5, likelihood)
    rising, falling, g = [0, 1, 2, 3, 4], [0, 3, 2, 1, 4], np.empty(5)
    mean = np.zeros(5)
    for order in (rising, falling):
        MODELS[model][0].gradient(x[order], 5, g)
        mean[order] += 0.5 * g
    mean[[2, 3]] = 0.5 * (mean[2] + mean[3])
    assert found.tolist() == pytest.approx(mean.tolist(), abs=1e-12)
    assert found[2] == found[3]
