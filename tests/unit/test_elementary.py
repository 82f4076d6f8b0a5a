"""exp, log and tanh are as accurate as `elementary` says, and behave at the edges."""

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pytest

from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import OPTIONS
from stream_rater.rating.elementary import (
    EXP_LIMIT,
    exp,
    inverse_root,
    log,
    power,
    quick_exp,
    quick_log,
    quick_tanh,
    rough_tanh,
    single_exp,
    tanh,
)

EXACT = Context(prec=40)
"""Decimal's exp and ln are correctly rounded: 40 digits are exact next to a float's 17."""
COUNT = 3000
"""Samples a range; millions gave 1.01 (exp), 0.94 (log) and 1.68e-16 (tanh) at most."""


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


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_fma_rounds_once(kind: type) -> None:
    """Where the product nearly cancels, only what a second rounding would lose is left."""
    random = np.random.default_rng(5)
    a: Any = random.normal(size=COUNT).astype(kind)
    b: Any = random.normal(size=COUNT).astype(kind)
    for x, y in zip(a, b, strict=True):
        found = fused(x, y, -(x * y))
        assert Fraction(float(found)) == Fraction(float(x)) * Fraction(float(y)) - Fraction(
            float(x * y)
        )


@pytest.mark.parametrize("reach", [EXP_LIMIT, 1.0, 0.3466, 1e-6])
def test_exp_is_within_1_25_ulp(reach: float) -> None:
    """exp's error stays below 1.25 units in the last place wherever it does not saturate."""
    assert worst_ulps(exp, Decimal.exp, samples(-reach, reach)) < 1.25


@pytest.mark.parametrize(("low", "high"), [(1e-6, 1e-3), (0.1, 0.7), (0.7, 1.42), (1.4, 1e4)])
def test_log_is_within_1_25_ulp(low: float, high: float) -> None:
    """log's error stays below 1.25 units in the last place, near 1 (where it vanishes), too."""
    assert worst_ulps(log, Decimal.ln, samples(low, high)) < 1.25


@pytest.mark.parametrize("x", [2.2250738585072014e-308, 1e-300, 1e300, 1.7976931348623157e308])
def test_log_reaches_to_the_ends_of_the_floats(x: float) -> None:
    """The smallest and the largest normal numbers have their logarithm."""
    assert worst_ulps(log, Decimal.ln, [x]) < 1.25


@pytest.mark.parametrize(("low", "high"), [(1.0, 4.0), (1e-3, 1e3), (1e4, 1e6), (1e-300, 1e300)])
def test_inverse_root_is_within_5_ulp(low: float, high: float) -> None:
    """Over a whole period of its first guess (two powers of two), and far from 1."""
    xs = samples(low, high) if high < 1e7 else np.geomspace(low, high, COUNT).tolist()
    assert worst_ulps(inverse_root, lambda x: 1 / x.sqrt(), xs) < 5.0


@pytest.mark.parametrize("reach", [1e-3, 0.5, 1.0, 2.0, 20.0])
def test_tanh_is_within_2e_16(reach: float) -> None:
    """tanh's absolute error stays below 2e-16."""

    def exact(x: Decimal) -> Decimal:
        return 1 - 2 / ((2 * x).exp() + 1)

    with localcontext(EXACT):
        errors = [abs(Decimal(tanh(x)) - exact(Decimal(x))) for x in samples(-reach, reach)]
    assert max(errors) < Decimal("2e-16")


def test_quick_exp_is_within_1e_11() -> None:
    """Relative, whatever the power of two."""
    worst = max(abs(Decimal(quick_exp(x)) / Decimal(x).exp() - 1) for x in samples(-50.0, 50.0))
    assert Decimal("1e-12") < worst < Decimal("1e-11")


def test_quick_log_is_within_1e_10() -> None:
    """Absolute, next to 1 and far from it."""
    xs = samples(0.4, 3.0) + samples(1e-30, 1e3)
    worst = max(abs(Decimal(quick_log(x)) - Decimal(x).ln()) for x in xs)
    assert Decimal("1e-12") < worst < Decimal("1e-10")


def test_single_exp_is_within_1e_5() -> None:
    """From one end of its range to the other; beyond, it is what it is there."""
    exact = [(each, math.exp(each)) for each in np.array(samples(-40.0, 40.0), np.float32).tolist()]
    assert max(abs(float(single_exp(np.float32(x))) / y - 1.0) for x, y in exact) < 1e-5
    assert single_exp(np.float32(-1e6)) == single_exp(np.float32(-40.0)) > 0.0
    assert single_exp(np.float32(1e6)) == single_exp(np.float32(40.0)) < np.inf


def test_quick_tanh_is_within_1e_11() -> None:
    """Absolute, and 1 at both ends of all there is."""
    x = np.linspace(-30.0, 30.0, 40_001)
    found = np.array([quick_tanh(each) for each in x.tolist()])
    assert 1e-13 < np.abs(found - np.tanh(x)).max() < 1e-11
    assert [quick_tanh(each) for each in (-1e300, 0.0, 1e300)] == [-1.0, 0.0, 1.0]


def test_rough_tanh_is_within_1e_4() -> None:
    """As its docstring says, out to where it no longer rises."""
    x = np.linspace(-8.0, 8.0, 40_001)
    found = np.array([rough_tanh(each) for each in x.tolist()])
    assert np.abs(found - np.tanh(x)).max() < 1.2e-4
    assert (np.abs(found) <= 1.0).all() and (np.diff(found) >= 0.0).all()


def test_exact_values() -> None:
    """Where the value is a float, it is that float."""
    assert [exp(0.0), log(1.0), tanh(0.0), tanh(400.0), tanh(-400.0)] == [1.0, 0.0, 0.0, 1.0, -1.0]
    assert [log(0.5), log(2.0)] == [float(Decimal(x).ln()) for x in (0.5, 2)]


def test_exp_saturates() -> None:
    """Beyond the limit exp stays at the limit's value: finite, normal and not zero."""
    assert [exp(1e9), exp(float("inf"))] == [exp(EXP_LIMIT)] * 2
    assert [exp(-1e9), exp(float("-inf"))] == [exp(-EXP_LIMIT)] * 2
    assert np.finfo(float).tiny < exp(-EXP_LIMIT) < exp(EXP_LIMIT) < np.finfo(float).max


def test_tanh_is_odd() -> None:
    """tanh(-x) is -tanh(x) to the bit, so that a mirrored round has mirrored ratings."""
    xs = samples(0.0, 30.0)
    assert [-tanh(x) for x in xs] == [tanh(-x) for x in xs]


def test_power() -> None:
    """base**exponent, to the relative error that exponent * ln base leaves (a few eps here)."""
    expected = [0.97**0.04, 0.5**2.5, 0.9**40.0]
    assert expected == pytest.approx([power(0.97, 0.04), power(0.5, 2.5), power(0.9, 40.0)], 2e-15)
