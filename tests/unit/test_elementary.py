"""exp, log, tanh and the normal distribution: their accuracy and edges; and bracketed steps."""

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import product
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erfcx
from scipy.stats import norm

from stream_rater.columns.arrays import Floats
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import OPTIONS
from stream_rater.rating import normal
from stream_rater.rating.elementary import (
    EXP_LIMIT,
    exp,
    inverse_root,
    log,
    quick_exp,
    quick_log,
    quick_tanh,
    rough_tanh,
    single_exp,
    tanh,
)
from stream_rater.rating.normal import chance_below, tails, taylor
from stream_rater.rating.roots import MAX_STEPS, safeguard

EXACT = Context(prec=40)
"""Decimal's exp and ln are correctly rounded: 40 digits are exact next to a float's 17."""
COUNT = 1500  # Samples a range; millions gave 1.01 (exp), 0.94 (log) and 1.68e-16 (tanh) at most.


def samples(low: float, high: float) -> list[float]:
    """Evenly spread, with some jitter so that the low bits vary; the same every time."""
    jitter = np.random.default_rng(7).uniform(0.0, 1.0, COUNT)
    return (low + (high - low) * (np.arange(COUNT) + jitter) / COUNT).tolist()


def worst_ulps(
    function: Callable[[float], float], exact: Callable[[Decimal], Decimal], xs: list[float]
) -> float:
    """The largest error in units in the last place of the exact value."""
    with localcontext(EXACT):
        return max(
            float(abs(Decimal(function(x)) - e) / Decimal(float(np.spacing(abs(float(e))))))
            for x, e in ((x, exact(Decimal(x))) for x in xs)
        )


@numba.njit(**OPTIONS)
def fused(a: Any, b: Any, c: Any) -> Any:
    return fma(a, b, c)


def test_fma_rounds_once() -> None:
    """Where the product nearly cancels, only what a second rounding would lose is left."""
    for kind in (np.float64, np.float32):
        random = np.random.default_rng(5)
        a: Any = random.normal(size=COUNT).astype(kind)
        b: Any = random.normal(size=COUNT).astype(kind)
        for x, y in zip(a, b, strict=True):
            exact = Fraction(float(x)) * Fraction(float(y)) - Fraction(float(x * y))
            assert Fraction(float(fused(x, y, -(x * y)))) == exact, kind


def test_errors_in_ulps() -> None:
    """exp, and log near 1 and at its range's ends, are within 1.25; inverse roots within 5."""
    ranges = [(1e-6, 1e-3), (0.1, 0.7), (0.7, 1.42), (1.4, 1e4)]
    ends = [2.2250738585072014e-308, 1e-300, 1e300, 1.7976931348623157e308]
    worst = {
        reach: worst_ulps(exp, Decimal.exp, samples(-reach, reach))
        for reach in (EXP_LIMIT, 1.0, 0.3466, 1e-6)
    } | {each: worst_ulps(log, Decimal.ln, samples(*each)) for each in ranges}
    worst |= {x: worst_ulps(log, Decimal.ln, [x]) for x in ends}
    assert max(worst.values()) < 1.25, worst
    spans = [samples(*each) for each in ((1.0, 4.0), (1e-3, 1e3), (1e4, 1e6))]
    for xs in (*spans, np.geomspace(1e-300, 1e300, COUNT).tolist()):
        assert worst_ulps(inverse_root, lambda x: 1 / x.sqrt(), xs) < 5.0, (xs[0], xs[-1])


def test_tanh_is_within_2e_16_and_odd() -> None:
    """tanh(-x) is -tanh(x) to the bit, so that a mirrored round has mirrored ratings."""

    def exact(x: Decimal) -> Decimal:
        return 1 - 2 / ((2 * x).exp() + 1)

    with localcontext(EXACT):
        for reach in (1e-3, 0.5, 1.0, 2.0, 20.0):
            errors = [abs(Decimal(tanh(x)) - exact(Decimal(x))) for x in samples(-reach, reach)]
            assert max(errors) < Decimal("2e-16"), reach
    xs = samples(0.0, 30.0)
    assert [-tanh(x) for x in xs] == [tanh(-x) for x in xs]


