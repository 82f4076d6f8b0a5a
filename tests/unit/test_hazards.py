"""The vectorised hazard and its series against SciPy's functions."""

import math

import numpy as np
import pytest
from scipy.special import erfcx
from scipy.stats import norm

from stream_rater.rating.kernels.hazards import chance_below, tails, taylor

RELATIVE = 1e-13
"""The fit's error, and some rounding; SciPy's own error is below 1e-15."""


def hazard(z: float) -> float:
    """phi(z) / Phi(-z) by the scaled complementary error function, which does not underflow."""
    if z < -35.0:
        return math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
    return math.sqrt(2.0 / math.pi) / float(erfcx(z / math.sqrt(2.0)))


@pytest.mark.parametrize("z", np.linspace(-30.0, 30.0, 241))
def test_tails_are_the_hazard_on_both_sides(z: float) -> None:
    """H(|z|) = |z| + D and H(-|z|)."""
    d, left = tails(z)
    assert abs(z) + d == pytest.approx(hazard(abs(z)), rel=RELATIVE)
    assert left == pytest.approx(hazard(-abs(z)), rel=4 * RELATIVE)


@pytest.mark.parametrize("z", [100.0, 1e4, 1e8])
def test_far_tails_do_not_cancel(z: float) -> None:
    """D falls like 1/z - 2/z^3, to the last digits, where H - z would leave none."""
    d, left = tails(z)
    assert d == pytest.approx(1.0 / z - 2.0 / z**3 + 10.0 / z**5, rel=1e-9)
    assert 0.0 <= left < 1e-300


@pytest.mark.parametrize("z", [*np.linspace(-30.0, 30.0, 121), -1e9, 1e9])
def test_the_chance_of_a_lower_value(z: float) -> None:
    """Phi, with all digits in its lower tail."""
    assert chance_below(z) == pytest.approx(norm.cdf(z), rel=3 * RELATIVE, abs=1e-300)


@pytest.mark.parametrize("g", [-1.3, -0.4, 0.4, 1.3])
@pytest.mark.parametrize("z", [-50.0, -3.0, -0.5, 0.0, 0.7, 4.0, 60.0, 3000.0])
def test_the_series_is_that_of_the_hazard(z: float, g: float) -> None:
    """Six terms leave an error of the seventh power of r, here below 1e-10."""
    series = taylor(g, z, *tails(z))
    for r in (-0.02, 0.01, 0.02):
        value = sum(t * r**m for m, t in enumerate(series))
        assert value == pytest.approx(g * hazard(z + g * r), rel=1e-12, abs=1e-10)