def test_quick_exp_and_log() -> None:
    """exp is within 1e-11, relative, and log within 1e-10; in single precision exp within 1e-5."""
    worst = max(abs(Decimal(quick_exp(x)) / Decimal(x).exp() - 1) for x in samples(-50.0, 50.0))
    assert Decimal("1e-12") < worst < Decimal("1e-11")
    xs = samples(0.4, 3.0) + samples(1e-30, 1e3)
    worst = max(abs(Decimal(quick_log(x)) - Decimal(x).ln()) for x in xs)
    assert Decimal("1e-12") < worst < Decimal("1e-10")
    exact = [(each, math.exp(each)) for each in np.array(samples(-40.0, 40.0), np.float32).tolist()]
    assert max(abs(float(single_exp(np.float32(x))) / y - 1.0) for x, y in exact) < 1e-5
    assert single_exp(np.float32(-1e6)) == single_exp(np.float32(-40.0)) > 0.0
    assert single_exp(np.float32(1e6)) == single_exp(np.float32(40.0)) < np.inf


def test_quick_and_rough_tanh() -> None:
    """The quick one is within 1e-11, and 1 at both ends; the rough one within 1e-4, if it rises."""
    x = np.linspace(-30.0, 30.0, 40_001)
    found = np.array([quick_tanh(each) for each in x.tolist()])
    assert 1e-13 < np.abs(found - np.tanh(x)).max() < 1e-11
    assert [quick_tanh(each) for each in (-1e300, 0.0, 1e300)] == [-1.0, 0.0, 1.0]
    x = np.linspace(-8.0, 8.0, 40_001)
    found = np.array([rough_tanh(each) for each in x.tolist()])
    assert np.abs(found - np.tanh(x)).max() < 1.2e-4
    assert (np.abs(found) <= 1.0).all() and (np.diff(found) >= 0.0).all()


def test_edges() -> None:
    """Exact values are exact. Beyond the limit exp stays there: finite, normal, not zero."""
    assert [exp(0.0), log(1.0), tanh(0.0), tanh(400.0), tanh(-400.0)] == [1.0, 0.0, 0.0, 1.0, -1.0]
    assert [log(0.5), log(2.0)] == [float(Decimal(x).ln()) for x in (0.5, 2)]
    assert [exp(1e9), exp(float("inf"))] == [exp(EXP_LIMIT)] * 2
    assert [exp(-1e9), exp(float("-inf"))] == [exp(-EXP_LIMIT)] * 2
    assert np.finfo(float).tiny < exp(-EXP_LIMIT) < exp(EXP_LIMIT) < np.finfo(float).max


# --- the normal distribution ----------------------------------------------------------------------

Z = np.linspace(-30.0, 30.0, 241)


def far_off(found: list[float], due: Floats, relative: float, at: Floats = Z) -> list[float]:
    """Where numbers differ by more than this part of them."""
    return at[~(np.abs(np.array(found) - due) <= relative * np.abs(due))].tolist()


def true_hazard(z: Floats) -> Floats:
    """phi(z) / Phi(-z) by the scaled complementary error function, which does not underflow."""
    density = np.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
    return np.where(z < -35.0, density, math.sqrt(2.0 / math.pi) / erfcx(z / math.sqrt(2.0)))


def test_normal_functions_are_scipys() -> None:
    """They are in both tails. (SciPy's own are good to 1e-13 where |z| is large.)"""
    assert far_off([normal.below(z) for z in Z], norm.cdf(Z), 5e-13) == []
    due = np.exp(norm.logpdf(Z) - norm.logsf(Z))
    assert far_off([normal.hazard(z) for z in Z], due, 5e-13) == []
    p = np.array([1e-12, 1e-6, 0.01, 0.3, 0.5, 0.7, 0.999, 1.0 - 1e-9])
    assert [normal.quantile(x) for x in p] == pytest.approx(norm.ppf(p), rel=1e-12, abs=1e-12)


def test_kernels_of_the_hazard() -> None:
    """H(|z|) = |z| + D and H(-|z|); Phi with all digits in its lower tail."""
    right, left = np.array([tails(z) for z in Z]).T
    assert far_off(np.abs(Z) + right, true_hazard(np.abs(Z)), 1e-13) == []
    assert far_off(left, true_hazard(-np.abs(Z)), 4e-13) == []
    below = norm.cdf(Z)
    assert far_off([chance_below(z) for z in Z], below, 3e-13) == []
    assert chance_below(-1e9) < 1e-300 and chance_below(1e9) == 1.0
    for z in (100.0, 1e4, 1e8):  # D falls like 1/z - 2/z^3, where H - z would leave no digit
        d, nothing = tails(z)
        assert d == pytest.approx(1.0 / z - 2.0 / z**3 + 10.0 / z**5, rel=1e-9)
        assert 0.0 <= nothing < 1e-300


def test_the_series_is_that_of_the_hazard() -> None:
    """Six terms leave an error of the seventh power of r, here below 1e-10."""
    r = np.array([-0.02, 0.01, 0.02])
    for z, g in product((-50.0, -3.0, -0.5, 0.0, 0.7, 4.0, 60.0, 3000.0), (-1.3, -0.4, 0.4, 1.3)):
        found = sum(t * r**m for m, t in enumerate(taylor(g, z, *tails(z))))
        assert found == pytest.approx(g * true_hazard(z + g * r), rel=1e-12, abs=1e-10), (z, g)


# --- roots ----------------------------------------------------------------------------------------


def steps(
    slope: Callable[[float], tuple[float, float]], x: float, low: float, high: float, small: float
) -> tuple[int, float]:
    """Newton by `safeguard` from x, as the kernels loop: evaluations needed, and the root."""
    last = math.inf
    for count in range(1, MAX_STEPS):
        value, derivative = slope(x)
        step = -value / derivative
        if abs(step) <= small:
            return count, x + step
        x, low, high, last = safeguard(x, value, step, low, high, last)
    raise AssertionError("no root within MAX_STEPS")


@given(
    root=st.floats(-1e4, 1e4),
    width=st.floats(1e-3, 1e4),
    start=st.floats(-3e4, 3e4),
    pull=st.floats(1e-9, 1e3),
)
def test_any_start_ends_at_the_root(root: float, width: float, start: float, pull: float) -> None:
    """tanh((x - root) / width) + pull (x - root) is solved in bounded steps from anywhere."""

    def slope(x: float) -> tuple[float, float]:
        t = math.tanh((x - root) / width)
        return t + pull * (x - root), (1.0 - t * t) / width + pull

    count, found = steps(slope, start, -4e4, 4e4, 1e-6)
    assert abs(found - root) <= 1e-6
    assert count <= 60  # bisection alone: log2(8e4 / 1e-6) = 36 and some Newton steps between


@given(
    st.floats(-1e3, 1e3), st.floats(-1.0, 1.0), st.floats(-1e3, 1e3), st.floats(-1.0, 1.0)
)  # fmt: skip
def test_a_step_stays_inside_and_halves(x: float, value: float, last: float, part: float) -> None:
    """The next x is in the bracket. A step that is not half the last one, or NaN, bisects."""
    step = part * last
    target, low, high, taken = safeguard(x, value, step, -1e3, 1e3, last)
    assert (low, high) == ((x, 1e3) if value < 0.0 else (-1e3, x))
    assert low <= target <= high
    assert taken == (step if target == x + step else target - x)
    if abs(step) >= 0.5 * abs(last):
        assert target == 0.5 * (low + high)
    assert safeguard(0.0, 1.0, math.nan, -4.0, 4.0, 1.0)[0] == -2.0
